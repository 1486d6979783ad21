"""What a comparison shows besides correlations, as tables and as JSON. Only renders; computes no result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from debate_judge.data.agreement.correlations import RaterAgreement
from debate_judge.data.agreement.decisions import ABSOLUTE_MEASURES, AbsoluteAgreement, DecisionResult, DecisionRule
from debate_judge.data.agreement.figures import AVERAGE, INTERVALS, STATISTIC_NAMES, Figure, GroupScores, Statistic
from debate_judge.data.calibration import CalibrationEffect
from debate_judge.data.schema import Level
from debate_judge.runs.reports.tables import DataTable, interval, value_text

ByJudge = Mapping[str, Mapping[str, Any]]
"""Judge -> aspect -> its figures of one kind."""


def to_json(by_judge: ByJudge) -> dict[str, dict[str, Any]]:
    """Judge -> aspect -> plain values; every number finite or null."""
    return {
        judge: {
            aspect: _decision_json(figures) if isinstance(figures, DecisionResult) else figures.to_json()
            for aspect, figures in by_aspect.items()
        }
        for judge, by_aspect in by_judge.items()
    }


def _by_aspect(by_judge: ByJudge) -> list[tuple[str, str, Any]]:
    """Aspect, judge and figures, aspect by aspect."""
    aspects = dict.fromkeys(aspect for of_aspects in by_judge.values() for aspect in of_aspects)
    return [
        (aspect, judge, of_aspects[aspect])
        for aspect in aspects
        for judge, of_aspects in by_judge.items()
        if aspect in of_aspects
    ]


# --- distance from the ratings ---


def absolute_agreement_table(by_judge: Mapping[str, Mapping[str, AbsoluteAgreement]]) -> DataTable:
    """A row for each aspect and judge, the average over several aspects last; changes are from the first judge."""
    only_one = len(next(iter(by_judge.values()))) == 2
    rows = []
    for aspect, judge, figures in _by_aspect(by_judge):
        if only_one and aspect == AVERAGE:
            continue
        cells = [interval(figures.measures[m]) + _change_text(figures.changes.get(m)) for m in ABSOLUTE_MEASURES]
        rows.append(
            [aspect, judge, *cells, "–" if figures.cut is None else f"{figures.cut:g}", f"{figures.candidates}"]
        )
    caption = (
        "Over all candidates, with 95 % intervals over sources: mean absolute error in points (lower is better), "
        "concordance with the mean rating (1 only if every score equals its rating), and Cohen's kappa of the decision "
        "that a score and a mean rating are at least the cut; in parentheses the paired change from the first "
        "judge"
    )
    return DataTable(["aspect", "judge", "error", "CCC", "kappa", "cut", "scores"], rows, caption)


def _change_text(change: Figure | None) -> str:
    return "" if change is None or change.value is None else f" ({interval(change, '+')})"


def average_distances(by_judge: Mapping[str, Mapping[str, AbsoluteAgreement]], judge: str) -> dict[str, float | None]:
    """Measure -> a judge's value on average over aspects; empty for a judge that is not on the raters' scale."""
    return {m: by_judge[judge][AVERAGE].measures[m].value for m in ABSOLUTE_MEASURES} if judge in by_judge else {}


# --- decisions ---

_DECISION_MEASURES = {
    "accuracy": "accuracy",
    "kappa": "Cohen's kappa",
    "balanced_accuracy": "balanced acc.",
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
    "auroc": "AUROC",
}


def decision_tables(by_judge: Mapping[str, Mapping[str, DecisionResult]], units: str = "sources") -> list[DataTable]:
    """For each aspect a table with a row per judge. All decide on the same groups, which the text calls `units`."""
    rows: dict[str, list[tuple[str, DecisionResult]]] = {}
    for aspect, judge, result in _by_aspect(by_judge):
        rows.setdefault(aspect, []).append((judge, result))
    return [_decision_table(aspect, judges, units) for aspect, judges in rows.items()]


def _decision_table(aspect: str, judges: Sequence[tuple[str, DecisionResult]], units: str) -> DataTable:
    first = judges[0][1]
    columns = [name for name in _DECISION_MEASURES if any(name in result.measures for _, result in judges)]
    header = (
        "judge",
        *(_DECISION_MEASURES[name] for name in columns),
        "decided " + " / ".join(first.labels),
        "undecided",
    )
    rows = []
    for judge, result in judges:
        cells = [interval(result.measures.get(name)) for name in columns]
        rows.append([judge + _cut_text(result.rule), *cells, _counts(result.decisions), str(result.undecided)])
    what = (
        "which of two candidates is better, the first wins, ties or loses"
        if first.rule.kind == "pairs"
        else f"positive is {first.rule.threshold:g} or more, for ratings and, unless a row says otherwise, scores"
    )
    ties = f", {first.ties} more without a label because their raters are evenly split" if first.ties else ""
    caption = (
        f"{aspect}: {what}\n{sum(first.labels.values())} decisions on {first.sources} {units}{ties}, by the raters "
        f"{_counts(first.labels)}; always deciding for the most frequent label has accuracy "
        f"{first.majority_baseline:.2f}; 95 % intervals: {INTERVALS}"
    )
    return DataTable(header, rows, caption)


def _cut_text(rule: DecisionRule) -> str:
    if rule.kind == "pairs" or rule.cut == rule.threshold:
        return ""
    return " (no cut)" if rule.cut is None else f" (cut {rule.cut:g})"


def _counts(counts: Mapping[str, int]) -> str:
    return " / ".join(map(str, counts.values())) or "–"


def _decision_json(result: DecisionResult) -> dict[str, Any]:
    counted = {name: value for name, value in asdict(result).items() if name not in ("rule", "measures", "lower")}
    return {
        **asdict(result.rule),
        **counted,
        "majority_accuracy": result.majority_baseline,
        "measures": {name: measure.to_json() for name, measure in result.measures.items()},
        "lower_label": {name: measure.to_json() for name, measure in result.lower.items()},
    }


# --- single raters ---


def several_raters(scores: Mapping[str, Sequence[GroupScores]]) -> bool:
    """Whether any candidate has ratings of several raters."""
    return any(len(values) > 1 for groups in scores.values() for g in groups for values in g.raters)


def raters_table(by_judge: Mapping[str, Mapping[str, RaterAgreement]], level: Level, statistic: Statistic) -> DataTable:
    """A row for each aspect and judge; level and statistic are those of the agreement."""
    rows = []
    for aspect, judge, agreement in _by_aspect(by_judge):
        intervals = (agreement.ceiling, agreement.judge, agreement.below_ceiling)
        cells = [
            *map(interval, intervals),
            value_text(agreement.alpha),
            *map(interval, (agreement.error, agreement.bias)),
        ]
        rows.append((aspect, judge, *cells))
    header = ("aspect", "judge", "each rater with the others", "judge with the same", "judge - raters")
    caption = (
        f"Judge vs. individual raters ({level}-level {STATISTIC_NAMES[statistic]} of each rater with the mean of the "
        "others, averaged: the human ceiling)\n"
        "alpha: Krippendorff's, among raters; error and bias: score minus mean rating, on the raters' scale"
    )
    return DataTable((*header, "alpha", "mean abs. error", "bias"), rows, caption)


# --- calibration ---


def calibration_table(effects: Mapping[str, CalibrationEffect]) -> DataTable:
    """A row for each aspect with a calibration."""
    header = ("aspect", "mean abs. error", "calibrated", "change", "RMS error", "bias", "calibrated bias", "fitted on")
    rows = [
        (
            aspect,
            *map(interval, (effect.error, effect.error_after, effect.change)),
            f"{value_text(effect.rms)} → {value_text(effect.rms_after)}",
            *map(interval, (effect.bias, effect.bias_after)),
            f"{effect.calibration.candidates:,} texts, {effect.calibration.groups:,} sources",
        )
        for aspect, effect in effects.items()
    ]
    caption = (
        "Scores on the raters' scale (--scale raters) on held-out sources, in points: the judge's own, and calibrated "
        "by an increasing function fitted on train and dev; bias is score minus mean rating"
    )
    return DataTable(header, rows, caption)


def rank_note(effects: Mapping[str, CalibrationEffect]) -> str:
    """Whether calibration keeps the order of scores."""
    changed = [aspect for aspect, effect in effects.items() if not effect.keeps_ranks]
    if changed:
        return f"Calibration reorders some scores, which changes the correlation, in {', '.join(changed)}."
    return "Calibration keeps the order, so every Spearman correlation above holds for calibrated scores, too."
