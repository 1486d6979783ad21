"""Files of rows in every format."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from debate_judge.data.schema import Aspect, Scale, Task

TASK = Task(
    "support",
    "customer message",
    "reply",
    (Aspect("tone", "How it treats the customer.", Scale(1, 5)), Aspect("solved", "Is it solved?", Scale(0, 1))),
)

Table = Sequence[Sequence[object]]


def separated(path: Path, rows: Table, mark: str, encoding: str = "utf-8", comma: bool = False) -> Path:
    def cell(value: object) -> str:
        text = str(value)
        if comma and isinstance(value, float):
            text = text.replace(".", ",")
        return f'"{text}"' if any(c in text for c in ",;\t\n") else text

    path.write_bytes("".join(mark.join(map(cell, row)) + "\r\n" for row in rows).encode(encoding))
    return path


def written(path: Path, *rows: Mapping[str, Any]) -> Path:
    """A table of commas, or JSON lines, as the suffix says."""
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    else:
        path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    return path
