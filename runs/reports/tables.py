"""The table that terminal, page and MLflow show, how texts and tables are printed, figures in words, and costs."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from debate_judge.data.agreement.figures import MIN_EFFECT, POWER, STATISTIC_NAMES, Figure, Statistic
from debate_judge.data.schema import Level
from debate_judge.programs.lm.replies import Meter, Usage
from debate_judge.programs.lm.settings import Price
from debate_judge.runs.command_line import width_of, wrap_text

_GAP = 2
"""Characters between two columns."""
_INTERVAL = r"\[[-−+\d.]+, [-−+\d.]+\]"
_UNBROKEN = tuple(map(re.compile, (rf"\S+( \*)? {_INTERVAL}", _INTERVAL, "(?!)")))
"""What stays in one line where all columns have room for it: a value with its interval, else an interval."""
_UNBREAKABLE = "\ue000"
"""In place of a space at which rich must not wrap."""
_NUMERIC = re.compile(r"[-–+$]?[\d.,]*( ?%)?")


@dataclass(frozen=True, slots=True)
class DataTable:
    """A table of formatted cells; columns of numbers are aligned to the right."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    total: bool = False
    """Whether the last row sums up or averages the others."""


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

    In a table that is too wide, cells are wrapped between words, and at last a value before its interval. On a terminal
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

    texts = [[_printable(cell).replace("\n", " ") for cell in row] for row in (table.header, *table.rows)]
    room = width_of(stream) - _GAP * (len(table.header) - 1)
    for unbroken in _UNBROKEN:
        rows = [
            [unbroken.sub(lambda found: found[0].replace(" ", _UNBREAKABLE), cell) for cell in row] for row in texts
        ]
        columns = list(zip(*rows, strict=True))
        # Words and numbers stay in one line always, if need be beyond the terminal.
        widths = [max(cell_len(word) for cell in (*column, "-") for word in cell.split()) for column in columns]
        spare = room - sum(widths)
        if spare >= 0:
            break
    whole = [max(map(cell_len, column)) for column in columns]
    if sum(whole) > room:
        # Headings are wrapped before cells.
        whole = [max(map(cell_len, cells), default=0) for _, *cells in columns]
    console = Console(file=stream, force_terminal=stream.isatty(), width=width_of(stream) - min(0, spare))
    for index in sorted(range(len(columns)), key=lambda index: whole[index] - widths[index]):
        extra = max(0, min(spare, whole[index] - widths[index]))
        widths[index], spare = widths[index] + extra, spare - extra
    shown = Table(
        box=box.HORIZONTALS,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
        header_style="bold",
        border_style="dim",
    )
    for (name, *cells), width in zip(columns, widths, strict=True):
        numeric = all(map(_NUMERIC.fullmatch, cells))
        shown.add_column(Text(name), justify="right" if numeric else "left", width=width)
    for index, row in enumerate(rows[1:], 1):
        shown.add_row(*map(Text, row), end_section=table.total and index == len(table.rows) - 1)
    with console.capture() as captured:
        console.print(shown)
    return "\n".join(line.rstrip() for line in captured.get().replace(_UNBREAKABLE, " ").splitlines())


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in text)


# --- figures in words ---


def value_text(value: float | None, spec: str = ".2f") -> str:
    """Two decimals, or a dash where there is no value."""
    return "–" if value is None else format(value, spec)


def correlation_name(level: Level, statistic: Statistic) -> str:
    """Level and name of a correlation."""
    return f"{level}-level {STATISTIC_NAMES[statistic]}"


def correlation_label(level: Level, statistic: Statistic, figure: Figure) -> str:
    """Level and name of a correlation, with its numbers of groups, undefined groups and unscored items."""
    undefined = f", {figure.undefined} left out for equal ratings" if figure.undefined else ""
    unscored = f", {figure.unscored} items unscored" if figure.unscored else ""
    name = correlation_name(level, statistic)
    return f"{name} with the mean human rating, {figure.groups} groups{undefined}{unscored}"


def p_text(p_value: float | None) -> str:
    """`p = 0.012`, or `p < 0.001`; `no p` where there are too few groups for one."""
    if p_value is None:
        return "no p"
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def power_text(difference: Figure, units: str = "sources") -> str:
    """The difference that a comparison on these sources would detect, and the sources needed to detect a small one."""
    if (power := difference.power) is None:
        return ""
    more = (
        f"takes about {power['more_for_small']:,} more {units}" if power["more_for_small"] else "is within reach, too"
    )
    return (
        f"{difference.groups} {units} detect a difference of {power['detectable']:.2g} with {100 * POWER:.0f} % power "
        f"(paired t-test, SD {difference.deviation:.2g}); detecting {MIN_EFFECT:g} {more}"
    )


# --- costs ---


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

    def row(role: str, number: int | None, used: Usage, price: Price | None) -> dict[str, Any]:
        return {
            "role": role,
            "round": number,
            "calls": used.calls,
            "cache_hits": used.cache_hits,
            "fresh_input": used.fresh,
            "cached_input": used.cached,
            "output": used.output,
            "stored": used.stored,
            "uncounted": used.uncounted,
            "usd": None if price is None else used.cost(price),
            "usd_saved": None if price is None else used.saved(price),
        }

    def turn(account: tuple[str, int]) -> tuple[int, bool, str]:
        role, number = account
        return number, role == "tie-breaker" or (number > 0 and role == "scorer"), role

    rows = [
        row(role, number, meter.accounts[role, number], meter.prices.get(role, price))
        for role, number in sorted(meter.accounts, key=turn)
    ]
    total = row("total", None, meter.total, price)
    if rows:
        # Roles may have different LMs, so that there is no one price for all tokens.
        for name in ("usd", "usd_saved"):
            values = [each[name] for each in rows]
            total[name] = None if None in values else sum(values)
    return [*rows, total]


def cost_table(meter: Meter, price: Price | None) -> DataTable:
    """The cost of a run by role and round."""
    rows = cost_rows(meter, price)
    total = rows[-1]
    columns = {"calls": "calls", "cache_hits": "from cache", "fresh_input": "input", "cached_input": "cached input"}
    columns |= {"output": "output", "stored": "tokens from cache"}
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
