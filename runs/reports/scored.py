"""What `score` says at its end."""

from __future__ import annotations

from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.usage import Meter
from debate_judge.runs.reports.costs import cost_rows, cost_table
from debate_judge.runs.reports.terminal import Printed
from debate_judge.runs.scoring.output import RowTotals


def scored_summary(meter: Meter, price: Price | None, out: object, tally: RowTotals) -> list[Printed]:
    """Rows, what has no score and why, calls and what they cost.

    Args:
        meter: Of all calls.
        price: Of the LM, if it is known.
        out: Where the rows are.
        tally: Of the rows.
    """
    lines: list[Printed] = [f"{tally.rows} items in {out}: {tally.rows - tally.unscored.total()} scored"]
    if 0 < tally.kept < tally.rows:
        lines.append(f"  {tally.kept} of them were there already")
    for reason, count in tally.unscored.most_common():
        example = tally.examples.get(reason)
        lines.append(f"  {count} unscored: {reason}" + (f", e.g. {example}" if example is not None else ""))
    lines.append(f"LM calls: {meter.asked.total()} asked, {meter.executed.total()} executed")
    if meter.asked:
        lines += ["", *cost_table(cost_rows(meter, price))]
    return lines
