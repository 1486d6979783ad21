"""Groups of ratings and scores, for the tests of agreement."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from debate_judge.data.agreement.figures import GroupScores

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
