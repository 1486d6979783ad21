"""A judge that was loaded before a fork scores in parent and children, and none disturbs another."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs import build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import DebateConfig, Item
from debate_judge.runs.export.folder import load, save
from debate_judge.runs.export.loaded import LoadedJudge
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import debater, scripted_lm
from tests.faulty_server import FaultyServer
from tests.stores import count

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

TASK = Task("notes", "letter", "note", (Aspect("clarity", "Is it clear?", Scale(1, 9)),))


def answer(body: bytes) -> str:
    found = re.search(rb"Note-(\d+)", body)
    return f"[[ ## rationale ## ]]\nBecause.\n\n[[ ## score ## ]]\n{found[1].decode() if found else 1}"


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer(answer) as server:
        yield server


@pytest.fixture
def judge(tmp_path: Path, server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoadedJudge]:
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    single = build("debate", {"persona": "plain", "rounds": 0, "tie_breaker": False})
    compiled = CompiledJudge(TASK, {"clarity": AspectJudge(single)})
    folder = save(tmp_path / "export", compiled, lm={"spec": "openai/mock"}, evidence={}, name="x")
    with load(folder, api_base=server.url, store=tmp_path / "replies") as judge:
        yield judge


def scored(judge: LoadedJudge, number: int) -> float | None:
    return judge.score(text=f"Note-{number}", source="A letter.")["clarity"].score


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
        told = file.read()
    os.waitpid(child, 0)
    return json.loads(told or b'"the child hung"')


def test_parent_and_child_score_with_connections_and_journals_of_their_own(
    judge: LoadedJudge, server: FaultyServer, tmp_path: Path
) -> None:
    assert scored(judge, 1) == 1

    def work() -> object:
        # 1 was answered before the fork: the store has it.
        found = [scored(judge, number) for number in (1, 2, 3)]
        judge.close()
        return found

    assert in_child(work) == [1, 2, 3]
    assert [scored(judge, number) for number in (4, 1, 5)] == [4, 1, 5]
    assert in_child(lambda: [scored(judge, number) for number in (3, 5, 6)]) == [3, 5, 6]
    assert scored(judge, 7) == 7
    judge.close()
    assert count(tmp_path / "replies") == 7
    assert set(server.answered.values()) == {1}


_JUDGE: LoadedJudge


def test_a_stream_that_was_begun_before_the_fork_says_what_to_do(judge: LoadedJudge) -> None:
    items = [Item("g", str(n), TASK, TASK.aspects[0], "A letter.", f"Note-{n}") for n in range(1, 4)]
    stream = judge.stream(items)
    next(stream)
    assert in_child(lambda: len(list(stream))) == "RuntimeError"
    assert len(list(stream)) == 2


def test_a_runner_that_was_started_before_the_fork_says_what_to_do() -> None:
    item = Item("g", "c", TASK, TASK.aspects[0], "A letter.", "Note-1")
    with JudgeRunner(scripted_lm(debater(score="4")), progress=False) as runner:
        debate = Debate(debate_config=DebateConfig(0))
        assert in_child(lambda: len(runner.judge(debate, [item]))) == "RuntimeError"
        assert len(runner.judge(debate, [item])) == 1
