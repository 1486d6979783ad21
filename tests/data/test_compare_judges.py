"""Two judges on the same groups: what is compared, what counts 0, intervals, p-values and their correction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from debate_judge.data.agreement.tables import LEVELS, GroupScores, compare, correct
from debate_judge.data.errors import InputError

Scores = Sequence[float | None]


def group(name: str, ratings: Scores, scores: Scores, ids: Sequence[str] | None = None) -> GroupScores:
    """A group whose candidates are called like in no other group unless `ids` says so."""
    names = tuple(ids) if ids else tuple(f"{name}.{i}" for i in range(len(ratings)))
    return GroupScores(name, names, tuple(ratings), tuple(scores))


def random_groups(
    seed: int, *, noise: float, groups: int = 30, size: int = 6, points: bool = True
) -> list[GroupScores]:
    """Ratings that depend on `seed` // 100 only, and scores of a judge that errs by `noise`; ids recur."""
    rng, judge = np.random.default_rng(seed // 100), np.random.default_rng(seed)
    quality = rng.normal(3, 1, size=(groups, size))
    ratings = np.round(quality + rng.normal(0, 0.3, size=quality.shape))
    scores = quality + noise * judge.normal(size=quality.shape)
    ids = [f"s{i}" for i in range(size)]
    return [
        group(f"g{i}", r.tolist(), (np.round(s) if points else s).tolist(), ids)
        for i, (r, s) in enumerate(zip(ratings, scores, strict=True))
    ]


@pytest.mark.parametrize("level", LEVELS)
def test_a_judge_does_not_differ_from_itself(level: str) -> None:
    groups = {"x": random_groups(7, noise=0.7)}
    found = compare(groups, groups, level=level, resamples=100)  # type: ignore[arg-type]
    assert (found.value, found.low, found.high, found.p_value, found.groups) == (0, 0, 0, 1, 30)


@pytest.mark.parametrize("level", LEVELS)
def test_a_clearly_better_judge_and_its_mirror(level: str) -> None:
    good, bad = {"x": random_groups(701, noise=0.2)}, {"x": random_groups(702, noise=3.0)}
    better = compare(good, bad, level=level, resamples=400)  # type: ignore[arg-type]
    worse = compare(bad, good, level=level, resamples=400)  # type: ignore[arg-type]
    assert better.value is not None
    assert better.low is not None
    assert better.low > 0
    assert better.p_value == worse.p_value
    if level != "system":
        # No resample is on the other side: 2 * (0 + 1) / (400 + 1).
        assert better.p_value == pytest.approx(2 / 401)
    assert worse.value == pytest.approx(-better.value)
    assert worse.high == pytest.approx(-better.low)


def test_equally_good_judges_are_not_told_apart() -> None:
    found = compare({"x": random_groups(703, noise=0.7)}, {"x": random_groups(704, noise=0.7)}, resamples=400)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0 < found.high
    assert found.p_value > 0.05


def test_compared_are_the_same_candidates_and_groups() -> None:
    ids = ["1", "2", "3", "4"]
    a = [
        group("both", [1, 2, 3, 4], [1, 2, 3, 4], ids),  # 1 - 0.8
        group("judge constant", [1, 2, 3, 4], [5, 5, 5, 5], ids),  # 0 - 1
        group("humans constant", [3, 3, 3, 3], [1, 2, 3, 4], ids),  # left out for both
        group("unscored by one", [1, 2, 3, 4], [None, 2, 3, 1], ids),  # over 2, 3, 4: -0.5 - 1
    ]
    b = [
        group("unscored by one", [4, 3, 2, 1], [4, 3, 2, 9], ids[::-1]),
        group("humans constant", [3, 3, 3, 3], [1, 2, 3, 4], ids),
        group("judge constant", [1, 2, 3, 4], [1, 2, 3, 4], ids),
        group("both", [1, 2, 3, 4], [1, 3, 2, 4], ids),
    ]
    found = compare({"x": a}, {"x": b}, resamples=0)
    assert found.value == pytest.approx((0.2 - 1 - 1.5) / 3)
    assert (found.groups, found.low, found.p_value) == (3, None, 1)


def test_differences_are_averaged_over_aspects_that_humans_ranked() -> None:
    ids = ["1", "2", "3"]
    up, down, flat = [1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [2.0, 2.0, 2.0]
    a = {name: [group("g", rated, up, ids)] for name, rated in (("x", up), ("y", down), ("z", flat))}
    b = {name: [group("g", rated, flat, ids)] for name, rated in (("x", up), ("y", up), ("z", flat))}
    b["y"] = [group("g", down, up, ids)]
    # x: 1 - 0, y: -1 - (-1), z: humans ranked nothing.
    assert compare(a, b, resamples=0).value == pytest.approx(0.5)


def test_nothing_to_agree_with_is_no_difference() -> None:
    groups = {"x": [group("a", [3, 3], [1, 2])]}
    found = compare(groups, groups, resamples=10)
    assert (found.value, found.low, found.high, found.p_value, found.groups) == (None, None, None, 1, 0)


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        ({"y": [group("a", [1, 2], [1, 2])]}, "same aspects"),
        ({"x": [group("b", [1, 2], [1, 2])]}, "same groups"),
        ({"x": [group("a", [1, 3], [1, 2])]}, "different candidates or ratings in group 'a'"),
        ({"x": [group("a", [1, 2], [1, 2], ["p", "q"])]}, "different candidates or ratings in group 'a'"),
    ],
)
def test_compare_refuses_other_data(other: Mapping[str, Sequence[GroupScores]], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        compare({"x": [group("a", [1, 2], [1, 2])]}, other)


def test_holm_step_down() -> None:
    # Ascending 0.01 * 3, 0.03 * 2, 0.04 * 1; none may be below the one before.
    assert correct([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert correct([0.9, 0.6]) == [1.0, 1.0]
    assert correct([]) == []
