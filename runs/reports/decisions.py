"""Decisions beside the raters' as a table, as JSON and as metrics. Only renders; every number comes in finished."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from debate_judge.data.agreement.classification import Measure
from debate_judge.data.agreement.decisions import Decided
from debate_judge.data.agreement.intervals import METHODS
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.text import interval, with_ends
from debate_judge.runs.tracking.values import step_name

Found = Mapping[str, Mapping[str, Decided]]
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


def tables(found: Found, units: str = "sources") -> list[DataTable]:
    """The tables of all aspects, those about the lower label after the others of their aspect; a row for each judge.

    All judges decide on the same groups, which are called `units`.
    """
    aspects = dict.fromkeys(aspect for by_aspect in found.values() for aspect in by_aspect)
    return [table for aspect in aspects for table in _of_aspect(found, aspect, units)]


def to_json(found: Found) -> dict[str, dict[str, Any]]:
    """Judge -> aspect -> plain values; every number finite or null.

    {"kind", "threshold", "cut", "chosen_on", "margin", "labels", "decisions", "undecided", "sources",
    "majority_accuracy", "measures": {MEASURE: {"value", "low", "high"}}, "lower_label": {"precision", "recall", "f1"}}
    """
    return {judge: {aspect: _json(one) for aspect, one in by.items()} for judge, by in found.items()}


def metrics(found: Found, prefix: str = "held_out") -> dict[str, float | None]:
    """`PREFIX/JUDGE/ASPECT/accuracy` and so on, with `_low` and `_high` for the interval's ends."""
    values: dict[str, float | None] = {}
    for judge, by_aspect in found.items():
        for aspect, one in by_aspect.items():
            place = f"{prefix}/{step_name(judge)}/{step_name(aspect)}"
            named = {**one.measures, **{f"{name}_lower": m for name, m in _lower(one).items()}}
            for name, measure in named.items():
                values |= with_ends(f"{place}/{name}", measure)
            values |= {f"{place}/undecided": float(one.undecided), f"{place}/majority_accuracy": one.majority_baseline}
    return values


def _of_aspect(found: Found, aspect: str, units: str) -> list[DataTable]:
    judges = {judge: by[aspect] for judge, by in found.items() if aspect in by}
    first = next(iter(judges.values()))
    if first.question.kind == "pairs":
        columns: tuple[str, ...] = ("accuracy", "kappa", "balanced_accuracy")
    else:
        columns = tuple(_NAMES)
    made = "decided " + " / ".join(first.labels)
    header = ("judge", *(_NAMES[name] for name in columns), made, "undecided")
    rows = [
        [
            _judge(name, one),
            *(interval(one.measures.get(c)) for c in columns),
            _counts(one.decisions),
            str(one.undecided),
        ]
        for name, one in judges.items()
    ]
    shown = [DataTable(header, rows, _title(aspect, first, units))]
    if any(one.lower for one in judges.values()):
        title = f"{aspect}: the same decisions with {_sides(first)[1]} as the positive label"
        lower = [
            [_judge(name, one), *(interval(_lower(one).get(c)) for c in _OF_A_LABEL)] for name, one in judges.items()
        ]
        shown.append(DataTable(("judge", *(_NAMES[name] for name in _OF_A_LABEL)), lower, title))
    return shown


def _title(aspect: str, one: Decided, units: str) -> str:
    total, question = sum(one.labels.values()), one.question
    if question.kind == "pairs":
        what = f"{aspect}: which of two candidates is better, the first wins, ties or loses"
        what += f" (scores up to {question.margin:g} apart are a tie)" if question.margin else ""
        things = f"{total} pairs"
    else:
        what = (
            f"{aspect}: positive is {_sides(one)[0]}, for ratings and, where a row does not say otherwise, for scores"
        )
        things = f"{total} labelled candidates of {one.sources} {units}"
        if one.ties:
            things += f" ({one.ties} more without a label, for their raters are evenly split, are left out)"
    label = max(one.labels, key=lambda name: one.labels[name])
    return (
        f"{what}\n{things}, {' / '.join(one.labels)} by the raters {_counts(one.labels)}; always deciding "
        f"{label!r} has accuracy {one.majority_baseline:.2f}; {_method(one, units)}"
    )


def _method(one: Decided, units: str) -> str:
    """How the intervals are made; a figure at an end of its range, with no spread to go by, has an exact bound."""
    used = {m.method for m in one.measures.values()} - {None, "exact"}
    single = "dirichlet" in used
    unit = f"{units} with one decision each" if single else units
    names = [METHODS[m] for m in METHODS if m in used]
    return f"95 % intervals over {unit}: {', AUROC '.join(names)}" if names else "no intervals"


def _sides(one: Decided) -> tuple[str, str]:
    at = f"{one.question.threshold:g}"
    return f"{at} or more", f"below {at}"


def _judge(name: str, one: Decided) -> str:
    question = one.question
    if question.chosen_on:
        return f"{name} (cut {question.cut:.3g}, chosen on {question.chosen_on})"
    if question.kind == "pairs" or question.cut == question.threshold:
        return name
    return f"{name} (no cut)" if question.cut is None else f"{name} (cut {question.cut:g})"


def _counts(counts: Mapping[str, int]) -> str:
    return " / ".join(map(str, counts.values())) or "–"


def _lower(one: Decided) -> dict[str, Measure]:
    return {} if one.lower is None else {name: one.lower.measures[name] for name in _OF_A_LABEL}


def _json(one: Decided) -> dict[str, Any]:
    question = one.question
    by_cut = {"threshold": question.threshold, "cut": question.cut, "chosen_on": question.chosen_on or None}
    values: dict[str, Any] = {"kind": question.kind}
    values |= {"margin": question.margin} if question.kind == "pairs" else by_cut
    values |= {
        "labels": dict(one.labels),
        "decisions": dict(one.decisions),
        "undecided": one.undecided,
        "ties": one.ties,
    }
    values |= {"sources": one.sources, "majority_accuracy": one.majority_baseline}
    values["measures"] = {name: measure.to_json() for name, measure in one.measures.items()}
    if question.kind == "binary":
        values["lower_label"] = {name: measure.to_json() for name, measure in _lower(one).items()}
    return values
