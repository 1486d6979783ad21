"""Commands that run at the same time on one store: what they have in common is asked and paid once."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.optimize import compile as compile_command
from debate_judge.programs import build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs import score
from debate_judge.runs.export.folder import save
from debate_judge.runs.tracking.store import open_tracking_store
from tests.config_keys import keys
from tests.fakes import debater
from tests.faulty_server import FaultyServer
from tests.optimize.small_corpus import small_corpus

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


def answer(body: bytes) -> str:
    prompt = "\n\n".join(message["content"] for message in json.loads(body)["messages"])
    return debater(score=str(1 + len(prompt) % 5))(prompt)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    with FaultyServer(answer, latency=0.01) as server:
        yield server


def run_shared_pass(*commands: Callable[[], int]) -> list[int | None]:
    """Run commands in processes of their own, at the same time; returns their exit codes."""
    context = multiprocessing.get_context("fork")
    begin = context.Barrier(len(commands))

    def run(command: Callable[[], int]) -> None:
        begin.wait(60)
        os._exit(command())

    processes = [context.Process(target=run, args=(command,), daemon=True) for command in commands]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    return [process.exitcode for process in processes]


def note(number: int) -> dict[str, str]:
    return {"id": "c", "text": f"note {'x' * number}"}


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture
def scoring(server: FaultyServer, tmp_path: Path) -> list[list[str]]:
    """The arguments of two commands that score files which have texts in common."""
    task = Task("notes", "letter", "note", (Aspect("clarity", "Is it clear?", Scale(1, 5)),))
    single = build("debate", {"persona": "plain", "rounds": 1, "tie_breaker": False})
    judge = CompiledJudge(task, {"clarity": AspectJudge(single)})
    export = save(tmp_path / "export", judge, lm={"spec": "openai/mock"}, evidence={}, name="x")
    texts = [json.dumps({"group": f"g{n}", "source": "A letter.", "candidates": [note(n)]}) for n in range(40)]
    found = []
    for name, lines in {"a": texts[:30], "b": texts[10:]}.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
        arguments = [str(export), "--in", str(tmp_path / f"{name}.jsonl"), "--api-base", server.url]
        found.append([*arguments, "--out", str(tmp_path / f"{name}.scores.jsonl"), "--concurrency", "4"])
    return found


@pytest.mark.parametrize("machines", [1, 2])
def test_two_files_that_are_scored_at_once_pay_once_for_the_texts_in_both(
    machines: int, scoring: list[list[str]], server: FaultyServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """On one machine by the folder of replies; on two, each with a folder of its own, by a database."""
    shared = keys(replies=request.getfixturevalue("database")) if machines > 1 else []
    commands = [
        lambda own=own, number=number: score.main([*own, *shared, "--store", str(tmp_path / f"store {number}")])
        for number, own in zip((0, machines - 1), scoring, strict=True)
    ]
    assert run_shared_pass(*commands) == [0, 0]
    assert set(server.answered.values()) == {1}
    a, b = ({r["group"]: r["score"] for r in rows(tmp_path / f"{name}.scores.jsonl")} for name in "ab")
    assert (len(a), len(b)) == (30, 30)
    assert all(a[name] == b[name] for name in a.keys() & b.keys())


def test_compiles_at_once_pay_once_for_what_they_have_in_common(server: FaultyServer, tmp_path: Path) -> None:
    data = small_corpus(tmp_path, groups=8, candidates=3)
    # Once for both: MLflow is imported, and its tables made, in seconds.
    open_tracking_store(None, tmp_path / "store", "debate/small")
    common = ["--data", str(data), "--lm", "openai/mock", "--api-base", server.url, "--store", str(tmp_path / "store")]
    common += ["--aspects", "coherence", "--tuner", "none", "--effort", "light", *keys(trials=1), "--max-rounds", "0"]
    common += keys(resamples=100, preflight=False, report="none")
    commands = [
        lambda own=own: compile_command.main([*common, *own])
        for own in (["--name", "one"], ["--name", "another", "--seed", "1"])
    ]
    assert run_shared_pass(*commands) == [0, 0]
    assert set(server.answered.values()) == {1}
    assert all((tmp_path / "store" / "exports" / name).is_dir() for name in ("one", "another"))
    # Nor is a page made where none is wanted.
    assert not list((tmp_path / "store" / "exports").rglob("report*"))
