"""The command that scores a file, in a folder of its own, with a scripted LM."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs import build, build_preset
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs import score
from debate_judge.runs.export import loaded
from debate_judge.runs.export.folder import save
from tests.fakes import ScriptedLM, debater, scripted_lm, section

ROOT = Path(__file__).parent.parent.parent

TONE = Aspect("tone", "How the reply treats the customer.", Scale(1, 5))
HELP = Aspect("help", "Whether it helps.", Scale(1, 5))
TASK = Task("support", "customer message", "reply", (TONE, HELP))


def digit(prompt: str) -> str:
    """A score that depends on the candidate and the aspect, so that a swapped row shows."""
    number = int(section(prompt, "candidate").split()[-1])
    return str(1 + (number + section(prompt, "aspect").startswith("tone")) % 5)


SCRIPT = debater(score=digit)


def group(number: int, candidates: int = 2, **more: Any) -> dict[str, Any]:
    """A record of the input."""
    texts = [{"id": f"c{i}", "text": f"reply {number * 10 + i}"} for i in range(candidates)]
    return {"group": f"g{number}", "source": f"message {number}", "candidates": texts, **more}


def line(number: int, candidates: int = 2, **more: Any) -> str:
    return json.dumps(group(number, candidates, **more))


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]


def program(folder: Path, spec: str = "scripted/lm", rounds: int = 2) -> Path:
    """An export: a single call for one aspect, a debate for the other."""
    judges = {
        "tone": AspectJudge(build_preset("single", {})),
        "help": AspectJudge(build("debate", {"persona": "plain", "rounds": rounds, "tie_breaker": False})),
    }
    return save(folder / "program", CompiledJudge(TASK, judges), lm={"spec": spec}, evidence={}, name="x")


class Command:
    """`score.py` in a folder of its own, with a scripted LM."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.out = folder / "out.jsonl"
        self.source = folder / "in.jsonl"
        self.lm = scripted_lm(SCRIPT)
        self.script: Callable[[str], str] = SCRIPT
        self.write([line(g) for g in range(5)])
        self.program = program(folder)
        monkeypatch.setattr(loaded, "make_lm", self._make)

    def _make(self, spec: str, *, store: Any, concurrency: int, **rest: Any) -> ScriptedLM:
        self.lm = scripted_lm(self.script, store=store, concurrency=concurrency, latency=0.001)
        return self.lm

    def write(self, lines: list[str]) -> None:
        self.source.write_text("".join(text + "\n" for text in lines), encoding="utf-8")

    def __call__(self, *more: str, **replace: str | Path) -> int:
        arguments: dict[str, str | Path] = {
            "--in": self.source,
            "--out": self.out,
            "--store": self.folder / "store",
        }
        program = str(replace.pop("program", self.program))
        arguments |= {"--" + k: v for k, v in replace.items()}
        return score.main([program, *(str(part) for pair in arguments.items() for part in pair), *more])

    def rows(self) -> list[dict[str, Any]]:
        return rows_of(self.out)
