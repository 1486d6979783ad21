"""`score --engine ray` with actors in this process in place of Ray, for tests of the command."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from debate_judge.programs.lm.options import BudgetCaps
from debate_judge.runs import score
from debate_judge.runs.distributed import engine, pipeline
from debate_judge.runs.distributed.job import ScoringJob
from debate_judge.runs.distributed.out_folder import OutFolder
from debate_judge.runs.distributed.parts import parts_of
from debate_judge.runs.distributed.scorer import PartScorer
from debate_judge.runs.distributed.service import RunService
from tests.config_keys import keys
from tests.runs.distributed_run import AnsweringServer, InProcess, program


class Command:
    """The command in a folder of its own."""

    def __init__(self, folder: Path, server: AnsweringServer) -> None:
        self.folder, self.server = folder, server
        self.program = program(folder)
        self.out = folder / "out.jsonl"

    def __call__(self, *more: str, **replace: str | Path) -> int:
        arguments: dict[str, str | Path] = {
            "--engine": "ray",
            "--in": self.folder / "in*",
            "--out": self.out,
            "--store": self.folder / "store",
            "--api-base": self.server.url,
        }
        program, part = replace.pop("program", self.program), replace.pop("part", 3)
        arguments |= {"--" + name.replace("_", "-"): value for name, value in replace.items()}
        flags = [str(part) for pair in arguments.items() for part in pair]
        return score.main([str(program), *flags, *keys(part=part), *more])

    def rows(self) -> list[str]:
        return [line for f in sorted(self.out.glob("part-*")) for line in f.read_text(encoding="utf-8").splitlines()]


@contextmanager
def in_this_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """The command, with an LM that answers."""
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    services: dict[str, RunService] = {}

    @contextmanager
    def cluster(address: str | None, actors: int) -> Iterator[None]:
        yield None

    @contextmanager
    def service(ray: Any, run: str, out: OutFolder, shares: Sequence[BudgetCaps]) -> Iterator[str]:
        services[run] = RunService(out, run, shares)
        yield run

    def score_parts(ray: Any, parts: Any, job: ScoringJob, address: str, actors: int) -> Iterator[bytes]:
        scorer = PartScorer(job, InProcess(services[address]))
        try:
            for piece, there in pipeline.with_standing(parts):
                for part in parts_of(piece, parts.reading, parts.shape, parts.out, there):
                    yield pickle.dumps(scorer.score(part))
        finally:
            scorer.close()

    monkeypatch.setattr(engine, "require_ray", lambda: None)
    monkeypatch.setattr(engine, "cluster", cluster)
    monkeypatch.setattr(engine, "service", service)
    monkeypatch.setattr(engine, "ask_status", lambda ray, address, stop: services[address].status(stop))
    monkeypatch.setattr(pipeline, "score_parts", score_parts)
    with AnsweringServer() as server:
        yield Command(folder, server)
