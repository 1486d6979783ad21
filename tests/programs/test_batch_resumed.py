"""Batch jobs that were left: taken up again, never paid twice, and never left behind without a word."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import dspy
import pytest
from sqlalchemy import delete, func, insert, select

from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import DebateConfig, Item
from debate_judge.programs.lm.errors import ProviderDownError
from debate_judge.programs.lm.sql.tables import BATCH_JOBS, REPLIES
from debate_judge.programs.lm.store import SqlStore
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.runner.runner import JudgeRunner
from tests.batch_server import BatchServer
from tests.fakes import only
from tests.programs.batches import IMPATIENT, ONE_ROUND, judge, lm_at, recorded, resumed, scores
from tests.programs.faults import answer, expected, items

pytestmark = pytest.mark.integration

# --- stopped and taken up again ---


def fails_looking(method: str, path: str, number: int) -> str | None:
    return "500" if method == "GET" else None


def test_a_job_that_was_left_is_taken_up_and_not_made_again(tmp_path: Path) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.door = fails_looking
        with pytest.raises(ProviderDownError, match="has not answered"):
            resumed(tmp_path, server, work, IMPATIENT)
        assert server.made_calls == {("scorer", "0"): 20}
        assert recorded(tmp_path)
        server.door = lambda method, path, number: None
        judgements = resumed(tmp_path, server, work)
        assert server.made_calls == ONE_ROUND
    assert scores(judgements) == [expected(item) for item in work]
    assert set(server.executed.values()) == {1}
    assert not recorded(tmp_path)


def until(what: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.005)


async def debates(runner: JudgeRunner, what: list[Item]) -> None:
    """One round of debate about each item, as one piece of work that can be cancelled."""
    judge = Debate(debate_config=DebateConfig(1))

    async def one(item: Item) -> None:
        with runner.call_context(item):
            await only(judge.converse([item], 1))

    async with asyncio.TaskGroup() as tasks:
        for item in what:
            tasks.create_task(one(item))


def test_an_interrupted_run_says_which_jobs_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.held = True
        store = SqlStore(tmp_path)
        with JudgeRunner(lm_at(server, store=store), progress=False) as runner:
            flying = runner.submit(debates(runner, work))
            until(lambda: server.jobs and server.jobs["batch_0"]["status"] == "in_progress")
            until(lambda: "0 done" in capsys.readouterr().err)
            flying.cancel()
        store.close()
        told = capsys.readouterr().err
        assert "batch_0" in told
        assert "collect their replies" in told
        server.held = False
        assert scores(resumed(tmp_path, server, work)) == [expected(item) for item in work]
        assert server.made_calls == ONE_ROUND
    told = capsys.readouterr().err
    assert "batch job batch_0: role scorer, round 0, 20 calls: resumed" in told
    # On a busy machine the calls of a role may go out in more than one job.
    assert re.search(r"batch job batch_1: role critic, round 1, (\d+) calls, \1 done \(completed\)", told)


def test_replies_that_nobody_waits_for_any_more_are_kept(tmp_path: Path) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.door = fails_looking
        with pytest.raises(ProviderDownError):
            resumed(tmp_path, server, work, IMPATIENT)
        server.door = lambda method, path, number: None
        with closing(SqlStore(tmp_path)) as store:
            lm = lm_at(server, store=store)
            judge(lm, work[:1], rounds=0)
            assert store.run_sync(lambda database: database.scalar(select(func.count()).select_from(REPLIES))) == 20
            assert (lm.meter.executed["scorer"], lm.meter.executed["earlier jobs"]) == (1, 19)
        assert scores(resumed(tmp_path, server, work)) == [expected(item) for item in work]
        assert server.made_calls == ONE_ROUND
    assert set(server.executed.values()) == {1}


def lost_at_creation(method: str, path: str, number: int) -> str | None:
    """The job is made, but nobody hears of it."""
    if (method, path) == ("POST", "/batches"):
        return "lost"
    return "500" if method == "GET" else None


def test_a_job_whose_making_was_never_answered_is_found_by_the_next_process(tmp_path: Path) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.door = lost_at_creation
        with pytest.raises(ProviderDownError):
            resumed(tmp_path, server, work, IMPATIENT)
        server.door = lambda method, path, number: None
        judgements = resumed(tmp_path, server, work)
        assert server.made_calls == ONE_ROUND
    assert scores(judgements) == [expected(item) for item in work]
    assert not recorded(tmp_path)


def test_a_job_that_was_never_made_is_made(tmp_path: Path) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.door = lambda method, path, number: "500" if path == "/batches" else None
        with pytest.raises(ProviderDownError):
            resumed(tmp_path, server, work, IMPATIENT)
        assert not server.made
        assert recorded(tmp_path)
        server.door = lambda method, path, number: None
        assert scores(resumed(tmp_path, server, work)) == [expected(item) for item in work]
        assert server.made_calls == ONE_ROUND
    assert not recorded(tmp_path)


def test_a_job_of_another_account_is_not_paid_again_without_a_word(tmp_path: Path) -> None:
    with BatchServer(answer) as server:
        server.door = fails_looking
        with pytest.raises(ProviderDownError):
            resumed(tmp_path, server, items(3), IMPATIENT)
        server.door = lambda method, path, number: None
        server.jobs.clear()
        with pytest.raises(dspy.LMConfigurationError, match=r"is not known to the account.*batch_jobs"):
            resumed(tmp_path, server, items(3))
        assert not server.made
        # Who shares the store and wants other calls is not concerned.
        assert None not in scores(resumed(tmp_path, server, items(6)[3:]))
        with closing(SqlStore(tmp_path)) as store:
            store.run_sync(lambda database: database.execute(delete(BATCH_JOBS)) and None)
        assert None not in scores(resumed(tmp_path, server, items(3)))


def test_calls_that_stand_in_jobs_are_not_paid_again_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with BatchServer(answer) as server:
        server.door = fails_looking
        with pytest.raises(ProviderDownError):
            resumed(tmp_path, server, items(3), IMPATIENT)
        with closing(SqlStore(tmp_path)) as store:
            make_lm("openai/mock", api_base=server.url, store=store)
    assert "3 LM calls of an earlier run are in batch jobs" in caplog.text


def test_where_a_record_of_jobs_cannot_be_read_nothing_is_paid(tmp_path: Path) -> None:
    with BatchServer(answer) as server:
        with closing(SqlStore(tmp_path)) as store:
            row = {"token": "t", "made": 1.0, "record": "{"}
            store.run_sync(lambda database: database.execute(insert(BATCH_JOBS).values(row)) and None)
        assert scores(resumed(tmp_path, server, items(3))) == [None] * 3
        assert not server.made


def test_a_job_of_another_server_is_left_alone(tmp_path: Path) -> None:
    with BatchServer(answer) as other:
        other.door = fails_looking
        with pytest.raises(ProviderDownError):
            resumed(tmp_path, other, items(3), IMPATIENT)
    with BatchServer(answer) as server:
        assert None not in scores(resumed(tmp_path, server, items(3)))
    assert {job.endpoint for job in recorded(tmp_path)} == {other.url}


def test_files_that_are_gone_are_asked_again(tmp_path: Path) -> None:
    with BatchServer(answer) as server:
        server.door = lambda method, path, number: "500" if "content" in path else None
        with pytest.raises(ProviderDownError):
            resumed(tmp_path, server, items(3), IMPATIENT)
        server.door = lambda method, path, number: None
        server.files.clear()
        assert None not in scores(resumed(tmp_path, server, items(3)))
