"""A journal with replies in it."""

from __future__ import annotations

from pathlib import Path

from debate_judge.programs.lm.journal import Journal
from debate_judge.programs.lm.reply import Reply


def key(number: int) -> str:
    return f"{number:032x}"


def filled(folder: Path, *replies: Reply) -> Path:
    """Write the replies under the keys 0, 1, ... and return the segment."""
    before = set(folder.glob("*"))
    journal = Journal(folder)
    for number, reply in enumerate(replies):
        journal.put(key(number), "scorer", reply)
    journal.close()
    (segment,) = set(folder.glob("*")) - before
    return segment


REPLIES = [
    Reply("[[ ## score ## ]]\n4", 120, 7, 64, "stop"),
    Reply("", 0, 0, 0, "content_filter"),
    Reply('tab\tquote" backslash\\ return\r\nnull\0 line\u2028separator\x85', 1, 2, 0, "length"),
    Reply("Grüße, 世界 🎭 é é", 3, 4),
]
