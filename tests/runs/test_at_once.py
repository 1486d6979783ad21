"""Commands that run at the same time on one store: what they have in common is asked and paid once."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from debate_judge.optimize import compile as compile_command
from debate_judge.runs import score
from debate_judge.runs.tracking.store import open_tracking_store
from tests.config_keys import keys
from tests.fakes import debater
from tests.faulty_server import FaultyServer
from tests.optimize.small_corpus import small_corpus
from tests.runs.exports import single_call

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


def run_at_once(*commands: Callable[[], int]) -> list[int | None]:
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


def test_machines_that_share_a_database_pay_once_for_the_texts_of_both(
    server: FaultyServer, tmp_path: Path, database: str
) -> None:
    export = single_call(tmp_path / "export")
    texts = [
        json.dumps({"group": f"g{n}", "source": "A letter.", "candidates": [{"id": "c", "text": f"note {'x' * n}"}]})
        for n in range(40)
    ]

    def command(name: str, lines: list[str]) -> Callable[[], int]:
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
        files = ["--in", tmp_path / f"{name}.jsonl", "--out", tmp_path / f"{name}.scores.jsonl"]
        files += ["--store", tmp_path / f"store {name}"]
        more = ["--api-base", server.url, "--concurrency", "4", *keys(replies=database)]
        return lambda: score.main([str(export), *map(str, files), *more])

    assert run_at_once(command("a", texts[:30]), command("b", texts[10:])) == [0, 0]
    assert set(server.answered.values()) == {1}
    rows = {name: (tmp_path / f"{name}.scores.jsonl").read_text().splitlines() for name in "ab"}
    assert [len(lines) for lines in rows.values()] == [30, 30]
    assert rows["a"][10:] == rows["b"][:20]


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
    assert run_at_once(*commands) == [0, 0]
    assert set(server.answered.values()) == {1}
    assert all((tmp_path / "store" / "exports" / name).is_dir() for name in ("one", "another"))
    # Nor is a page made where none is wanted.
    assert not list((tmp_path / "store" / "exports").rglob("report*"))
