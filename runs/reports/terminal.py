"""Prints texts and tables on a terminal or to a file, with rich, alike for every command."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from debate_judge.runs.flags.text_layout import width_of, wrap_text
from debate_judge.runs.reports.tables import DataTable

if TYPE_CHECKING:
    from rich.console import Console

_GAP = 2
"""Characters between two columns."""
_MIN_TEXT_WIDTH, _MIN_HEADING_WIDTH = 24, 10
"""Characters to which texts and headings are narrowed before a table is split."""
_NUMERIC = re.compile(r"[-–+$]?[\d.,]*( ?%)?")


class Verbatim(str):
    """Lines that are not wrapped: commands to copy, tables in Markdown, files."""


OutputBlock = str | DataTable
"""What `show` prints."""


def show(*blocks: OutputBlock, file: TextIO | None = None) -> None:
    """Print texts and tables, each on a new line, on standard output or to `file`; texts are wrapped unless `Verbatim`.

    Columns of numbers are aligned to the right, others to the left. In a table that is too wide, headings are wrapped,
    then texts; figures with their intervals are not. If that is not enough, the table is split: the other columns
    follow below with the key columns.

    On a terminal headings are bold and rules dim; elsewhere there are no styles and a fixed width
    (`runs.flags.text_layout`). Control characters are replaced, because names come from files of others.
    """
    stream: TextIO | None = file or sys.stdout
    if stream is None:
        # Standard output was closed before the command began.
        return
    for block in blocks:
        if isinstance(block, str):
            text = _printable(block)
            print(text if isinstance(block, Verbatim) else wrap_text(text, width_of(stream)), file=stream)
        else:
            if block.caption:
                print(wrap_text(_printable(block.caption), width_of(stream)) + "\n", file=stream)
            print("\n\n".join(_render_table(block, stream)), file=stream)


class _Column:
    """A column of a table with its least width."""

    def __init__(self, name: str, cells: Sequence[str]) -> None:
        from rich.cells import cell_len

        self.name, *self.cells = (_printable(text).replace("\n", " ") for text in (name, *cells))
        self.numeric = all(map(_NUMERIC.fullmatch, self.cells))
        self.no_letters = not any(character.isalpha() for cell in self.cells for character in cell)
        widest = max(map(cell_len, self.cells), default=0)
        self.width = max(widest, cell_len(self.name))
        # A heading is wrapped between words only.
        heading_width = max(widest, _MIN_HEADING_WIDTH)
        self.heading = textwrap.wrap(self.name, heading_width, break_long_words=False, break_on_hyphens=False) or [""]
        self.min_width = max(widest if self.no_letters else min(_MIN_TEXT_WIDTH, widest), *map(cell_len, self.heading))


def _render_table(table: DataTable, stream: TextIO) -> Iterator[str]:
    """The table, split into as many parts as the width requires."""
    from rich.console import Console

    width = width_of(stream)
    console = Console(file=stream, force_terminal=stream.isatty(), width=width)
    columns = [_Column(name, cells) for name, *cells in zip(table.header, *table.rows, strict=True)]
    for part in _split_columns(columns, table.keys, width):
        # A terminal too narrow for two columns breaks their lines; rich would cut figures short.
        console.width = max(width, _table_width(column.min_width for column in part))
        yield _render_columns(part, console, total=table.total)


def _split_columns(columns: Sequence[_Column], keys: int, width: int) -> list[list[_Column]]:
    """The columns of each part, the key columns in all of them."""
    parts = [[*columns[:keys]]]
    for column in columns[keys:]:
        if len(parts[-1]) > keys and _table_width(c.min_width for c in [*parts[-1], column]) > width:
            parts.append([*columns[:keys]])
        parts[-1].append(column)
    return parts


def _table_width(widths: Iterable[int]) -> int:
    """Width of a table with columns of these widths."""
    return sum(width + _GAP for width in widths) - _GAP


def _render_columns(columns: Sequence[_Column], console: Console, *, total: bool) -> str:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.HORIZONTALS, show_edge=False, pad_edge=False, collapse_padding=True, header_style="bold",
        border_style="dim",
    )  # fmt: skip
    wraps = _table_width(column.width for column in columns) > console.width
    for column in columns:
        table.add_column(
            Text("\n".join(column.heading) if wraps else column.name),
            justify="right" if column.numeric else "left",
            overflow="fold",
            no_wrap=column.no_letters,
            min_width=column.min_width,
        )
    last = len(columns[0].cells) - 1
    for index, row in enumerate(zip(*(column.cells for column in columns), strict=True)):
        table.add_row(*map(Text, row), end_section=total and index == last - 1)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in text)
