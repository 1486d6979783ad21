"""Revoked keys and outages: which errors end a run, and which are waited for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import dspy
import pytest

from debate_judge.programs.judge import Item, Judgement, Unscored, Verdict
from debate_judge.programs.lm.client import LMOptions
from debate_judge.programs.lm.errors import ProviderDownError
from debate_judge.programs.lm.limits import failures
from debate_judge.programs.lm.store import SqlStore
from tests.faulty_server import FaultyServer
from tests.programs.faults import SHORT_WAITS, answer, expected, items, judge, lm_at

pytestmark = pytest.mark.integration


def resumed(tmp_path: Path, server: FaultyServer, options: LMOptions, work: list[Item]) -> list[Judgement]:
    """Judge as a second process: with the same store and nothing else."""
    return judge(lm_at(server, store=SqlStore(tmp_path), options=options), work)


def test_a_key_revoked_midway_ends_the_run_at_once_and_nothing_is_paid_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = items(300)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-old")
    with FaultyServer(answer, latency=0.005) as server:
        server.key, server.revoke_after = "sk-old", 200
        with pytest.raises(dspy.LMAuthError) as caught:
            resumed(tmp_path, server, SHORT_WAITS, work)
        # Only what was in flight when the first refusal came.
        assert 0 < server.refused <= 32
        assert "sk-old" not in str(caught.value)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-new")
        server.key, server.revoke_after = "sk-new", None
        judgements = resumed(tmp_path, server, SHORT_WAITS, work)
    assert [j.score for j in judgements if isinstance(j, Verdict)] == [expected(item) for item in work]
    assert max(server.answered.values()) == 1


def test_an_outage_is_waited_for(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    work = items(200)
    gone = iter([True])

    def script(body: bytes, attempt: int) -> str | None:
        if server.requests == 100 and next(gone, False):
            server.leave_for(3600)
        return None

    def noticed(message: str, *arguments: object) -> None:
        warn(message, *arguments)
        if "does not respond" in message:
            server.come_back()

    warn = failures._LOG.warning
    monkeypatch.setattr(failures._LOG, "warning", noticed)
    with FaultyServer(answer, script) as server:
        lm = lm_at(server, options=replace(SHORT_WAITS, retries=1))
        judgements = judge(lm, work)
    # Although a call may fail only once by itself, the outage cost no item.
    assert [j.score for j in judgements if isinstance(j, Verdict)] == [expected(item) for item in work]
    assert max(server.answered.values()) == 1
    messages = [record.getMessage() for record in caplog.records]
    assert any("does not respond" in m for m in messages)
    assert any("responds again" in m for m in messages)


def test_an_outage_that_lasts_ends_the_run_to_be_resumed(tmp_path: Path) -> None:
    work = items(200)
    gone = iter([True])

    def script(body: bytes, attempt: int) -> str | None:
        if server.requests == 100 and next(gone, False):
            server.leave_for(3600)
        return None

    with FaultyServer(answer, script) as server:
        with pytest.raises(ProviderDownError, match="no call was answered"):
            resumed(tmp_path, server, replace(SHORT_WAITS, max_outage=1.5), work)
        server.come_back()
        judgements = resumed(tmp_path, server, SHORT_WAITS, work)
    assert [j.score for j in judgements if isinstance(j, Verdict)] == [expected(item) for item in work]
    assert max(server.answered.values()) == 1


@pytest.mark.parametrize("fault", ["500", "429", "garbage"])
def test_a_server_that_only_fails_ends_the_run_not_the_items(fault: str) -> None:
    with FaultyServer(answer, lambda body, attempt: fault) as server, pytest.raises(ProviderDownError):
        judge(lm_at(server, options=replace(SHORT_WAITS, max_outage=1.2)), items(50))


def test_a_server_that_is_not_running_ends_the_run() -> None:
    with FaultyServer(answer) as server:
        pass
    with pytest.raises(ProviderDownError, match="cannot reach the server"):
        judge(lm_at(server, options=replace(SHORT_WAITS, max_outage=0.3)), items(5))


def test_an_item_that_always_fails_does_not_affect_the_others() -> None:
    work = items(60)
    with FaultyServer(answer, lambda body, attempt: "500" if b"Letter-7\\n" in body else None) as server:
        judgements = judge(lm_at(server, options=replace(SHORT_WAITS, retries=2)), work)
    assert [i for i, j in enumerate(judgements) if isinstance(j, Unscored)] == [7]
    failed = judgements[7]
    assert "HTTP 500" in failed.detail
    assert sum(server.attempts.values()) - sum(server.answered.values()) == 3


def test_a_probe_tells_calls_that_fail_together_from_an_outage() -> None:
    work = items(12)

    def script(body: bytes, attempt: int) -> str | None:
        return "502" if any(b"Letter-%d\\n" % i in body for i in range(6)) else None

    with FaultyServer(answer, script) as server:
        lm = lm_at(server, options=replace(SHORT_WAITS, retries=2))
        judgements = judge(lm, work)
        assert [isinstance(j, Unscored) for j in judgements] == [True] * 6 + [False] * 6
        # Again, without any other call that is answered: the probe decides.
        again = judge(lm, work[:6])
    assert all(isinstance(j, Unscored) for j in again)
    assert lm.meter.executed["probe"] >= 1
