"""Debates about several scores that were stopped: at any call, and in batch jobs. Answered calls are not paid again."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import DebateConfig, Item, Judgement
from debate_judge.programs.lm.client import ReplyStore
from debate_judge.programs.lm.store import FILE, SqlStore
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import requested, scripted_lm, section
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


def debate() -> Debate:
    return Debate(debate_config=DebateConfig(2, tie_breaker=True), together=4, joint=True)


def judged(judge: Debate, items: list[Item], store: ReplyStore | None) -> tuple[list[Judgement], list[str]]:
    # One call at a time, so that all before it are answered.
    lm = scripted_lm(forgetful, store=store, concurrency=1)
    with JudgeRunner(lm, progress=False) as runner:
        return runner.judge(judge, items), lm.prompts


def test_a_process_that_is_killed_at_any_call_goes_on_with_that_call(tmp_path: Path) -> None:
    # Opening, correction, two rounds, Tie-breaker.
    judge, items, calls = debate(), sources(1, 4), 2 + 2 + 2 + 1
    whole = tmp_path / "whole"
    told: list[Path] = []

    def script(prompt: str) -> str:
        # What a kill would leave on the disk at this moment, with the claim of a process that is gone.
        told.append(Path(shutil.copytree(whole, tmp_path / str(len(told)))))
        with closing(sqlite3.connect(told[-1] / FILE)) as database:
            database.execute("UPDATE claims SET owner = replace(owner, ?, ?)", (f"/{os.getpid()}/", "/999999999/"))
            database.commit()
        return forgetful(prompt)

    journal = SqlStore(whole)
    lm = scripted_lm(script, store=journal, concurrency=1)
    with JudgeRunner(lm, progress=False) as runner:
        expected = runner.judge(judge, items)
    journal.close()
    assert len(lm.prompts) == len(told) == calls
    assert sum(j.calls for j in expected) == pytest.approx(calls)
    for number, folder in enumerate(told):
        left = SqlStore(folder)
        again, prompts = judged(judge, items, left)
        left.close()
        assert prompts == lm.prompts[number:]
        assert again == expected
