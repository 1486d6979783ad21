"""The guide to the raters as a part of a role's instructions: inserting and extracting it.

The guide is part of the instructions and not an input field, so that DSPy's optimizers and exports carry it. All roles
of a debate read it, because the Scorer's instructions are the standard in all prompts.
"""

from __future__ import annotations

import re

HEADING = "Guide to these raters, learnt from their ratings; it decides where it differs from all else here:"
"""The line between a role's own instructions and the guide."""


def with_guide(instructions: str, guide: str) -> str:
    """The instructions with this guide in place of any other; an empty guide removes it."""
    without = instructions.partition(HEADING)[0].rstrip()
    return f"{without}\n\n{HEADING}\n{guide.strip()}" if guide.strip() else without


_ANCHOR = r"\d+(?:\.\d+)? (?:[^.;\d]|\d|\.(?=\d))+"
_ANCHORS = re.compile(rf"(?:(?<=[.!?:] )|^){_ANCHOR}(?:; {_ANCHOR})+\.(?: |$)")
"""The part of a definition that describes points of the scale: `1 is a heap; 3 can be followed; 5 leads on.`"""


def without_anchors(definition: str) -> str:
    """A definition without its descriptions of points of the scale, because a guide has its own."""
    return _ANCHORS.sub("", definition).rstrip()


def guide_in(instructions: str) -> str:
    """The guide in the instructions; empty if they have none."""
    return instructions.partition(HEADING)[2].strip()
