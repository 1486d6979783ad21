"""The weighted mean over a scale's points, read off the token that holds the score."""

from __future__ import annotations

import math
from typing import Any

import pytest

from debate_judge.data.schema import Scale
from debate_judge.programs.roles.parsing import Unreadable
from debate_judge.programs.roles.score_modes import expectation


def token(*alternatives: tuple[str, float]) -> tuple[tuple[str, float], ...]:
    """The token first that was chosen, each with its probability."""
    return tuple((text, math.log(probability)) for text, probability in alternatives)


TWO_OR_FOUR = {4: 0.5, 2: 0.5}


@pytest.mark.parametrize(
    ("written", "tokens", "score", "weights"),
    [
        ("4", [token(("4", 0.5), ("2", 0.5))], 3, TWO_OR_FOUR),
        # What is no point of the scale weighs nothing; the rest is brought to 1: (0.6 * 4 + 0.2 * 2) / 0.8
        ("4", [token(("4", 0.6), ("2", 0.2), ("9", 0.1), ("four", 0.1))], 3.5, {4: 0.75, 2: 0.25}),
        # The chosen token listed once more counts once; tokens that differ by a blank are one point.
        ("4", [token(("4", 0.4), ("4", 0.4), (" 4", 0.1), ("2", 0.5))], 3, TWO_OR_FOUR),
        ("4/5", [token(("4", 0.5), ("2", 0.5)), token(("/", 1)), token(("5", 1))], 3, TWO_OR_FOUR),
        # The score stands at the end, and its token may hold the blank before it.
        ("4", [token(("4", 1)), token((" pages:", 1)), token((" 4", 0.5), (" 2", 0.5))], 3, TWO_OR_FOUR),
        # Neither -1 nor 0 is a point.
        ("1", [token(("1", 0.25), ("-1", 0.25), ("0", 0.25), ("2", 0.25))], 1.5, {1: 0.5, 2: 0.5}),
    ],
)
def test_points_are_weighed_where_the_score_stands(
    written: str, tokens: Any, score: float, weights: dict[int, float]
) -> None:
    found = expectation(written, tokens, Scale(1, 5))
    assert found == pytest.approx(weights)
    assert isinstance(found, dict)
    assert sum(point * weight for point, weight in found.items()) == pytest.approx(score)


@pytest.mark.parametrize(
    ("written", "tokens", "why"),
    [
        ("10", [token(("1", 1)), token(("0", 1))], "no token of its own"),
        ("3.5", [token(("3", 1)), token((".", 1)), token(("5", 1))], "between two points"),
        ("4", [token(("three", 1))], "no token of its own"),
        ("12", [token(("12", 1))], "outside the scale"),
    ],
)
def test_a_score_that_is_no_single_token_cannot_be_weighed(written: str, tokens: Any, why: str) -> None:
    found = expectation(written, tokens, Scale(1, 10))
    assert isinstance(found, Unreadable)
    assert why in found.why


def test_points_that_are_all_called_impossible_are_weighed_all_the_same() -> None:
    found = expectation("4", [(("4", -9999.0), ("5", -9999.0), ("x", -9999.0))], Scale(1, 5))
    assert found == {4: 0.5, 5: 0.5}
