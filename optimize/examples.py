"""Rated groups as `dspy.Example`s, and the metric for DSPy's optimizers.

One example is one group in one aspect: its items and their human ratings. The metric is the group's correlation, so
that the mean over examples, which DSPy's optimizers maximise, is the summary-level correlation. Without groups of
several candidates there is no correlation within a group. Examples are then batches of items drawn by a seed, as a
proxy; choices are made by the pooled agreement on train and dev.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import cast

import dspy
import numpy as np

from debate_judge.data.agreement.tables import correlation
from debate_judge.data.inference.closeness import Bounds, Objective, closest
from debate_judge.data.schema import Aspect, Candidate, Corpus
from debate_judge.optimize.tuners import Place
from debate_judge.programs.judge import Item, items_of

BATCH = 16
"""Least number of items of a batch: enough to correlate, and few enough for several batches."""

SOURCES = 4
"""Least number of sources of a batch: the correlation within a single source would be another figure."""


def examples(corpus: Corpus, aspects: Sequence[Aspect], *, grouped: bool, seed: int) -> list[dspy.Example]:
    """One example for each aspect and group whose ratings differ, or, if not `grouped`, for each batch of items."""
    found: list[dspy.Example] = []
    for aspect in aspects:
        if grouped:
            found += [
                _example(
                    items_of(corpus.task, group, aspect),
                    group.ratings(aspect.name),
                    [c.ratings.get(aspect.name, ()) for c in group.candidates],
                    [c.comments.get(aspect.name, ()) for c in group.candidates],
                )
                for group in corpus.groups
                if group.ranks_humans(aspect.name)
            ]
        else:
            found += _batches(corpus, aspect, seed)
    return found


def _batches(corpus: Corpus, aspect: Aspect, seed: int) -> list[dspy.Example]:
    """Batches of whole groups, so that batches do not share sources."""
    rated = []
    for group in corpus.groups:
        items = zip(items_of(corpus.task, group, aspect), group.candidates, strict=True)
        if own := [(item, c) for item, c in items if c.ratings.get(aspect.name)]:
            rated.append(own)
    random.Random(seed).shuffle(rated)
    batches: list[list[list[tuple[Item, Candidate]]]] = [[]]
    for own in rated:
        if len(batches[-1]) >= SOURCES and sum(map(len, batches[-1])) >= BATCH:
            batches.append([])
        batches[-1].append(own)
    found = []
    for batch in batches:
        questions, candidates = [i for own in batch for i, _ in own], [c for own in batch for _, c in own]
        raters = [c.ratings[aspect.name] for c in candidates]
        if len(raters) > 1:
            means = [math.fsum(values) / len(values) for values in raters]
            found.append(_example(questions, means, raters, [c.comments.get(aspect.name, ()) for c in candidates]))
    return found


def _example(
    items: list[Item],
    ratings: Sequence[float | None],
    raters: Sequence[tuple[float, ...]],
    comments: Sequence[tuple[str, ...]],
) -> dspy.Example:
    """An example with its items, and for each the mean rating, the ratings of single raters and their comments."""
    rated = dspy.Example(questions=items, ratings=list(ratings), raters=list(raters), comments=list(comments))
    return rated.with_inputs("questions")


def places_of(examples: Iterable[dspy.Example]) -> frozenset[Place]:
    """The groups that examples are about, each in its aspect."""
    return frozenset((item.aspect.name, item.group) for example in examples for item in example.questions)


def group_metric(
    ratings: Sequence[float | None],
    scores: Sequence[float | None],
    objective: Objective,
    bounds: Bounds | None = None,
) -> float:
    """The group's correlation mapped from [-1, 1] to [0, 1], as DSPy's optimizers expect; concordance (CCC) likewise.

    Unscored items are left out. Constant scores count as a correlation of 0, that is 0.5 here. DSPy scores failures 0,
    which is then never better than a negative correlation. Of the error it is what `closest` makes of it, and of kappa,
    which few texts leave undefined, the share of decisions that are the raters'.
    """
    pairs = [(r, s) for r, s in zip(ratings, scores, strict=True) if r is not None and s is not None]
    if not pairs:
        return 0.0
    match objective:
        case "kappa":
            cut = cast(Bounds, bounds).cut
            return fmean((r >= cut) == (s >= cut) for r, s in pairs)
        case "mae" | "ccc":
            rated, scored = (np.array([side], dtype=float) for side in zip(*pairs, strict=True))
            value = float(np.nan_to_num(closest(objective, rated, scored, cast(Bounds, bounds)))[0])
            return value if objective == "mae" else (value + 1) / 2
        case _:
            rho = correlation([r for r, _ in pairs], [s for _, s in pairs], objective)
            return ((0.0 if rho is None else rho) + 1) / 2
