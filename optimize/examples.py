"""From rated groups to `dspy.Example`s, and the metric that DSPy's optimizers see.

One example is one group and one aspect: its items and their human ratings. The metric is the group's
correlation, so the mean over examples is the published summary-level correlation and an optimizer of
per-example means optimizes the real thing. Without groups there is nothing to correlate within; examples
are then seeded batches of items, which is a proxy, and every choice is made on the pooled dev agreement.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import dspy

from debate_judge.data.agreement.tables import Statistic, correlation
from debate_judge.data.schema import Aspect, Corpus
from debate_judge.programs.judge import Item, Verdict, corpus_items, items_of

BATCH = 16
"""Items of an example without groups: enough to correlate, and few enough for several examples."""


def examples(corpus: Corpus, aspects: Sequence[Aspect], *, grouped: bool, seed: int) -> list[dspy.Example]:
    """One example per group and aspect whose human ratings differ, or per batch of items without groups."""
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
    candidates = [candidate for group in corpus.groups for candidate in group.candidates]
    pairs = [
        (item, candidate.ratings[aspect.name], candidate.comments.get(aspect.name, ()))
        for item, candidate in zip(corpus_items(corpus, aspect), candidates, strict=True)
        if candidate.ratings.get(aspect.name)
    ]
    random.Random(seed).shuffle(pairs)
    batches = [pairs[i : i + BATCH] for i in range(0, len(pairs), BATCH)]
    found = []
    for batch in batches:
        if len(batch) > 1:
            items, raters, comments = zip(*batch, strict=True)
            found.append(_example(list(items), [math.fsum(r) / len(r) for r in raters], raters, comments))
    return found


def _example(
    items: list[Item],
    ratings: Sequence[float | None],
    raters: Sequence[tuple[float, ...]],
    comments: Sequence[tuple[str, ...]],
) -> dspy.Example:
    """Questions, the mean rating of each, and the single ratings and the comments behind it."""
    rated = dspy.Example(questions=items, ratings=list(ratings), raters=list(raters), comments=list(comments))
    return rated.with_inputs("questions")


def example_metric(example: dspy.Example, prediction: dspy.Prediction, statistic: Statistic) -> float:
    """`group_metric` of the prediction's `judgements`, one for each of the example's questions."""
    scores = [j.score if isinstance(j, Verdict) else None for j in prediction.judgements]
    return group_metric(example.ratings, scores, statistic)


def group_metric(ratings: Sequence[float | None], scores: Sequence[float | None], statistic: Statistic) -> float:
    """The group's correlation mapped to 0..1, as DSPy's optimizers want it.

    Unscored items are left out. Constant scores rank nothing and count as a correlation of 0, that is 0.5
    here; DSPy takes 0 for a failure, and with this mapping a failure is never better than an honest
    negative correlation.
    """
    pairs = [(r, s) for r, s in zip(ratings, scores, strict=True) if r is not None and s is not None]
    if not pairs:
        return 0.0
    rho = correlation([r for r, _ in pairs], [s for _, s in pairs], statistic)
    return ((0.0 if rho is None else rho) + 1) / 2
