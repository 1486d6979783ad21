"""An estimate as a table for the terminal, with what it assumes and how far a budget would reach."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor

from debate_judge.programs.lm.limits.limiter import TOKENS_PER_BYTE
from debate_judge.programs.lm.options import BudgetCaps
from debate_judge.runs.estimates.dry_run import CaseTriple, Estimate, EstimateTarget
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.terminal import Printed


def render(estimate: Estimate, first: str, notes: Sequence[str] = (), *, assumed: bool = True) -> list[Printed]:
    """The estimate for the terminal.

    The notes come before what every estimate assumes; that is left out without `assumed`.
    """
    target = estimate.target
    total = estimate.total
    priced = total[0].usd is not None
    header = [first, "LM calls", "input tokens", "output tokens", *(["US dollars"] if priced else [])]
    body = [_cells(name, row, priced) for name, row in [*estimate.rows.items(), ("total", total)]]
    blocks: list[Printed] = [
        f"Estimate for {target.spec}, each as lower / expected / upper; no LM was called and nothing was spent",
        "",
        DataTable(header, body, total=True),
        "",
    ]
    if not priced:
        blocks.append(f"US dollars: no price known for {target.spec}; give --config prices=FILE")
    blocks += [line for line in (_budget(target.options.budget, total),) if line]
    return [*blocks, *notes, *(_assumptions(target) if assumed else [])]


def _assumptions(target: EstimateTarget) -> list[str]:
    low, usual, high = target.reply_tokens
    lines = [
        "Assumed. Lower: debates end as early as they can. Expected: they go as those of the offline stand-in on these "
        "texts, which is no language model. Upper: no debate ends before its last round.",
        f"Free text in replies has {low} / {usual} / {high} tokens (--estimate L,E,U sets others; hidden reasoning is "
        "paid for like a reply), and a quarter of that for each of several scores that share a reply; "
        f"{TOKENS_PER_BYTE} tokens per byte of text; no input cached by the provider; no reply asked for twice. The "
        "check before a run, a call or two for each role, comes on top.",
    ]
    if target.options.batch:
        lines.append("Calls of judges are priced as in a batch job, at half; instruction proposals at the full price.")
    if target.replies is not None and target.replies.is_dir():
        lines.append("Replies in the store are not counted: they are not paid for again.")
    return lines


def _cells(name: str, row: CaseTriple, priced: bool) -> list[str]:
    cells = [_numbers([getattr(used, what) for used in row]) for what in ("calls", "input", "output")]
    return [name, *cells, *([_dollars([used.usd or 0.0 for used in row])] if priced else [])]


def _numbers(values: Sequence[float]) -> str:
    # A hair more or less than a whole number is that number: scales are quotients.
    low, usual, high = (round(value, 6) for value in values)
    return f"{floor(low):,} / {round(usual):,} / {ceil(high):,}"


def _dollars(values: Sequence[float]) -> str:
    digits = 4 if 0 < max(values) < 1 else 2
    return " / ".join(f"{value:,.{digits}f}" for value in values)


def _budget(budget: BudgetCaps, total: CaseTriple) -> str:
    """How far the caps of `--budget` would reach."""
    lines = []
    for name, cap in (("calls", budget.calls), ("tokens", budget.tokens), ("usd", budget.usd)):
        needs = [used.input + used.output if name == "tokens" else getattr(used, name) for used in total]
        if cap is None or None in needs:
            continue
        low, usual, high = needs
        if cap >= high:
            coverage = "covers the upper estimate"
        elif cap >= usual:
            coverage = "covers the expected estimate, not the upper one"
        elif cap >= low:
            coverage = f"covers {100 * cap / usual:.0f} % of the expected estimate"
        else:
            coverage = "does not cover the lower estimate: the run would stop, to be resumed"
        lines.append(f"{name}={cap:,g} {coverage}")
    return f"--budget: {'; '.join(lines)}" if lines else ""
