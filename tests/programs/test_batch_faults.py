"""Batch jobs, lines and the service go wrong: every call ends, none is paid twice or gets another's answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import dspy
import pytest

from debate_judge.programs.judge import Unscored
from debate_judge.programs.lm.batch import service
from debate_judge.programs.lm.batch.service import BatchService
from debate_judge.programs.lm.errors import ProviderDownError
from debate_judge.programs.make_lm import make_lm
from tests.batch_server import BatchServer
from tests.hostile_server import HostileServer, endless, gzip_bomb, sized
from tests.programs.batches import HURRY, IMPATIENT, ONE_ROUND, judge, lm_at, resumed, scores
from tests.programs.faults import answer, expected, items

Lines = list[bytes]


def once(fault: str, door: str) -> Callable[[str, str, int], str | None]:
    return lambda method, path, number: fault if number == 0 and f"{method} {path}".startswith(door) else None


@pytest.mark.parametrize(
    ("door", "fault"),
    [
        ("POST /files", "garbage"),
        ("POST /batches", "500"),
        ("POST /batches", "garbage"),
        ("POST /batches", "lost"),
        ("GET /batches/", "429"),
        ("GET /files/", "lost"),
        ("GET /files/", "garbage"),
    ],
)
def test_a_hiccup_at_any_door_makes_no_second_job(fault: str, door: str) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.door = once(fault, door)
        judgements = judge(lm_at(server), work)
        assert server.made_calls == ONE_ROUND
    assert scores(judgements) == [expected(item) for item in work]


def test_a_server_without_batches_is_told() -> None:
    with BatchServer(answer) as server:
        lm = make_lm("openai/mock", api_base=server.url + "/nothing", options=HURRY)
        with pytest.raises(dspy.LMConfigurationError, match="no batch service"):
            judge(lm, items(2))


@pytest.mark.parametrize("fault", ["500", "status 0", "absent", "garbage"])
def test_calls_without_an_answer_are_asked_again(fault: str) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.calls = lambda body, attempt: fault if attempt == 0 and b"Letter-7\\n" in body else None
        judgements = judge(lm_at(server), work)
        assert server.made_calls == {("scorer", "0"): 21, ("critic", "1"): 21, ("scorer", "1"): 11}
        # What was answered is not asked again.
        assert set(server.executed.values()) == {1}
    assert scores(judgements) == [expected(item) for item in work]


@pytest.mark.parametrize(
    ("fault", "reason", "detail", "asked"),
    [
        ("500", "lm error", "HTTP 500", 3),
        ("absent", "lm error", "has no answer to this call", 3),
        ("long", "too long", "maximum context length", 1),
        ("filter", "refused", "", 1),
    ],
)
def test_a_call_that_always_fails_costs_its_item_only(fault: str, reason: str, detail: str, asked: int) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.calls = lambda body, attempt: fault if b"Letter-7\\n" in body else None
        judgements = judge(lm_at(server), work)
        assert max(server.attempts.values()) == asked
    failed = judgements[7]
    assert isinstance(failed, Unscored)
    assert failed.reason == reason
    assert detail in failed.detail
    assert scores(judgements[:7] + judgements[8:]) == [expected(item) for item in work if item.group != "7"]


def test_an_outage_becomes_no_score_and_is_told_by_a_direct_call_that_anybody_answers() -> None:
    with BatchServer(answer) as server:
        server.calls = lambda body, attempt: "500"
        lm = lm_at(server)
        assert scores(judge(lm, items(5), rounds=0)) == [None] * 5
        assert server.made_calls == {("scorer", "0"): 15}
        assert lm.meter.executed["probe"] == server.direct > 0
        server.door = lambda method, path, number: "500" if path == "/chat/completions" else None
        with pytest.raises(ProviderDownError, match="no call was answered in 3 batch jobs"):
            judge(lm_at(server), items(5), rounds=0)


@pytest.mark.parametrize(("fault", "kind"), [("401", dspy.LMAuthError), ("404", dspy.LMUnsupportedModelError)])
def test_a_line_that_concerns_all_ends_the_run_and_keeps_the_rest(
    fault: str, kind: type[dspy.LMError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The key that the fake server quotes.
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    work = items(20)
    with BatchServer(answer) as server:
        server.calls = lambda body, attempt: fault if b"Letter-7\\n" in body else None
        with pytest.raises(kind) as caught:
            resumed(tmp_path, server, work)
        assert "sk-secret" not in str(caught.value)
        server.calls = lambda body, attempt: None
        assert scores(resumed(tmp_path, server, work)) == [expected(item) for item in work]
    assert set(server.executed.values()) == {1}


@pytest.mark.parametrize("fate", ["expired", "cancelled"])
def test_what_an_interrupted_job_left_over_goes_into_another(fate: str) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.job = lambda number: fate if number == 0 else None
        judgements = judge(lm_at(server), work)
        assert set(server.executed.values()) == {1}
        assert server.made_calls == {**ONE_ROUND, ("scorer", "0"): 20 + server.made[0][2] // 2}
    assert scores(judgements) == [expected(item) for item in work]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("billing_hard_limit_reached", dspy.LMBillingError),
        ("invalid_model", dspy.LMUnsupportedModelError),
        ("something_new", dspy.LMConfigurationError),
    ],
)
def test_a_job_that_is_refused_tells_why(code: str, kind: type[dspy.LMError], tmp_path: Path) -> None:
    with BatchServer(answer) as server:
        server.job = lambda number: code
        with pytest.raises(kind, match=f"was refused: {code}: scripted"):
            resumed(tmp_path, server, items(3))
        server.job = lambda number: None
        assert None not in scores(resumed(tmp_path, server, items(3)))


def test_a_full_queue_parts_the_jobs() -> None:
    work = items(40)
    with BatchServer(answer) as server:
        judge(lm_at(server), work[:1], rounds=0)
        server.queue = 5 * server.jobs["batch_0"]["size"] + 100
        server.jobs.clear()
        server.executed.clear()
        judgements = judge(lm_at(server), work, rounds=0)
        taken = [j for j in server.jobs.values() if j["status"] == "completed"]
        # Parted, though not call by call.
        assert 8 <= len(taken) <= len(server.jobs) < len(work)
        assert set(server.executed.values()) == {1}
    assert None not in scores(judgements)


# --- answers that cannot be trusted ---


def malformed(lines: Lines) -> Lines:
    return [lines[0][:-20], *lines[1:]]


def doubled(lines: Lines) -> Lines:
    """Two answers to one call, of which one is another call's text."""
    other = json.loads(lines[0]) | {"response": json.loads(lines[1])["response"]}
    other["response"]["body"]["id"] = "another"
    return [*lines, json.dumps(other).encode()]


def copied(lines: Lines) -> Lines:
    """One completion as the answer to two calls."""
    copy = json.loads(lines[0]) | {"response": json.loads(lines[1])["response"]}
    return [json.dumps(copy).encode(), *lines[1:]]


def foreign(lines: Lines) -> Lines:
    """An answer under a name that no call has."""
    return [json.dumps(json.loads(lines[0]) | {"custom_id": "f" * 32}).encode(), *lines[1:]]


def endless_line(lines: Lines) -> Lines:
    return [lines[0][:-1] + b" " * 2 * service.LONGEST_LINE + lines[0][-1:], *lines[1:]]


@pytest.mark.parametrize(
    ("tamper", "again"), [(malformed, 1), (doubled, 1), (copied, 2), (foreign, 1), (endless_line, 1)]
)
def test_an_answer_that_cannot_be_trusted_is_asked_for_again(
    tamper: Callable[[Lines], Lines], again: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than all other lines together, and short enough for a test.
    monkeypatch.setattr(service, "LONGEST_LINE", 200_000)
    work = items(6)
    with BatchServer(answer) as server:
        right = scores(judge(lm_at(server), work, rounds=0))
        server.jobs.clear()
        server.tamper = lambda number, lines: tamper(lines) if number == 0 else lines
        assert scores(judge(lm_at(server), work, rounds=0)) == right
        assert server.made_calls == {("scorer", "0"): 6 + again}


@pytest.mark.parametrize("rubbish", [b"<html>", b"7", b'{"custom_id": 3}', b'{"custom_id": "z"}', b" "])
def test_lines_about_no_call_of_the_job_are_passed_over(rubbish: bytes) -> None:
    with BatchServer(answer) as server:
        server.tamper = lambda number, lines: [lines[0], rubbish, *lines[1:]]
        assert None not in scores(judge(lm_at(server), items(3), rounds=0))
        assert server.made_calls == {("scorer", "0"): 3}


@pytest.mark.parametrize("kind", ["body", "body of 1 GB", "head", "bomb"])
def test_an_answer_without_end_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "LONGEST_ANSWER", 2**20)
    bomb = sized(gzip_bomb(2**26), b"Content-Encoding: gzip")
    with HostileServer(lambda _: [bomb] if kind == "bomb" else endless(kind)) as server:
        refuse(server)
        assert server.sent < 100 * 2**20 * len(server.requests)


def refuse(server: HostileServer) -> None:
    async def look() -> None:
        batches = BatchService(server.url, "sk-x", "openai/m", IMPATIENT)
        try:
            await batches.retrieve("batch_1")
        finally:
            await batches.aclose()

    with pytest.raises(ProviderDownError, match="has not answered"):
        asyncio.run(look())
    assert server.requests
