"""Score modes: how replies become a score.

- `text`: the number as written; one call.
- `sampled:k`: the mean of k samples at temperature 1, as in G-Eval (section 2) for LMs without log-probabilities.
- `expected`: the mean of the scale's points, weighted by the probability of each point's token; one call.

The mode is part of the judge's configuration, and so of its export, and never changes silently: if an endpoint gives no
log-probabilities, which `expected` needs, the item is unscored for this reason.

Departures from G-Eval: probabilities are normalised over the points among the likeliest tokens, because endpoints list
no others. A sample that cannot be parsed is asked for once more and then left out, as in the published code; but if
fewer than half of the samples have a score, the item has none.
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
from debate_judge.programs.roles import parsing
from debate_judge.programs.roles.role import SAMPLING, Fields, ReplyFailure, Role, RoleReply, TokenLogprobs, ask
from debate_judge.programs.transcript import Failure, Turn

DEFAULT_SAMPLES = 20
"""Default k of `sampled`, as in G-Eval."""

MAX_SAMPLES = 1000
"""Maximum of k: each sample is a paid call, and an export may come from anywhere."""

TOP_LOGPROBS = 20
"""Number of likeliest tokens requested in `expected`, OpenAI's `top_logprobs`, of which 20 is the maximum."""


@dataclass(frozen=True, slots=True)
class ScoreMode:
    name: Literal["text", "sampled", "expected"] = "text"
    samples: int = 1

    def __str__(self) -> str:
        return f"sampled:{self.samples}" if self.name == "sampled" else self.name

    @classmethod
    def parse(cls, text: str) -> ScoreMode:
        """Parse `text`, `expected`, `sampled` or `sampled:k`; anything else is an `InputError`."""
        name, colon, number = text.partition(":")
        if name in ("text", "expected") and not colon:
            return cls("text" if name == "text" else "expected")
        samples = DEFAULT_SAMPLES if not colon else int(number) if number.isdecimal() and len(number) < 6 else 0
        if name != "sampled" or not 1 <= samples <= MAX_SAMPLES:
            raise InputError(
                "not a score mode", field="score-mode", found=text[:40],
                expected=f"text, sampled:k with k from 1 to {MAX_SAMPLES}, or expected",
            )  # fmt: skip
        return cls("sampled", samples)


TEXT_MODE = ScoreMode()


@dataclass(frozen=True, slots=True)
class ParsedScore:
    score: float
    rationale: str = ""
    basis: str = ""
    """The samples or probabilities that the score was computed from, for people; empty in mode `text`."""


async def ask_score(
    predictor: Any, mode: ScoreMode, item: Item, tag: CallTag, **prompt: Any
) -> RoleReply[ParsedScore] | ReplyFailure:
    """Score `item` by a predictor with an output field `score` and perhaps a `rationale`.

    `prompt` are keywords of `programs.roles.role.ask`, such as `debate` and `inputs`.

    Raises:
        InputError: The mode is `expected` and the points of the aspect's scale cannot be tokens.
    """
    scale, name = item.aspect.scale, item.aspect.name

    def parse_number(fields: Fields) -> ParsedScore | parsing.Unreadable:
        value = parsing.parse_score(fields["score"], scale, name)
        return value if isinstance(value, parsing.Unreadable) else ParsedScore(value, fields.get("rationale", ""))

    def parse_expected(fields: Fields) -> ParsedScore | parsing.Unreadable | None:
        probabilities = point_probabilities(fields["score"], fields.logprobs, scale, name) if fields.logprobs else None
        if probabilities is None or isinstance(probabilities, parsing.Unreadable):
            return probabilities
        likeliest = sorted(probabilities.items(), key=lambda pair: -pair[1])
        listed = ", ".join(f"{point} ({probability:.1%})" for point, probability in likeliest)
        mean = math.fsum(point * probability for point, probability in probabilities.items())
        return ParsedScore(mean, fields.get("rationale", ""), f"probabilities: {listed}")

    if mode.name == "text":
        return await ask(predictor, item, parse_number, tag, **prompt)
    if mode.name == "sampled":
        tags = (replace(tag, sample=number) for number in range(mode.samples))
        calls = (ask(predictor, item, parse_number, sample_tag, settings=SAMPLING, **prompt) for sample_tag in tags)
        return mean_of(await gather(calls))
    scale_points(scale)
    reply = await ask(predictor, item, parse_expected, tag, settings={"logprobs": TOP_LOGPROBS}, **prompt)
    if isinstance(reply, ReplyFailure):
        return reply
    if reply.value is None:
        problem = "the endpoint gave no log-probabilities with its reply, which score mode 'expected' needs"
        detail = f"{problem}; choose 'sampled:{DEFAULT_SAMPLES}' or 'text'"
        return ReplyFailure("no log-probabilities", detail, reply.calls)
    return RoleReply(reply.value, reply.calls)


class ScoringRole(Role):
    """A role for judges of your own, whose reply has a field `score` and perhaps a `rationale`."""

    def __init__(self, speaker: str, signature: type[dspy.Signature], mode: ScoreMode = TEXT_MODE) -> None:
        super().__init__(speaker, signature)
        self.mode = mode

    async def speak(self, item: Item, **prompt: Any) -> Turn | Failure:
        """Score the item, as a turn of a transcript."""
        reply = await ask_score(self, self.mode, item, CallTag(self.speaker), **prompt)
        if isinstance(reply, ReplyFailure):
            return reply.as_failure(self.speaker, 0)
        return Turn(self.speaker, 0, reply.value.rationale, score=reply.value.score, calls=reply.calls)


def mean_of(samples: Sequence[RoleReply[ParsedScore] | ReplyFailure]) -> RoleReply[ParsedScore] | ReplyFailure:
    """The mean over the samples that have a score, with the rationale of the first sample nearest to the mean."""
    k = len(samples)
    calls = sum(sample.calls for sample in samples)
    scored = [sample.value for sample in samples if isinstance(sample, RoleReply)]
    failed = [(number, sample) for number, sample in enumerate(samples, 1) if isinstance(sample, ReplyFailure)]
    if 2 * len(scored) < k:
        number, first = failed[0]
        return ReplyFailure(first.reason, f"{len(failed)} of {k} samples, e.g. sample {number}: {first.detail}", calls)
    mean = sum(s.score for s in scored) / len(scored)
    nearest = min(scored, key=lambda s: abs(s.score - mean))
    counts = ", ".join(f"{score:g} (x{n})" for score, n in sorted(Counter(s.score for s in scored).items()))
    unscored = f", {len(failed)} without a score" if failed else ""
    return RoleReply(ParsedScore(mean, nearest.rationale, f"{k} samples: {counts}{unscored}"), calls)


# --- the expected score ---

_NUMBER = re.compile(r"\d+(?:[.,]\d+)?")
_POINT = re.compile(r"[^\w-]*(\d+)\W*")


def scale_points(scale: Scale) -> range:
    """The points of a scale; they must be whole numbers from 0 up, so that each can be one token."""
    if scale.low < 0 or any(v != int(v) for v in (scale.low, scale.high, scale.step)):
        raise InputError(
            "mode 'expected' weighs the points of a scale by the probability of their tokens",
            expected="a scale of whole numbers from 0 up",
            found=f"{scale}, step {scale.step:g}",
            remedy="choose mode 'sampled:20' or 'text' for this aspect",
        )
    return range(int(scale.low), int(scale.high) + 1, int(scale.step))


def point_probabilities(
    written: str, tokens: TokenLogprobs, scale: Scale, aspect: str = ""
) -> dict[int, float] | parsing.Unreadable:
    """Point of the scale -> its probability at the score's token; unlisted points are missing, the others sum to 1.

    Args:
        written: The score field of the reply; it is at the reply's end.
        tokens: The reply's tokens with their alternatives; for each the sampled token is first.
        scale: A scale of whole numbers.
        aspect: The aspect's name, which may label the score.
    """
    points = scale_points(scale)
    value = parsing.parse_score(written, scale, aspect)
    if isinstance(value, parsing.Unreadable):
        return value
    if value not in points:
        return parsing.Unreadable(f"the score {value:g} is between two points; give one whole number from {scale}")
    index = _token_index(written, value, tokens)
    if index is None or _point(tokens[index][0][0]) != value:
        return parsing.Unreadable(f"the score stood in no token of its own; give one whole number from {scale}")
    # A dict, because the sampled token may be listed among its alternatives again.
    logprobs = {token: logprob for token, logprob in tokens[index] if _point(token) in points}
    # Relative to the likeliest token, because all may underflow: endpoints give impossible tokens -9999.
    likeliest = max(logprobs.values())
    weights: dict[int, float] = defaultdict(float)
    for token, logprob in logprobs.items():
        weights[_point(token) or 0] += math.exp(logprob - likeliest)
    total = math.fsum(weights.values())
    return {point: weight / total for point, weight in weights.items()}


def _token_index(written: str, value: float, tokens: TokenLogprobs) -> int | None:
    """Index of the token in which the number `value` of the score field begins."""
    ends = list(accumulate(len(alternatives[0][0]) for alternatives in tokens))
    start = "".join(alternatives[0][0] for alternatives in tokens).rfind(written)
    digits = (m.start() for m in _NUMBER.finditer(written) if float(m[0].replace(",", ".")) == value)
    offset = next(digits, None)
    return None if start < 0 or offset is None else bisect_right(ends, start + offset)


def _point(token: str) -> int | None:
    match = _POINT.fullmatch(token)
    return int(match[1]) if match else None
