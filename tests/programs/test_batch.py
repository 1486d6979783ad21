"""Whole debates in batch jobs: the replies of direct calls, in few jobs, none of them paid twice, whatever happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import pytest

from debate_judge.data.errors import InputError
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import DebateConfig, Item, Judgement, Verdict
from debate_judge.programs.lm.client import JudgeLM, LMOptions, ReplyStore
from debate_judge.programs.lm.errors import BudgetSpentError, ProviderDownError
from debate_judge.programs.lm.journal import Journal
from debate_judge.programs.lm.options import BatchTiming, BudgetCaps
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.runner.runner import JudgeRunner
from tests.batch_server import BatchServer
from tests.faulty_server import FaultyServer
from tests.programs.test_faults import answer, expected, items

HURRY = LMOptions(
    batch="openai",
    batch_pace=BatchTiming(quiet=0.03, first_poll=0.001, longest_poll=0.004, patience=0.2),
    first_wait=0.005,
    longest_wait=0.02,
)
"""Waits short enough for a test."""

ONE_ROUND = [("scorer", "0", 20), ("critic", "1", 20), ("scorer", "1", 10)]
"""Jobs of 20 items: the Critic objects to every second one."""


def lm_at(server: BatchServer, *, store: ReplyStore | None = None, options: LMOptions = HURRY) -> JudgeLM:
    # A concurrency that would show if it held calls back.
    return make_lm("openai/mock", api_base=server.url, store=store, options=options, concurrency=2)


def judge(lm: JudgeLM, what: list[Item], rounds: int = 1) -> list[Judgement]:
    with JudgeRunner(lm, progress=False) as runner:
        return runner.judge(Debate(debate_config=DebateConfig(rounds)), what)


def resumed(folder: Path, server: BatchServer, what: list[Item], options: LMOptions = HURRY) -> list[Judgement]:
    """As another process would: the same folder, nothing else."""
    journal = Journal(folder)
    try:
        return judge(lm_at(server, store=journal, options=options), what)
    finally:
        journal.close()


def scores(judgements: list[Judgement]) -> list[float | None]:
    return [j.score if isinstance(j, Verdict) else None for j in judgements]


def notes(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.job"))


def test_the_debates_are_those_of_direct_calls_in_one_job_for_each_role_and_round() -> None:
    work = items(20)
    with FaultyServer(answer) as server:
        direct = judge(make_lm("openai/mock", api_base=server.url), work, rounds=2)
    with BatchServer(answer) as batches:
        lm = lm_at(batches)
        judgements = judge(lm, work, rounds=2)
        assert batches.made == [*ONE_ROUND, ("critic", "2", 10)]
        assert batches.direct == 0
    assert [j.transcript for j in judgements] == [j.transcript for j in direct]
    assert lm.meter.executed.total() == sum(batches.executed.values()) == 60
    assert set(batches.executed.values()) == {1}
    assert lm.meter.tokens["critic"].calls == 30


def test_no_job_is_larger_than_the_service_takes() -> None:
    with BatchServer(answer) as server:
        server.most_calls = 8
        options = replace(HURRY, batch_pace=replace(HURRY.batch_pace, calls=8))
        judgements = judge(lm_at(server, options=options), items(20), rounds=0)
        assert sorted(n for _, _, n in server.made) == [4, 8, 8]
        longest = max(len(line) for job in server.jobs.values() for line in job["lines"])
        before = len(server.made)
        options = replace(HURRY, batch_pace=replace(HURRY.batch_pace, size=3 * (longest + 1)))
        judge(lm_at(server, options=options), items(20), rounds=0)
        assert all(job["size"] <= 3 * (longest + 1) for job in list(server.jobs.values())[before:])
        assert len(server.made) - before == 7
    assert all(isinstance(j, Verdict) for j in judgements)


def test_a_job_waits_until_no_further_call_comes() -> None:
    async def trickle(lm: JudgeLM) -> None:
        async def later(number: int) -> None:
            await asyncio.sleep(0.2 * number)
            await lm.ask([{"role": "user", "content": f"Letter-{number}"}], "scorer")

        await asyncio.gather(*(later(number) for number in range(6)))
        await lm.aclose()

    with BatchServer(answer) as server:
        # Longer than any pause between two calls, shorter than all of them.
        options = replace(HURRY, batch_pace=replace(HURRY.batch_pace, quiet=0.7))
        asyncio.run(trickle(lm_at(server, options=options)))
        assert server.made == [("scorer", "0", 6)]


# --- stopped and taken up again ---


def fails_looking(method: str, path: str, number: int) -> str | None:
    return "500" if method == "GET" else None


def test_a_job_that_was_left_is_taken_up_and_not_made_again(tmp_path: Path) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.door = fails_looking
        with pytest.raises(ProviderDownError, match="has not answered"):
            resumed(tmp_path, server, work)
        assert server.made == ONE_ROUND[:1]
        assert len(notes(tmp_path)) == 1
        server.door = lambda method, path, number: None
        judgements = resumed(tmp_path, server, work)
        assert server.made == ONE_ROUND
    assert scores(judgements) == [expected(item) for item in work]
    assert set(server.executed.values()) == {1}
    assert not notes(tmp_path)


def until(what: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.005)


async def debates(runner: JudgeRunner, what: list[Item]) -> None:
    """One round of debate about each item, as one piece of work that can be cancelled."""
    judge = Debate(debate_config=DebateConfig(1))

    async def one(item: Item) -> None:
        with runner.asking(item):
            await judge.converse(item, 1)

    async with asyncio.TaskGroup() as tasks:
        for item in what:
            tasks.create_task(one(item))


def test_an_interrupted_run_says_which_jobs_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.held = True
        journal = Journal(tmp_path)
        with JudgeRunner(lm_at(server, store=journal), progress=False) as runner:
            flying = runner.submit(debates(runner, work))
            until(lambda: server.jobs and server.jobs["batch_0"]["status"] == "in_progress")
            until(lambda: "0 done" in capsys.readouterr().err)
            flying.cancel()
        journal.close()
        told = capsys.readouterr().err
        assert "batch_0" in told
        assert "the same command takes up their replies" in told
        server.held = False
        assert scores(resumed(tmp_path, server, work)) == [expected(item) for item in work]
        assert server.made == ONE_ROUND
    told = capsys.readouterr().err
    assert "batch job batch_0: role scorer, round 0, 20 calls, taken up again" in told
    assert "batch job batch_1: role critic, round 1, 20 calls, 20 done (completed)" in told


def test_replies_that_nobody_waits_for_any_more_are_kept(tmp_path: Path) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.door = fails_looking
        with pytest.raises(ProviderDownError):
            resumed(tmp_path, server, work)
        server.door = lambda method, path, number: None
        journal = Journal(tmp_path)
        lm = lm_at(server, store=journal)
        judge(lm, work[:1], rounds=0)
        assert len(journal) == 20
        assert (lm.meter.executed["scorer"], lm.meter.executed["earlier jobs"]) == (1, 19)
        journal.close()
        assert scores(resumed(tmp_path, server, work)) == [expected(item) for item in work]
        assert server.made == ONE_ROUND
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
            resumed(tmp_path, server, work)
        server.door = lambda method, path, number: None
        judgements = resumed(tmp_path, server, work)
        assert server.made == ONE_ROUND
    assert scores(judgements) == [expected(item) for item in work]
    assert not notes(tmp_path)


def test_a_job_that_was_never_made_is_made(tmp_path: Path) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.door = lambda method, path, number: "500" if path == "/batches" else None
        with pytest.raises(ProviderDownError):
            resumed(tmp_path, server, work)
        assert (server.made, len(notes(tmp_path))) == ([], 1)
        server.door = lambda method, path, number: None
        assert scores(resumed(tmp_path, server, work)) == [expected(item) for item in work]
        assert server.made == ONE_ROUND
    assert not notes(tmp_path)


def test_a_job_of_another_account_is_not_paid_again_without_a_word(tmp_path: Path) -> None:
    with BatchServer(answer) as server:
        server.door = fails_looking
        with pytest.raises(ProviderDownError):
            resumed(tmp_path, server, items(3))
        server.door = lambda method, path, number: None
        server.jobs.clear()
        with pytest.raises(dspy.LMConfigurationError, match=r"is not known to the account.*\.job"):
            resumed(tmp_path, server, items(3))
        assert not server.made
        notes(tmp_path)[0].unlink()
        assert None not in scores(resumed(tmp_path, server, items(3)))


def test_calls_that_stand_in_jobs_are_not_paid_again_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with BatchServer(answer) as server:
        server.door = fails_looking
        with pytest.raises(ProviderDownError):
            resumed(tmp_path, server, items(3))
        make_lm("openai/mock", api_base=server.url, store=Journal(tmp_path))
    assert "3 LM calls of an earlier run are in batch jobs" in caplog.text


def test_a_job_of_another_server_is_left_alone(tmp_path: Path) -> None:
    with BatchServer(answer) as other:
        other.door = fails_looking
        with pytest.raises(ProviderDownError):
            resumed(tmp_path, other, items(3))
    with BatchServer(answer) as server:
        assert None not in scores(resumed(tmp_path, server, items(3)))
    assert len(notes(tmp_path)) == 1


def test_files_that_are_gone_are_asked_again(tmp_path: Path) -> None:
    with BatchServer(answer) as server:
        server.door = lambda method, path, number: "500" if "content" in path else None
        with pytest.raises(ProviderDownError):
            resumed(tmp_path, server, items(3))
        server.door = lambda method, path, number: None
        server.files.clear()
        assert None not in scores(resumed(tmp_path, server, items(3)))


# --- money ---


def test_a_budget_holds_and_batch_jobs_cost_half(tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("[mock]\ninput = 10.0\ncached = 1.0\noutput = 100.0\n")
    with BatchServer(answer) as server:
        lm = lm_at(server, options=replace(HURRY, prices=prices))
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
        journal = Journal(tmp_path / "replies")
        # At most 100 tokens are set aside for a reply.
        common: dict[str, Any] = {"api_base": server.url, "store": journal, "max_tokens": 100}
        with pytest.raises(BudgetSpentError):
            judge(make_lm("openai/mock", options=replace(HURRY, budget=budget, prices=prices), **common), work)
        assert least <= len(server.executed) <= most
        assert scores(judge(make_lm("openai/mock", options=HURRY, **common), work)) == [expected(i) for i in work]
        journal.close()
    assert len(server.executed) == server.executed.total() == 100


# --- which LMs can be asked so ---


@pytest.mark.parametrize("spec", ["offline", "anthropic/claude", "hosted_vllm/m", "openai"])
def test_other_lms_are_refused_with_a_remedy(spec: str) -> None:
    with pytest.raises(InputError, match="leave --batch away"):
        make_lm(spec, options=HURRY)


def test_a_key_is_needed_at_the_real_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(dspy.LMConfigurationError, match="OPENAI_API_KEY"):
        make_lm("openai/gpt-4o-mini", options=HURRY)


def test_no_other_service_is_known() -> None:
    with pytest.raises(InputError, match="--batch"):
        LMOptions.of(batch="anthropic")
