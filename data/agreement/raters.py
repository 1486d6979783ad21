"""Compares a judge with single raters: how well the raters agree with one another, and how well the judge does.

Where candidates have ratings of several raters, their mean hides how much the raters disagree. A judge can hardly agree
with a rater better than the other raters do, and noise in the mean keeps the correlation of a perfect judge below 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from debate_judge.data.agreement.correlations import Floats, Statistic, concordance
from debate_judge.data.agreement.differences import compare
from debate_judge.data.agreement.intervals import Measure, standard_error, t_interval
from debate_judge.data.agreement.results import Agreement, Difference, GroupScores
from debate_judge.data.agreement.tables import agreement_table, level_correlation
from debate_judge.data.schema import Level


@dataclass(frozen=True, slots=True)
class RaterAgreement:
    """One judge compared with the raters of one aspect. None where a statistic is undefined."""

    raters: int
    """Largest number of ratings of a candidate; with fewer than two, only error and bias are defined."""
    error: Measure | None
    """Mean absolute error; None where the scores are on another scale."""
    bias: Measure | None
    """Mean of score minus rating."""
    ceiling: Agreement | None = None
    """Each rater against the mean of the others, averaged over raters: the human ceiling."""
    judge: Agreement | None = None
    """The judge against the same means."""
    below_ceiling: Difference | None = None
    """The judge minus the raters, paired."""
    alpha: float | None = None
    """Krippendorff's alpha of the raters."""
    kappa_of_raters: float | None = None
    """Quadratic-weighted kappa, mean over pairs of raters; only where all ratings are whole numbers."""
    kappa_of_judge: float | None = None
    """Quadratic-weighted kappa of the judge's rounded scores with each rater, mean over raters."""
    reliability: float | None = None
    """Share of the variance of mean ratings that is not rater noise: ICC(1, k), see `reliability`."""
    noise_corrected: float | None = None
    """The disattenuated correlation: the judge's divided by the root of the reliability (Spearman 1904), an estimate of
    the correlation with ratings free of noise. It may exceed 1."""

    def to_json(self) -> dict[str, object]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value.to_json() if isinstance(value, Measure) else value for name, value in values.items()}


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
        statistic, level: The correlation; reliability and noise correction are not defined at system level.
        on_scale: Whether the scores are on the raters' scale, so that differences from ratings are meaningful.
        seed: Of bundles and sign flips.
    """
    rater_count = max((len(values) for g in groups for values in g.raters), default=0)
    error, bias = error_and_bias(groups) if on_scale else (None, None)
    if rater_count < 2:
        return RaterAgreement(rater_count, error, bias)
    rater_scores = {f"rater {i + 1}": [_rater_as_judge(g, i) for g in groups] for i in range(rater_count)}
    judge_scores = {
        name: [replace(h, scores=g.scores) for g, h in zip(groups, rater_groups, strict=True)]
        for name, rater_groups in rater_scores.items()
    }
    tables = [
        agreement_table(scores, levels=(level,), statistics=(statistic,), seed=seed)
        for scores in (rater_scores, judge_scores)
    ]
    ceiling, judge = (table.average[level][statistic] for table in tables)
    correlation = level_correlation(groups, statistic, level)
    icc = None if level == "system" else reliability(groups, level)
    ratings = [values for g in groups for values in g.raters]
    integers = all(v == round(v) for values in ratings for v in values)
    return RaterAgreement(
        rater_count,
        error,
        bias,
        ceiling,
        judge,
        compare(judge_scores, rater_scores, statistic=statistic, level=level, seed=seed),
        krippendorff_alpha(ratings),
        _kappa_of_raters(ratings, rater_count) if integers else None,
        _kappa_of_judge(groups, rater_count) if integers and on_scale else None,
        icc,
        None if correlation is None or not icc or icc <= 0 else correlation / math.sqrt(icc),
    )


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


def reliability(groups: Sequence[GroupScores], level: Level) -> float | None:
    """The share of the variance of mean ratings that is not rater noise.

    1 - E / V with V the variance of the candidates' mean ratings, within groups at summary level, and E the mean
    squared standard error of these means: the intraclass correlation ICC(1, k) of Shrout and Fleiss (1979). Noise
    attenuates a correlation with the mean ratings by the root of it (Spearman 1904). Candidates with fewer than two
    ratings are left out. None where all mean ratings are equal; below 0 where raters agree less than by chance.
    """
    errors: list[float] = []
    by_group: list[Floats] = []
    for group in groups:
        rated = [np.asarray(values, dtype=float) for values in group.raters if len(values) > 1]
        errors += [float(values.var(ddof=1)) / len(values) for values in rated]
        by_group.append(np.array([values.mean() for values in rated]))
    if level == "sample":
        by_group = [np.concatenate(by_group)] if by_group else []
    degrees_of_freedom = sum(max(0, len(means) - 1) for means in by_group)
    # Equal means of different values may differ in their last digits; the variance is then not exactly 0.
    if not any(np.ptp(means) > 1e-12 * np.abs(means).max() for means in by_group if len(means)):
        return None
    squares = sum(float(((means - means.mean()) ** 2).sum()) for means in by_group if len(means))
    return float(1 - np.mean(errors) / (squares / degrees_of_freedom))


def error_and_bias(groups: Sequence[GroupScores]) -> tuple[Measure, Measure] | tuple[None, None]:
    """Mean absolute difference and mean difference of scores and mean ratings, with t intervals over sources."""
    differences = differences_by_group(groups)
    if not differences:
        return None, None
    return mean_over_groups([np.abs(values) for values in differences]), mean_over_groups(differences)


def differences_by_group(groups: Sequence[GroupScores]) -> list[Floats]:
    """Score minus mean rating of the candidates that have both, one array per source with such candidates."""
    by_source: dict[str, list[float]] = {}
    for g in groups:
        pairs = zip(g.ratings, g.scores, strict=True)
        differences = [score - rating for rating, score in pairs if rating is not None and score is not None]
        by_source.setdefault(g.source_id, []).extend(differences)
    return [np.array(differences) for differences in by_source.values() if differences]


def mean_over_groups(by_source: Sequence[Floats]) -> Measure:
    """The mean over all values, one array per source, with a t interval over the sources."""
    count = sum(map(len, by_source))
    value = math.fsum(v for values in by_source for v in values) / count
    # Influences on a ratio of sums, because sources differ in size.
    error = standard_error(np.array([(values - value).sum() / count for values in by_source]))
    return t_interval(value, error, len(by_source))


def _rater_as_judge(group: GroupScores, rater: int) -> GroupScores:
    """One rater's ratings as scores, with the means of the other raters as ratings.

    Raters have no names here: `rater` is the index in each candidate's ratings.
    """
    others: list[float | None] = []
    rater_ratings: list[float | None] = []
    for values in group.raters or ((),) * len(group.candidates):
        has_rating = len(values) > max(rater, 1)
        other_values = [v for i, v in enumerate(values) if i != rater]
        others.append(math.fsum(other_values) / len(other_values) if has_rating else None)
        rater_ratings.append(values[rater] if has_rating else None)
    return GroupScores(group.group, group.candidates, tuple(others), tuple(rater_ratings), source=group.source)


def _kappa_of_raters(raters: Sequence[tuple[float, ...]], count: int) -> float | None:
    """The mean kappa over pairs of raters."""
    pairs = [[(v[i], v[j]) for v in raters if len(v) > i] for i in range(count) for j in range(i)]
    return _mean_kappa(pairs)


def _kappa_of_judge(groups: Sequence[GroupScores], count: int) -> float | None:
    """The mean kappa over raters."""
    scored = [
        (values, math.floor(score + 0.5))
        for g in groups
        for values, score in zip(g.raters, g.scores, strict=False)
        if score is not None
    ]
    return _mean_kappa([[(values[i], score) for values, score in scored if len(values) > i] for i in range(count)])


def _mean_kappa(pairs: Sequence[Sequence[tuple[float, float]]]) -> float | None:
    """The mean of the defined quadratic-weighted kappas of several lists of pairs."""
    # Floats, because ratings from Python and answers of yes or no may be whole numbers, which cannot be NaN.
    kappas = [float(concordance(*np.array(rows, dtype=float).T[:, None])[0]) for rows in pairs if rows]
    defined = [kappa for kappa in kappas if not math.isnan(kappa)]
    return math.fsum(defined) / len(defined) if defined else None
