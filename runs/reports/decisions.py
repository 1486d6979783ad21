"""Agreement of decisions as tables, as JSON and as metrics. Only renders; computes no result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from debate_judge.data.agreement.classification import LABEL_MEASURES
from debate_judge.data.agreement.decisions import DecisionResult
from debate_judge.data.agreement.intervals import METHODS
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.text import interval

DecisionsByJudge = Mapping[str, Mapping[str, DecisionResult]]
"""Judge -> aspect -> decisions."""

_NAMES = {
    "accuracy": "accuracy",
    "kappa": "Cohen's kappa",
    "balanced_accuracy": "balanced acc.",
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
    "auroc": "AUROC",
}


def tables(by_judge: DecisionsByJudge, units: str = "sources") -> list[DataTable]:
    """For each aspect a table with a row per judge, and one for the lower label as the positive one if there is one.

    All judges decide on the same groups, which the text calls `units`.
    """
    aspects = dict.fromkeys(aspect for by_aspect in by_judge.values() for aspect in by_aspect)
    return [table for aspect in aspects for table in _aspect_tables(by_judge, aspect, units)]


def to_json(by_judge: DecisionsByJudge) -> dict[str, dict[str, Any]]:
    """Judge -> aspect -> plain values; every number finite or null.

    {"kind", "threshold", "cut", "labels", "decisions", "undecided", "sources",
    "majority_accuracy", "measures": {MEASURE: {"value", "low", "high"}}, "lower_label": {"precision", "recall", "f1"}}
    """
    return {
        judge: {aspect: _json(result) for aspect, result in by_aspect.items()} for judge, by_aspect in by_judge.items()
    }


def _aspect_tables(by_judge: DecisionsByJudge, aspect: str, units: str) -> list[DataTable]:
    judges = {judge: by_aspect[aspect] for judge, by_aspect in by_judge.items() if aspect in by_aspect}
    first = next(iter(judges.values()))
    if first.rule.kind == "pairs":
        columns: tuple[str, ...] = ("accuracy", "kappa", "balanced_accuracy", "auroc")
    else:
        columns = tuple(_NAMES)
    header = ("judge", *(_NAMES[name] for name in columns), "decided " + " / ".join(first.labels), "undecided")
    rows = [
        [
            _judge_name(name, result),
            *(interval(result.measures.get(c)) for c in columns),
            _counts(result.decisions),
            str(result.undecided),
        ]
        for name, result in judges.items()
    ]
    tables = [DataTable(header, rows, _title(aspect, first, units))]
    if any(result.lower for result in judges.values()):
        title = f"{aspect}: the same decisions with {_label_names(first)[1]} as the positive label"
        lower_rows = [
            [_judge_name(name, result), *(interval(result.lower.get(c)) for c in LABEL_MEASURES)]
            for name, result in judges.items()
        ]
        tables.append(DataTable(("judge", *(_NAMES[name] for name in LABEL_MEASURES)), lower_rows, title))
    return tables


def _title(aspect: str, result: DecisionResult, units: str) -> str:
    total, rule = sum(result.labels.values()), result.rule
    if rule.kind == "pairs":
        decision = f"{aspect}: which of two candidates is better, the first wins, ties or loses"
        counted = f"{total} pairs"
    else:
        positive, _ = _label_names(result)
        decision = f"{aspect}: positive is {positive}, for ratings and, where a row does not say otherwise, for scores"
        counted = f"{total} labelled candidates of {result.sources} {units}"
        if result.ties:
            counted += f" ({result.ties} more are left out: their raters are evenly split)"
    label = max(result.labels, key=lambda name: result.labels[name])
    return (
        f"{decision}\n{counted}, {' / '.join(result.labels)} by the raters {_counts(result.labels)}; always deciding "
        f"{label!r} has accuracy {result.majority_baseline:.2f}; {_method(result, units)}"
    )


def _method(result: DecisionResult, units: str) -> str:
    """The method of the intervals, leaving aside exact bounds of values at an end of their range."""
    used = {m.method for m in result.measures.values()} - {None, "exact"}
    unit = f"{units} with one decision each" if "dirichlet" in used else units
    # With draws from the posterior, only AUROC, which the matrix does not give, is left to the jackknife.
    names = [METHODS[m] for m in ("dirichlet", "logit") if m in used]
    return f"95 % intervals over {unit}: {'; of AUROC '.join(names)}" if names else "no intervals"


def _label_names(result: DecisionResult) -> tuple[str, str]:
    threshold = f"{result.rule.threshold:g}"
    return f"{threshold} or more", f"below {threshold}"


def _judge_name(name: str, result: DecisionResult) -> str:
    rule = result.rule
    if rule.kind == "pairs" or rule.cut == rule.threshold:
        return name
    return f"{name} (no cut)" if rule.cut is None else f"{name} (cut {rule.cut:g})"


def _counts(counts: Mapping[str, int]) -> str:
    return " / ".join(map(str, counts.values())) or "–"


def _json(result: DecisionResult) -> dict[str, Any]:
    rule = result.rule
    cut_values = {"threshold": rule.threshold, "cut": rule.cut}
    values: dict[str, Any] = {"kind": rule.kind}
    values |= {} if rule.kind == "pairs" else cut_values
    values |= {
        "labels": dict(result.labels),
        "decisions": dict(result.decisions),
        "undecided": result.undecided,
        "ties": result.ties,
    }
    values |= {"sources": result.sources, "majority_accuracy": result.majority_baseline}
    values["measures"] = {name: measure.to_json() for name, measure in result.measures.items()}
    if rule.kind == "binary":
        values["lower_label"] = {name: measure.to_json() for name, measure in result.lower.items()}
    return values
