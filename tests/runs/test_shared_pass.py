"""Many judges in one pass: shared calls are made once and charged to everybody, and a failure stays its owner's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import dspy
import pytest
from dspy import lm15

from debate_judge.data.errors import InputError
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import DebateConfig, Item, Judgement, Verdict, corpus_items
from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.reply import InMemoryStore, Reply
from debate_judge.runs.runner.billing import JudgeUsage, UsageByJudge, charged_to
from debate_judge.runs.runner.runner import JudgeRunner, PassJob, run_shared_pass
from tests.fakes import ScriptedLM, debater, only, scripted_lm
from tests.runs.rated_corpora import COHERENCE, arguing, corpus, the_number

ITEMS = corpus_items(corpus([1, 2, 5], [4, 2, 2]), COHERENCE)


def resolve_lm(script: Callable[[str], str], **options: object) -> ScriptedLM:
    return scripted_lm(script, store=UsageByJudge(InMemoryStore()), **options)


def judging(debate_config: DebateConfig) -> Callable[[Item], Awaitable[Judgement]]:
    judge = Debate(debate_config=debate_config)
    return lambda item: only(judge.judge([item]))


def job(owner: str, debate_config: DebateConfig, usage: JudgeUsage | None = None) -> PassJob[Judgement]:
    return PassJob(owner, judging(debate_config), ITEMS, usage)


def test_results_come_by_job_in_the_order_of_its_items() -> None:
    with JudgeRunner(resolve_lm(debater(score=the_number))) as runner:
        reverse = PassJob("b", judging(DebateConfig(0)), ITEMS[::-1])
        done = run_shared_pass(runner, [job("a", DebateConfig(0)), reverse], "test")
    scores = [[j.score for j in found if isinstance(j, Verdict)] for found in done.results]
    assert scores == [[1, 2, 5, 4, 2, 2], [2, 2, 4, 5, 2, 1]]
    assert done.failed == {}


def test_each_judge_is_charged_what_it_would_have_used_alone() -> None:
    configs = {"single": DebateConfig(0), "debate": DebateConfig(2), "settled": DebateConfig(1, True)}

    def used(names: list[str], lm: ScriptedLM) -> dict[str, tuple[int, int]]:
        found = {name: JudgeUsage() for name in names}
        with JudgeRunner(lm) as runner:
            run_shared_pass(runner, [job(n, configs[n], found[n]) for n in names], "test")
        return {name: (usage.fresh, usage.output) for name, usage in found.items()}

    together = used(list(configs), resolve_lm(arguing(9)))
    alone = {name: used([name], resolve_lm(arguing(9)))[name] for name in configs}
    assert together == alone
    assert 0 < together["single"][0] < together["settled"][0]
    # A second run pays nothing and is charged the same.
    lm = resolve_lm(arguing(9))
    assert used(list(configs), lm) == used(list(configs), lm) == together


def test_a_reply_is_charged_once_at_the_price_of_what_was_cached_to_whoever_waited_for_it() -> None:
    asker, bringer, store = JudgeUsage(), JudgeUsage(), UsageByJudge(InMemoryStore())
    with charged_to(asker):
        assert asyncio.run(store.get("0" * 32)) is None
        assert asyncio.run(store.get_or_claim("0" * 32)) is True
    # The replies of a batch job come in a task that another judge may have started.
    with charged_to(bringer):
        asyncio.run(store.put("0" * 32, "scorer", Reply("4", 100, 10, 60)))
    with charged_to(asker):
        for _ in range(2):
            asyncio.run(store.get("0" * 32))
    assert (bringer.fresh, bringer.cached, bringer.output) == (0, 0, 0)
    assert (asker.fresh, asker.cached, asker.output) == (40, 60, 10)
    assert asker.usd(Price(10.0, 1.0, 100.0)) == pytest.approx((400 + 60 + 1000) / 1e6)


@pytest.mark.parametrize(
    "error", [InputError("not on this scale"), dspy.LMUnsupportedFeatureError("no log-probabilities", model="m")]
)
def test_what_one_judge_cannot_do_ends_its_jobs_and_no_others(error: Exception) -> None:
    async def impossible(item: Item) -> Judgement:
        raise error

    lm = resolve_lm(debater(score=the_number))
    with JudgeRunner(lm) as runner:
        jobs = [PassJob("bad", impossible, ITEMS), job("bad", DebateConfig(3)), job("good", DebateConfig(0))]
        done = run_shared_pass(runner, jobs, "test")
    assert done.failed == {"bad": error}
    assert done.results[:2] == [[], []]
    assert len(done.results[2]) == len(ITEMS)


def test_an_error_of_the_lm_for_everybody_ends_the_pass() -> None:
    def script(prompt: str) -> str:
        raise lm15.AuthError("wrong key")

    with JudgeRunner(resolve_lm(script)) as runner, pytest.raises(dspy.LMAuthError):
        run_shared_pass(runner, [job("a", DebateConfig(0)), job("b", DebateConfig(1))], "test")
