"""Texts and tables on a terminal or in a file, drawn by rich: the same for every command."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from debate_judge.runs.flags.text_layout import width_of, wrap_text
from debate_judge.runs.reports.tables import DataTable, markdown

if TYPE_CHECKING:
    from rich.console import Console

_GAP = 2
"""Columns between two of a table."""
_NARROW, _HEADING = 24, 10
"""Columns that a text, and a heading, may be narrowed to before a table goes on below."""
_NUMBER = re.compile(r"[-–+$]?[\d.,]*( ?%)?")


class Verbatim(str):
    """Lines that are not wrapped: commands to copy, tables in Markdown, files."""


Printed = str | DataTable


def show(*blocks: Printed, to: TextIO | None = None, in_markdown: bool = False) -> None:
    """Print texts and tables, each from a new line on, on standard output or `to`; texts are wrapped unless `Verbatim`.

    In a table, columns of nothing but numbers stand to the right, others to the left. A table that is too wide has its
    headings, then its texts in several lines; figures with their intervals stay whole. If that is not enough, it goes
    on below with the columns that are left and its key columns. With `in_markdown` nothing is wrapped or parted.

    On a terminal headings are bold and rules dim; elsewhere there are no styles and `prose.WIDTH` columns, whatever the
    environment says. Characters that could steer a terminal are replaced: names come from files of others.
    """
    stream: TextIO | None = to or sys.stdout
    if stream is None:
        # Standard output was closed before the command began.
        return
    for block in blocks:
        if in_markdown:
            print(_printable(markdown(block) if isinstance(block, DataTable) else block), file=stream)
        elif isinstance(block, str):
            text = _printable(block)
            print(text if isinstance(block, Verbatim) else wrap_text(text, width_of(stream)), file=stream)
        else:
            if block.caption:
                print(wrap_text(_printable(block.caption), width_of(stream)) + "\n", file=stream)
            print("\n\n".join(_drawn(block, stream)), file=stream)


class _Column:
    """A column, and how narrow it can be."""

    def __init__(self, name: str, cells: Sequence[str]) -> None:
        from rich.cells import cell_len

        self.name, *self.cells = (_printable(text).replace("\n", " ") for text in (name, *cells))
        self.number = all(map(_NUMBER.fullmatch, self.cells))
        self.figures = not any(sign.isalpha() for cell in self.cells for sign in cell)
        widest = max(map(cell_len, self.cells), default=0)
        self.width = max(widest, cell_len(self.name))
        # A heading is folded between words only.
        room = max(widest, _HEADING)
        self.heading = textwrap.wrap(self.name, room, break_long_words=False, break_on_hyphens=False) or [""]
        self.least = max(widest if self.figures else min(_NARROW, widest), *map(cell_len, self.heading))


def _drawn(table: DataTable, stream: TextIO) -> Iterator[str]:
    """The table, in as many parts as the width asks for."""
    from rich.console import Console

    width = width_of(stream)
    console = Console(file=stream, force_terminal=stream.isatty(), width=width)
    columns = [_Column(name, cells) for name, *cells in zip(table.header, *table.rows, strict=True)]
    for part in _parts(columns, table.keys, width):
        # A terminal too narrow for two columns breaks their lines; rich would cut figures short.
        console.width = max(width, _extent(column.least for column in part))
        yield _draw(part, console, total=table.total)


def _parts(columns: Sequence[_Column], keys: int, width: int) -> list[list[_Column]]:
    """The columns of each part, the key columns in all of them."""
    parts = [[*columns[:keys]]]
    for column in columns[keys:]:
        if len(parts[-1]) > keys and _extent(each.least for each in [*parts[-1], column]) > width:
            parts.append([*columns[:keys]])
        parts[-1].append(column)
    return parts


def _extent(widths: Iterable[int]) -> int:
    """Columns of the terminal that a table with columns so wide takes."""
    return sum(width + _GAP for width in widths) - _GAP


def _draw(columns: Sequence[_Column], console: Console, *, total: bool) -> str:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.HORIZONTALS, show_edge=False, pad_edge=False, collapse_padding=True, header_style="bold",
        border_style="dim",
    )  # fmt: skip
    folded = _extent(column.width for column in columns) > console.width
    for column in columns:
        table.add_column(
            Text("\n".join(column.heading) if folded else column.name),
            justify="right" if column.number else "left",
            overflow="fold",
            no_wrap=column.figures,
            min_width=column.least,
        )
    last = len(columns[0].cells) - 1
    for number, row in enumerate(zip(*(column.cells for column in columns), strict=True)):
        table.add_row(*map(Text, row), end_section=total and number == last - 1)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in text)
