"""Files of rows in every format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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
