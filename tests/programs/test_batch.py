"""Whole debates in batch jobs: the replies of direct calls, in few jobs, and no unusable answer is used."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import pytest

from debate_judge.programs.judge import Verdict
from debate_judge.programs.lm.batch import engine, service
from debate_judge.programs.lm.batch.service import BatchService
from debate_judge.programs.lm.errors import BudgetSpentError, ProviderDownError
from debate_judge.programs.lm.options import BudgetCaps
from debate_judge.programs.lm.store import SqlStore
from debate_judge.programs.make_lm import make_lm
from tests.batch_server import BatchServer
from tests.faulty_server import FaultyServer
from tests.hostile_server import HostileServer, endless, gzip_bomb, sized
from tests.programs.batches import SHORT_OUTAGE, SHORT_WAITS, lm_at, scores
from tests.programs.faults import answer, expected, items, judge

pytestmark = pytest.mark.integration
SLOW = replace(SHORT_WAITS, batch_timing=replace(SHORT_WAITS.batch_timing, quiet_period=0.6))
"""Waits for calls long enough for a machine that is busy with other things, where the number of jobs is what counts."""


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
def test_no_job_exceeds_the_limits_of_the_service(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with BatchServer(answer) as server:
        judge(lm_at(server), items(1), rounds=0)
        # Letter-0's line, and two digits more in its letter and note.
        line = server.jobs["batch_0"]["size"] + 8
        server.most_calls = 8 if limit == "calls" else 3
        most = ("MAX_CALLS", 8) if limit == "calls" else ("MAX_BYTES", 3 * line)
        monkeypatch.setattr(engine, *most)
        judgements = judge(lm_at(server), items(20), rounds=0)
        assert server.made_calls == {("scorer", "0"): 21}
    assert all(isinstance(j, Verdict) for j in judgements)


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
    tamper: Callable[[list[bytes]], list[bytes]], again: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than all other lines together, and short enough for a test.
    monkeypatch.setattr(service, "MAX_LINE_BYTES", 200_000)
    work = items(6)
    with BatchServer(answer) as server:
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
