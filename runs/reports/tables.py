"""The table that terminal, page and MLflow show, and how texts and tables are printed: by rich, alike everywhere."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TextIO

from debate_judge.runs.flags.text_layout import width_of, wrap_text

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
    headings are bold and rules dim; elsewhere there are no styles and a fixed width (`runs.flags.text_layout`). Control
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
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    shown = Table(
        box=box.HORIZONTALS, show_edge=False, pad_edge=False, collapse_padding=True, header_style="bold",
        border_style="dim",
    )  # fmt: skip
    for name, *cells in zip(table.header, *table.rows, strict=True):
        numeric = all(map(_NUMERIC.fullmatch, cells))
        shown.add_column(Text(_printable(name)), justify="right" if numeric else "left", overflow="fold")
    for index, row in enumerate(table.rows, 1):
        cells = [_INTERVAL.sub(rf"\1,{_UNBREAKABLE}", _printable(cell).replace("\n", " ")) for cell in row]
        shown.add_row(*map(Text, cells), end_section=table.total and index == len(table.rows) - 1)
    console = Console(file=stream, force_terminal=stream.isatty(), width=width_of(stream))
    # Where not even the longest words have room, lines are longer than the terminal: rich would cut figures short.
    console.width = max(console.width, Measurement.get(console, console.options, shown).minimum)
    with console.capture() as captured:
        console.print(shown)
    lines = captured.get().replace(_UNBREAKABLE, " ").splitlines()
    return "\n".join(line.rstrip() for line in lines)


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in text)
