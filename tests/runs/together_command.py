"""Exports whose judges share calls, their input and their rows, for the tests of commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs.compiled import CompiledJudge
from debate_judge.programs.judge import Item
from debate_judge.runs.export.folder import save
from tests.fakes import section
from tests.programs.tables import block, table_script

TONE = Aspect("tone", "How the reply treats the customer.", Scale(1, 5))
HELP = Aspect("help", "Whether it helps.", Scale(1, 5))
TASK = Task("support", "customer message", "reply", (TONE, HELP))


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
    def line(g: int) -> str:
        texts = [{"id": f"c{c}", "text": f"reply {g * 10 + c}"} for c in range(candidates)]
        return json.dumps({"group": f"g{g}", "source": f"message {g}", "candidates": texts})

    (folder / "in.jsonl").write_text("".join(f"{line(g)}\n" for g in range(groups)))
    flags = {"--in": folder / "in.jsonl", "--store": folder / "store"}
    return [str(program), *(str(block) for pair in flags.items() for block in pair)]


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text().splitlines()]
