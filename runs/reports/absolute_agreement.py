"""Absolute agreement as a table, as JSON and as metrics. Only renders; computes no result."""

from __future__ import annotations

from collections.abc import Mapping

from debate_judge.data.agreement.absolute_agreement import AVERAGE, MEASURES, AbsoluteAgreement
from debate_judge.data.agreement.intervals import Measure
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.text import interval

AbsoluteAgreementByJudge = Mapping[str, Mapping[str, AbsoluteAgreement]]
"""Judge -> aspect or average -> its absolute agreement; the others are compared with the first judge."""

_CAPTION = (
    "Over all candidates, with 95 % intervals over sources: mean absolute error in points (lower is better), "
    "concordance with the mean rating (1 only where every score is its rating), and Cohen's kappa of the decision that "
    "a score and a mean rating are at least the cut; in parentheses the change from the first judge, paired by source"
)


def table(by_judge: AbsoluteAgreementByJudge) -> DataTable:
    """A row for each aspect and judge, the average over several aspects last."""
    aspects = list(next(iter(by_judge.values())))
    shown = aspects[:1] if len(aspects) == 2 else aspects
    rows = []
    for aspect in shown:
        for judge, by_aspect in by_judge.items():
            figures = by_aspect[aspect]
            cells = [interval(figures.measures[m]) + _change_text(figures.changes.get(m)) for m in MEASURES]
            cut = "–" if figures.cut is None else f"{figures.cut:g}"
            rows.append([aspect, judge, *cells, cut, str(figures.candidates)])
    return DataTable(["aspect", "judge", "error", "CCC", "kappa", "cut", "scores"], rows, _CAPTION, keys=2)


def _change_text(change: Measure | None) -> str:
    return "" if change is None or change.value is None else f" ({interval(change, '+')})"


def to_json(by_judge: AbsoluteAgreementByJudge) -> dict[str, dict[str, object]]:
    return {
        judge: {aspect: figures.to_json() for aspect, figures in by_aspect.items()}
        for judge, by_aspect in by_judge.items()
    }


def averages(by_judge: AbsoluteAgreementByJudge, judge: str) -> dict[str, float | None]:
    """Measure -> a judge's value on average over aspects; empty for a judge that is not on the raters' scale."""
    return (
        {measure: by_judge[judge][AVERAGE].measures[measure].value for measure in MEASURES} if judge in by_judge else {}
    )
