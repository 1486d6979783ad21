"""What `score` prints at its end."""

from __future__ import annotations

from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.usage import Meter
from debate_judge.runs.reports.costs import calls_text
from debate_judge.runs.scoring.output import RowTotals


def scored_summary(meter: Meter, price: Price | None, out: object, totals: RowTotals) -> list[str]:
    """LM calls and their cost, reasons of unscored items, and last the rows in `out`."""
    lines = [calls_text(meter, price)]
    for reason, count in totals.unscored.most_common():
        example = totals.examples.get(reason)
        lines.append(f"{count:,} unscored: {reason}" + (f", e.g. {example}" if example is not None else ""))
    scored = totals.rows - totals.unscored.total()
    return [*lines, f"{totals.rows:,} items in {out}: {scored:,} scored"]
