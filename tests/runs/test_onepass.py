"""Many judges in one pass: shared calls are made once and charged to everybody, and a failure stays its owner's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import dspy
import pytest
from dspy import lm15

from debate_judge.data.errors import InputError
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import Item, Judgement, Rules, Unscored, Verdict, corpus_items
from debate_judge.programs.lm.batch.jobs import BookInMemory, book_of
from debate_judge.programs.lm.journal import Journal
from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.reply import Memory, Reply
from debate_judge.runs.runner.billing import Bill, Billing, charged_to
from debate_judge.runs.runner.runner import Panel
from debate_judge.runs.runner.shared_pass import Job, run_together
from tests.fakes import ScriptedLM, debater, scripted_lm
from tests.runs.rated import COHERENCE, arguing, corpus, the_number

ITEMS = corpus_items(corpus([1, 2, 5], [4, 2, 2]), COHERENCE)


def lm_of(script: Callable[[str], str], **options: object) -> ScriptedLM:
    return scripted_lm(script, store=Billing(Memory()), **options)


def job(owner: str, rules: Rules, bill: Bill | None = None) -> Job[Judgement]:
    return Job(owner, Debate(rules=rules).judge, ITEMS, bill)


def test_results_come_by_job_in_the_order_of_its_items() -> None:
    with Panel(lm_of(debater(score=the_number))) as panel:
        reverse = Job("b", Debate(rules=Rules(0)).judge, ITEMS[::-1])
        done = run_together(panel, [job("a", Rules(0)), reverse], "test", progress=False)
    scores = [[j.score for j in found if isinstance(j, Verdict)] for found in done.results]
    assert scores == [[1, 2, 5, 4, 2, 2], [2, 2, 4, 5, 2, 1]]
    assert done.failed == {}


def test_calls_that_several_judges_need_are_made_once_even_while_they_fly() -> None:
    lm = lm_of(arguing(1), latency=0.01, concurrency=100)
    with Panel(lm) as panel:
        run_together(panel, [job("a", Rules(2)), job("b", Rules(2)), job("c", Rules(0))], "test", progress=False)
    # Scorer, Critic objects, Scorer, Critic content: four calls an item, whoever asks.
    assert lm.meter.executed == {"scorer": 12, "critic": 12}
    assert len(lm.prompts) == len(set(lm.prompts)) == 24
    assert lm.meter.asked.total() == 24 + 24 + 6


def test_everybody_is_charged_what_he_would_have_paid_alone() -> None:
    rules = {"single": Rules(0), "debate": Rules(2), "settled": Rules(1, True)}

    def bills(names: list[str], lm: ScriptedLM) -> dict[str, tuple[int, int]]:
        found = {name: Bill() for name in names}
        with Panel(lm) as panel:
            run_together(panel, [job(n, rules[n], found[n]) for n in names], "test", progress=False)
        return {name: (bill.fresh, bill.output) for name, bill in found.items()}

    together = bills(list(rules), lm_of(arguing(9)))
    alone = {name: bills([name], lm_of(arguing(9)))[name] for name in rules}
    assert together == alone
    assert 0 < together["single"][0] < together["settled"][0]
    # A second run pays nothing and is charged the same.
    lm = lm_of(arguing(9))
    assert bills(list(rules), lm) == bills(list(rules), lm) == together


def test_a_bill_counts_a_reply_once_and_knows_what_was_cached() -> None:
    bill, store = Bill(), Billing(Memory())
    store.put("0" * 32, "scorer", Reply("4", 100, 10, 60))
    with charged_to(bill):
        for _ in range(2):
            store.get("0" * 32)
        store.get("f" * 32)
    store.put("1" * 32, "scorer", Reply("4", 1000, 1000))
    assert (bill.fresh, bill.cached, bill.output) == (40, 60, 10)
    assert bill.usd(Price(10.0, 1.0, 100.0)) == pytest.approx((400 + 60 + 1000) / 1e6)


def test_a_reply_is_charged_to_whoever_waited_for_it_whichever_task_brings_it() -> None:
    asker, bringer, store = Bill(), Bill(), Billing(Memory())
    with charged_to(asker):
        assert store.get("0" * 32) is None
        assert store.get("0" * 32) is None
    # The replies of a batch job come in a task that another judge may have started.
    with charged_to(bringer):
        store.put("0" * 32, "scorer", Reply("4", 100, 10))
    assert (asker.fresh, bringer.fresh) == (100, 0)


def test_the_book_of_batch_jobs_is_the_stores_own(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert book_of(Billing(journal)) is journal.jobs
    assert isinstance(book_of(Billing(Memory())), BookInMemory)
    journal.close()


def test_equal_items_are_worked_on_once() -> None:
    lm = lm_of(debater(score=the_number))
    twice = [*ITEMS, ITEMS[0]]
    with Panel(lm) as panel:
        done = run_together(panel, [Job("a", Debate(rules=Rules(0)).judge, twice)], "test", progress=False)
    assert len(lm.prompts) == 6
    assert done.results[0][0] is done.results[0][6]


@pytest.mark.parametrize(
    "error", [InputError("not on this scale"), dspy.LMUnsupportedFeatureError("no log-probabilities", model="m")]
)
def test_what_one_judge_cannot_do_ends_its_jobs_and_no_others(error: Exception) -> None:
    async def impossible(item: Item) -> Judgement:
        raise error

    lm = lm_of(debater(score=the_number))
    with Panel(lm) as panel:
        jobs = [Job("bad", impossible, ITEMS), job("bad", Rules(3)), job("good", Rules(0))]
        done = run_together(panel, jobs, "test", progress=False)
    assert done.failed == {"bad": error}
    assert done.results[:2] == [[], []]
    assert len(done.results[2]) == len(ITEMS)


def test_an_item_that_cannot_be_scored_fails_nobody() -> None:
    def script(prompt: str) -> str:
        return debater(score="many" if the_number(prompt) == "5" else the_number)(prompt)

    with Panel(lm_of(script)) as panel:
        (found,) = run_together(panel, [job("a", Rules(0))], "test", progress=False).results
    assert [type(j) for j in found] == [Verdict, Verdict, Unscored, Verdict, Verdict, Verdict]


def test_an_error_of_the_lm_for_everybody_ends_the_pass() -> None:
    def script(prompt: str) -> str:
        raise lm15.AuthError("wrong key")

    with Panel(lm_of(script)) as panel, pytest.raises(dspy.LMAuthError):
        run_together(panel, [job("a", Rules(0)), job("b", Rules(1))], "test", progress=False)
