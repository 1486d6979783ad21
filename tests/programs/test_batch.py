"""Whole debates in batch jobs: the same replies as direct calls, in few jobs, and none paid for twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import pytest

from debate_judge.programs.judge import Verdict
from debate_judge.programs.lm.batch import engine
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.errors import BudgetSpentError
from debate_judge.programs.lm.options import BudgetCaps
from debate_judge.programs.lm.store import SqlStore
from debate_judge.programs.make_lm import make_lm
from tests.batch_server import BatchServer
from tests.faulty_server import FaultyServer
from tests.programs.batches import SHORT_WAITS, judge, lm_at, scores
from tests.programs.engines import reply_to
from tests.programs.faults import answer, expected, items

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
    assert lm.meter.tokens["critic"].calls == 30


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


def test_a_job_is_sent_once_no_new_call_comes() -> None:
    """Calls come one after another, each long before the quiet time is over, all of them taking longer than it."""

    async def trickle(lm: JudgeLM) -> None:
        async def later(number: int) -> None:
            await asyncio.sleep(0.1 * number)
            await reply_to(lm, [{"role": "user", "content": f"Letter-{number}"}])

        await asyncio.gather(*(later(number) for number in range(12)))
        await lm.aclose()

    with BatchServer(answer) as server:
        asyncio.run(trickle(lm_at(server, options=SLOW)))
        assert server.made == [("scorer", "0", 12)]


# --- money ---


def test_a_budget_holds_and_batch_jobs_cost_half(tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("[mock]\ninput = 10.0\ncached = 1.0\noutput = 100.0\n")
    with BatchServer(answer) as server:
        lm = lm_at(server, options=replace(SHORT_WAITS, prices=prices))
        judge(lm, items(4), rounds=0)
        assert lm.price is not None
        # 100 input tokens, cached or not, and 20 output tokens.
        assert lm.meter.cost(lm.price) == {"scorer": pytest.approx(4 * (100 * 5 + 20 * 50) / 1e6)}


@pytest.mark.parametrize(
    ("budget", "least", "most"),
    [
        (BudgetCaps(calls=45), 45, 45),
        # A call takes 120 tokens.
        (BudgetCaps(tokens=6000), 40, 50),
        # It costs 0.00026 dollars; at the full price 23 could be paid.
        (BudgetCaps(usd=0.012), 40, 46),
    ],
)
def test_a_budget_is_never_exceeded_and_the_run_goes_on_with_a_larger_one(
    tmp_path: Path, budget: BudgetCaps, least: int, most: int
) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("[mock]\ninput = 2.0\noutput = 16.0\n")
    work = items(40)
    with BatchServer(answer) as server:
        store = SqlStore(tmp_path / "replies")
        # At most 100 tokens are set aside for a reply.
        common: dict[str, Any] = {"api_base": server.url, "store": store, "max_tokens": 100}
        with pytest.raises(BudgetSpentError):
            judge(make_lm("openai/mock", options=replace(SHORT_WAITS, budget=budget, prices=prices), **common), work)
        assert least <= len(server.executed) <= most
        assert scores(judge(make_lm("openai/mock", options=SHORT_WAITS, **common), work)) == [expected(i) for i in work]
        store.close()
    assert len(server.executed) == server.executed.total() == 100


# --- which LMs can be asked so ---


def test_a_key_is_needed_at_the_real_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(dspy.LMConfigurationError, match="OPENAI_API_KEY"):
        make_lm("openai/gpt-4o-mini", options=SHORT_WAITS)
