"""Debates in batch jobs: the replies of direct calls, in few jobs; every call ends, none is paid for twice, no unusable
answer is used and no outage becomes a score; and jobs of a stopped process are resumed."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import pytest
from sqlalchemy import delete, insert

from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.batch import engine, service
from debate_judge.programs.lm.batch.service import BatchService
from debate_judge.programs.lm.errors import BudgetSpentError, ProviderDownError
from debate_judge.programs.lm.options import BudgetCaps
from debate_judge.programs.lm.sql.tables import BATCH_JOBS
from debate_judge.programs.lm.store import SqlStore
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.runner.runner import JudgeRunner
from tests.batch_server import BatchServer
from tests.faulty_server import FaultyServer
from tests.hostile_server import HostileServer, endless, gzip_bomb, sized
from tests.programs.batches import SHORT_OUTAGE, SHORT_WAITS, lm_at, recorded, resumed, scores
from tests.programs.faults import answer, expected, items, judge
from tests.stores import count

pytestmark = pytest.mark.integration
SLOW = replace(SHORT_WAITS, batch_timing=replace(SHORT_WAITS.batch_timing, quiet_period=0.6))
"""Waits for calls long enough for a machine that is busy with other things, where the number of jobs is what counts."""


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with BatchServer(answer) as server:
        yield server


def test_the_debates_are_those_of_direct_calls_in_one_job_for_each_role_and_round() -> None:
    work = items(20)
    with FaultyServer(answer) as server:
        direct = judge(make_lm("openai/mock", api_base=server.url), work, rounds=2)
    with BatchServer(answer) as batches:
        lm = lm_at(batches, options=SLOW)
        judgements = judge(lm, work, rounds=2)
        assert batches.made == [("scorer", "0", 20), ("critic", "1", 20), ("scorer", "1", 10), ("critic", "2", 10)]
        assert batches.direct == 0
    assert [j.transcript for j in judgements] == [j.transcript for j in direct]
    assert lm.meter.executed.total() == sum(batches.executed.values()) == 60
    assert set(batches.executed.values()) == {1}


@pytest.mark.parametrize("limit", ["calls", "bytes"])
def test_no_job_exceeds_the_limits_of_the_service(
    server: BatchServer, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge(lm_at(server), items(1), rounds=0)
    # Letter-0's line, and two digits more in its letter and note.
    line = server.jobs["batch_0"]["size"] + 8
    server.most_calls = 8 if limit == "calls" else 3
    most = ("MAX_CALLS", 8) if limit == "calls" else ("MAX_BYTES", 3 * line)
    monkeypatch.setattr(engine, *most)
    assert None not in scores(judge(lm_at(server), items(20), rounds=0))
    assert server.made_calls == {("scorer", "0"): 21}


@pytest.mark.parametrize(
    ("budget", "least", "most"),
    [
        (BudgetCaps(calls=45), 45, 45),
        # A call takes 120 tokens.
        (BudgetCaps(tokens=6000), 40, 50),
        # It costs 0.00026 dollars, half of the price of a direct call: at that 23 could be paid.
        (BudgetCaps(usd=0.012), 40, 46),
    ],
)
def test_a_budget_is_never_exceeded_and_the_run_goes_on_with_a_larger_one(
    tmp_path: Path, budget: BudgetCaps, least: int, most: int
) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("[mock]\ninput = 2.0\noutput = 16.0\n")
    work = items(40)
    with BatchServer(answer) as server, closing(SqlStore(tmp_path / "replies")) as store:
        # At most 100 tokens are set aside for a reply.
        common: dict[str, Any] = {"api_base": server.url, "store": store, "max_tokens": 100}
        with pytest.raises(BudgetSpentError):
            judge(make_lm("openai/mock", options=replace(SHORT_WAITS, budget=budget, prices=prices), **common), work)
        assert least <= len(server.executed) <= most
        assert scores(judge(make_lm("openai/mock", options=SHORT_WAITS, **common), work)) == [expected(i) for i in work]
    assert len(server.executed) == server.executed.total() == 100


def test_a_key_is_needed_at_the_real_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(dspy.LMConfigurationError, match="OPENAI_API_KEY"):
        make_lm("openai/gpt-4o-mini", options=SHORT_WAITS)


def malformed(lines: list[bytes]) -> list[bytes]:
    return [lines[0][:-20], *lines[1:]]


def doubled(lines: list[bytes]) -> list[bytes]:
    """Two answers to one call, of which one is another call's text."""
    other = json.loads(lines[0]) | {"response": json.loads(lines[1])["response"]}
    other["response"]["body"]["id"] = "another"
    return [*lines, json.dumps(other).encode()]


def copied(lines: list[bytes]) -> list[bytes]:
    """One completion as the answer to two calls."""
    copy = json.loads(lines[0]) | {"response": json.loads(lines[1])["response"]}
    return [json.dumps(copy).encode(), *lines[1:]]


def foreign(lines: list[bytes]) -> list[bytes]:
    """An answer under a name that no call has."""
    return [json.dumps(json.loads(lines[0]) | {"custom_id": "f" * 32}).encode(), *lines[1:]]


def endless_line(lines: list[bytes]) -> list[bytes]:
    return [lines[0][:-1] + b" " * 2 * service.MAX_LINE_BYTES + lines[0][-1:], *lines[1:]]


def rubbish(lines: list[bytes]) -> list[bytes]:
    return [lines[0], b"<html>", b"[]", b"7", b'{"custom_id": 3}', b'{"custom_id": "z"}', b"{}", b" ", *lines[1:]]


@pytest.mark.parametrize(
    ("tamper", "again"), [(malformed, 1), (doubled, 1), (copied, 2), (foreign, 1), (endless_line, 1), (rubbish, 0)]
)
def test_an_ambiguous_or_malformed_answer_is_requested_again(
    server: BatchServer, tamper: Callable[[list[bytes]], list[bytes]], again: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than all other lines together, and short enough for a test.
    monkeypatch.setattr(service, "MAX_LINE_BYTES", 200_000)
    work = items(6)
    server.tamper = lambda number, lines: tamper(lines) if number == 0 else lines
    assert scores(judge(lm_at(server), work, rounds=0)) == [float(1 + int(item.group) * 7 % 5) for item in work]
    assert server.made_calls == {("scorer", "0"): 6 + again}


@pytest.mark.parametrize("kind", ["body", "body until closed", "body of 1 GB", "trailers", "head", "compressed"])
def test_an_answer_without_end_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_RESPONSE_BYTES", 2**20)
    bomb = [sized(gzip_bomb(2**26), b"Content-Encoding: gzip")]

    async def look(url: str) -> None:
        batches = BatchService(url, "sk-x", "openai/m", SHORT_OUTAGE)
        try:
            await batches.retrieve("batch_1")
        finally:
            await batches.aclose()

    with HostileServer(lambda _: bomb if kind == "compressed" else endless(kind)) as server:
        with pytest.raises(ProviderDownError, match="has not answered"):
            asyncio.run(look(server.url))
        assert 0 < server.sent < 100 * 2**20 * len(server.requests)


ONE_ROUND = {("scorer", "0"): 20, ("critic", "1"): 20, ("scorer", "1"): 10}
"""Calls in the jobs of 20 items: the Critic objects to every second one."""


@pytest.mark.parametrize("endpoint", ["POST /files", "POST /batches", "GET /batches/", "GET /files/"])
@pytest.mark.parametrize("fault", ["500", "429", "garbage", "lost"])
def test_one_failed_request_creates_no_second_job(server: BatchServer, fault: str, endpoint: str) -> None:
    work = items(20)
    server.on_request = lambda method, path, number: (
        fault if number == 0 and f"{method} {path}".startswith(endpoint) else None
    )
    assert scores(judge(lm_at(server), work)) == [expected(item) for item in work]
    assert server.made_calls == ONE_ROUND


def test_a_wrong_key_ends_the_run_and_is_not_shown(server: BatchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    server.key = "sk-other"
    with pytest.raises(dspy.LMAuthError) as caught:
        judge(lm_at(server), items(3))
    assert server.requests["POST /files"] == 1
    assert "sk-mine" not in str(caught.value)


def test_a_server_without_a_batch_service_is_an_error(server: BatchServer) -> None:
    lm = make_lm("openai/mock", api_base=server.url + "/nothing", options=SHORT_WAITS)
    with pytest.raises(dspy.LMConfigurationError, match="no batch service"):
        judge(lm, items(2))


@pytest.mark.parametrize("fault", ["500", "429", "status 0", "absent", "garbage", "expired"])
def test_calls_without_an_answer_are_made_again(server: BatchServer, fault: str) -> None:
    work = items(20)
    server.on_call = lambda body, attempt: fault if attempt == 0 and b"Letter-7\\n" in body else None
    assert scores(judge(lm_at(server), work)) == [expected(item) for item in work]
    assert server.made_calls == {("scorer", "0"): 21, ("critic", "1"): 21, ("scorer", "1"): 11}
    # What was answered is not asked again.
    assert set(server.executed.values()) == {1}


@pytest.mark.parametrize(
    ("fault", "reason", "detail", "attempts"),
    [
        ("500", "lm error", "HTTP 500", 3),
        ("expired", "lm error", "batch_expired", 3),
        ("absent", "lm error", "has no answer to this call", 3),
        ("400", "lm error", "HTTP 400", 1),
        ("long", "too long", "maximum context length", 1),
        ("filter", "refused", "", 1),
    ],
)
def test_a_call_that_always_fails_leaves_only_its_item_unscored(
    server: BatchServer, fault: str, reason: str, detail: str, attempts: int
) -> None:
    work = items(20)
    server.on_call = lambda body, attempt: fault if b"Letter-7\\n" in body else None
    judgements = judge(lm_at(server), work)
    assert max(server.attempts.values()) == attempts
    failed = judgements[7]
    assert failed.reason == reason
    assert detail in failed.detail
    assert scores(judgements[:7] + judgements[8:]) == [expected(item) for item in work if item.group != "7"]


def test_a_probe_tells_failing_calls_from_an_outage_which_ends_the_run(server: BatchServer) -> None:
    server.on_call = lambda body, attempt: "500"
    lm = lm_at(server)
    assert scores(judge(lm, items(5), rounds=0)) == [None] * 5
    assert server.made_calls == {("scorer", "0"): 15}
    assert lm.meter.executed["probe"] == server.direct > 0
    server.on_request = lambda method, path, number: "500" if path == "/chat/completions" else None
    with pytest.raises(ProviderDownError, match="3 batch jobs"):
        judge(lm_at(server), items(5), rounds=0)


@pytest.mark.parametrize(("fault", "kind"), [("401", dspy.LMAuthError), ("404", dspy.LMUnsupportedModelError)])
def test_an_error_that_affects_all_calls_ends_the_run_and_other_replies_are_stored(
    server: BatchServer, fault: str, kind: type[dspy.LMError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The key that the fake server quotes.
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    work = items(20)
    server.on_call = lambda body, attempt: fault if b"Letter-7\\n" in body else None
    with pytest.raises(kind) as caught:
        resumed(tmp_path, server, work)
    assert "sk-secret" not in str(caught.value)
    server.on_call = lambda body, attempt: None
    assert scores(resumed(tmp_path, server, work)) == [expected(item) for item in work]
    assert set(server.executed.values()) == {1}


@pytest.mark.parametrize("fate", ["expired", "cancelled"])
def test_unanswered_calls_of_an_interrupted_job_go_into_another(server: BatchServer, fate: str) -> None:
    work = items(20)
    server.on_job = lambda number: fate if number == 0 else None
    assert scores(judge(lm_at(server), work)) == [expected(item) for item in work]
    assert set(server.executed.values()) == {1}
    assert server.made_calls == {**ONE_ROUND, ("scorer", "0"): 20 + server.made[0][2] // 2}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("billing_hard_limit_reached", dspy.LMBillingError),
        ("invalid_model", dspy.LMUnsupportedModelError),
        ("something_new", dspy.LMConfigurationError),
    ],
)
def test_the_error_of_a_rejected_job_names_the_reason(
    server: BatchServer, code: str, kind: type[dspy.LMError], tmp_path: Path
) -> None:
    server.on_job = lambda number: code
    with pytest.raises(kind, match=f"was refused: {code}: scripted"):
        resumed(tmp_path, server, items(3))
    server.on_job = lambda number: None
    assert None not in scores(resumed(tmp_path, server, items(3)))


def test_a_full_queue_splits_the_jobs(server: BatchServer) -> None:
    work = items(40)
    judge(lm_at(server), work[:1], rounds=0)
    server.queue = 5 * server.jobs["batch_0"]["size"] + 100
    server.jobs.clear()
    server.executed.clear()
    assert None not in scores(judge(lm_at(server), work, rounds=0))
    taken = [j for j in server.jobs.values() if j["status"] == "completed"]
    # Parted, though not call by call.
    assert 8 <= len(taken) <= len(server.jobs) < len(work)
    assert set(server.executed.values()) == {1}


def test_a_run_waits_while_other_jobs_fill_the_queue(server: BatchServer) -> None:
    server.on_job = lambda number: "token_limit_exceeded" if number < 4 else None
    assert None not in scores(judge(lm_at(server), items(1), rounds=0))
    assert len(server.made) == 5


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "condition not met in 20 s"
        time.sleep(0.005)


def stopped(folder: Path, server: BatchServer, work: list[Item], failing: str = "GET") -> None:
    """A process that ends with its job created, because requests of this kind fail."""
    server.on_request = lambda method, path, number: "500" if failing in f"{method} {path}" else None
    with pytest.raises(ProviderDownError, match="has not answered"):
        resumed(folder, server, work, SHORT_OUTAGE)
    server.on_request = lambda method, path, number: None


def test_an_interrupted_run_names_the_running_jobs(
    server: BatchServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = items(20)

    async def debates(runner: JudgeRunner) -> None:
        async with asyncio.TaskGroup() as tasks:
            for item in work:
                with runner.call_context(item):
                    tasks.create_task(Debate(rounds=1).converse([item], 1))

    server.held = True
    with closing(SqlStore(tmp_path)) as store, JudgeRunner(lm_at(server, store=store), progress=False) as runner:
        running = runner.submit(debates(runner))
        until(lambda: server.jobs and server.jobs["batch_0"]["status"] == "in_progress")
        until(lambda: "0 done" in capsys.readouterr().err)
        running.cancel()
    assert "batch_0" in capsys.readouterr().err
    server.held = False
    assert scores(resumed(tmp_path, server, work)) == [expected(item) for item in work]
    assert server.made_calls == ONE_ROUND
    output = capsys.readouterr().err
    assert "20 calls: resumed" in output
    # On a busy machine the calls of a role may go out in more than one job.
    assert re.search(r"batch job batch_1: role critic, round 1, (\d+) calls, \1 done \(completed\)", output)
    assert not recorded(tmp_path)


def test_replies_without_a_waiting_caller_are_stored(server: BatchServer, tmp_path: Path) -> None:
    work = items(20)
    stopped(tmp_path, server, work)
    with closing(SqlStore(tmp_path)) as store:
        lm = lm_at(server, store=store)
        judge(lm, work[:1], rounds=0)
        assert count(store) == 20
        assert (lm.meter.executed["scorer"], lm.meter.executed["earlier jobs"]) == (1, 19)
    assert scores(resumed(tmp_path, server, work)) == [expected(item) for item in work]
    assert server.made_calls == ONE_ROUND
    assert set(server.executed.values()) == {1}


def test_a_job_of_another_account_is_an_error_and_not_paid_for_again(server: BatchServer, tmp_path: Path) -> None:
    stopped(tmp_path, server, items(3))
    server.jobs.clear()
    with pytest.raises(dspy.LMConfigurationError, match=r"batch_jobs"):
        resumed(tmp_path, server, items(3))
    assert not server.made
    # Who shares the store and wants other calls is not concerned.
    assert None not in scores(resumed(tmp_path, server, items(6)[3:]))
    with closing(SqlStore(tmp_path)) as store:
        store.run_sync(lambda database: database.execute(delete(BATCH_JOBS)) and None)
    assert None not in scores(resumed(tmp_path, server, items(3)))


def test_direct_calls_warn_of_running_batch_jobs(
    server: BatchServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stopped(tmp_path, server, items(3))
    with closing(SqlStore(tmp_path)) as store:
        make_lm("openai/mock", api_base=server.url, store=store)
    assert "3 LM calls" in caplog.text


def test_an_unreadable_record_of_a_job_makes_no_calls(server: BatchServer, tmp_path: Path) -> None:
    with closing(SqlStore(tmp_path)) as store:
        row = {"token": "t", "made": 1.0, "record": "{"}
        store.run_sync(lambda database: database.execute(insert(BATCH_JOBS).values(row)) and None)
    assert scores(resumed(tmp_path, server, items(3))) == [None] * 3
    assert not server.made


def test_a_job_of_another_server_is_not_resumed(server: BatchServer, tmp_path: Path) -> None:
    with BatchServer(answer) as other:
        stopped(tmp_path, other, items(3))
    assert None not in scores(resumed(tmp_path, server, items(3)))
    assert {job.endpoint for job in recorded(tmp_path)} == {other.url}


def test_calls_whose_file_is_deleted_are_made_again(server: BatchServer, tmp_path: Path) -> None:
    stopped(tmp_path, server, items(3), failing="/content")
    server.files.clear()
    assert None not in scores(resumed(tmp_path, server, items(3)))
