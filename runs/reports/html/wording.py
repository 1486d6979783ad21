"""Texts of a report that are worked out before the page is made: differences word by word, cells of tables."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

MOST_WORDS = 20_000
"""Of both texts together; longer ones are shown one after the other."""

_FIGURE = r"[-−+<>~]?\s?\$?\d[\d.,]*\s?%?"
_NUMBER = re.compile(rf"{_FIGURE}(\s?/\s?{_FIGURE})*( \*)?( \[[^\]]*\])?")
"""Also several with a slash between them, the star of a best value, and an interval."""


class WordRun(NamedTuple):
    """Words that a difference treats alike."""

    kind: Literal["same", "added", "removed"]
    text: str


def changed_words(before: str, after: str) -> list[WordRun]:
    """The words of both texts in order, each kept, removed or added; blanks go with the word before them."""
    old, new = (re.findall(r"\s*\S+\s*|\s+", text) for text in (before, after))
    if len(old) + len(new) > MOST_WORDS:
        return [run for run in (WordRun("removed", before), WordRun("added", after)) if run.text]
    # Words are compared without the blanks around them, so that a line broken elsewhere is no change.
    matcher = difflib.SequenceMatcher(None, [w.strip() for w in old], [w.strip() for w in new], autojunk=False)
    runs: list[WordRun] = []
    for kind, start, end, new_start, new_end in matcher.get_opcodes():
        if kind == "equal":
            runs.append(WordRun("same", "".join(new[new_start:new_end])))
            continue
        runs += [WordRun("removed", "".join(old[start:end]))] if end > start else []
        runs += [WordRun("added", "".join(new[new_start:new_end]))] if new_end > new_start else []
    return runs


def column_looks(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """For each column `number` where it holds numbers alone, dashes aside, `long` where it holds prose, or nothing."""
    columns = [[row[i] for row in rows if i < len(row)] for i in range(len(header))]
    return [_column_look(cells) for cells in columns]


def _column_look(cells: Sequence[str]) -> str:
    known = [cell for cell in cells if cell not in ("", "–")]
    if known and all(_NUMBER.fullmatch(cell) for cell in known):
        return "number"
    return "long" if any(len(cell) > 28 for cell in known) else ""


def with_interval(cell: str) -> tuple[str, str]:
    """A cell as its value and its interval, which may stand below it."""
    value, bracket, rest = cell.partition(" [")
    return (value, "[" + rest) if bracket and cell.endswith("]") else (cell, "")
