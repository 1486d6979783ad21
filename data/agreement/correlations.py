"""Agreement of scores with human ratings: Pearson, Spearman and Kendall's tau-b at three levels, with intervals.

All correlations that the project reports are computed here. A group in which only the judge's scores are constant
counts as 0, also in differences of judges. Intervals are over sources, because the candidates of one source are not
independent of each other; `data/agreement/figures.py` describes them. Correlations over systems have none: a single
source hardly moves such a correlation, and noise in the means of the systems attenuates it, which no interval corrects.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from debate_judge.data.agreement.figures import (
    CORRELATION_RANGE,
    LEVELS,
    STATISTICS,
    UNDEFINED,
    Estimate,
    Figure,
    Floats,
    GroupIndex,
    GroupScores,
    Pairs,
    ScoresByAspect,
    Statistic,
    jackknife,
    sign_flip_p_value,
)
from debate_judge.data.schema import Level

_LONGEST_ROW = 64
"""Longest row for which Kendall's tau compares all pairs, for all rows at once; scipy computes that of longer rows."""


# --- correlations ---


def correlations(x: Floats, y: Floats, statistic: Statistic) -> Floats:
    """Correlate each row of `x` with the same row of `y`, both of shape (rows, width), as scipy does one by one.

    Returns:
        Shape (rows,), NaN where a side is constant or a row has fewer than two entries.
    """
    if x.shape[1] < 2:
        return np.full(len(x), np.nan)
    if statistic == "kendall":
        return _kendall(x, y)
    if statistic == "spearman":
        from scipy.stats import rankdata

        x, y = rankdata(x, axis=1), rankdata(y, axis=1)
    dx, dy = _deviations(x), _deviations(y)
    r: Floats = (dx * dy).sum(axis=1) / np.sqrt((dx**2).sum(axis=1) * (dy**2).sum(axis=1))
    return r.clip(-1.0, 1.0)


def _deviations(x: Floats) -> Floats:
    """Deviations from the row's mean in units of its range; NaN throughout a constant row."""
    low = x.min(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        unit = (x - low) / (x.max(axis=1, keepdims=True) - low)
    return np.asarray(unit - unit.mean(axis=1, keepdims=True))


def _kendall(x: Floats, y: Floats) -> Floats:
    if x.shape[1] > _LONGEST_ROW:
        from scipy.stats import kendalltau

        return np.array([kendalltau(*row).statistic for row in zip(x, y, strict=True)])
    first, second = np.triu_indices(x.shape[1], 1)
    dx, dy = (np.sign(side[:, first] - side[:, second]) for side in (x, y))
    with np.errstate(invalid="ignore"):
        tau: Floats = (dx * dy).sum(axis=1) / np.sqrt(np.abs(dx).sum(axis=1)) / np.sqrt(np.abs(dy).sum(axis=1))
    return tau.clip(-1.0, 1.0)


def correlation(ratings: Sequence[float], scores: Sequence[float], statistic: Statistic) -> float | None:
    """The value of scipy's pearsonr, spearmanr or kendalltau (tau-b) for two sequences of equal length; None with fewer
    than two pairs, or where one sequence is constant."""
    pairs = np.array(list(zip(ratings, scores, strict=True)), dtype=float).reshape(-1, 2).T
    value = float(correlations(pairs[:1], pairs[1:], statistic)[0])
    return None if math.isnan(value) else value


# --- one aspect at a level ---


def estimate_level(level: Level, pairs: Pairs, statistic: Statistic) -> Estimate:
    """The correlation of one aspect at a level; 0 where the scores are constant and the ratings are not."""
    return {"summary": _summary, "sample": _sample, "system": _system}[level](pairs, statistic)


def _summary(pairs: Pairs, statistic: Statistic) -> Estimate:
    """The mean over groups of the correlation within the group.

    Groups in which all ratings are equal are left out; those in which only the scores are all equal count 0.
    """
    index, groups = pairs.index, len(pairs.index.source)
    by_group, ranked = np.full(groups, np.nan), np.full(groups, False)
    sizes = np.bincount(pairs.group, minlength=groups)
    order = np.argsort(pairs.group, kind="stable")
    starts = np.cumsum(sizes) - sizes
    for size in np.unique(sizes[sizes > 1]):
        members = np.flatnonzero(sizes == size)
        cells = order[starts[members, None] + np.arange(size)]
        by_group[members] = correlations(pairs.ratings[cells], pairs.scores[cells], statistic)
        ranked[members] = np.ptp(pairs.ratings[cells], axis=1) > 0
    values = np.where(ranked, np.nan_to_num(by_group), 0.0)
    sums = np.bincount(index.unit, values, minlength=index.units)
    counts = np.bincount(index.unit, ranked, minlength=index.units)
    with np.errstate(invalid="ignore", divide="ignore"):
        value, without = values.sum() / ranked.sum(), (values.sum() - sums) / (ranked.sum() - counts)
    return Estimate(float(value), np.nan_to_num(without), ranked, index, int((ranked & np.isnan(by_group)).sum()))


def _sample(pairs: Pairs, statistic: Statistic) -> Estimate:
    """The correlation over all candidates of all groups."""
    estimate = jackknife(partial(_pooled, statistic), pairs.ratings, pairs.scores, pairs.group, pairs.index)
    return _counted(estimate, pairs.scores)


def _system(pairs: Pairs, statistic: Statistic) -> Estimate:
    """The correlation of mean ratings with mean scores over systems.

    A system is a candidate id with pairs in at least two groups; with fewer than three systems the value is undefined.
    """
    index, recurring = pairs.index, np.bincount(pairs.system)[pairs.system] > 1
    system = np.unique(pairs.system[recurring], return_inverse=True)[1]
    counts = np.bincount(system)
    # Rounded, because equal means of different values may differ in their last digits and would not tie.
    ratings, scores = (
        np.round(np.bincount(system, values[recurring] / (np.abs(values).max(initial=0.0) or 1.0)) / counts, 13)
        for values in (pairs.ratings, pairs.scores)
    )
    value = _pooled(statistic, ratings, scores) if len(counts) > 2 else math.nan
    included = np.bincount(pairs.group[recurring], minlength=len(index.source)) > 0
    return _counted(Estimate(value, np.full(index.units, np.nan), included, index), scores)


def _pooled(statistic: Statistic, ratings: Floats, scores: Floats) -> float:
    """NaN where the ratings are too few or all equal, 0 where only the scores are."""
    if len(ratings) < 2 or np.ptp(ratings) == 0:
        return math.nan
    return float(np.nan_to_num(correlations(ratings[None], scores[None], statistic)[0]))


def _counted(estimate: Estimate, scores: Floats) -> Estimate:
    """From an undefined correlation no group is left; where all scores are equal, they are in every group."""
    if math.isnan(estimate.value):
        return replace(estimate, included=np.zeros_like(estimate.included))
    return replace(estimate, constant=int(estimate.included.sum()) if np.ptp(scores) == 0 else 0)


# --- figures of a judge, and of two ---


AgreementByLevel = dict[Level, dict[Statistic, Figure]]


@dataclass(frozen=True, slots=True)
class AgreementTable:
    """Correlations of every aspect at every level, and their averages.

    A value is None where all ratings are equal. Where only the judge's scores are constant it is 0, at summary level in
    each such group.
    """

    aspects: dict[str, AgreementByLevel]
    average: AgreementByLevel
    """Mean over aspects; undefined where one aspect is, because a mean over fewer aspects would be another quantity."""


def agreement_table(aspects: ScoresByAspect, *, seed: int = 0) -> AgreementTable:
    """All correlations at all levels, for each aspect and averaged over aspects; at system level without intervals.

    Candidates and groups without a rating are ignored. Candidates with a rating but no score are counted and left out.

    Args:
        aspects: Aspect name -> groups. The same id in several aspects is the same group.
        seed: For the bundles of many sources.
    """
    index = GroupIndex.build(aspects, seed)
    pairs = {name: Pairs.of(groups, index) for name, groups in aspects.items()}
    estimates = {
        (name, level, statistic): estimate_level(level, pairs[name], statistic)
        for name in aspects
        for level in LEVELS
        for statistic in STATISTICS
    }

    def figures(*names: str) -> AgreementByLevel:
        groups = [aspects[name] for name in names]
        return {
            level: {s: _figure(groups, [estimates[name, level, s] for name in names]) for s in STATISTICS}
            for level in LEVELS
        }

    return AgreementTable({name: figures(name) for name in aspects}, figures(*aspects))


def agreement(aspects: ScoresByAspect, statistic: Statistic, level: Level, *, seed: int = 0) -> Figure:
    """One figure of `agreement_table`: the average over aspects."""
    index = GroupIndex.build(aspects, seed)
    estimates = [estimate_level(level, Pairs.of(groups, index), statistic) for groups in aspects.values()]
    return _figure([*aspects.values()], estimates)


def _figure(aspects: Sequence[Sequence[GroupScores]], estimates: Sequence[Estimate]) -> Figure:
    """The mean over aspects, and the counts of what was left out."""
    mean = Estimate.mean(estimates)
    rated = sum(any(r is not None for r in g.ratings) for groups in aspects for g in groups)
    pairs = (pair for groups in aspects for g in groups for pair in zip(g.ratings, g.scores, strict=True))
    return replace(
        mean.figure(CORRELATION_RANGE),
        groups=int(mean.included.sum()),
        constant=mean.constant,
        undefined=rated - sum(int(estimate.included.sum()) for estimate in estimates),
        unscored=sum(rating is not None and score is None for rating, score in pairs),
    )


def compare(
    a: ScoresByAspect,
    b: ScoresByAspect,
    *,
    statistic: Statistic = "spearman",
    level: Level = "summary",
    seed: int = 0,
    family_size: int = 1,
) -> Figure:
    """Agreement of judge `a` minus that of judge `b` on the same groups, averaged over aspects.

    Both are compared on the same candidates: one that either judge left unscored is left out for both, and so is a
    group (at the other levels an aspect) in which all ratings are equal. Where only a judge's scores are all equal, its
    correlation counts as 0. At system level there is neither an interval nor a p-value.

    Args:
        a: Aspect name -> groups.
        b: The same aspects, groups, candidates and ratings with another judge's scores.
        statistic, level: The correlation, and where it is computed.
        seed: For the flips, and the bundles of many sources.
        family_size: Number of comparisons whose intervals are to hold together in 95 % of cases (Bonferroni).
    """
    index = GroupIndex.build(a, seed)
    differences: list[Estimate] = []
    for name in a:
        unscored = {
            (g.group, candidate)
            for g in (*a[name], *b[name])
            for candidate, score in zip(g.candidates, g.scores, strict=True)
            if score is None
        }
        first, second = (estimate_level(level, Pairs.of(judge[name], index, unscored), statistic) for judge in (a, b))
        if not math.isnan(first.value):
            differences.append(first - second)
    if not differences:
        return Figure(groups=0)
    mean = Estimate.mean(differences)
    figure, values = Figure(mean.value, groups=mean.sources), mean.pseudo_values
    if np.isnan(values).any():
        return figure
    figure = replace(figure, p_value=sign_flip_p_value(values, seed))
    low, high = mean.interval(family_size=family_size)
    if low is None or high is None:
        return figure
    deviation = float(values.std(ddof=1)) * math.sqrt(mean.sources / len(values))
    return replace(figure, low=max(low, -2.0), high=min(high, 2.0), deviation=deviation)


# --- a judge beside single raters ---


@dataclass(frozen=True, slots=True)
class RaterAgreement:
    """One judge compared with the raters of one aspect, whose mean hides how much they disagree."""

    raters: int
    """Largest number of ratings of a candidate; with fewer than two, only error and bias are defined."""
    error: Figure
    """Mean absolute error; undefined, as the bias, where the scores are on another scale."""
    bias: Figure
    """Mean of score minus rating."""
    ceiling: Figure = UNDEFINED
    """Each rater against the mean of the others, averaged over raters: the human ceiling, for a judge can hardly agree
    with a rater better than the other raters do."""
    judge: Figure = UNDEFINED
    """The judge against the same means."""
    below_ceiling: Figure = UNDEFINED
    """The judge minus the raters, paired."""
    alpha: float | None = None
    """Krippendorff's alpha of the raters."""


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
    rater_scores = raters_as_judges(groups)
    error, bias = error_and_bias(groups) if on_scale else (UNDEFINED, UNDEFINED)
    if len(rater_scores) < 2:
        return RaterAgreement(len(rater_scores), error, bias)
    judge_scores = {
        name: [replace(h, scores=g.scores) for g, h in zip(groups, rater_groups, strict=True)]
        for name, rater_groups in rater_scores.items()
    }
    return RaterAgreement(
        len(rater_scores),
        error,
        bias,
        agreement(rater_scores, statistic, level, seed=seed),
        agreement(judge_scores, statistic, level, seed=seed),
        compare(judge_scores, rater_scores, statistic=statistic, level=level, seed=seed),
        krippendorff_alpha([values for g in groups for values in g.raters]),
    )


def raters_as_judges(groups: Sequence[GroupScores]) -> dict[str, list[GroupScores]]:
    """Each rater's ratings as scores, with the means of the other raters as ratings.

    Raters have no names here: the n-th is that of each candidate's n-th rating.
    """

    def of(rater: int, group: GroupScores) -> GroupScores:
        others: list[float | None] = []
        own: list[float | None] = []
        for values in group.raters or ((),) * len(group.candidates):
            compared = len(values) > max(rater, 1)
            others.append(math.fsum((*values[:rater], *values[rater + 1 :])) / (len(values) - 1) if compared else None)
            own.append(values[rater] if compared else None)
        return replace(group, ratings=tuple(others), scores=tuple(own), raters=())

    count = max((len(values) for g in groups for values in g.raters), default=0)
    return {f"rater {i + 1}": [of(i, g) for g in groups] for i in range(count)}


def several_raters(aspects: Mapping[str, Sequence[GroupScores]]) -> bool:
    """Whether any candidate has ratings of several raters."""
    return any(len(values) > 1 for groups in aspects.values() for g in groups for values in g.raters)


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


def error_and_bias(groups: Sequence[GroupScores]) -> tuple[Figure, Figure]:
    """Mean absolute difference and mean difference of scores and mean ratings, with t intervals over sources."""
    pairs = Pairs.of(groups, GroupIndex.build({"": groups}, 0))
    differences = pairs.scores - pairs.ratings
    error, bias = (mean_estimate(values, pairs) for values in (np.abs(differences), differences))
    return error.figure(), bias.figure()


def mean_estimate(values: Floats, pairs: Pairs) -> Estimate:
    """The mean of one value a pair, shape (pairs,)."""
    return jackknife(lambda x, _: float(x.mean()) if len(x) else math.nan, values, values, pairs.group, pairs.index)
