"""Estimates of scoring and of comparing, and what a run has cost."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from debate_judge import data
from debate_judge.data.schema import group_to_json
from debate_judge.programs import JUDGES, build
from debate_judge.programs.judge import AspectJudge, CompiledJudge, Item, corpus_items
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.programs.lm.replies import Meter, Reply
from debate_judge.programs.lm.settings import BudgetCaps, LMOptions, Price
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs import compare, score
from debate_judge.runs.comparison.entrants import build_entrants, parse_judges
from debate_judge.runs.comparison.job import estimate_evaluation
from debate_judge.runs.estimates import (
    CallTotals,
    Estimate,
    EstimateTarget,
    estimate_blocks,
    estimate_scoring,
    reply_tokens,
)
from debate_judge.runs.reports.tables import cost_rows
from debate_judge.runs.runner import JudgeRunner
from tests.fakes import debater, scripted_lm
from tests.printed_output import printed
from tests.runs.score_command import export_of

OFFLINE = EstimateTarget("offline")
SAMPLE = data.load("sample")
CORPUS = replace(SAMPLE, groups=SAMPLE.groups[:4])
ASPECTS = CORPUS.task.aspects[:2]
ITEMS = [item for aspect in ASPECTS for item in corpus_items(CORPUS, aspect)]


def judge_of(name: str, **config: object) -> AspectJudge:
    return AspectJudge(build(JUDGES[name].kind, {**JUDGES[name].config, **config}))


def estimated(judge: AspectJudge, items: list[Item] = ITEMS, target: EstimateTarget = OFFLINE) -> Estimate:
    compiled = CompiledJudge(CORPUS.task, {aspect.name: judge for aspect in ASPECTS})
    return estimate_scoring(target, compiled, ASPECTS, iter(items))[0]


def executed(judge: AspectJudge, lm: JudgeLM) -> dict[str, int]:
    """Role -> calls that the judge really makes for the same items."""
    with JudgeRunner(lm, progress=False) as runner:
        for aspect in ASPECTS:
            runner.judge(judge.judge, [item for item in ITEMS if item.aspect == aspect])
    return dict(lm.meter.executed)


# --- calls ---


@pytest.mark.integration
@pytest.mark.parametrize("name", ["debate+tiebreak", "geval", "chateval-summarizer", "hallucination"])
def test_what_is_really_asked_lies_within_the_estimate(name: str) -> None:
    estimate, calls_by_role = estimated(judge_of(name)), executed(judge_of(name), make_lm("offline"))
    for role, calls in calls_by_role.items():
        # Only a sample was run dry.
        assert calls <= 1.15 * estimate.rows[role][1].calls + 1e-6, role
    usual, most = (used.calls for used in estimate.total)
    assert sum(calls_by_role.values()) <= 1.01 * most
    # Claims that several candidates share are asked about once, which a sample sees less of.
    assert usual == pytest.approx(sum(calls_by_role.values()), rel=0.2 if "claims" in calls_by_role else 0.1)


@pytest.mark.integration
def test_the_most_is_what_an_lm_asks_that_always_objects() -> None:
    number = count()
    lm = scripted_lm(debater(feedback="Too kind.", rationale=lambda prompt: f"reason {next(number)}"))
    calls_by_role = executed(judge_of("debate+tiebreak"), lm)
    rows = estimated(judge_of("debate+tiebreak")).rows
    assert {role: round(most.calls) for role, (_, most) in rows.items()} == calls_by_role


def test_a_long_input_is_sampled_while_it_is_read_and_repeated_texts_are_asked_about_once() -> None:
    first = ITEMS[0]
    items = [replace(first, group=f"g{n}", text=f"{first.text} {n}") for n in (*range(1000), *range(1000))]
    expected, most = estimated(judge_of("single"), items).total
    assert expected.calls == most.calls == pytest.approx(1000)


@pytest.mark.integration
def test_judges_of_a_table_share_what_they_ask_alike() -> None:
    names = ["rouge-l", "single", "debate[rounds=3]", "debate+tiebreak", "debate[rounds=0|1|2]"]
    rows = estimate_evaluation(OFFLINE, CORPUS, ASPECTS, build_entrants(parse_judges(names), ASPECTS)).rows
    calls = {name: [round(used.calls) for used in cases] for name, cases in rows.items()}
    size = len(ITEMS)
    assert calls["rouge-l"] == [0, 0]
    assert calls["single"] == [size] * 2
    # n = 3 without the first turn, which the single call has made.
    assert calls["debate[rounds=3]"][1] == 6 * size
    assert calls["debate+tiebreak"][1] == size
    assert [calls[f"debate[rounds={n}]"] for n in range(3)] == [[0, 0]] * 3


# --- samples, replies, money and budget ---


def test_money_is_tokens_times_the_users_price_and_no_cache_is_assumed(tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('["nobody/knows"]\ninput = 1\ncached = 0.1\noutput = 10\n')
    target = EstimateTarget("nobody/knows", reply_tokens=reply_tokens("80, 800"), settings={"max_tokens": 400})
    direct = estimated(judge_of("single"), ITEMS[:4], replace(target, options=LMOptions(prices=prices))).total
    for used, length in zip(direct, (80, 400), strict=True):
        assert used.output_tokens == pytest.approx(4 * length, rel=0.3), (
            "a reply has the assumed length, up to the limit"
        )
        assert used.usd == pytest.approx((used.input_tokens + 10 * used.output_tokens) / 1e6)
    assert reply_tokens("") == OFFLINE.reply_tokens


def test_a_budget_is_compared_with_the_total_and_a_bound_is_rounded_up() -> None:
    target = replace(OFFLINE, options=LMOptions(budget=BudgetCaps(calls=15)))
    total = (CallTotals(20, 2, 2, 1.5), CallTotals(3000.4, 3, 3, 2500))
    text = printed(*estimate_blocks(Estimate({"all": total}, total, target), "role"))
    assert text.startswith("About $1.50 (at most $2,500.00), 20 calls")
    assert "--budget: calls=15 covers 75 % of the expected cost" in text
    assert "20 / 3,001" in text


# --- the commands ---


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, and no key."""
    for provider in ("OPENAI", "ANTHROPIC"):
        monkeypatch.delenv(f"{provider}_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_score_estimates_without_a_key_what_the_store_does_not_know(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export_of(folder / "judge", CORPUS.task, judge_of("debate"), lm="offline")
    (folder / "in.jsonl").write_text(json.dumps(group_to_json(CORPUS.groups[0])) + "\n")
    command = ["judge", "--in", "in.jsonl", "--out", "out.jsonl"]
    before = sorted(folder.rglob("*"))
    assert score.main([*command, "--lm", "openai/gpt-4o-mini", "--estimate", "--budget", "usd=0.000001"]) == 0
    assert compare.main(["--judges", "single", "--lm", "anthropic/claude-sonnet-4-5", "--estimate"]) == 0
    assert capsys.readouterr().out.count("About $") == 2
    assert sorted(folder.rglob("*")) == before
    assert score.main(command) == 0
    for store, answered in ((), True), (("--store", "elsewhere"), False):
        capsys.readouterr()
        assert score.main([*command, "--estimate", *store]) == 0
        assert bool(re.search(r"^total\s+0 / 0", capsys.readouterr().out, re.MULTILINE)) == answered
    assert not (folder / "elsewhere").exists()


# --- what it has cost ---


def test_each_role_and_round_has_its_row_and_what_is_not_known_is_said() -> None:
    meter, price = Meter(), Price(input=1.0, cached=0.5, output=4.0)
    meter.count_reply("scorer", Reply("a", 1000, 100, 600))
    meter.count_hit("scorer", Reply("b", 500, 50))
    meter.count_reply("scorer", Reply("c", 200, 20), round=1)
    meter.count_reply("critic", Reply("d", 300, 30), round=1)
    rows = cost_rows(meter, price)
    calls = [(r["role"], r["round"], r["calls"], r["cache_hits"]) for r in rows]
    assert calls == [("scorer", 0, 1, 1), ("critic", 1, 1, 0), ("scorer", 1, 1, 0), ("total", None, 3, 1)]
    tokens = [rows[0][name] for name in ("fresh_input", "cached_input", "output", "stored")]
    assert tokens == [400, 600, 100, 550]
    # 400 fresh at 1, 600 cached at half, 100 of output at 4 dollars a million.
    assert (rows[0]["usd"], rows[0]["usd_saved"]) == pytest.approx(((400 + 300 + 400) / 1e6, (500 + 200) / 1e6))
    # An LM without a price is not billed at the price of another.
    meter.prices["reflection"] = None
    meter.count_reply("reflection", Reply("f", 1000, 100))
    assert set(meter.cost(price)) == {"scorer", "critic"}
