"""The guide to the raters inside a role's instructions: inserting it and reading it back.

The guide is part of the instructions and not an input field, so that DSPy's optimizers and exports carry it. All roles
of a debate read it, because the Scorer's instructions are the standard in all prompts.
"""

from __future__ import annotations

import re

HEADING = "Guide to these raters, learnt from their ratings; it decides where it differs from all else here:"
"""The line between a role's own instructions and the guide."""


def with_guide(instructions: str, guide: str) -> str:
    """The instructions with `guide`, which replaces one that they contain; an empty guide removes it."""
    base_text = instructions.partition(HEADING)[0].rstrip()
    return f"{base_text}\n\n{HEADING}\n{guide.strip()}" if guide.strip() else base_text


_ANCHOR = r"\d+(?:\.\d+)? (?:[^.;\d]|\d|\.(?=\d))+"
_ANCHORS = re.compile(rf"(?:(?<=[.!?:] )|^){_ANCHOR}(?:; {_ANCHOR})+\.(?: |$)")
"""What a definition says of the points of its scale: `1 is a heap; 3 can be followed; 5 leads on.`"""


def without_anchors(definition: str) -> str:
    """A definition without its anchors for points of the scale, because a guide has anchors of its own."""
    return _ANCHORS.sub("", definition).rstrip()


def guide_in(instructions: str) -> str:
    """The guide in the instructions, or an empty text."""
    return instructions.partition(HEADING)[2].strip()
