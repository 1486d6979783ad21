"""A guide to the raters inside a role's instructions: how it is put there, and how it is found again.

The guide is part of the instructions, and not an input field, so that DSPy's optimizers and exports carry it. The
Scorer's instructions are the standard of a debate, so that all of its roles read the guide.
"""

from __future__ import annotations

HEADING = "Guide to these raters, learnt from their ratings; it decides where it differs from all else here:"
"""The line between a role's own instructions and the guide."""


def with_guide(instructions: str, guide: str) -> str:
    """The instructions with `guide` in place of the one that they may already hold; an empty guide removes it."""
    own = instructions.partition(HEADING)[0].rstrip()
    return f"{own}\n\n{HEADING}\n{guide.strip()}" if guide.strip() else own


def guide_in(instructions: str) -> str:
    """The guide that the instructions hold, or an empty text."""
    return instructions.partition(HEADING)[2].strip()
