"""The command that scores a file, in a folder of its own, and what a scripted LM answers it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs import build, build_preset
from debate_judge.programs.judge import AspectJudge, CompiledJudge, Judge
from debate_judge.runs import loaded, score
from debate_judge.runs.export import save
from tests.fakes import Script, ScriptedLM, debater, scripted_lm, section

ROOT = Path(__file__).parent.parent.parent

TASK = Task(
    "support",
    "customer message",
    "reply",
    (
        Aspect("tone", "How the reply treats the customer.", Scale(1, 5)),
        Aspect("help", "Whether it helps.", Scale(1, 5)),
    ),
)


def digit(prompt: str) -> str:
    """A score that depends on the candidate and the aspect, so that a swapped row shows."""
    number = int(section(prompt, "candidate").split()[-1])
    return str(1 + (number + section(prompt, "aspect").startswith("tone")) % 5)


SCRIPT = debater(score=digit)


def over_http(script: Script) -> Callable[[bytes], str]:
    """What a script makes of the messages in the body of a request."""
    return lambda body: script("\n\n".join(message["content"] for message in json.loads(body)["messages"]))


def export_of(
    folder: Path, task: Task, *judges: Judge | AspectJudge, lm: str = "scripted/lm", **evidence: object
) -> Path:
    """An export with these judges of the task's aspects, of which the last judges all further ones."""
    of_aspects = [judge if isinstance(judge, AspectJudge) else AspectJudge(judge) for judge in judges]
    of_aspects += of_aspects[-1:] * (len(task.aspects) - len(of_aspects))
    compiled = CompiledJudge(task, dict(zip((aspect.name for aspect in task.aspects), of_aspects, strict=True)))
    return save(folder, compiled, lm={"spec": lm}, evidence=evidence, name="x")


def line(group: int, candidates: int = 2, **more: Any) -> str:
    texts = [{"id": f"c{i}", "text": f"reply {group * 10 + i}"} for i in range(candidates)]
    return json.dumps({"group": f"g{group}", "source": f"message {group}", "candidates": texts, **more})


TABLE = """id,customer,reason,answer,note
007,message 0,a,reply 0,=1+1
008,message 0,b,reply 1,
010,message 2,c,reply 12,"two
lines, and a ""quote\"\""
"""


class ScoreCommand:
    """`debate score` on an export, in a folder of its own, with these flags."""

    def __init__(self, folder: Path, program: Path, **flags: str | Path) -> None:
        self.folder, self.program, self.flags = folder, program, flags
        self.source, self.out = folder / "in.jsonl", folder / "out.jsonl"

    def __call__(self, *more: str, program: Path | None = None, **flags: str | Path) -> int:
        flags = {"in": self.source, "out": self.out, "store": self.folder / "store", **self.flags, **flags}
        arguments = [str(part) for name, value in flags.items() for part in (f"--{name}", value)]
        return score.main([str(program or self.program), *arguments, *more])

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(row) for row in self.out.read_text(encoding="utf-8").splitlines()]


class Command(ScoreCommand):
    """With a scripted LM."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        debate = build("debate", {"persona": "plain", "rounds": 2, "tie_breaker": False})
        super().__init__(folder, export_of(folder / "program", TASK, build_preset("single", {}), debate))
        self.lm = scripted_lm(SCRIPT)
        self.script: Callable[[str], str] = SCRIPT
        self.write([line(g) for g in range(5)])
        monkeypatch.setattr(loaded, "make_lm", self._make)

    def _make(self, spec: str, *, store: Any, concurrency: int, **rest: Any) -> ScriptedLM:
        self.lm = scripted_lm(self.script, store=store, concurrency=concurrency, latency=0.001)
        return self.lm

    def write(self, lines: list[str]) -> None:
        self.source.write_text("".join(text + "\n" for text in lines), encoding="utf-8")

    def write_table(self, text: str = TABLE) -> tuple[str, ...]:
        """Score a table of other columns from now on; returns the flags that name them."""
        self.source = self.folder / "in.csv"
        self.source.write_text(text, encoding="utf-8", newline="")
        return ("--columns", "source=customer,text=answer")
