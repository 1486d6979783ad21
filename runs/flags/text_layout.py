"""Sentences in lines that fit the terminal, in the help of commands and in what they print."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from typing import TextIO

WIDTH = 100
"""Columns that texts and tables fit into; fewer where a terminal has fewer."""

_INTERVAL = re.compile(r"(?<=\d) (?=\[)|(?<=\d,) (?=[-–−]?[\d.]+\])")
"""The blanks of `0.43 [0.36, 0.49]`."""
_PLACEHOLDER = "\0"


def width_of(stream: TextIO | None) -> int:
    """Columns for what is written to a stream: `WIDTH` in a file or a pipe, whatever the environment says; None is one
    that was closed before the command began."""
    return min(WIDTH, shutil.get_terminal_size().columns) if is_terminal(stream) else WIDTH


def is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def wrap_text(text: str, width: int) -> str:
    """Each line of `text` in as many lines as it takes; further lines are indented by two more than the first.

    No word is broken, however long, and no figure is parted from its interval.
    """
    return "\n".join(part for line in text.split("\n") for part in _lines(line, width))


def _lines(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip(" ")) + 2)
    whole = _INTERVAL.sub(_PLACEHOLDER, line)
    return [part.replace(_PLACEHOLDER, " ") for part in wrap_line(whole, width, indent)]


def paragraphs(text: str, width: int) -> str:
    """A docstring for `width` columns. Its paragraphs are wrapped anew; indented lines, such as commands, stay."""
    joined = re.sub(r"(?<=\S)\n(?=\S)", " ", text.strip())
    return "\n".join(line if line.startswith(" ") else "\n".join(wrap_line(line, width)) for line in joined.split("\n"))


def wrap_line(line: str, width: int, indent: str = "") -> list[str]:
    """The lines that `line` takes; words such as `chateval-single` stay whole, for they are to be typed."""
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def print_error(error: object) -> None:
    """Print an error. Only a terminal gets it wrapped: elsewhere, a line of it can be searched for as a whole."""
    text = f"error: {error}"
    print(wrap_text(text, width_of(sys.stderr)) if is_terminal(sys.stderr) else text, file=sys.stderr)


def say(text: object) -> None:
    """Print what is no result: on standard error."""
    print(text, file=sys.stderr)
