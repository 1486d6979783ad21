"""The table that terminal, page and MLflow show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class DataTable:
    """A table of formatted cells; columns of numbers are aligned to the right."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    total: bool = False
    """Whether the last row sums up or averages the others."""
    keys: int = 1
    """Number of leading columns that identify a row; they are repeated where a table is split."""
    kind: Literal["table"] = "table"

    def __post_init__(self) -> None:
        # So that a table that was read from a file equals the one that was written.
        object.__setattr__(self, "header", tuple(self.header))
        object.__setattr__(self, "rows", tuple(map(tuple, self.rows)))


def markdown(table: DataTable) -> str:
    """The table as Markdown, below its caption."""
    lines = ["| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |" for cells in [table.header, *table.rows]]
    lines.insert(1, "|" + "---|" * len(table.header))
    return "\n".join([*([table.caption, ""] if table.caption else []), *lines])
