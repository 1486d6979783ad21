"""Tables of what a comparison shows besides correlations. Only renders; computes no result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from debate_judge.data.agreement.correlations import RaterAgreement
from debate_judge.data.agreement.decisions import (
    ABSOLUTE_MEASURES,
    DECISION_MEASURES,
    AbsoluteAgreement,
    DecisionResult,
)
from debate_judge.data.agreement.figures import AVERAGE, INTERVALS, STATISTIC_NAMES, UNDEFINED, Statistic
from debate_judge.data.calibration import CalibrationEffect
from debate_judge.data.schema import Level
from debate_judge.runs.reports.tables import DataTable, OutputBlock, value_text

T = TypeVar("T")


def _by_aspect(by_judge: Mapping[str, Mapping[str, T]]) -> list[tuple[str, str, T]]:
    """Aspect, judge and figures, aspect by aspect."""
    aspects = dict.fromkeys(aspect for of_aspects in by_judge.values() for aspect in of_aspects)
    return [
        (aspect, judge, of_aspects[aspect])
        for aspect in aspects
        for judge, of_aspects in by_judge.items()
        if aspect in of_aspects
    ]


def absolute_agreement_table(by_judge: Mapping[str, Mapping[str, AbsoluteAgreement]]) -> DataTable:
    """A row for each aspect and judge, the average over several aspects last; changes are from the first judge."""
    only_one = len(next(iter(by_judge.values()))) == 2
    rows = []
    for aspect, judge, figures in _by_aspect(by_judge):
        if only_one and aspect == AVERAGE:
            continue
        cells = []
        for name in ABSOLUTE_MEASURES:
            change = figures.change.get(name, UNDEFINED)
            cells.append(f"{figures.measures[name]}" + ("" if change.value is None else f" ({change:+.2f})"))
        rows.append([aspect, judge, *cells, value_text(figures.cut, "g"), str(figures.candidates)])
    caption = (
        "Over all candidates, with 95 % intervals over sources: mean absolute error in points (lower is better), "
        "concordance with the mean rating (1 only if every score equals its rating), and Cohen's kappa of the decision "
        "that a score and a mean rating are at least the cut; in parentheses the paired change from the first "
        "judge"
    )
    return DataTable(["aspect", "judge", "error", "CCC", "kappa", "cut", "scores"], rows, caption)


def decision_tables(by_judge: Mapping[str, Mapping[str, DecisionResult]], units: str = "sources") -> list[DataTable]:
    """For each aspect a table with a row per judge. All decide on the same groups, which the text calls `units`."""
    rows: dict[str, list[tuple[str, DecisionResult]]] = {}
    for aspect, judge, result in _by_aspect(by_judge):
        rows.setdefault(aspect, []).append((judge, result))
    return [_decision_table(aspect, judges, units) for aspect, judges in rows.items()]


def _decision_table(aspect: str, judges: Sequence[tuple[str, DecisionResult]], units: str) -> DataTable:
    first = judges[0][1]
    columns = [name for name in DECISION_MEASURES if any(name in result.measures for _, result in judges)]
    header = ["judge", *(DECISION_MEASURES[name] for name in columns), f"decided {' / '.join(first.labels)}"]
    rows = []
    for judge, result in judges:
        if result.kind == "binary" and result.cut != result.threshold:
            judge += " (no cut)" if result.cut is None else f" (cut {result.cut:g})"
        cells = [str(result.measures.get(name, UNDEFINED)) for name in columns]
        rows.append([judge, *cells, _counts(result.decisions), str(result.undecided)])
    what = (
        "which of two candidates is better, the first wins, ties or loses"
        if first.kind == "pairs"
        else f"positive is {first.threshold:g} or more, for ratings and, unless a row says otherwise, scores"
    )
    ties = f", {first.ties} more without a label because their raters are evenly split" if first.ties else ""
    caption = (
        f"{aspect}: {what}\n{sum(first.labels.values())} decisions on {first.sources} {units}{ties}, by the raters "
        f"{_counts(first.labels)}; always deciding for the most frequent label has accuracy "
        f"{first.majority_accuracy:.2f}; 95 % intervals: {INTERVALS}"
    )
    return DataTable([*header, "undecided"], rows, caption)


def _counts(counts: Mapping[str, int]) -> str:
    return " / ".join(map(str, counts.values())) or "–"


def raters_table(by_judge: Mapping[str, Mapping[str, RaterAgreement]], level: Level, statistic: Statistic) -> DataTable:
    """A row for each aspect and judge; level and statistic are those of the agreement."""
    header = ["aspect", "judge", "each rater with the others", "judge with the same", "judge - raters"]
    rows = [
        [
            aspect,
            judge,
            *map(str, (of.ceiling, of.judge, of.below_ceiling)),
            value_text(of.alpha),
            *map(str, (of.error, of.bias)),
        ]
        for aspect, judge, of in _by_aspect(by_judge)
    ]
    caption = (
        f"Judge vs. individual raters ({level}-level {STATISTIC_NAMES[statistic]} of each rater with the mean of the "
        "others, averaged: the human ceiling)\n"
        "alpha: Krippendorff's, among raters; error and bias: score minus mean rating, on the raters' scale"
    )
    return DataTable([*header, "alpha", "mean abs. error", "bias"], rows, caption)


def calibration_blocks(effects: Mapping[str, CalibrationEffect]) -> list[OutputBlock]:
    """A table with a row for each aspect with a calibration, and whether calibration keeps the order of scores."""
    header = ["aspect", "mean abs. error", "calibrated", "change", "RMS error", "bias", "calibrated bias"]
    rows = [
        [
            aspect,
            *map(str, (effect.error, effect.error_after, effect.change)),
            f"{value_text(effect.rms)} → {value_text(effect.rms_after)}",
            *map(str, (effect.bias, effect.bias_after)),
        ]
        for aspect, effect in effects.items()
    ]
    maps = [effect.calibration for effect in effects.values()]
    fitted = dict.fromkeys(f"{each.candidates:,} texts of {each.groups:,} sources" for each in maps)
    caption = (
        "Scores on the raters' scale (--scale raters) on held-out sources, in points: the judge's own, and calibrated "
        f"by an increasing function fitted on {', '.join(fitted)} of train and dev; bias is score minus mean rating"
    )
    note = "Calibration keeps the order, so every Spearman correlation above holds for calibrated scores, too."
    if changed := [aspect for aspect, effect in effects.items() if not effect.keeps_ranks]:
        note = f"Calibration reorders some scores, which changes the correlation, in {', '.join(changed)}."
    return [DataTable(header, rows, caption), note]
