"""Compares a judge with single raters: how well the raters agree with one another, and how well the judge does.

Where candidates have ratings of several raters, their mean hides how much the raters disagree. A judge can hardly agree
with a rater better than the other raters do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from debate_judge.data.agreement.correlations import Floats, Statistic
from debate_judge.data.agreement.intervals import mean_interval
from debate_judge.data.agreement.results import Agreement, Difference, Figure, GroupScores
from debate_judge.data.agreement.tables import agreement_table, compare
from debate_judge.data.schema import Level


@dataclass(frozen=True, slots=True)
class RaterAgreement:
    """One judge compared with the raters of one aspect. None where a statistic is undefined."""

    raters: int
    """Largest number of ratings of a candidate; with fewer than two, only error and bias are defined."""
    error: Figure | None
    """Mean absolute error; None where the scores are on another scale."""
    bias: Figure | None
    """Mean of score minus rating."""
    ceiling: Agreement | None = None
    """Each rater against the mean of the others, averaged over raters: the human ceiling."""
    judge: Agreement | None = None
    """The judge against the same means."""
    below_ceiling: Difference | None = None
    """The judge minus the raters, paired."""
    alpha: float | None = None
    """Krippendorff's alpha of the raters."""

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def compare_with_raters(
    groups: Sequence[GroupScores],
    *,
    statistic: Statistic = "spearman",
    level: Level = "summary",
    on_scale: bool = True,
    seed: int = 0,
) -> RaterAgreement:
    """Compare a judge with the raters of one aspect.

    Args:
        groups: Of one aspect, with the ratings of single raters.
        statistic, level: The correlation.
        on_scale: Whether the scores are on the raters' scale, so that differences from ratings are meaningful.
        seed: Of bundles and sign flips.
    """
    rater_count = max((len(values) for g in groups for values in g.raters), default=0)
    error, bias = error_and_bias(groups) if on_scale else (None, None)
    if rater_count < 2:
        return RaterAgreement(rater_count, error, bias)
    rater_scores = raters_as_judges(groups)
    judge_scores = {
        name: [replace(h, scores=g.scores) for g, h in zip(groups, rater_groups, strict=True)]
        for name, rater_groups in rater_scores.items()
    }
    tables = [
        agreement_table(scores, levels=(level,), statistics=(statistic,), seed=seed)
        for scores in (rater_scores, judge_scores)
    ]
    ceiling, judge = (table.average[level][statistic] for table in tables)
    return RaterAgreement(
        rater_count,
        error,
        bias,
        ceiling,
        judge,
        compare(judge_scores, rater_scores, statistic=statistic, level=level, seed=seed),
        krippendorff_alpha([values for g in groups for values in g.raters]),
    )


def raters_as_judges(groups: Sequence[GroupScores]) -> dict[str, list[GroupScores]]:
    """Each rater's ratings as scores, with the means of the other raters as ratings.

    Raters have no names here: the n-th is that of each candidate's n-th rating.
    """
    count = max((len(values) for g in groups for values in g.raters), default=0)
    return {f"rater {i + 1}": [_rater_as_judge(g, i) for g in groups] for i in range(count)}


def krippendorff_alpha(ratings: Sequence[Sequence[float]]) -> float | None:
    """Krippendorff's alpha for interval data: 1 - observed / expected disagreement (Krippendorff 2019, chapter 12).

    Disagreement is the squared difference of two ratings: of one candidate for the observed, of any two for the
    expected. For ratings of two values this equals the nominal alpha. Candidates with fewer than two ratings are left
    out; None where nothing can be compared or all ratings are equal.
    """
    units = [np.asarray(values, dtype=float) for values in ratings if len(values) > 1]
    if not units:
        return None
    pooled = np.concatenate(units)
    if np.ptp(pooled) == 0:
        return None
    expected = pooled.var(ddof=1)
    observed = sum(len(values) * values.var(ddof=1) for values in units) / len(pooled)
    return float(1 - observed / expected)


def error_and_bias(groups: Sequence[GroupScores]) -> tuple[Figure, Figure] | tuple[None, None]:
    """Mean absolute difference and mean difference of scores and mean ratings, with t intervals over sources."""
    differences = differences_by_group(groups)
    if not differences:
        return None, None
    return mean_interval([np.abs(values) for values in differences]), mean_interval(differences)


def differences_by_group(groups: Sequence[GroupScores]) -> list[Floats]:
    """Score minus mean rating of the candidates that have both, one array per source with such candidates."""
    by_source: dict[str, list[float]] = {}
    for g in groups:
        pairs = zip(g.ratings, g.scores, strict=True)
        differences = [score - rating for rating, score in pairs if rating is not None and score is not None]
        by_source.setdefault(g.source_id, []).extend(differences)
    return [np.array(differences) for differences in by_source.values() if differences]


def _rater_as_judge(group: GroupScores, rater: int) -> GroupScores:
    others: list[float | None] = []
    rater_ratings: list[float | None] = []
    for values in group.raters or ((),) * len(group.candidates):
        has_rating = len(values) > max(rater, 1)
        other_values = [v for i, v in enumerate(values) if i != rater]
        others.append(math.fsum(other_values) / len(other_values) if has_rating else None)
        rater_ratings.append(values[rater] if has_rating else None)
    return GroupScores(group.group, group.candidates, tuple(others), tuple(rater_ratings), source=group.source)
