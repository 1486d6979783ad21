"""Three candidates in two aspects, and what each cell is worth, for the tests of several aspects in one call."""

from __future__ import annotations

import re

from dspy import lm15

from tests.fakes import Script, requested, section
from tests.programs.tables import cells, joint_reading, part, shown

THREE = cells("one", "two", "three")
"""Three candidates in two aspects; all of coherence come first."""

WORTH = {"one": 1, "two": 2, "three": 3}

TRUE = [1, 2, 3, 10, 9, 8]
"""Their scores: coherence as `WORTH` has it, plain style the other way round on its own scale."""


def true(prompt: str, text: str, aspect: str) -> float:
    return WORTH[text] if aspect == "coherence" else 11 - WORTH[text]


HONEST = joint_reading(true)


def name_of(prompt: str, text: str, aspect: str) -> str:
    number = next(number for number, told in shown(prompt).items() if told == text)
    return f"candidate_{number}_{aspect}"


ALL = [(item.text, "plain_style" if "style" in item.aspect.name else "coherence") for item in THREE]


# --- calls that fail ---


def limited(most: int) -> Script:
    """An LM whose context holds no more than `most` cells; it finds an issue in everything."""
    honest = joint_reading(true, lambda *_: "TOO LOW")

    def script(prompt: str) -> str:
        if section(prompt, "candidate"):
            score = true(prompt, section(prompt, "candidate"), section(prompt, "aspect").partition(" (")[0])
            field = "final_score" if "final_score" in requested(prompt) else "score"
            if "decision" in requested(prompt):
                return "\n\n".join([part("review", "Well."), part("decision", "ISSUE"), part("feedback", "It is.")])
            return f"{part('rationale', 'So.')}\n\n{part('reasoning', 'So.')}\n\n{part(field, f'{score:g}')}"
        if len(shown(prompt)) * max(1, len(re.findall("## aspect_", prompt))) > most:
            raise lm15.ContextLengthError("prompt is too long", status=400)
        return honest(prompt)

    return script
