"""Wraps help and output to the width of the terminal, and prints messages to stderr."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from typing import TextIO

WIDTH = 100
"""Columns of texts and tables at most; fewer on a narrower terminal."""

_INTERVAL = re.compile(r"(?<=\d) (?=\[)|(?<=\d,) (?=[-–−]?[\d.]+\])")
"""The spaces in `0.43 [0.36, 0.49]`."""
_PLACEHOLDER = "\0"


def width_of(stream: TextIO | None) -> int:
    """Columns for output to a stream: `WIDTH` for a file, a pipe, or None (a stream that was closed before the command
    started), whatever COLUMNS says."""
    return min(WIDTH, shutil.get_terminal_size().columns) if is_terminal(stream) else WIDTH


def is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def wrap_text(text: str, width: int) -> str:
    """`text` with each line wrapped; continuation lines are indented by two more than the first.

    No word is broken, and a value and its interval stay in one line.
    """
    return "\n".join(part for line in text.split("\n") for part in _lines(line, width))


def _lines(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip(" ")) + 2)
    unbreakable = _INTERVAL.sub(_PLACEHOLDER, line)
    return [part.replace(_PLACEHOLDER, " ") for part in wrap_line(unbreakable, width, indent)]


def paragraphs(text: str, width: int) -> str:
    """A docstring in `width` columns: paragraphs are wrapped, indented lines, such as commands, are kept."""
    joined = re.sub(r"(?<=\S)\n(?=\S)", " ", text.strip())
    return "\n".join(line if line.startswith(" ") else "\n".join(wrap_line(line, width)) for line in joined.split("\n"))


def wrap_line(line: str, width: int, indent: str = "") -> list[str]:
    """`line` in wrapped lines; hyphenated words such as `chateval-single` are not broken, because users type them."""
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def print_error(error: object) -> None:
    """Print an error; it is wrapped on a terminal only, so that a log can be searched for whole lines."""
    text = f"error: {error}"
    print(wrap_text(text, width_of(sys.stderr)) if is_terminal(sys.stderr) else text, file=sys.stderr)


def say(text: object) -> None:
    """Print a message to stderr; stdout has results only."""
    print(text, file=sys.stderr)
