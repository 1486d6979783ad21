"""The bar on a terminal, drawn by rich. Imported only where one is drawn."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO

from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task
from rich.progress_bar import ProgressBar
from rich.table import Column
from rich.text import Text

_BAR_WIDTH = 12


class _BarConsole(Console):
    """Never hides the cursor: a run that is killed could not show it again."""

    def show_cursor(self, show: bool = True) -> bool:
        return False


class _BarColumn(ProgressColumn):
    def __init__(self, share: Callable[[], float | None]) -> None:
        # As wide as it is, however long the text beside it.
        super().__init__(table_column=Column(min_width=_BAR_WIDTH, no_wrap=True))
        self.share = share

    def render(self, task: Task) -> ProgressBar:
        share = self.share()
        return ProgressBar(1.0, share or 0.0, _BAR_WIDTH, pulse=share is None)


class _TextColumn(ProgressColumn):
    def __init__(self, text: Callable[[], str]) -> None:
        super().__init__(table_column=Column(overflow="ellipsis"))
        self.text = text

    def render(self, task: Task) -> Text:
        return Text(self.text(), no_wrap=True, overflow="ellipsis")


def progress_bar(stream: TextIO, share: Callable[[], float | None], text: Callable[[], str]) -> Progress:
    """One line at the foot of the terminal while the context is open; other output appears above it.

    Args:
        stream: The terminal.
        share: Returns the share of the work that is done; None if it is unknown.
        text: Returns what stands beside the bar.
    """
    console = _BarConsole(file=stream, force_terminal=True, markup=False, highlight=False, emoji=False)
    stdout_is_terminal = sys.stdout is not None and sys.stdout.isatty()
    bar = Progress(
        _BarColumn(share), _TextColumn(text), console=console, refresh_per_second=4, transient=True,
        redirect_stdout=stdout_is_terminal,
    )  # fmt: skip
    bar.add_task("")
    return bar
