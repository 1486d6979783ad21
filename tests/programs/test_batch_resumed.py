"""Batch jobs of a stopped process: resumed, never paid for twice, never dropped without a message."""

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
from tests.programs.batches import ONE_ROUND, SHORT_OUTAGE, judge, lm_at, recorded, resumed, scores
from tests.programs.faults import answer, expected, items

pytestmark = pytest.mark.integration

# --- resumed ---


def fail_get_requests(method: str, path: str, number: int) -> str | None:
    return "500" if method == "GET" else None


def test_a_running_job_is_resumed_and_not_created_again(tmp_path: Path) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.on_request = fail_get_requests
        with pytest.raises(ProviderDownError, match="has not answered"):
            resumed(tmp_path, server, work, SHORT_OUTAGE)
        assert server.made_calls == {("scorer", "0"): 20}
        assert recorded(tmp_path)
        server.on_request = lambda method, path, number: None
        judgements = resumed(tmp_path, server, work)
        assert server.made_calls == ONE_ROUND
    assert scores(judgements) == [expected(item) for item in work]
    assert set(server.executed.values()) == {1}
    assert not recorded(tmp_path)


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "condition not met in 20 s"
        time.sleep(0.005)


async def debates(runner: JudgeRunner, items: list[Item]) -> None:
    """One round of debate about each item, as one piece of work that can be cancelled."""
    judge = Debate(debate_config=DebateConfig(1))

    async def one(item: Item) -> None:
        with runner.call_context(item):
            await only(judge.converse([item], 1))

    async with asyncio.TaskGroup() as tasks:
        for item in items:
            tasks.create_task(one(item))


def test_an_interrupted_run_names_the_running_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.held = True
        store = SqlStore(tmp_path)
        with JudgeRunner(lm_at(server, store=store), progress=False) as runner:
            running = runner.submit(debates(runner, work))
            until(lambda: server.jobs and server.jobs["batch_0"]["status"] == "in_progress")
            until(lambda: "0 done" in capsys.readouterr().err)
            running.cancel()
        store.close()
        output = capsys.readouterr().err
        assert "batch_0" in output
        assert "collect their replies" in output
        server.held = False
        assert scores(resumed(tmp_path, server, work)) == [expected(item) for item in work]
        assert server.made_calls == ONE_ROUND
    output = capsys.readouterr().err
    assert "20 calls: resumed" in output
    # On a busy machine the calls of a role may go out in more than one job.
    assert re.search(r"batch job batch_1: role critic, round 1, (\d+) calls, \1 done \(completed\)", output)


def test_replies_without_a_waiting_caller_are_stored(tmp_path: Path) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.on_request = fail_get_requests
        with pytest.raises(ProviderDownError):
            resumed(tmp_path, server, work, SHORT_OUTAGE)
        server.on_request = lambda method, path, number: None
        with closing(SqlStore(tmp_path)) as store:
            lm = lm_at(server, store=store)
            judge(lm, work[:1], rounds=0)
            assert store.run_sync(lambda database: database.scalar(select(func.count()).select_from(REPLIES))) == 20
            assert (lm.meter.executed["scorer"], lm.meter.executed["earlier jobs"]) == (1, 19)
        assert scores(resumed(tmp_path, server, work)) == [expected(item) for item in work]
        assert server.made_calls == ONE_ROUND
    assert set(server.executed.values()) == {1}


def lost_at_creation(method: str, path: str, number: int) -> str | None:
    """The job is created, but the response is lost."""
    if (method, path) == ("POST", "/batches"):
        return "lost"
    return "500" if method == "GET" else None


def test_a_job_whose_creation_was_not_confirmed_is_found_by_the_next_process(tmp_path: Path) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.on_request = lost_at_creation
        with pytest.raises(ProviderDownError):
            resumed(tmp_path, server, work, SHORT_OUTAGE)
        server.on_request = lambda method, path, number: None
        judgements = resumed(tmp_path, server, work)
        assert server.made_calls == ONE_ROUND
    assert scores(judgements) == [expected(item) for item in work]
    assert not recorded(tmp_path)


def test_a_recorded_job_that_was_never_created_is_created(tmp_path: Path) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.on_request = lambda method, path, number: "500" if path == "/batches" else None
        with pytest.raises(ProviderDownError):
            resumed(tmp_path, server, work, SHORT_OUTAGE)
        assert not server.made
        assert recorded(tmp_path)
        server.on_request = lambda method, path, number: None
        assert scores(resumed(tmp_path, server, work)) == [expected(item) for item in work]
        assert server.made_calls == ONE_ROUND
    assert not recorded(tmp_path)


def test_a_job_of_another_account_is_an_error_and_not_paid_for_again(tmp_path: Path) -> None:
    with BatchServer(answer) as server:
        server.on_request = fail_get_requests
        with pytest.raises(ProviderDownError):
            resumed(tmp_path, server, items(3), SHORT_OUTAGE)
        server.on_request = lambda method, path, number: None
        server.jobs.clear()
        with pytest.raises(dspy.LMConfigurationError, match=r"batch_jobs"):
            resumed(tmp_path, server, items(3))
        assert not server.made
        # Who shares the store and wants other calls is not concerned.
        assert None not in scores(resumed(tmp_path, server, items(6)[3:]))
        with closing(SqlStore(tmp_path)) as store:
            store.run_sync(lambda database: database.execute(delete(BATCH_JOBS)) and None)
        assert None not in scores(resumed(tmp_path, server, items(3)))


def test_direct_calls_warn_of_running_batch_jobs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with BatchServer(answer) as server:
        server.on_request = fail_get_requests
        with pytest.raises(ProviderDownError):
            resumed(tmp_path, server, items(3), SHORT_OUTAGE)
        with closing(SqlStore(tmp_path)) as store:
            make_lm("openai/mock", api_base=server.url, store=store)
    assert "3 LM calls" in caplog.text


def test_an_unreadable_record_of_a_job_makes_no_calls(tmp_path: Path) -> None:
    with BatchServer(answer) as server:
        with closing(SqlStore(tmp_path)) as store:
            row = {"token": "t", "made": 1.0, "record": "{"}
            store.run_sync(lambda database: database.execute(insert(BATCH_JOBS).values(row)) and None)
        assert scores(resumed(tmp_path, server, items(3))) == [None] * 3
        assert not server.made


def test_a_job_of_another_server_is_not_resumed(tmp_path: Path) -> None:
    with BatchServer(answer) as other:
        other.on_request = fail_get_requests
        with pytest.raises(ProviderDownError):
            resumed(tmp_path, other, items(3), SHORT_OUTAGE)
    with BatchServer(answer) as server:
        assert None not in scores(resumed(tmp_path, server, items(3)))
    assert {job.endpoint for job in recorded(tmp_path)} == {other.url}


def test_calls_whose_file_is_deleted_are_made_again(tmp_path: Path) -> None:
    with BatchServer(answer) as server:
        server.on_request = lambda method, path, number: "500" if "content" in path else None
        with pytest.raises(ProviderDownError):
            resumed(tmp_path, server, items(3), SHORT_OUTAGE)
        server.on_request = lambda method, path, number: None
        server.files.clear()
        assert None not in scores(resumed(tmp_path, server, items(3)))
