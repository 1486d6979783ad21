"""Exports and an LM that says which text it read, for the tests of the integrations."""

from __future__ import annotations

import re
from pathlib import Path

from debate_judge.programs import build_preset
from tests.fakes import requested, section
from tests.programs.tables import table_script
from tests.runs.score_command import TASK, export_of

TONE, HELP = TASK.aspects


def save_judge(folder: Path, *, together: int = 0, lm: str = "scripted/lm") -> Path:
    """An export that scores `tone` and `help` by single calls, up to `together` candidates in one."""
    return export_of(folder, TASK, build_preset("single", {"together": together} if together else {}), lm=lm)


def score_for(text: str) -> float:
    """What the scripted LM gives a text by its number; `reply 17` and `reply 18` get different scores."""
    return 1 + int(re.findall(r"\d+", text)[0]) % 9 / 2


def script(prompt: str) -> str:
    """A Scorer that names the text in its reason; about a text with `unreadable` it says nothing."""
    if "score" not in requested(prompt):
        return table_script(lambda _, text: score_for(text))(prompt)
    text = section(prompt, "candidate")
    if "unreadable" in text:
        return "I would rather not."
    return f"[[ ## rationale ## ]]\nI read {text.strip()}.\n\n[[ ## score ## ]]\n{score_for(text)}"
