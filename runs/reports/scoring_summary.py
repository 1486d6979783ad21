"""The summary that `score` prints at its end."""

from __future__ import annotations

from collections.abc import Mapping

from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.usage import Meter
from debate_judge.runs.export.recorded import HeldOutIntervals
from debate_judge.runs.reports.costs import cost_rows, cost_summary
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.terminal import OutputBlock
from debate_judge.runs.reports.text import interval
from debate_judge.runs.scoring.output import RowTotals
from debate_judge.runs.scoring.scorer import RowIntervals


def scored_summary(meter: Meter, price: Price | None, out: object, totals: RowTotals) -> list[OutputBlock]:
    """Rows in `out`, reasons of unscored items, LM calls and their cost."""
    lines: list[OutputBlock] = [f"{totals.rows} items in {out}: {totals.rows - totals.unscored.total()} scored"]
    if 0 < totals.existing < totals.rows:
        lines.append(f"  {totals.existing} of them were already present")
    for reason, count in totals.unscored.most_common():
        example = totals.examples.get(reason)
        lines.append(f"  {count} unscored: {reason}" + (f", e.g. {example}" if example is not None else ""))
    lines.append(f"LM calls: {meter.requested.total()} requested, {meter.executed.total()} executed")
    if meter.requested:
        lines += ["", *cost_summary(cost_rows(meter, price))]
    return lines


def uncertainty_summary(
    held_out: Mapping[str, HeldOutIntervals], row_intervals: RowIntervals, level: float, max_width: float | None
) -> list[OutputBlock]:
    """Coverage of the intervals on held-out texts by aspect, and the share left to people (wider than `max_width`)."""
    header = ["aspect", "held-out texts", "inside", "mean width"]
    if max_width is not None:
        header += ["to people", "agreement", "agreement of the rest", "error", "error of the rest", "to people here"]
    rows = []
    for aspect, intervals in held_out.items():
        abstention = intervals.abstention
        row = [aspect, f"{abstention.texts}", f"{100 * abstention.covered:.0f} %", f"{abstention.width:.2f}"]
        if max_width is not None:
            abstained_share = row_intervals.abstained[aspect] / max(1, row_intervals.scored[aspect])
            row += [
                f"{100 * abstention.abstained_share:.0f} %",
                interval(intervals.agreement),
                interval(intervals.agreement_kept),
            ]
            row += ["–" if error is None else f"{error.value:.2f}" for error in (intervals.error, intervals.error_kept)]
            row += [f"{100 * abstained_share:.0f} %"]
        rows.append(row)
    title = f"intervals for {100 * level:g} % of mean ratings; each held-out text by those of other sources"
    if max_width is not None:
        title += f"; left to people: wider than {max_width:g}"
    return ["", title, "", DataTable(header, rows)] if rows else []
