"""One loaded judge for a process, and what the environment says about its limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs import JUDGES, build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs.export.folder import save
from debate_judge.runs.export.process import judge_of_process
from tests.faulty_server import FaultyServer
from tests.stores import count

TASK = Task("notes", "letter", "note", (Aspect("clarity", "Is it clear?", Scale(1, 5)),))


@pytest.fixture
def exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-first-0123456789")
    judge = CompiledJudge(TASK, {"clarity": AspectJudge(build("debate", JUDGES["single"].config))})
    return save(tmp_path / "export", judge, lm={"spec": "openai/m"}, evidence={}, name="x")


def answer(body: bytes) -> str:
    return "[[ ## rationale ## ]]\nBecause.\n\n[[ ## score ## ]]\n4"


def test_a_judge_is_shared_until_it_is_closed_or_a_setting_differs(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = judge_of_process(exported, {"api_base": "http://127.0.0.1:9/v1", "rpm": None})
    monkeypatch.setenv("DEBATE_API_BASE", "http://127.0.0.1:9/v1")
    assert judge_of_process(exported, {}) is first
    monkeypatch.setenv("DEBATE_RPM", "30")
    paced = judge_of_process(exported, {})
    assert paced is not first
    assert judge_of_process(exported, {"rpm": 30}) is paced
    monkeypatch.setenv("OPENAI_API_KEY", "sk-second-0123456789")
    assert judge_of_process(exported, {}) is not paced
    monkeypatch.undo()
    first.close()
    monkeypatch.setenv("OPENAI_API_KEY", "sk-first-0123456789")
    assert judge_of_process(exported, {"api_base": "http://127.0.0.1:9/v1"}) is not first


@pytest.mark.integration
def test_the_budget_of_the_environment_holds_for_all_loads_together(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEBATE_BUDGET", "calls=2")
    monkeypatch.setenv("DEBATE_STORE", str(tmp_path / "store"))
    with FaultyServer(answer) as server:
        for number in (1, 2, 1):
            judge = judge_of_process(exported, {"api_base": server.url})
            assert judge.score(text=f"Note {number}.", source="A letter.")["clarity"].score == 4
        with pytest.raises(Exception, match="exceed the budget"):
            judge_of_process(exported, {"api_base": server.url}).score(text="Note 3.", source="A letter.")
        assert server.requests == 2
    judge.close()
    assert count(tmp_path / "store" / "replies" / "openai_m")
