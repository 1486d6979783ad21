"""What a command prints of texts and tables, as it stands in a file."""

from __future__ import annotations

import io

from debate_judge.runs.reports.tables import OutputBlock, show


def printed(*blocks: OutputBlock) -> str:
    """The lines as they are outside of a terminal."""
    out = io.StringIO()
    show(*blocks, file=out)
    return out.getvalue()


def unwrapped(text: str) -> str:
    """What was printed, in one line: for what is said and not where its lines end."""
    return " ".join(text.split())
