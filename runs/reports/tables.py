"""The table that terminal, page and MLflow show, and how texts and tables are printed: by rich, alike everywhere."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TextIO

from debate_judge.data.agreement.figures import MIN_EFFECT, POWER, Agreement, Difference, statistical_power
from debate_judge.programs.lm.replies import Meter, Usage
from debate_judge.programs.lm.settings import Price
from debate_judge.runs.command_line import width_of, wrap_text

_GAP = 2
"""Characters between two columns."""
_INTERVAL = re.compile(r"(\[[-−+\d.]+),\s(?=[-−+\d.]+\])")
_UNBREAKABLE = "\ue000"
"""In place of the space in an interval, so that rich does not wrap there."""
_NUMERIC = re.compile(r"[-–+$]?[\d.,]*( ?%)?")


@dataclass(frozen=True, slots=True)
class DataTable:
    """A table of formatted cells; columns of numbers are aligned to the right."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    total: bool = False
    """Whether the last row sums up or averages the others."""
    kind: Literal["table"] = "table"


class Verbatim(str):
    """Lines that are not wrapped: commands to copy, tables in Markdown, files."""


OutputBlock = str | DataTable
"""What `show` prints."""


def markdown(table: DataTable) -> str:
    """The table as Markdown, below its caption."""
    lines = ["| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |" for cells in [table.header, *table.rows]]
    lines.insert(1, "|" + "---|" * len(table.header))
    return "\n".join([*([table.caption, ""] if table.caption else []), *lines])


def show(*blocks: OutputBlock, file: TextIO | None = None) -> None:
    """Print texts and tables, each on a new line, on standard output or to `file`; texts are wrapped unless `Verbatim`.

    In a table that is too wide, cells are wrapped between words, and a value before its interval. On a terminal
    headings are bold and rules dim; elsewhere there are no styles and a fixed width (`runs.command_line`). Control
    characters are replaced, because names come from files of others.
    """
    stream: TextIO | None = file or sys.stdout
    if stream is None:
        # Standard output was closed before the command began.
        return
    for block in blocks:
        if isinstance(block, Verbatim):
            print(_printable(block), file=stream)
        elif isinstance(block, str):
            print(wrap_text(_printable(block), width_of(stream)), file=stream)
        else:
            if block.caption:
                print(wrap_text(_printable(block.caption), width_of(stream)) + "\n", file=stream)
            print(_rendered(block, stream), file=stream)


def _rendered(table: DataTable, stream: TextIO) -> str:
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(
        box=box.HORIZONTALS, show_edge=False, pad_edge=False, collapse_padding=True, header_style="bold",
        border_style="dim",
    )  # fmt: skip
    console = Console(file=stream, force_terminal=stream.isatty(), width=width_of(stream))
    # Intervals stay in one line where they have room; words and numbers always do, if need be beyond the terminal.
    for space in (_UNBREAKABLE, " "):
        columns = [
            [_in_one_line(cell, space) for cell in column] for column in zip(table.header, *table.rows, strict=True)
        ]
        whole = [max(map(cell_len, column)) for column in columns]
        widths = [max(cell_len(word) for cell in (*column, "-") for word in cell.split()) for column in columns]
        spare = console.width - sum(widths) - _GAP * (len(widths) - 1)
        if spare >= 0:
            break
    if sum(whole) + _GAP * (len(whole) - 1) > console.width:
        # Headings are wrapped before cells.
        whole = [max(map(cell_len, cells), default=0) for _, *cells in columns]
    console.width -= min(0, spare)
    for index in sorted(range(len(columns)), key=lambda index: whole[index] - widths[index]):
        extra = max(0, min(spare, whole[index] - widths[index]))
        widths[index], spare = widths[index] + extra, spare - extra
    for (name, *cells), width in zip(columns, widths, strict=True):
        numeric = all(map(_NUMERIC.fullmatch, cells))
        shown.add_column(Text(name), justify="right" if numeric else "left", width=width)
    for index, row in enumerate(zip(*columns, strict=True)):
        if index:
            shown.add_row(*map(Text, row), end_section=table.total and index == len(table.rows) - 1)
    with console.capture() as captured:
        console.print(shown)
    lines = captured.get().replace(_UNBREAKABLE, " ").splitlines()
    return "\n".join(line.rstrip() for line in lines)


def _in_one_line(cell: str, space_in_interval: str) -> str:
    return _INTERVAL.sub(rf"\1,{space_in_interval}", _printable(cell).replace("\n", " "))


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in text)


class HasInterval(Protocol):
    """A value with the ends of its interval, where there are such."""

    @property
    def value(self) -> float | None: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


def interval(figure: HasInterval | None, sign: Literal["", "+"] = "") -> str:
    """`0.43 [0.36, 0.49]`, or a dash where there is no value; with the sign "+", positive numbers have one."""
    if figure is None or figure.value is None:
        return "–"
    if figure.low is None or figure.high is None:
        return f"{figure.value:{sign}.2f}"
    return f"{figure.value:{sign}.2f} [{figure.low:{sign}.2f}, {figure.high:{sign}.2f}]"


def value_text(value: float | None) -> str:
    """Two decimals, or a dash where there is no value."""
    return "–" if value is None else f"{value:.2f}"


def interval_metrics(name: str, figure: HasInterval | None) -> dict[str, float | None]:
    """A figure as metrics of a run: NAME, and the ends of its interval, NAME_low and NAME_high; empty for None."""
    return {} if figure is None else {name: figure.value, f"{name}_low": figure.low, f"{name}_high": figure.high}


def agreement_description(agreement: Agreement) -> str:
    """Level and name of a correlation."""
    name = {"pearson": "Pearson", "spearman": "Spearman", "kendall": "Kendall tau-b"}[agreement.statistic]
    return f"{agreement.level}-level {name}"


def correlation_label(agreement: Agreement) -> str:
    """Level and name of a correlation, with its numbers of groups, undefined groups and unscored items."""
    name, groups = agreement_description(agreement), agreement.groups
    undefined = f", {agreement.undefined} left out for equal ratings" if agreement.undefined else ""
    unscored = f", {agreement.unscored} items unscored" if agreement.unscored else ""
    return f"{name} with the mean human rating, {groups} groups{undefined}{unscored}"


def p_text(p_value: float | None) -> str:
    """`p = 0.012`, or `p < 0.001`; `no p` where there are too few groups for one."""
    if p_value is None:
        return "no p"
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def p_cell(p_value: float | None) -> str:
    """A p-value in a table: `0.012`, `< 0.001`, or a dash."""
    return "–" if p_value is None else p_text(p_value)[2:].lstrip("= ")


def power_text(difference: Difference, units: str = "sources") -> str:
    """The difference that a comparison on these sources would detect, and the sources needed to detect a small one."""
    power = statistical_power(difference)
    if power is None:
        return ""
    more = f"takes about {power.more_for_small:,} more {units}" if power.more_for_small else "is within reach, too"
    return (
        f"{power.groups} {units} detect a difference of {power.detectable:.2g} with {100 * POWER:.0f} % power "
        f"(paired t-test, SD {difference.deviation:.2g}); detecting {MIN_EFFECT:g} {more}"
    )


def calls_text(meter: Meter, price: Price | None = None) -> str:
    """The number of LM calls that were answered, of those from the cache and those that failed, and the money spent."""
    counts = meter.counts()
    answered, cached, failed = (counts[name] for name in ("answered", "from_cache", "failed"))
    text = f"{answered:,} LM calls" + (f" ({cached:,} more from cache)" if cached else "")
    usd = 0.0 if price is None else sum(meter.cost(price).values())
    return text + (f", {failed:,} failed" if failed else "") + (f", ${usd:.2f}" if usd else "")


def cost_rows(meter: Meter, price: Price | None) -> list[dict[str, Any]]:
    """A row for each role and round, and a last one with `role` "total".

    Fields: calls (executed), cache_hits (replies found in the store), fresh_input, cached_input (served from the
    provider's prefix cache), output, stored (tokens of the cache hits), uncounted (executed calls whose tokens the
    server did not report), and usd and usd_saved (the cost of the cache hits), both None where no price is known.
    """
    in_turn = sorted(meter.accounts.items(), key=lambda account: _turn(*account[0]))
    rows = [_row(role, number, usage, meter.prices.get(role, price)) for (role, number), usage in in_turn]
    total = _row("total", None, meter.total, price)
    if rows:
        # Roles may have different LMs, so that there is no one price for all tokens.
        for name in ("usd", "usd_saved"):
            values = [row[name] for row in rows]
            total[name] = None if None in values else sum(values)
    return [*rows, total]


def _turn(role: str, number: int) -> tuple[int, bool, str]:
    return number, role == "tie-breaker" or (number > 0 and role == "scorer"), role


def _row(role: str, number: int | None, tokens: Usage, price: Price | None) -> dict[str, Any]:
    return {
        "role": role,
        "round": number,
        "calls": tokens.calls,
        "cache_hits": tokens.cache_hits,
        "fresh_input": tokens.fresh,
        "cached_input": tokens.cached,
        "output": tokens.output,
        "stored": tokens.stored,
        "uncounted": tokens.uncounted,
        "usd": None if price is None else tokens.cost(price),
        "usd_saved": None if price is None else tokens.saved(price),
    }


def cost_table(meter: Meter, price: Price | None) -> DataTable:
    """The cost of a run by role and round."""
    rows = cost_rows(meter, price)
    total = rows[-1]
    columns = {
        **{"calls": "calls", "cache_hits": "from cache", "fresh_input": "input", "cached_input": "cached input"},
        **{"output": "output", "stored": "tokens from cache"},
    }
    # A stand-in that costs nothing needs no column of zeros.
    priced = total["usd"] is not None and bool(total["usd"] or total["usd_saved"])
    body = [
        [
            row["role"],
            "" if row["round"] is None else str(row["round"]),
            *(f"{row[name]:,}" for name in columns),
            *([f"{row['usd']:.4f}"] if priced else []),
        ]
        for row in rows
    ]
    notes = ["Tokens by role and round. Cached input is the provider's; replies from the cache are not paid for again."]
    if total["uncounted"]:
        notes.append(f"The server did not report the tokens of {total['uncounted']:,} calls.")
    if total["usd"] is None:
        notes.append("No price is known for this LM; give one with --prices FILE.")
    elif total["usd_saved"]:
        notes.append(f"Without the cache ${total['usd_saved']:.4f} more would have been spent.")
    header = ("role", "round", *columns.values(), *(["US dollars"] if priced else []))
    return DataTable(header, body, caption="\n".join(notes), total=True)
