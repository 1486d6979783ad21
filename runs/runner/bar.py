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
"""Width of the bar, the percentage and the gaps between them."""


class _BarConsole(Console):
    """Never hides the cursor: a run that is killed could not show it again."""

    def show_cursor(self, show: bool = True) -> bool:
        return False


class TerminalBar:
    """One bar with a text, at the foot of the terminal.

    Output to stderr, and to stdout if that is a terminal, appears above it, whether by `print`, by `warnings` or by
    loggers whose handlers have the stream.

    Args:
        stream: The terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        # No markup in texts; that the stream is a terminal was checked by the caller.
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
        """Redraw the bar if anything changed.

        Args:
            text: The first line.
            detail: The second line, truncated to the width of the terminal.
            share: Share of the work that is done; None for no bar.
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
        """Remove it from the terminal."""
        for handler in self._handlers:
            handler.setStream(self._stream)
        self._progress.stop()


def _handlers_of(stream: TextIO) -> list[logging.StreamHandler[Any]]:
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    handlers = (handler for logger in loggers if isinstance(logger, logging.Logger) for handler in logger.handlers)
    # Logging's handler of last resort looks stderr up each time, and so already writes above the bar.
    return [
        handler
        for handler in handlers
        if isinstance(handler, logging.StreamHandler) and vars(handler).get("stream") is stream
    ]
