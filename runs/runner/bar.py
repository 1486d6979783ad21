"""The bar on a terminal, drawn by rich. Imported only where one is drawn."""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Column
from rich.text import Text

_BAR_WIDTH = 12
_BAR_COLUMNS = _BAR_WIDTH + 6
"""Columns that bar, share and the gaps between take."""


class _BarConsole(Console):
    """Leaves the cursor where it can be seen: a run that is killed could not bring it back."""

    def show_cursor(self, show: bool = True) -> bool:
        return False


class TerminalBar:
    """One bar with a text, at the foot of the terminal.

    What is written to stderr, and to stdout if that is a terminal, appears above it, whether by `print`, by `warnings`
    or by loggers that hold the stream.

    Args:
        stream: The terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        # Names in texts are no markup, and whoever draws a bar knows that this is a terminal.
        console = _BarConsole(
            file=stream, force_terminal=True, force_interactive=True, markup=False, highlight=False, emoji=False
        )
        text = TextColumn("{task.description}", markup=False, table_column=Column())
        share = TaskProgressColumn("{task.percentage:>3.0f}%", markup=False)
        bar = BarColumn(_BAR_WIDTH, complete_style="cyan", finished_style="cyan")
        self._text_columns, self._bar_columns = (text,), (share, bar, text)
        self._progress = Progress(
            *self._bar_columns,
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        )
        self._task = self._progress.add_task("", total=1.0)
        self._last_drawn: tuple[str, str, float | None, int] | None = None
        self._stream = stream
        self._handlers = _handlers_of(stream)
        self._progress.start()
        for handler in self._handlers:
            handler.setStream(sys.stderr)

    def draw(self, text: str, detail: str, share: float | None) -> None:
        """Draw it again, if there is anything new: a text, a last line, which is cut off where it is too long, and a
        bar, if the share of the work that is done is known.
        """
        width = self._progress.console.width
        new = (text, detail, share, width)
        if new != self._last_drawn:
            self._last_drawn = new
            self._progress.columns = self._text_columns if share is None else self._bar_columns
            detail_text = Text(detail)
            detail_text.truncate(width - (0 if share is None else _BAR_COLUMNS), overflow="ellipsis")
            self._progress.update(
                self._task, completed=share or 0.0, description="\n".join(filter(None, (text, detail_text.plain)))
            )
            self._progress.refresh()

    def close(self) -> None:
        """Take it off the terminal."""
        for handler in self._handlers:
            handler.setStream(self._stream)
        self._progress.stop()


def _handlers_of(stream: TextIO) -> list[logging.StreamHandler[Any]]:
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    handlers = (handler for logger in loggers if isinstance(logger, logging.Logger) for handler in logger.handlers)
    # Logging's handler of last resort holds no stream; it looks stderr up each time, and finds the one above the bar.
    return [
        handler
        for handler in handlers
        if isinstance(handler, logging.StreamHandler) and vars(handler).get("stream") is stream
    ]
