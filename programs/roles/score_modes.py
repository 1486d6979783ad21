"""How a reply becomes a score: the number as written, the mean of samples, or what the LM expects.

The mode is always explicit, stands in the judge's configuration and so in its export, and never changes silently:
an endpoint that cannot do what the mode needs leaves the item unscored and says so.

- `text`: the score as written; one call.
- `sampled:k`: the mean of k samples at temperature 1, the way of G-Eval (section 2) for LMs without
  log-probabilities.
- `expected`: the mean of the scale's points, weighted by the probability of each point's token; one call.

Departure from G-Eval: probabilities are normalised over the points that the endpoint lists, for it lists only the
likeliest tokens. A sample that cannot be read is asked for once more and then left out, as in the published code; but
where fewer than half of the samples have a score, the item has none.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect
from debate_judge.programs.judge import Item
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.expected_score import Expectation, expectation, whole_points
from debate_judge.programs.roles.role import Fields, NoAnswer, RoleReply
from debate_judge.programs.roles.sampled import Sampled, sample

SAMPLES = 20
"""k of `sampled` where no other number is given, as in G-Eval."""

ALTERNATIVES = 20
"""Likeliest tokens asked for in `expected`: the most that OpenAI's protocol lists."""


@dataclass(frozen=True, slots=True)
class Mode:
    """How a reply becomes a score."""

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
        samples = SAMPLES if not colon else int(number) if number.isdecimal() else 0
        if name != "sampled" or samples < 1:
            raise InputError(
                "not a score mode", field="--score-mode", expected="text, sampled:k with k of 1 or more, or expected",
                found=text,
            )  # fmt: skip
        return cls("sampled", samples)


TEXT = Mode()


@dataclass(frozen=True, slots=True)
class ParsedScore:
    """A score as the mode gave it."""

    score: float
    rationale: str = ""
    how: str = ""
    """What stood behind the score, where that is more than the score: the samples, or the probabilities."""


async def score_in(
    mode: Mode, speaker: Sampled, item: Item, debate: str, inputs: Mapping[str, str] | None = None, preamble: str = ""
) -> RoleReply[ParsedScore] | NoAnswer:
    """Have `speaker` score `item`; its signature has an output field `score` and perhaps a `rationale`.

    Args:
        mode: How the reply becomes a score.
        speaker: Whose signature and instructions are used.
        item: What is scored.
        debate: What was said before.
        inputs: Input fields besides the material, disarmed.
        preamble: What all members of the debate are told.

    Raises:
        InputError: The mode is `expected` and the points of the aspect's scale cannot be tokens.
    """
    if mode.name == "expected":
        return await _expected(speaker, item, debate, inputs, preamble)
    if mode.name == "sampled":
        return await _sampled(mode.samples, speaker, item, debate, inputs, preamble)
    one = speaker.bound(inputs) if inputs else speaker
    return await one.ask(item, debate, lambda fields: _read(fields, item.aspect), preamble)


def _read(fields: Fields, aspect: Aspect) -> ParsedScore | replies.Unreadable:
    value = replies.score(fields["score"], aspect.scale, aspect.name)
    return value if isinstance(value, replies.Unreadable) else ParsedScore(value, fields.get("rationale", ""))


async def _sampled(
    k: int, speaker: Sampled, item: Item, debate: str, inputs: Mapping[str, str] | None, preamble: str
) -> RoleReply[ParsedScore] | NoAnswer:
    bound = (speaker.bound(inputs, sample(i)) for i in range(k))
    asked = (one.ask(item, debate, lambda fields: _read(fields, item.aspect), preamble) for one in bound)
    answers = await asyncio.gather(*asked)
    calls = sum(answer.calls for answer in answers)
    readings = [answer.value for answer in answers if isinstance(answer, RoleReply)]
    failed = [(number, answer) for number, answer in enumerate(answers, 1) if isinstance(answer, NoAnswer)]
    if 2 * len(readings) < k:
        number, first = failed[0]
        return NoAnswer(first.reason, f"{len(failed)} of {k} samples, e.g. sample {number}: {first.detail}", calls)
    mean = sum(r.score for r in readings) / len(readings)
    counts = ", ".join(f"{score:g} (x{n})" for score, n in sorted(Counter(r.score for r in readings).items()))
    lost = f", {len(failed)} without a score" if failed else ""
    return RoleReply(ParsedScore(mean, _nearest(readings, mean).rationale, f"{k} samples: {counts}{lost}"), calls)


def _nearest(readings: Sequence[ParsedScore], mean: float) -> ParsedScore:
    """The first of the samples that lie nearest to the mean: it gives the reasons for it best."""
    return min(readings, key=lambda reading: abs(reading.score - mean))


async def _expected(
    speaker: Sampled, item: Item, debate: str, inputs: Mapping[str, str] | None, preamble: str
) -> RoleReply[ParsedScore] | NoAnswer:
    scale = item.aspect.scale
    whole_points(scale)
    one = speaker.bound(inputs, {"logprobs": ALTERNATIVES})

    def read(fields: Fields) -> tuple[Expectation, str] | replies.Unreadable | None:
        if not one.logprobs:
            return None
        found = expectation(fields["score"], one.logprobs, scale, item.aspect.name)
        return found if isinstance(found, replies.Unreadable) else (found, fields.get("rationale", ""))

    answer = await one.ask(item, debate, read, preamble)
    if isinstance(answer, NoAnswer):
        return answer
    if answer.value is None:
        return NoAnswer("lm error", NO_LOGPROBS, answer.calls)
    found, rationale = answer.value
    return RoleReply(ParsedScore(found.score, rationale, f"probabilities: {found}"), answer.calls)


NO_LOGPROBS = (
    "the endpoint gave no log-probabilities with its reply, which score mode 'expected' needs; "
    f"choose 'sampled:{SAMPLES}' or 'text'"
)
