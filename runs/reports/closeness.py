"""Level and decisions as a table, as JSON and as metrics. Only renders; every number comes in finished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from debate_judge.data.agreement.classification import Measure
from debate_judge.data.inference.closeness import AVERAGE, MEASURES, Closeness
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.text import interval

Found = Mapping[str, Mapping[str, Closeness]]
"""Judge -> aspect or average -> how close its scores are; the first judge is what the others are compared with."""

_NAMES = {"mae": "mean absolute error", "kappa": "kappa of decisions"}
_SHORT = {"mae": "error", "ccc": "CCC", "kappa": "kappa"}

_WHAT = (
    "over all candidates, with 95 % intervals over sources: mean absolute error in points (lower is better), "
    "concordance with the mean rating (1 only where every score is its rating), and Cohen's kappa of the decision that "
    "a score and a mean rating are at least the cut"
)


def table(found: Found, headings: Sequence[str]) -> DataTable:
    """For each measure a row for every aspect, and one for their average; `headings` are the names of the judges."""
    rows = []
    aspects = next(iter(found.values()))
    for measure in MEASURES:
        for aspect, one in aspects.items():
            if aspect == AVERAGE and len(aspects) == 2:
                continue
            at = f" at {one.cut:g}" if measure == "kappa" and one.cut is not None else ""
            figures = [interval(own[aspect].figures[measure]) for own in found.values()]
            rows.append([f"{_SHORT[measure]}{at}, {aspect}", *figures])
    return DataTable(["measure, aspect", *headings], rows, f"Level and decisions on held-out, {_WHAT}")


def by_judge(found: Found) -> DataTable:
    """A row for each judge, and a column for each measure: on average over aspects, or of the only aspect."""
    rows = []
    for judge, by_aspect in found.items():
        one = by_aspect[AVERAGE] if len(by_aspect) > 2 else next(iter(by_aspect.values()))
        cells = [interval(one.figures[m]) + _moved(one.changes.get(m)) for m in MEASURES]
        rows.append([judge, *cells, str(one.candidates)])
    cuts = {aspect: one.cut for aspect, one in next(iter(found.values())).items() if one.cut is not None}
    caption = f"Level and decisions, {_WHAT}; in parentheses the change from the first judge, paired by source"
    at = f"at {next(iter(cuts.values())):g}" if len(set(cuts.values())) == 1 else "at each aspect's cut"
    return DataTable(["judge", "error", "CCC", f"kappa {at}", "scores"], rows, caption)


def _moved(change: Measure | None) -> str:
    return "" if change is None or change.value is None else f" ({interval(change, '+')})"


def in_words(found: Found, judge: str, mapped: str) -> str:
    """What learning changed besides the order, on average over aspects: the changes of a judge from the first one, and
    its
    figures as `mapped`, the same with scores on the raters' scale.
    """
    own, first = found[judge][AVERAGE], next(iter(found.values()))[AVERAGE]
    parts = []
    for measure in ("mae", "kappa"):
        now, before, change = own.figures[measure], first.figures[measure], own.changes.get(measure)
        if now.value is None or before.value is None or change is None:
            continue
        shown = change.low is not None and change.high is not None and not change.low <= 0 <= change.high
        by = interval(change) if shown else f"no change shown, {interval(change)}"
        after = found[mapped][AVERAGE].figures[measure].value if mapped in found else None
        more = "" if after is None else f"; {after:.2f} on the raters' scale"
        parts.append(f"{_NAMES[measure]} {now.value:.2f} against {before.value:.2f} ({by}{more})")
    return "; ".join(parts)


def to_json(found: Found) -> dict[str, dict[str, object]]:
    return {judge: {aspect: one.to_json() for aspect, one in by.items()} for judge, by in found.items()}


def averages(found: Found, judge: str) -> dict[str, float | None]:
    """Measure -> a judge's value on average over aspects; empty for a judge that is not on the raters' scale."""
    return {measure: found[judge][AVERAGE].figures[measure].value for measure in MEASURES} if judge in found else {}


def metrics(found: Found) -> dict[str, float | None]:
    """Metric name -> value, as runs hold them: `closeness/JUDGE/ASPECT/mae`."""
    return {
        f"closeness/{judge}/{aspect}/{measure}": one.figures[measure].value
        for judge, by in found.items()
        for aspect, one in by.items()
        for measure in MEASURES
    }
