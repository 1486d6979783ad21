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

import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal

import dspy

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Scale
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.loop import gather
from debate_judge.programs.lm.usage import CallTag
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.role import SAMPLING, Alternatives, Fields, ReplyFailure, Role, RoleReply, ask
from debate_judge.programs.transcript import Failure, Turn

SAMPLES = 20
"""Default k of `sampled`, as in G-Eval."""

MAX_SAMPLES = 1000
"""Largest k. Each sample is a paid call, and an export may come from anywhere."""

ALTERNATIVES = 20
"""Number of likeliest tokens requested in `expected`: the most that OpenAI's protocol lists."""


@dataclass(frozen=True, slots=True)
class Mode:
    name: Literal["text", "sampled", "expected"] = "text"
    samples: int = 1

    def __str__(self) -> str:
        return f"sampled:{self.samples}" if self.name == "sampled" else self.name

    @classmethod
    def of(cls, text: str) -> Mode:
        """Read `text`, `expected`, `sampled` or `sampled:k`; anything else is an `InputError`."""
        name, colon, number = text.partition(":")
        if name in ("text", "expected") and not colon:
            return cls("text" if name == "text" else "expected")
        samples = SAMPLES if not colon else int(number) if number.isdecimal() and len(number) < 6 else 0
        if name != "sampled" or not 1 <= samples <= MAX_SAMPLES:
            raise InputError(
                "not a score mode", field="score-mode", found=text[:40],
                expected=f"text, sampled:k with k from 1 to {MAX_SAMPLES}, or expected",
            )  # fmt: skip
        return cls("sampled", samples)


TEXT = Mode()


@dataclass(frozen=True, slots=True)
class ParsedScore:
    score: float
    rationale: str = ""
    how: str = ""
    """The samples or probabilities that the score was computed from, for people; empty in mode `text`."""


async def score(
    predict: Any, mode: Mode, item: Item, tag: CallTag, **prompt: Any
) -> RoleReply[ParsedScore] | ReplyFailure:
    """Score `item` by a predictor with an output field `score` and perhaps a `rationale`.

    `prompt` has `debate` and `inputs`, as `programs.roles.role.ask` takes them.

    Raises:
        InputError: The mode is `expected` and the points of the aspect's scale cannot be tokens.
    """
    scale, name = item.aspect.scale, item.aspect.name

    def as_written(fields: Fields) -> ParsedScore | replies.Unreadable:
        value = replies.score(fields["score"], scale, name)
        return value if isinstance(value, replies.Unreadable) else ParsedScore(value, fields.get("rationale", ""))

    def as_expected(fields: Fields) -> ParsedScore | replies.Unreadable | None:
        weights = expectation(fields["score"], fields.logprobs, scale, name) if fields.logprobs else None
        if weights is None or isinstance(weights, replies.Unreadable):
            return weights
        likeliest = sorted(weights.items(), key=lambda pair: -pair[1])
        how = ", ".join(f"{point} ({weight:.1%})" for point, weight in likeliest)
        mean = math.fsum(point * weight for point, weight in weights.items())
        return ParsedScore(mean, fields.get("rationale", ""), f"probabilities: {how}")

    if mode.name == "text":
        return await ask(predict, item, as_written, tag, **prompt)
    if mode.name == "sampled":
        tags = (replace(tag, sample=number) for number in range(mode.samples))
        calls = (ask(predict, item, as_written, sample_tag, settings=SAMPLING, **prompt) for sample_tag in tags)
        return mean_of(await gather(calls))
    whole_points(scale)
    answer = await ask(predict, item, as_expected, tag, settings={"logprobs": ALTERNATIVES}, **prompt)
    if isinstance(answer, ReplyFailure):
        return answer
    if answer.value is None:
        detail = "the endpoint gave no log-probabilities with its reply, which score mode 'expected' needs; "
        return ReplyFailure("no log-probabilities", f"{detail}choose 'sampled:{SAMPLES}' or 'text'", answer.calls)
    return RoleReply(answer.value, answer.calls)


class ScoringRole(Role):
    """A role of a judge of one's own, whose reply has a field `score` and perhaps a `rationale`."""

    def __init__(self, speaker: str, signature: type[dspy.Signature], mode: Mode = TEXT) -> None:
        super().__init__(speaker, signature)
        self.mode = mode

    async def speak(self, item: Item, **prompt: Any) -> Turn | Failure:
        """The score as a turn of a transcript."""
        answer = await score(self, self.mode, item, CallTag(self.speaker), **prompt)
        if isinstance(answer, ReplyFailure):
            return answer.at(self.speaker, 0)
        return Turn(self.speaker, 0, answer.value.rationale, score=answer.value.score, calls=answer.calls)


def mean_of(answers: Sequence[RoleReply[ParsedScore] | ReplyFailure]) -> RoleReply[ParsedScore] | ReplyFailure:
    """The mean over the samples that have a score, with the rationale of the first sample nearest to the mean."""
    k = len(answers)
    calls = sum(answer.calls for answer in answers)
    scored = [answer.value for answer in answers if isinstance(answer, RoleReply)]
    failed = [(number, answer) for number, answer in enumerate(answers, 1) if isinstance(answer, ReplyFailure)]
    if 2 * len(scored) < k:
        number, first = failed[0]
        return ReplyFailure(first.reason, f"{len(failed)} of {k} samples, e.g. sample {number}: {first.detail}", calls)
    mean = sum(s.score for s in scored) / len(scored)
    nearest = min(scored, key=lambda s: abs(s.score - mean))
    counts = ", ".join(f"{score:g} (x{n})" for score, n in sorted(Counter(s.score for s in scored).items()))
    lost = f", {len(failed)} without a score" if failed else ""
    return RoleReply(ParsedScore(mean, nearest.rationale, f"{k} samples: {counts}{lost}"), calls)


# --- the expected score ---

_NUMBER = re.compile(r"\d+(?:[.,]\d+)?")
_POINT = re.compile(r"[^\w-]*(\d+)\W*")


def whole_points(scale: Scale) -> range:
    """The points of a scale, which must be whole numbers from 0 up so that each can be one token."""
    if scale.low < 0 or any(v != int(v) for v in (scale.low, scale.high, scale.step)):
        raise InputError(
            "mode 'expected' weighs the points of a scale by the probability of their tokens",
            expected="a scale of whole numbers from 0 up",
            found=f"{scale}, step {scale.step:g}",
            remedy="choose mode 'sampled:20' or 'text' for this aspect",
        )
    return range(int(scale.low), int(scale.high) + 1, int(scale.step))


def expectation(
    written: str, tokens: Alternatives, scale: Scale, aspect: str = ""
) -> dict[int, float] | replies.Unreadable:
    """Point of the scale -> its probability at the token that contains the score; points that were not listed are
    missing, and the others sum to 1.

    Args:
        written: The score field of the reply; it is at the reply's end.
        tokens: The reply's tokens with their alternatives, the chosen one first.
        scale: A scale of whole numbers.
        aspect: The aspect's name, which may label the score.
    """
    points = whole_points(scale)
    value = replies.score(written, scale, aspect)
    if isinstance(value, replies.Unreadable):
        return value
    if value not in points:
        return replies.Unreadable(f"the score {value:g} is between two points; give one whole number from {scale}")
    place = _token_of(written, value, tokens)
    if place is None or _point(tokens[place][0][0]) != value:
        return replies.Unreadable(f"the score stood in no token of its own; give one whole number from {scale}")
    # The chosen token may or may not be listed among its alternatives again.
    logprobs = {token: logprob for token, logprob in tokens[place] if _point(token) in points}
    # Relative to the likeliest: endpoints give -9999 for what they hold impossible, whose probability is 0 as a float.
    likeliest = max(logprobs.values())
    weights: dict[int, float] = defaultdict(float)
    for token, logprob in logprobs.items():
        weights[_point(token) or 0] += math.exp(logprob - likeliest)
    total = math.fsum(weights.values())
    return {point: weight / total for point, weight in weights.items()}


def _token_of(written: str, value: float, tokens: Alternatives) -> int | None:
    """Index of the token in which the number `value` of the score field begins."""
    ends = list(accumulate(len(alternatives[0][0]) for alternatives in tokens))
    start = "".join(alternatives[0][0] for alternatives in tokens).rfind(written)
    digits = (m.start() for m in _NUMBER.finditer(written) if float(m[0].replace(",", ".")) == value)
    offset = next(digits, None)
    return None if start < 0 or offset is None else bisect_right(ends, start + offset)


def _point(token: str) -> int | None:
    match = _POINT.fullmatch(token)
    return int(match[1]) if match else None
