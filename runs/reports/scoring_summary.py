"""The summary that `score` prints at its end."""

from __future__ import annotations

from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.usage import Meter
from debate_judge.runs.reports.costs import calls_text, cost_rows, cost_summary
from debate_judge.runs.reports.terminal import OutputBlock
from debate_judge.runs.scoring.output import RowTotals


def scored_summary(meter: Meter, price: Price | None, out: object, totals: RowTotals) -> list[OutputBlock]:
    """Rows in `out`, reasons of unscored items, LM calls and their cost."""
    lines: list[OutputBlock] = [f"{totals.rows} items in {out}: {totals.rows - totals.unscored.total()} scored"]
    for reason, count in totals.unscored.most_common():
        example = totals.examples.get(reason)
        lines.append(f"  {count} unscored: {reason}" + (f", e.g. {example}" if example is not None else ""))
    lines.append(calls_text(meter))
    if meter.requested:
        lines += ["", *cost_summary(cost_rows(meter, price))]
    return lines
