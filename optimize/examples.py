"""The trainset of a compile, the public examples (`programs.devset`) with single ratings and comments; and the metric
of guides.

One example is one group in one aspect. The metric is the group's correlation, so that the mean over examples, which
DSPy's optimizers maximize, is the summary-level correlation. If groups have one candidate each, there is no correlation
within a group. Examples are then random batches of items, as a proxy, with the items as input; judges are still chosen
by the pooled agreement on train and dev.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, cast

import dspy
import numpy as np

from debate_judge.data.agreement.correlations import correlation
from debate_judge.data.agreement.decisions import AbsoluteScale, Objective, objective_value
from debate_judge.data.schema import Aspect, Candidate, Corpus
from debate_judge.optimize.tuners import GroupKey
from debate_judge.programs.devset import call_example
from debate_judge.programs.judge import Item, items_of

MIN_BATCH_ITEMS = 16
"""Least number of items in a batch: enough for a correlation, and few enough for several batches."""

MIN_BATCH_SOURCES = 4
"""Least number of sources in a batch: the correlation within a single source would be another quantity."""

RATING_FIELDS = ("questions", "single_ratings", "comments")
"""Fields beyond those of the public examples: the items, and for each the ratings of single raters and their comments.
The public field `ratings` has the mean ratings."""


def examples(corpus: Corpus, aspects: Sequence[Aspect], *, grouped: bool, seed: int) -> list[dspy.Example]:
    """One example for each aspect and group whose ratings differ, or, if not `grouped`, for each batch of items."""
    trainset: list[dspy.Example] = []
    for aspect in aspects:
        if not grouped:
            trainset += _batches(corpus, aspect, seed)
            continue
        for group in corpus.groups:
            if group.has_distinct_ratings(aspect.name):
                texts, ratings = [c.text for c in group.candidates], group.ratings(aspect.name)
                example = call_example(corpus.task, aspect.name, group, texts, ratings)
                items = items_of(corpus.task, group, aspect)
                trainset.append(example.copy(questions=items, **_single_ratings(group.candidates, aspect)))
    return trainset


def _batches(corpus: Corpus, aspect: Aspect, seed: int) -> list[dspy.Example]:
    """Batches of groups, so that no two batches share a source."""
    groups: list[list[tuple[Item, Candidate]]] = []
    for group in corpus.groups:
        pairs = zip(items_of(corpus.task, group, aspect), group.candidates, strict=True)
        if group_items := [(item, c) for item, c in pairs if c.ratings.get(aspect.name)]:
            groups.append(group_items)
    random.Random(seed).shuffle(groups)
    batches: list[list[list[tuple[Item, Candidate]]]] = [[]]
    for group_items in groups:
        if len(batches[-1]) >= MIN_BATCH_SOURCES and sum(map(len, batches[-1])) >= MIN_BATCH_ITEMS:
            batches.append([])
        batches[-1].append(group_items)
    trainset = []
    for batch in batches:
        items = [item for group_items in batch for item, _ in group_items]
        candidates = [candidate for group_items in batch for _, candidate in group_items]
        if len(items) > 1:
            ratings = [candidate.rating(aspect.name) for candidate in candidates]
            example = dspy.Example(questions=items, texts=[item.text for item in items], ratings=ratings)
            trainset.append(example.copy(**_single_ratings(candidates, aspect)).with_inputs("questions"))
    return trainset


def _single_ratings(candidates: Iterable[Candidate], aspect: Aspect) -> dict[str, list[tuple[Any, ...]]]:
    rated = [(c.ratings.get(aspect.name, ()), c.comments.get(aspect.name, ())) for c in candidates]
    return {"single_ratings": [ratings for ratings, _ in rated], "comments": [comments for _, comments in rated]}


def group_keys(examples: Iterable[dspy.Example]) -> frozenset[GroupKey]:
    """The keys of the groups that examples are about."""
    return frozenset((item.aspect.name, item.group) for example in examples for item in example.questions)


def group_metric(
    ratings: Sequence[float | None],
    scores: Sequence[float | None],
    objective: Objective,
    absolute_scale: AbsoluteScale | None = None,
) -> float:
    """The group's correlation mapped from [-1, 1] to [0, 1], by which guides are compared; concordance (CCC) likewise.

    Unscored items are left out. Constant scores count as a correlation of 0, which is 0.5 here; no score at all is 0,
    the lowest value. For the error it is `objective_value`; for kappa, which is undefined for many small groups, the
    share of decisions equal to the raters'.
    """
    pairs = [(r, s) for r, s in zip(ratings, scores, strict=True) if r is not None and s is not None]
    if not pairs:
        return 0.0
    match objective:
        case "kappa":
            cut = cast(AbsoluteScale, absolute_scale).cut
            return fmean((r >= cut) == (s >= cut) for r, s in pairs)
        case "mae" | "ccc":
            rated, scored = np.array(pairs, dtype=float).T
            value = float(np.nan_to_num(objective_value(objective, rated, scored, cast(AbsoluteScale, absolute_scale))))
            return value if objective == "mae" else (value + 1) / 2
        case _:
            rho = correlation([r for r, _ in pairs], [s for _, s in pairs], objective)
            return ((0.0 if rho is None else rho) + 1) / 2
