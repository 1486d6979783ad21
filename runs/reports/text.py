"""Tables of agreement for the terminal and for Markdown. Only renders; every number comes in finished."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from debate_judge.data.agreement.differences import SMALL, power_of
from debate_judge.data.agreement.intervals import POWER
from debate_judge.data.agreement.results import Agreement, Difference


def interval(agreement: Agreement | Difference) -> str:
    """`0.43 [0.36, 0.49]`, or a dash where the value is undefined."""
    if agreement.value is None:
        return "–"
    if agreement.low is None or agreement.high is None:
        return f"{agreement.value:.2f}"
    return f"{agreement.value:.2f} [{agreement.low:.2f}, {agreement.high:.2f}]"


def basis(agreement: Agreement) -> str:
    """What a column of agreements is: correlation, level, groups, undefined, unscored."""
    name = {"pearson": "Pearson", "spearman": "Spearman", "kendall": "Kendall tau-b"}[agreement.statistic]
    return f"{agreement.level}-level {name}"


def p_text(p_value: float | None) -> str:
    """`p = 0.012`, or `p < 0.001`; `no p` where there are too few groups for one."""
    if p_value is None:
        return "no p"
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def p_cell(p_value: float | None) -> str:
    """The same in a column of p-values: `0.012`, `< 0.001`, or a dash."""
    return "–" if p_value is None else p_text(p_value)[2:].lstrip("= ")


def power_text(found: Difference, units: str = "sources") -> str:
    """What a comparison on so many sources can find, and what it would take to find a small difference."""
    power = power_of(found)
    if power is None:
        return ""
    more = f"takes about {power.more_for_small:,} more" if power.more_for_small else "is within reach, too"
    return (
        f"these {power.groups} {units} show a true difference of {power.detectable:.2g} in {POWER:.0%} of cases "
        f"(paired t-test, deviation {found.deviation:.2g}); one of {SMALL:g} {more}"
    )


WIDTH = 100
"""Columns of a terminal that tables fit into."""


def text_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    rule_before_last: bool = False,
    numbers: Collection[str] = (),
) -> str:
    """A plain table with aligned columns: those that the header names among `numbers` to the right, others left.

    A table that is wider than `WIDTH` goes on below with the columns that are left, each part with the first one.
    """
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    aligned = [str.rjust if name in numbers else str.ljust for name in header]

    def part(columns: Sequence[int]) -> str:
        def line(cells: Sequence[str]) -> str:
            return "  ".join(aligned[i](cells[i], widths[i]) for i in columns).rstrip()

        rule = "  ".join("─" * widths[i] for i in columns)
        body = [line(row) for row in rows]
        if rule_before_last and len(body) > 1:
            body.insert(len(body) - 1, rule)
        return "\n".join([line(header), rule, *body])

    return "\n\n".join(map(part, _parts(widths)))


def _parts(widths: Sequence[int]) -> list[list[int]]:
    """The columns of each part of a table, the first column in all of them."""
    parts, room = [[0]], WIDTH - widths[0]
    for column, width in enumerate(widths[1:], start=1):
        if room < width + 2 and len(parts[-1]) > 1:
            parts.append([0])
            room = WIDTH - widths[0]
        parts[-1].append(column)
        room -= width + 2
    return parts


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same as Markdown."""
    lines = ["| " + " | ".join(cells) + " |" for cells in [header, *rows]]
    lines.insert(1, "|" + "---|" * len(header))
    return "\n".join(lines)
