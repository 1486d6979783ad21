"""Exports whose judges share calls, their input and their rows, for the tests of commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from debate_judge.programs.compiled import CompiledJudge
from debate_judge.programs.judge import Item
from debate_judge.runs.export.folder import save
from tests.fakes import section
from tests.programs.tables import block, table_script
from tests.runs.score_command import TASK, line

TONE, HELP = TASK.aspects


def digit(prompt: str, text: str) -> int:
    return 1 + (int(text.split()[-1]) + section(prompt, "aspect").startswith("tone")) % 5


def script(prompt: str) -> str:
    if section(prompt, "candidate"):
        return f"{block('rationale', 'So.')}\n\n{block('score', digit(prompt, section(prompt, 'candidate')))}"
    return table_script(digit)(prompt)


def stream(groups: int, candidates: int) -> Iterator[Item]:
    for g in range(groups):
        for c in range(candidates):
            for aspect in TASK.aspects:
                yield Item(f"g{g}", f"c{c}", TASK, aspect, f"message {g}", f"reply {g * 10 + c}")


# --- exports and score.py ---


def exported(folder: Path, judge: CompiledJudge, spec: str = "scripted/lm") -> Path:
    return save(folder / "program", judge, lm={"spec": spec}, evidence={}, name="x")


def arguments(folder: Path, program: Path, groups: int, candidates: int) -> list[str]:
    (folder / "in.jsonl").write_text("".join(f"{line(g, candidates)}\n" for g in range(groups)))
    return [str(program), "--in", str(folder / "in.jsonl"), "--store", str(folder / "store")]


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text().splitlines()]
