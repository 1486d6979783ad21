"""An estimate for the terminal: the cost in one line, a table, the coverage of a budget, the assumptions."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from debate_judge.programs.lm.limits import TOKENS_PER_BYTE
from debate_judge.programs.lm.options import BudgetCaps
from debate_judge.runs.estimates.dry_run import CallTotals, Cases, Estimate, EstimateTarget
from debate_judge.runs.reports.tables import DataTable, OutputBlock


def estimate_blocks(
    estimate: Estimate, row_heading: str, notes: Sequence[str] = (), *, with_assumptions: bool = True
) -> list[OutputBlock]:
    """The estimate for the terminal; `row_heading` heads the first column, `notes` come before the assumptions."""
    target = estimate.target
    priced = estimate.total[0].usd is not None
    header = [row_heading, "LM calls", "input tokens", "output tokens", *(["US dollars"] if priced else [])]
    body = [_cells(label, row, priced) for label, row in [*estimate.rows.items(), ("total", estimate.total)]]
    blocks: list[OutputBlock] = [first_line(estimate), ""]
    blocks += [f"{target.spec}: expected / at most", DataTable(header, body, total=True), ""]
    if not priced:
        blocks.append(f"US dollars: no price known for {target.spec}; give --prices FILE")
    blocks += [line for line in (_budget(target.options.budget, estimate.total),) if line]
    return [*blocks, *notes, *(_assumptions(target) if with_assumptions else [])]


def first_line(estimate: Estimate) -> str:
    """The cost of the run: money if the price is known, and calls."""
    expected, most = estimate.total
    calls = f"{round(expected.calls):,}"
    if not expected.usd:
        return f"About {calls} LM calls (at most {_whole(most.calls)}); nothing was called or spent."
    money = [_dollars(totals) for totals in (expected, most)]
    return f"About ${money[0]} (at most ${money[1]}), {calls} calls; nothing was called or spent."


def _assumptions(target: EstimateTarget) -> list[str]:
    expected, most = target.reply_tokens
    lines = [
        "Assumptions. Expected: debates end as early as those of the offline stand-in on these texts. At most: every "
        "debate takes all its rounds.",
        f"Replies have {expected} / {most} tokens of free text (--estimate E,M changes that), a quarter of it per "
        f"score where several share a reply, and no hidden reasoning, which is billed as output; {TOKENS_PER_BYTE} "
        "tokens per byte of text; no prefix cache; no retries. The preflight adds one or two calls per role.",
    ]
    if target.replies is not None and target.replies.is_dir():
        lines.append("Replies in the cache are free and not counted.")
    return lines


def _cells(label: str, row: Cases, priced: bool) -> list[str]:
    expected, most = row
    counts = [
        f"{round(getattr(expected, name)):,} / {_whole(getattr(most, name))}"
        for name in ("calls", "input_tokens", "output_tokens")
    ]
    return [label, *counts, *([f"{_dollars(expected)} / {_dollars(most)}"] if priced else [])]


def _whole(value: float) -> str:
    """A bound, rounded up; scales are quotients, whose rounding errors must not make a whole number the next one."""
    return f"{ceil(round(value, 6)):,}"


def _dollars(totals: CallTotals) -> str:
    usd = totals.usd or 0.0
    return f"{usd:,.4f}" if 0 < usd < 0.1 else f"{usd:,.2f}"


def _budget(budget: BudgetCaps, total: Cases) -> str:
    """Which case each cap of `--budget` covers."""
    lines = []
    for name, cap in (("calls", budget.calls), ("tokens", budget.tokens), ("usd", budget.usd)):
        expected, most = (getattr(totals, name) for totals in total)
        if cap is None or expected is None or most is None:
            continue
        if cap >= most:
            coverage = "covers the maximum"
        elif cap >= expected:
            coverage = "covers the expected cost, but not the maximum"
        else:
            coverage = f"covers {100 * cap / expected:.0f} % of the expected cost; the run would stop there"
        lines.append(f"{name}={cap:,g} {coverage}")
    return f"--budget: {'; '.join(lines)}" if lines else ""
