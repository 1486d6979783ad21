"""An estimate as a table for the terminal, with its assumptions and the coverage of a budget."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor

from debate_judge.programs.lm.limits import TOKENS_PER_BYTE
from debate_judge.programs.lm.options import BudgetCaps
from debate_judge.runs.estimates.dry_run import CaseTriple, Estimate, EstimateTarget
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.terminal import OutputBlock


def estimate_blocks(
    estimate: Estimate, row_heading: str, notes: Sequence[str] = (), *, with_assumptions: bool = True
) -> list[OutputBlock]:
    """The estimate for the terminal; `row_heading` heads the first column, `notes` come before the assumptions."""
    target = estimate.target
    total = estimate.total
    priced = total[0].usd is not None
    header = [row_heading, "LM calls", "input tokens", "output tokens", *(["US dollars"] if priced else [])]
    body = [_cells(label, row, priced) for label, row in [*estimate.rows.items(), ("total", total)]]
    blocks: list[OutputBlock] = [
        f"Estimate for {target.spec}, each as lower / expected / upper; no LM was called and nothing was spent",
        "",
        DataTable(header, body, total=True),
        "",
    ]
    if not priced:
        blocks.append(f"US dollars: no price known for {target.spec}; give --prices FILE")
    blocks += [line for line in (_budget(target.options.budget, total),) if line]
    return [*blocks, *notes, *(_assumptions(target) if with_assumptions else [])]


def _assumptions(target: EstimateTarget) -> list[str]:
    low, expected, high = target.reply_tokens
    lines = [
        "Assumptions. Lower: debates end as early as they can. Expected: they go as with the offline stand-in, "
        "which is no language model, on these texts. Upper: no debate ends before its last round.",
        f"Free text in replies has {low} / {expected} / {high} tokens (--estimate L,E,U sets others; hidden reasoning "
        "is paid for like a reply), and a quarter of that for each of several scores that share a reply; "
        f"{TOKENS_PER_BYTE} tokens per byte of text; no input cached by the provider; no retries. The "
        "preflight, a call or two for each role, comes on top.",
    ]
    if target.replies is not None and target.replies.is_dir():
        lines.append("Replies in the store are not counted: they are not paid for again.")
    return lines


def _cells(label: str, row: CaseTriple, priced: bool) -> list[str]:
    counts = [
        _numbers([getattr(totals, name) for totals in row]) for name in ("calls", "input_tokens", "output_tokens")
    ]
    return [label, *counts, *([_dollars([totals.usd or 0.0 for totals in row])] if priced else [])]


def _numbers(values: Sequence[float]) -> str:
    # Scales are quotients: rounding errors must not make a whole number the next one.
    low, expected, high = (round(value, 6) for value in values)
    return f"{floor(low):,} / {round(expected):,} / {ceil(high):,}"


def _dollars(values: Sequence[float]) -> str:
    digits = 4 if 0 < max(values) < 1 else 2
    return " / ".join(f"{value:,.{digits}f}" for value in values)


def _budget(budget: BudgetCaps, total: CaseTriple) -> str:
    """Which case each cap of `--budget` covers."""
    lines = []
    for name, cap in (("calls", budget.calls), ("tokens", budget.tokens), ("usd", budget.usd)):
        needs = [getattr(totals, name) for totals in total]
        if cap is None or None in needs:
            continue
        low, expected, high = needs
        if cap >= high:
            coverage = "covers the upper estimate"
        elif cap >= expected:
            coverage = "covers the expected estimate, not the upper one"
        elif cap >= low:
            coverage = f"covers {100 * cap / expected:.0f} % of the expected estimate"
        else:
            coverage = "does not cover the lower estimate: the run would stop, to be resumed"
        lines.append(f"{name}={cap:,g} {coverage}")
    return f"--budget: {'; '.join(lines)}" if lines else ""
