"""Whole debates in batch jobs: the replies of direct calls, in few jobs, none of them paid twice, and resumed."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import pytest
from sqlalchemy import delete, func, select

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.batch import engine
from debate_judge.programs.lm.errors import BudgetSpentError, ProviderDownError
from debate_judge.programs.lm.options import BudgetCaps
from debate_judge.programs.lm.sql.tables import BATCH_JOBS, REPLIES
from debate_judge.programs.lm.store import SqlStore
from debate_judge.programs.make_lm import make_lm
from tests.batch_server import BatchServer
from tests.faulty_server import FaultyServer
from tests.programs.batches import HURRY, IMPATIENT, ONE_ROUND, judge, lm_at, resumed, scores
from tests.programs.faults import answer, expected, items

SLOW = replace(HURRY, batch_pace=replace(HURRY.batch_pace, quiet=0.6))
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
def test_no_job_is_larger_than_the_service_takes(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with BatchServer(answer) as server:
        judge(lm_at(server), items(1), rounds=0)
        # Letter-0's line, and two digits more in its letter and note.
        line = server.jobs["batch_0"]["size"] + 8
        server.most_calls = 8 if limit == "calls" else 3
        most = ("MOST_CALLS", 8) if limit == "calls" else ("MOST_BYTES", 3 * line)
        monkeypatch.setattr(engine, *most)
        judgements = judge(lm_at(server), items(20), rounds=0)
        assert server.made_calls == {("scorer", "0"): 21}
    assert None not in scores(judgements)


# --- money ---


@pytest.mark.parametrize(
    ("budget", "least", "most"),
    [
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
        half = make_lm("openai/mock", api_base=server.url, options=replace(HURRY, prices=prices))
        judge(half, work[:4], rounds=0)
        assert half.price is not None
        # 100 input tokens, cached or not, and 20 output tokens.
        assert half.meter.cost(half.price) == {"scorer": pytest.approx(4 * (100 * 1 + 20 * 8) / 1e6)}
        server.executed.clear()
        store = SqlStore(tmp_path / "replies")
        # At most 100 tokens are set aside for a reply.
        common: dict[str, Any] = {"api_base": server.url, "store": store, "max_tokens": 100}
        with pytest.raises(BudgetSpentError):
            judge(make_lm("openai/mock", options=replace(HURRY, budget=budget, prices=prices), **common), work)
        assert least <= len(server.executed) <= most
        assert scores(judge(make_lm("openai/mock", options=HURRY, **common), work)) == [expected(i) for i in work]
        store.close()
    assert len(server.executed) == server.executed.total() == 100


# --- which LMs can be asked so ---


@pytest.mark.parametrize("spec", ["offline", "anthropic/claude", "hosted_vllm/m", "openai"])
def test_other_lms_are_refused_with_a_remedy(spec: str) -> None:
    with pytest.raises(InputError, match="leave batch away"):
        make_lm(spec, options=HURRY)


def test_a_key_is_needed_at_the_real_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(dspy.LMConfigurationError, match="OPENAI_API_KEY"):
        make_lm("openai/gpt-4o-mini", options=HURRY)


# --- stopped and taken up again; `tests/runs/test_batch_commands.py` kills the command ---


def fails_looking(method: str, path: str, number: int) -> str | None:
    return "500" if method == "GET" else None


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
            assert store.run_now(lambda database: database.scalar(select(func.count()).select_from(REPLIES))) == 20
            assert (lm.meter.executed["scorer"], lm.meter.executed["earlier jobs"]) == (1, 19)
        assert scores(resumed(tmp_path, server, work)) == [expected(item) for item in work]
        assert server.made_calls == ONE_ROUND
    assert set(server.executed.values()) == {1}


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
            store.run_now(lambda database: database.execute(delete(BATCH_JOBS)) and None)
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
