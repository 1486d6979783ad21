"""G-Eval (Liu et al. 2023): evaluation steps that the LM derives once, then a form with nothing but a score.

The steps are derived per task and aspect from their description alone, and reused for every candidate. How
the form becomes a score is the mode, and it is never changed silently:

- `text`: the score as written; one call an item.
- `sampled:k`: the mean of k samples at temperature 1, the paper's way for LMs without log-probabilities.
- `expected`: the mean of the scale's points, weighted by the probability of each point's token; one call.

Departures from the paper: probabilities are normalised over the points that the endpoint lists, for it lists
only the likeliest tokens; a form that cannot be read is asked for once more and then leaves the item unscored,
where the published code drops the sample.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import dspy

from data.errors import InputError
from data.schema import Scale
from programs import replies
from programs.expectation import Expectation, expectation, whole_points
from programs.geval_steps import Steps
from programs.judge import Item, Judge, Judgement, Unscored, Verdict
from programs.role import ADAPTER, Answer, Fields, NoAnswer
from programs.sampling import Sampled, sample
from programs.transcript import Failure, Transcript, Turn

SAMPLES = 20
"""k of `sampled` where no other number is given, as in the paper."""

ALTERNATIVES = 20
"""Likeliest tokens asked for in `expected`: the most that OpenAI's protocol lists."""


@dataclass(frozen=True, slots=True)
class Mode:
    """How a form becomes a score."""

    name: Literal["text", "sampled", "expected"]
    samples: int = 1

    def __str__(self) -> str:
        return f"sampled:{self.samples}" if self.name == "sampled" else self.name

    @classmethod
    def of(cls, text: str) -> Mode:
        """Read `text`, `expected`, `sampled` or `sampled:k`.

        Raises:
            InputError: It is none of these.
        """
        name, colon, number = text.partition(":")
        if name in ("text", "expected") and not colon:
            return cls("text" if name == "text" else "expected")
        samples = SAMPLES if not colon else int(number) if number.isdecimal() else 0
        if name != "sampled" or samples < 1:
            raise InputError(
                "not a mode of G-Eval", field="mode", expected="text, sampled:k with k of 1 or more, or expected",
                found=text,
            )  # fmt: skip
        return cls("sampled", samples)


class Form(dspy.Signature):
    """You fill in an evaluation form. Take the evaluation steps one after the other, apply each to the candidate
    and the source, and judge by the definition of the aspect alone. The form has one field, the score."""

    task: str = dspy.InputField()
    source: str = dspy.InputField()
    context: str = dspy.InputField(default="")
    aspect: str = dspy.InputField()
    steps: str = dspy.InputField()
    candidate: str = dspy.InputField()
    correction: str = dspy.InputField(default="")
    score: str = dspy.OutputField(desc="one number on the aspect's scale and nothing else")


@dataclass(frozen=True, slots=True)
class _Filled:
    score: float
    how: str = ""
    """What stood behind the score, where that is more than the score: the samples, or the probabilities."""


class FormFiller(Sampled):
    """Fills in the form in any mode; predictor name `scorer.predict`."""

    speaker = "scorer"

    def __init__(self) -> None:
        super().__init__(Form)

    async def fill(self, item: Item, steps: str, mode: Mode) -> Answer[_Filled] | NoAnswer:
        """Score `item` by `steps`.

        Raises:
            InputError: The mode is `expected` and the points of the aspect's scale cannot be tokens.
        """
        inputs = {"steps": replies.disarm(steps)}
        if mode.name == "expected":
            return await self._expected(item, inputs)
        if mode.name == "sampled":
            return await self._sampled(item, inputs, mode.samples)
        answer = await self.bound(inputs).ask(item, "", _reader(item.aspect.scale))
        return answer if isinstance(answer, NoAnswer) else Answer(_Filled(answer.value), answer.calls)

    async def _sampled(self, item: Item, inputs: dict[str, str], k: int) -> Answer[_Filled] | NoAnswer:
        read = _reader(item.aspect.scale)
        answers = await asyncio.gather(*(self.bound(inputs, sample(i)).ask(item, "", read) for i in range(k)))
        calls = sum(answer.calls for answer in answers)
        for number, answer in enumerate(answers, 1):
            if isinstance(answer, NoAnswer):
                return NoAnswer(answer.reason, f"sample {number} of {k}: {answer.detail}", calls)
        scores = [answer.value for answer in answers if isinstance(answer, Answer)]
        counts = ", ".join(f"{score:g} (x{n})" for score, n in sorted(Counter(scores).items()))
        return Answer(_Filled(sum(scores) / k, f"{k} samples: {counts}"), calls)

    async def _expected(self, item: Item, inputs: dict[str, str]) -> Answer[_Filled] | NoAnswer:
        scale = item.aspect.scale
        whole_points(scale)
        one = self.bound(inputs, {"logprobs": ALTERNATIVES})

        def read(fields: Fields) -> Expectation | replies.Unreadable | None:
            return expectation(fields["score"], one.logprobs, scale) if one.logprobs else None

        answer = await one.ask(item, "", read)
        if isinstance(answer, NoAnswer):
            return answer
        found = answer.value
        if found is None:
            detail = (
                "the endpoint gave no log-probabilities with its reply, which mode 'expected' needs; "
                f"choose mode 'sampled:{SAMPLES}' or 'text'"
            )
            return NoAnswer("lm error", detail, answer.calls)
        return Answer(_Filled(found.score, f"probabilities: {found}"), answer.calls)


class GEval(Judge):
    """A judge by form-filling.

    Args:
        mode: `text`, `sampled:k` or `expected`.
        steps: Task name -> aspect name -> evaluation steps, where they are not to be derived.
    """

    kind = "geval"

    def __init__(self, mode: str = "text", steps: Mapping[str, Mapping[str, str]] | None = None) -> None:
        super().__init__()
        self.mode = Mode.of(mode)
        self.steps = Steps(steps)
        self.scorer = FormFiller()

    async def converse(self, item: Item, rounds: int) -> Transcript:
        """Fill in the form for `item`; its first item of an aspect has the steps derived, and counts their call."""
        with dspy.context(adapter=ADAPTER):
            steps = await self.steps.of(item)
            if isinstance(steps, NoAnswer):
                return Transcript().fail(Failure("steps", 0, steps.reason, steps.detail, steps.calls))
            filled = await self.scorer.fill(item, steps.value, self.mode)
        calls = steps.calls + filled.calls
        if isinstance(filled, NoAnswer):
            return Transcript().fail(Failure("scorer", 0, filled.reason, filled.detail, calls))
        how = f"{filled.value.how}. " if filled.value.how else ""
        text = f"{how}By these steps: {steps.value}"
        return Transcript((Turn("scorer", 0, text, score=filled.value.score, calls=calls),))

    def verdict(self, transcript: Transcript, rounds: int) -> Judgement:
        failure = transcript.failure
        if failure is not None:
            return Unscored(failure.reason, f"{failure.role}: {failure.detail}", transcript.calls, transcript)
        score = transcript.score
        if score is None:
            raise ValueError("a form without a score and without a failure cannot exist")
        return Verdict(score, 0, "single call", transcript.calls, transcript)

    def tunable(self) -> tuple[str, ...]:
        # Nobody hears what the steps' predictor would say about steps that were given.
        return ("scorer.predict",) if self.steps.given else ("steps.predict", "scorer.predict")

    def config(self) -> dict[str, Any]:
        """Mode and all steps known by now, so that a rebuilt judge does not ask for them again."""
        return {"mode": str(self.mode), "steps": self.steps.texts()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> GEval:
        """Rebuild a judge.

        Raises:
            InputError: The mode is unknown, or the steps of an aspect are empty.
        """
        return cls(str(config.get("mode", "text")), config.get("steps"))


def _reader(scale: Scale) -> Callable[[Fields], float | replies.Unreadable]:
    return lambda fields: replies.score(fields["score"], scale)
