"""The table that terminal, page and MLflow show, and how texts and tables are printed: by rich, alike everywhere."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TextIO

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
