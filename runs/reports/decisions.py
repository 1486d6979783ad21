"""Decisions beside the raters' as a table, as JSON and as metrics. Only renders; every number comes in finished."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from debate_judge.data.agreement.classification import Measure
from debate_judge.data.agreement.decisions import DecisionResult
from debate_judge.data.agreement.intervals import METHODS
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.text import interval, with_ends
from debate_judge.runs.tracking.values import name_segment

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
_OF_A_LABEL = ("precision", "recall", "f1")


def tables(by_judge: DecisionsByJudge, units: str = "sources") -> list[DataTable]:
    """The tables of all aspects, those about the lower label after the others of their aspect; a row for each judge.

    All judges decide on the same groups, which are called `units`.
    """
    aspects = dict.fromkeys(aspect for by_aspect in by_judge.values() for aspect in by_aspect)
    return [table for aspect in aspects for table in _of_aspect(by_judge, aspect, units)]


def to_json(by_judge: DecisionsByJudge) -> dict[str, dict[str, Any]]:
    """Judge -> aspect -> plain values; every number finite or null.

    {"kind", "threshold", "cut", "chosen_on", "margin", "labels", "decisions", "undecided", "sources",
    "majority_accuracy", "measures": {MEASURE: {"value", "low", "high"}}, "lower_label": {"precision", "recall", "f1"}}
    """
    return {judge: {aspect: _json(result) for aspect, result in by.items()} for judge, by in by_judge.items()}


def metrics(by_judge: DecisionsByJudge, prefix: str = "held_out") -> dict[str, float | None]:
    """`PREFIX/JUDGE/ASPECT/accuracy` and so on, with `_low` and `_high` for the interval's ends."""
    values: dict[str, float | None] = {}
    for judge, by_aspect in by_judge.items():
        for aspect, result in by_aspect.items():
            place = f"{prefix}/{name_segment(judge)}/{name_segment(aspect)}"
            named = {**result.measures, **{f"{name}_lower": m for name, m in _lower(result).items()}}
            for name, measure in named.items():
                values |= with_ends(f"{place}/{name}", measure)
            values |= {
                f"{place}/undecided": float(result.undecided),
                f"{place}/majority_accuracy": result.majority_baseline,
            }
    return values


def _of_aspect(by_judge: DecisionsByJudge, aspect: str, units: str) -> list[DataTable]:
    judges = {judge: by[aspect] for judge, by in by_judge.items() if aspect in by}
    first = next(iter(judges.values()))
    if first.rule.kind == "pairs":
        columns: tuple[str, ...] = ("accuracy", "kappa", "balanced_accuracy")
    else:
        columns = tuple(_NAMES)
    made = "decided " + " / ".join(first.labels)
    header = ("judge", *(_NAMES[name] for name in columns), made, "undecided")
    rows = [
        [
            _judge(name, each),
            *(interval(each.measures.get(c)) for c in columns),
            _counts(each.decisions),
            str(each.undecided),
        ]
        for name, each in judges.items()
    ]
    shown = [DataTable(header, rows, _title(aspect, first, units))]
    if any(each.lower for each in judges.values()):
        title = f"{aspect}: the same decisions with {_sides(first)[1]} as the positive label"
        lower = [
            [_judge(name, each), *(interval(_lower(each).get(c)) for c in _OF_A_LABEL)] for name, each in judges.items()
        ]
        shown.append(DataTable(("judge", *(_NAMES[name] for name in _OF_A_LABEL)), lower, title))
    return shown


def _title(aspect: str, item: DecisionResult, units: str) -> str:
    total, rule = sum(item.labels.values()), item.rule
    if rule.kind == "pairs":
        what = f"{aspect}: which of two candidates is better, the first wins, ties or loses"
        what += f" (scores up to {rule.margin:g} apart are a tie)" if rule.margin else ""
        things = f"{total} pairs"
    else:
        what = (
            f"{aspect}: positive is {_sides(item)[0]}, for ratings and, where a row does not say otherwise, for scores"
        )
        things = f"{total} labelled candidates of {item.sources} {units}"
        if item.ties:
            things += f" ({item.ties} more without a label, for their raters are evenly split, are left out)"
    label = max(item.labels, key=lambda name: item.labels[name])
    return (
        f"{what}\n{things}, {' / '.join(item.labels)} by the raters {_counts(item.labels)}; always deciding "
        f"{label!r} has accuracy {item.majority_baseline:.2f}; {_method(item, units)}"
    )


def _method(result: DecisionResult, units: str) -> str:
    """How the intervals are made; a figure at an end of its range, with no spread to go by, has an exact bound."""
    used = {m.method for m in result.measures.values()} - {None, "exact"}
    single = "dirichlet" in used
    unit = f"{units} with one decision each" if single else units
    names = [METHODS[m] for m in METHODS if m in used]
    return f"95 % intervals over {unit}: {', AUROC '.join(names)}" if names else "no intervals"


def _sides(result: DecisionResult) -> tuple[str, str]:
    at = f"{result.rule.threshold:g}"
    return f"{at} or more", f"below {at}"


def _judge(name: str, result: DecisionResult) -> str:
    rule = result.rule
    if rule.chosen_on:
        return f"{name} (cut {rule.cut:.3g}, chosen on {rule.chosen_on})"
    if rule.kind == "pairs" or rule.cut == rule.threshold:
        return name
    return f"{name} (no cut)" if rule.cut is None else f"{name} (cut {rule.cut:g})"


def _counts(counts: Mapping[str, int]) -> str:
    return " / ".join(map(str, counts.values())) or "–"


def _lower(result: DecisionResult) -> dict[str, Measure]:
    return {} if result.lower is None else {name: result.lower.measures[name] for name in _OF_A_LABEL}


def _json(result: DecisionResult) -> dict[str, Any]:
    rule = result.rule
    by_cut = {"threshold": rule.threshold, "cut": rule.cut, "chosen_on": rule.chosen_on or None}
    values: dict[str, Any] = {"kind": rule.kind}
    values |= {"margin": rule.margin} if rule.kind == "pairs" else by_cut
    values |= {
        "labels": dict(result.labels),
        "decisions": dict(result.decisions),
        "undecided": result.undecided,
        "ties": result.ties,
    }
    values |= {"sources": result.sources, "majority_accuracy": result.majority_baseline}
    values["measures"] = {name: measure.to_json() for name, measure in result.measures.items()}
    if rule.kind == "binary":
        values["lower_label"] = {name: measure.to_json() for name, measure in _lower(result).items()}
    return values
