"""The one table: what terminal, page and MLflow show are the same cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class DataTable:
    """A table of finished texts; a column of numbers is aligned to the right by itself."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    total: bool = False
    """Whether the last row sums up or averages the others."""
    keys: int = 1
    """Number of first columns that say what a row is about; they are in each part of a table that is too wide."""
    kind: Literal["table"] = "table"

    def __post_init__(self) -> None:
        # A table that was read from a file is equal to the one that was written.
        object.__setattr__(self, "header", tuple(self.header))
        object.__setattr__(self, "rows", tuple(map(tuple, self.rows)))


def markdown(table: DataTable) -> str:
    """A table as Markdown, below its caption."""
    lines = ["| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |" for cells in [table.header, *table.rows]]
    lines.insert(1, "|" + "---|" * len(table.header))
    return "\n".join([*([table.caption, ""] if table.caption else []), *lines])
