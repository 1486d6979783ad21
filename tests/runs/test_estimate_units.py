"""What estimates are made of: lengths of replies, samples of items, replies that are there, prices and budgets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from debate_judge import data
from debate_judge.data.schema import Corpus
from debate_judge.programs.dry_run import DryRunEngine, EstimateCase, ItemReply, tokens_of
from debate_judge.programs.grouping import Question
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.options import BudgetCaps, LMOptions
from debate_judge.programs.lm.reply import InMemoryStore, Reply
from debate_judge.runs.estimates.dry_run import (
    CallTotals,
    DryRunStore,
    Estimate,
    EstimateTarget,
    ItemTotals,
    Stage,
    reply_tokens,
)
from debate_judge.runs.estimates.items import QuestionSample
from debate_judge.runs.estimates.table import render
from debate_judge.runs.runner.billing import stage
from tests.printed_output import printed
from tests.runs.sample_estimates import OFFLINE, estimated, items
from tests.stores import get, put


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    whole = data.load("sample", None)
    return replace(whole, groups=whole.groups[:12])


# --- replies ---


def test_replies_have_the_assumed_length_and_no_more_than_the_limit() -> None:
    prompt = (
        "[[ ## candidate ## ]]\nA text.\n\n[[ ## role ## ]]\nYou are the Scorer.\n\n"
        "Reply with these fields:\n\n[[ ## rationale ## ]]\n<why>\n\n[[ ## score ## ]]\n<one number>"
    )
    for case in (EstimateCase("lower", 80, False), EstimateCase("expected", 250), EstimateCase("upper", 800)):
        assert DryRunEngine(case).answer("", prompt, {}).output_tokens == pytest.approx(case.reply_tokens, rel=0.3)
    reply = DryRunEngine(EstimateCase("upper", 800)).answer("", prompt, {"max_tokens": 300})
    assert reply.output_tokens == pytest.approx(300, rel=0.1)
    assert reply.input_tokens == tokens_of(prompt)


def test_lengths_of_replies_are_read() -> None:
    assert reply_tokens("100, 300,1000") == (100, 300, 1000)
    assert reply_tokens("") == OFFLINE.reply_tokens


# --- samples ---


def test_a_stream_is_counted_whole_and_sampled_evenly(corpus: Corpus) -> None:
    item = items(corpus)[0]

    def stream() -> Iterator[Item]:
        for number in range(2000):
            yield replace(item, candidate=str(number), text=f"text {number % 1000}")

    sample, again = QuestionSample(50), QuestionSample(50)
    for one in stream():
        sample.add(Question((one,)))
        again.add(Question((one,)))
    assert sample.population.items == 1000  # Every text comes twice, and is asked about once.
    assert len(sample.items) == 50
    assert sample.items == again.items
    assert sum(int(one.text.split()[1]) < 500 for one in sample.items) == pytest.approx(25, abs=12)
    assert sample.stage("x").scale == 20


def test_a_longer_item_makes_every_call_about_it_longer() -> None:
    found = Stage.of("s", ItemTotals(10, 20_000), ItemTotals(2, 2_000))
    assert (found.scale, found.extra_tokens) == (5.0, pytest.approx(270.0))


# --- what is paid already ---


def test_replies_of_earlier_runs_are_not_counted(corpus: Corpus) -> None:
    paid = InMemoryStore()
    put(paid, "a", Reply("known", 10, 10))
    store = DryRunStore({"scoring": Stage("all")}, paid)
    assert get(store, "a") is not None
    with stage("scoring"):
        put(store, "b", Reply("new", 10, 5))
    assert get(store, "b") is not None
    assert get(paid, "b") is None
    assert store.totals == {("all", "scorer"): CallTotals(1, 10, 5)}


def test_only_what_is_about_an_item_is_multiplied() -> None:
    store = DryRunStore({"scoring": Stage("all", scale=10, extra_tokens=5)})
    with stage("scoring"):
        put(store, "a", ItemReply("new", 10, 5))
        put(store, "b", Reply("new", 10, 5))
    assert store.totals == {("all", "scorer"): CallTotals(11, 160, 55)}


# --- money and budget ---


def priced(tmp_path: Path, **options: object) -> EstimateTarget:
    prices = tmp_path / "prices.toml"
    prices.write_text('["nobody/knows"]\ninput = 1\ncached = 0.1\noutput = 10\n')
    return EstimateTarget("nobody/knows", options=LMOptions(prices=prices, **options))  # type: ignore[arg-type]


@pytest.mark.integration
def test_money_is_tokens_times_the_users_price_and_no_cache_is_assumed(corpus: Corpus, tmp_path: Path) -> None:
    target = priced(tmp_path)
    for used in estimated("debate", corpus, tmp_path, target).total:
        assert used.usd == pytest.approx((used.input + 10 * used.output) / 1e6)
    half = estimated("debate", corpus, tmp_path, priced(tmp_path, batch="openai"))
    whole = estimated("debate", corpus, tmp_path, target)
    assert half.total[1].usd == pytest.approx((whole.total[1].usd or 0) / 2)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (40, "covers the upper estimate"),
        (25, "covers the expected estimate, not the upper one"),
        (15, "covers 75 % of the expected estimate"),
        (5, "does not cover the lower estimate: the run would stop, to be resumed"),
    ],
)
def test_a_budget_is_compared_with_the_total(calls: int, expected: str) -> None:
    target = replace(OFFLINE, options=LMOptions(budget=BudgetCaps(calls=calls)))
    rows = {"all": (CallTotals(10, 1, 1), CallTotals(20, 2, 2), CallTotals(30, 3, 3))}
    assert f"--budget: calls={calls} {expected}" in printed(*render(Estimate(rows, rows["all"], target), "role"))


def test_the_table_rounds_outwards() -> None:
    rows = {"all": (CallTotals(1000.6, 1, 1, 0.5), CallTotals(2000.5, 2, 2, 1.5), CallTotals(3000.4, 3, 3, 2500))}
    told = printed(*render(Estimate(rows, rows["all"], OFFLINE), "role"))
    assert "1,000 / 2,000 / 3,001" in told
    assert "0.50 / 1.50 / 2,500.00" in told
