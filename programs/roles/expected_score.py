"""The expected score: the mean of a scale's points, weighted by the probability of each point's token."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Scale
from debate_judge.programs.roles import parsing as replies

Alternatives = Sequence[Sequence[tuple[str, float]]]
"""For each token of a reply: the token and its likely alternatives, with natural log-probabilities."""

_NUMBER = re.compile(r"\d+(?:[.,]\d+)?")
_POINT = re.compile(r"[^\w-]*(\d+)\W*")


@dataclass(frozen=True, slots=True)
class Expectation:
    """A distribution over the points of a scale."""

    score: float
    """The expected value, on the scale."""
    weights: dict[int, float]
    """Point -> probability; they sum to 1, and points whose token was not listed are missing."""

    def __str__(self) -> str:
        likeliest = sorted(self.weights.items(), key=lambda pair: -pair[1])
        return ", ".join(f"{point} ({weight:.1%})" for point, weight in likeliest)


def whole_points(scale: Scale) -> range:
    """The points of a scale, which must be whole numbers from 0 up so that each can be one token.

    Raises:
        InputError: They are not.
    """
    if scale.low < 0 or any(v != int(v) for v in (scale.low, scale.high, scale.step)):
        raise InputError(
            "mode 'expected' weighs the points of a scale by the probability of their tokens",
            expected="a scale of whole numbers from 0 up",
            found=f"{scale}, step {scale.step:g}",
            remedy="choose mode 'sampled:20' or 'text' for this aspect",
        )
    return range(int(scale.low), int(scale.high) + 1, int(scale.step))


def expectation(written: str, tokens: Alternatives, scale: Scale, aspect: str = "") -> Expectation | replies.Unreadable:
    """Read the distribution at the token that contains the score.

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
    chosen = None if place is None else _point(tokens[place][0][0])
    if place is None or chosen != value:
        return replies.Unreadable(f"the score stood in no token of its own; give one whole number from {scale}")
    # The chosen token may or may not be listed among its alternatives again.
    weights: dict[int, float] = {}
    logprobs = {token: logprob for token, logprob in tokens[place] if _point(token) in points}
    # Relative to the likeliest: endpoints give -9999 for what they hold impossible, whose probability is 0 as a float.
    likeliest = max(logprobs.values())
    for token, logprob in logprobs.items():
        point = int(_point(token) or 0)
        weights[point] = weights.get(point, 0.0) + math.exp(logprob - likeliest)
    total = math.fsum(weights.values())
    weights = {point: weight / total for point, weight in weights.items()}
    return Expectation(math.fsum(point * weight for point, weight in weights.items()), weights)


def _token_of(written: str, value: float, tokens: Alternatives) -> int | None:
    """Index of the token in which the number `value` of the score field begins."""
    start = "".join(t[0][0] for t in tokens).rfind(written)
    digits = (m.start() for m in _NUMBER.finditer(written) if float(m[0].replace(",", ".")) == value)
    offset = next(digits, None)
    if start < 0 or offset is None:
        return None
    end = 0
    for index, alternatives in enumerate(tokens):
        end += len(alternatives[0][0])
        if start + offset < end:
            return index
    return None


def _point(token: str) -> int | None:
    match = _POINT.fullmatch(token)
    return int(match[1]) if match else None
