"""A judge that was loaded before a fork scores in parent and children, and none disturbs another."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from debate_judge.programs import build_preset
from debate_judge.runs.export.folder import load
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import debater, scripted_lm
from tests.faulty_server import FaultyServer
from tests.runs.exports import items, number_of_note, single_call
from tests.stores import count

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


def in_child(work: Callable[[], object]) -> object:
    """What `work` returns, or the error's type that it raises, in a forked child; one that hangs is killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            result = work()
        except Exception as error:
            result = type(error).__name__
        os.write(writing, json.dumps(result).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        result = file.read()
    os.waitpid(child, 0)
    return json.loads(result or b'"the child hung"')


def test_parent_and_child_score_with_connections_and_stores_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scores(*numbers: int) -> list[float | None]:
        return [judge.score(text=f"Note-{n}", source="A letter.")["clarity"].score for n in numbers]

    def score_and_close() -> object:
        # 1 was answered before the fork: the store has it.
        result = scores(1, 2, 3)
        judge.close()
        return result

    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    with FaultyServer(number_of_note) as server:
        judge = load(single_call(tmp_path / "export"), api_base=server.url, store=tmp_path / "replies")
        assert scores(1) == [1]
        assert in_child(score_and_close) == [1, 2, 3]
        assert scores(4, 1, 5) == [4, 1, 5]
        assert in_child(lambda: scores(3, 5, 6)) == [3, 5, 6]
        stream = judge.stream(items(9))
        next(stream)
        assert in_child(lambda: len(list(stream))) == "RuntimeError", "begun in the parent"
        assert len(list(stream)) == 8
        judge.close()
        assert count(tmp_path / "replies") == 9
        assert set(server.answered.values()) == {1}


def test_a_runner_that_was_started_before_the_fork_is_an_error_in_the_child_alone() -> None:
    with JudgeRunner(scripted_lm(debater(score="4")), progress=False) as runner:
        debate = build_preset("single", {})
        assert in_child(lambda: len(runner.judge(debate, items(3)))) == "RuntimeError"
        assert len(runner.judge(debate, items(3))) == 3
