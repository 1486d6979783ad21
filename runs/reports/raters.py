"""Judges compared with individual raters, as a table and as JSON. Only renders; computes no result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from debate_judge.data.agreement.raters import RaterAgreement
from debate_judge.data.agreement.results import STATISTIC_NAMES, GroupScores
from debate_judge.data.agreement.tables import Level, Statistic
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.text import interval

RaterComparisons = Mapping[str, Mapping[str, RaterAgreement]]
"""Judge -> aspect -> its agreement compared with that of the raters."""

_HEADER = (
    "aspect", "judge", "each rater with the others", "judge with the same", "judge - raters", "noise-corrected",
    "alpha", "kappa of raters", "kappa of judge", "mean abs. error", "bias",
)  # fmt: skip


def several_raters(scores: Mapping[str, Sequence[GroupScores]]) -> bool:
    """Whether any candidate has ratings of several raters."""
    return any(len(values) > 1 for groups in scores.values() for g in groups for values in g.raters)


def table(by_judge: RaterComparisons, level: Level, statistic: Statistic) -> DataTable:
    """A row for each aspect and judge; level and statistic are those of the agreement."""
    aspects = dict.fromkeys(aspect for by_aspect in by_judge.values() for aspect in by_aspect)
    rows = [
        _row(aspect, judge, by_aspect[aspect])
        for aspect in aspects
        for judge, by_aspect in by_judge.items()
        if aspect in by_aspect
    ]
    title = (
        f"Judge vs. individual raters ({level}-level {STATISTIC_NAMES[statistic]} of each rater with the mean of the "
        "others, averaged: the human ceiling)\n"
        "noise-corrected: correlation with a mean rating without noise, r / square root of the mean's reliability\n"
        "alpha: Krippendorff's, among raters; kappa: quadratic-weighted, on whole points; error and bias: score minus "
        "mean rating, on the raters' scale"
    )
    return DataTable(_HEADER, rows, title, keys=2)


def to_json(by_judge: RaterComparisons) -> dict[str, dict[str, object]]:
    return {
        judge: {aspect: agreement.to_json() for aspect, agreement in by_aspect.items()}
        for judge, by_aspect in by_judge.items()
    }


def _row(aspect: str, judge: str, agreement: RaterAgreement) -> tuple[str, ...]:
    intervals = (agreement.ceiling, agreement.judge, agreement.below_ceiling)
    numbers = (agreement.noise_corrected, agreement.alpha, agreement.kappa_of_raters, agreement.kappa_of_judge)
    return (
        aspect,
        judge,
        *(interval(value) for value in intervals),
        *("–" if value is None else f"{value:.2f}" for value in numbers),
        interval(agreement.error),
        interval(agreement.bias),
    )
