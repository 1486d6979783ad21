"""Debates about several scores that were stopped: at any call, and in batch jobs. No call is paid twice."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import DebateConfig, Item, Judgement
from debate_judge.programs.lm.client import ReplyStore
from debate_judge.programs.lm.errors import ProviderDownError
from debate_judge.programs.lm.journal import Journal
from debate_judge.runs.runner.runner import JudgeRunner
from tests.batch_server import BatchServer
from tests.fakes import requested, scripted_lm, section
from tests.programs.batches import lm_at
from tests.programs.debates import ITEM
from tests.programs.tables import JOINT_TASK, joint_reading

TEXTS = ("aa", "bbb", "cccc", "ddddd")


def sources(count: int, candidates: int) -> list[Item]:
    """Candidates of several sources, in two aspects."""
    return [
        replace(ITEM, group=f"g{g}", candidate=str(n), task=JOINT_TASK, aspect=aspect, source=f"Source {g}.", text=text)
        for aspect in JOINT_TASK.aspects
        for g in range(count)
        for n, text in enumerate(f"{text} of {g}." for text in TEXTS[:candidates])
    ]


def issues(prompt: str, text: str, _aspect: str) -> str | None:
    """The Critic disputes the first two candidates, and one of them to the end."""
    later = "Critic, round 1" in section(prompt, "debate")
    return "TOO LOW" if text.startswith("aa" if later else ("aa", "bbb")) else None


HONEST = joint_reading(lambda prompt, text, aspect: min(5, len(text.split()[0])), issues)


def forgetful(prompt: str) -> str:
    """Leaves out the score of the last candidate the first time that it is asked for one."""
    reply = HONEST(prompt)
    if "scores" not in requested(prompt) or section(prompt, "correction") or section(prompt, "debate"):
        return reply
    return reply[: reply.rindex("candidate_")]


def debate(batch_rounds: int) -> Debate:
    config = DebateConfig(2, tie_breaker=True)
    return Debate(debate_config=config, together=4, joint=True, batch_rounds=batch_rounds)


DEBATES = {
    # Opening, correction, two rounds, Tie-breaker.
    "a table in two aspects": (0, sources(1, 4), 2 + 2 + 2 + 1),
    # Two batches, scored twice, each time with a correction; two rounds in both; one batch for the Tie-breaker.
    "batches": (2, sources(4, 2), 2 * 2 * 2 + 2 * 2 * 2 + 1),
}


def judged(judge: Debate, items: list[Item], store: ReplyStore | None) -> tuple[list[Judgement], list[str]]:
    # One call at a time, so that all before it are answered.
    lm = scripted_lm(forgetful, store=store, concurrency=1)
    with JudgeRunner(lm, progress=False) as runner:
        return runner.judge(judge, items), lm.prompts


@pytest.mark.parametrize("kind", DEBATES)
def test_a_process_that_is_killed_at_any_call_goes_on_with_that_call(kind: str, tmp_path: Path) -> None:
    batch_rounds, items, calls = DEBATES[kind]
    judge = debate(batch_rounds)
    whole = tmp_path / "whole"
    told: list[Path] = []

    def script(prompt: str) -> str:
        # What a kill would leave on the disk at this moment.
        told.append(Path(shutil.copytree(whole, tmp_path / str(len(told)))))
        return forgetful(prompt)

    journal = Journal(whole)
    lm = scripted_lm(script, store=journal, concurrency=1)
    with JudgeRunner(lm, progress=False) as runner:
        expected = runner.judge(judge, items)
    journal.close()
    assert len(lm.prompts) == len(told) == calls
    assert sum(j.calls for j in expected) == pytest.approx(calls)
    for number, folder in enumerate(told):
        left = Journal(folder)
        again, prompts = judged(judge, items, left)
        left.close()
        # Batches are asked about at once, and come to their turn in another order.
        assert sorted(prompts) == sorted(lm.prompts[number:])
        assert again == expected


TURNS = [("critic", "1"), ("scorer", "1"), ("critic", "2"), ("scorer", "2")]
JOBS = {
    # Six tables: opening, correction, two rounds, Tie-breaker.
    "tables in two aspects": (0, [*[("scorer", "0", 6)] * 2, *[(*turn, 6) for turn in TURNS], ("tie-breaker", "2", 6)]),
    # Three batches, scored twice; the Tie-breaker reads what is open in two.
    "batches": (2, [*[("scorer", "0", 3)] * 4, *[(*turn, 3) for turn in TURNS], ("tie-breaker", "2", 2)]),
}


@pytest.mark.parametrize("kind", JOBS)
def test_a_run_that_is_stopped_again_and_again_makes_each_batch_job_once(kind: str, tmp_path: Path) -> None:
    batch_rounds, made = JOBS[kind]
    judge, items = debate(batch_rounds), sources(6, 2)
    expected, prompts = judged(judge, items, None)

    def run() -> list[Judgement]:
        journal = Journal(tmp_path)
        try:
            with JudgeRunner(lm_at(server, store=journal), progress=False) as runner:
                return runner.judge(judge, items)
        finally:
            journal.close()

    with BatchServer(lambda body: forgetful(json.loads(body)["messages"][-1]["content"])) as server:
        # After a correction, a review, and the Tie-breaker, of which nothing more is heard.
        for number in (2, 5, len(made)):
            server.door = lambda method, path, _, job=f"batch_{number - 1}": "500" if path.endswith(job) else None
            with pytest.raises(ProviderDownError):
                run()
            assert server.made == made[:number]
        server.door = lambda method, path, number: None
        assert run() == expected
        assert server.made == made
    assert set(server.executed.values()) == {1}
    assert server.direct == 0
    assert server.executed.total() == len(prompts) == sum(count for _, _, count in made)
