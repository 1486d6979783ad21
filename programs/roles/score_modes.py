"""Score modes: how replies become a score.

- `text`: the number as written; one call.
- `sampled:k`: the mean of k samples at temperature 1, as in G-Eval (section 2) for LMs without log-probabilities.
- `expected`: the mean of the scale's points, weighted by the probability of each point's token; one call.

The mode is part of the judge's configuration, and so of its export, and never changes silently: if an endpoint cannot
do what the mode needs, the item is unscored with this reason.

Departures from G-Eval: probabilities are normalised over the points that the endpoint lists, which are only the
likeliest tokens. A sample that cannot be read is asked for once more and then left out, as in the published code; but
if fewer than half of the samples have a score, the item has none.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from dspy.signatures.signature import Signature

from debate_judge.data.errors import InputError
from debate_judge.programs.judge import Item
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.expected_score import expectation, whole_points
from debate_judge.programs.roles.role import Fields, NoAnswer, Role, RoleReply, sample
from debate_judge.programs.transcript import EMPTY, Failure, Transcript, Turn

SAMPLES = 20
"""Default k of `sampled`, as in G-Eval."""

MOST_SAMPLES = 1000
"""Largest k. Each sample is a paid call, and an export may come from anywhere."""

ALTERNATIVES = 20
"""Number of likeliest tokens requested in `expected`: the most that OpenAI's protocol lists."""


@dataclass(frozen=True, slots=True)
class Mode:
    """A score mode."""

    name: Literal["text", "sampled", "expected"] = "text"
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
        samples = SAMPLES if not colon else int(number) if number.isdecimal() and len(number) < 6 else 0
        if name != "sampled" or not 1 <= samples <= MOST_SAMPLES:
            raise InputError(
                "not a score mode", field="--score-mode", found=text[:40],
                expected=f"text, sampled:k with k from 1 to {MOST_SAMPLES}, or expected",
            )  # fmt: skip
        return cls("sampled", samples)


TEXT = Mode()


@dataclass(frozen=True, slots=True)
class ParsedScore:
    """A score, parsed in some mode."""

    score: float
    rationale: str = ""
    how: str = ""
    """The samples or probabilities that the score was computed from, for people; empty in mode `text`."""


class ScoringRole(Role):
    """A role whose reply has a field `score` and perhaps a `rationale`.

    Args:
        speaker: As for `Role`.
        signature: As for `Role`; with an output field `score`.
        instructions: As for `Role`.
        mode: How its replies become scores.
    """

    def __init__(
        self, speaker: str, signature: type[Signature], instructions: str | None = None, mode: Mode = TEXT
    ) -> None:
        super().__init__(speaker, signature, instructions)
        self.mode = mode

    async def speak(
        self, item: Item, transcript: Transcript = EMPTY, inputs: Mapping[str, str] | None = None
    ) -> Turn | Failure:
        """Score `item` after the debate so far (empty for the first score); `inputs` are those of `Role.ask`.

        Raises:
            InputError: As `score`.
        """
        answer = await self.score(item, debate=str(transcript), inputs=inputs)
        if isinstance(answer, NoAnswer):
            return answer.at(self.speaker, transcript.rounds)
        found = answer.value
        return Turn(self.speaker, transcript.rounds, found.rationale, score=found.score, calls=answer.calls)

    async def score(
        self, item: Item, *, debate: str = "", inputs: Mapping[str, str] | None = None
    ) -> RoleReply[ParsedScore] | NoAnswer:
        """Score `item` in this role's score mode; the arguments are those of `Role.ask`.

        Raises:
            InputError: The mode is `expected` and the points of the aspect's scale cannot be tokens.
        """
        ask = partial(self.ask, item, debate=debate, inputs=inputs)
        scale, name = item.aspect.scale, item.aspect.name

        def as_written(fields: Fields) -> ParsedScore | replies.Unreadable:
            value = replies.score(fields["score"], scale, name)
            return value if isinstance(value, replies.Unreadable) else ParsedScore(value, fields.get("rationale", ""))

        def as_expected(fields: Fields) -> ParsedScore | replies.Unreadable | None:
            if not fields.logprobs:
                return None
            found = expectation(fields["score"], fields.logprobs, scale, name)
            if isinstance(found, replies.Unreadable):
                return found
            return ParsedScore(found.score, fields.get("rationale", ""), f"probabilities: {found}")

        if self.mode.name == "text":
            return await ask(as_written)
        if self.mode.name == "sampled":
            calls = (ask(as_written, settings=sample(number)) for number in range(self.mode.samples))
            return mean_of(await asyncio.gather(*calls))
        whole_points(scale)
        answer = await ask(as_expected, settings={"logprobs": ALTERNATIVES})
        if isinstance(answer, NoAnswer):
            return answer
        if answer.value is None:
            return NoAnswer("no log-probabilities", NO_LOGPROBS, answer.calls)
        return RoleReply(answer.value, answer.calls)


def mean_of(answers: Sequence[RoleReply[ParsedScore] | NoAnswer]) -> RoleReply[ParsedScore] | NoAnswer:
    """The mean over the samples that have a score, with the rationale of the first sample nearest to the mean."""
    k = len(answers)
    calls = sum(answer.calls for answer in answers)
    scored = [answer.value for answer in answers if isinstance(answer, RoleReply)]
    failed = [(number, answer) for number, answer in enumerate(answers, 1) if isinstance(answer, NoAnswer)]
    if 2 * len(scored) < k:
        number, first = failed[0]
        return NoAnswer(first.reason, f"{len(failed)} of {k} samples, e.g. sample {number}: {first.detail}", calls)
    mean = sum(s.score for s in scored) / len(scored)
    nearest = min(scored, key=lambda s: abs(s.score - mean))
    counts = ", ".join(f"{score:g} (x{n})" for score, n in sorted(Counter(s.score for s in scored).items()))
    lost = f", {len(failed)} without a score" if failed else ""
    return RoleReply(ParsedScore(mean, nearest.rationale, f"{k} samples: {counts}{lost}"), calls)


NO_LOGPROBS = (
    "the endpoint gave no log-probabilities with its reply, which score mode 'expected' needs; "
    f"choose 'sampled:{SAMPLES}' or 'text'"
)
