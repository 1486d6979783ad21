"""Estimates of scoring and comparing: what the judges then really ask lies between the lower and the upper case."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from debate_judge import data
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Corpus
from debate_judge.programs import JUDGES, build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.dry_run import AboutItem, EstimateCase, dry_reply, tokens_of
from debate_judge.programs.judge import Item, corpus_items
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.options import BudgetCaps, LMOptions
from debate_judge.programs.lm.reply import Memory, Reply
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs import compare, score
from debate_judge.runs.comparison.entrants import Entrant
from debate_judge.runs.comparison.estimate import estimate_comparison
from debate_judge.runs.comparison.results import EvalSetup
from debate_judge.runs.estimates.dry_run import Estimate, Extent, Ledger, Stage, Target, Used, reply_tokens
from debate_judge.runs.estimates.items import Sample, estimate_scoring, sampled_groups
from debate_judge.runs.estimates.table import render
from debate_judge.runs.export.folder import save
from debate_judge.runs.runner.billing import stage
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.runner.tables import CandidateTable
from tests.fakes import debater, scripted_lm

OFFLINE = Target("offline")


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    whole = data.load("sample", None)
    return replace(whole, groups=whole.groups[:12])


def judges(name: str, corpus: Corpus) -> dict[str, AspectJudge]:
    judge = AspectJudge(build(JUDGES[name].kind, JUDGES[name].config))
    return {aspect.name: judge for aspect in corpus.task.aspects}


def items(corpus: Corpus, aspects: int = 2) -> list[Item]:
    return [item for aspect in corpus.task.aspects[:aspects] for item in corpus_items(corpus, aspect)]


def estimated(name: str, corpus: Corpus, tmp_path: Path, target: Target = OFFLINE) -> Estimate:
    aspects = corpus.task.aspects[:2]
    judge = CompiledJudge(corpus.task, judges(name, corpus))
    return estimate_scoring(target, judge, aspects, iter(items(corpus)))[0]


def executed(name: str, corpus: Corpus, lm: JudgeLM) -> dict[str, int]:
    """Role -> calls that the judge really makes for the same items."""
    judge = build(JUDGES[name].kind, JUDGES[name].config)
    with JudgeRunner(lm, progress=False) as runner:
        for aspect in corpus.task.aspects[:2]:
            runner.judge(judge, corpus_items(corpus, aspect))
    return dict(lm.meter.executed)


ASKING = [
    *("single", "debate", "debate+tiebreak", "multiagent", "geval", "chateval", "chateval-summarizer"),
    *("hallucination", "hallucination-verify", "hallucination-selfcheck3"),
]


@pytest.mark.parametrize("name", ASKING)
def test_what_is_really_asked_lies_within_the_estimate(name: str, corpus: Corpus, tmp_path: Path) -> None:
    found = estimated(name, corpus, tmp_path)
    real = executed(name, corpus, make_lm("offline"))
    assert set(real) <= set(found.rows)
    for role, calls in real.items():
        low, _, high = (used.calls for used in found.rows[role])
        # Only a sample was run dry: where a role's calls differ from item to item, its share is not exact.
        assert 0.85 * low - 1e-6 <= calls <= 1.15 * high + 1e-6, role
    low, usual, high = (used.calls for used in found.total)
    assert 0.99 * low <= sum(real.values()) <= 1.01 * high
    # Claims that several candidates share are asked about once, which a sample sees less of.
    assert usual == pytest.approx(sum(real.values()), rel=0.2 if "claims" in real else 0.1)


def test_a_judge_without_an_lm_has_nothing_to_estimate(corpus: Corpus, tmp_path: Path) -> None:
    assert estimated("rouge-l", corpus, tmp_path).rows == {}


@pytest.mark.parametrize(("decision", "case"), [("NO ISSUE", 0), ("ISSUE", 2)])
def test_the_extremes_are_what_such_an_lm_asks(decision: str, case: int, corpus: Corpus, tmp_path: Path) -> None:
    number = count()
    lm = scripted_lm(debater(decision=decision, rationale=lambda prompt: f"reason {next(number)}"))
    real = executed("debate+tiebreak", corpus, lm)
    rows = estimated("debate+tiebreak", corpus, tmp_path).rows
    assert {role: round(row[case].calls) for role, row in rows.items() if row[case].calls} == real


def test_what_is_asked_once_for_all_items_is_counted_once(corpus: Corpus, tmp_path: Path) -> None:
    rows = estimated("geval", corpus, tmp_path).rows
    assert [used.calls for used in rows["steps"]] == [2, 2, 2]


def test_expected_scores_are_read_off_probabilities_to_the_end(corpus: Corpus, tmp_path: Path) -> None:
    config = {**JUDGES["debate"].config, "score_mode": "expected"}
    one = {corpus.task.aspects[0].name: AspectJudge(build("debate", config))}
    judge, aspects = CompiledJudge(corpus.task, one), corpus.task.aspects[:1]
    found, _ = estimate_scoring(OFFLINE, judge, aspects, iter(items(corpus, 1)))
    # A Scorer who could not be read would end its debate at once, with two calls of its own and none of the Critic's.
    assert found.rows["critic"][2].calls == pytest.approx(3 * len(items(corpus, 1)))


# --- replies ---


def test_replies_have_the_assumed_length_and_no_more_than_the_limit() -> None:
    prompt = (
        "[[ ## candidate ## ]]\nA text.\n\n[[ ## role ## ]]\nYou are the Scorer.\n\n"
        "Reply with these fields:\n\n[[ ## rationale ## ]]\n<why>\n\n[[ ## score ## ]]\n<one number>"
    )
    for case in (EstimateCase("lower", 80, False), EstimateCase("expected", 250), EstimateCase("upper", 800)):
        assert dry_reply(case, "", prompt, {}).output_tokens == pytest.approx(case.reply_tokens, rel=0.3)
    reply = dry_reply(EstimateCase("upper", 800), "", prompt, {"max_tokens": 300})
    assert reply.output_tokens == pytest.approx(300, rel=0.1)
    assert reply.input_tokens == tokens_of(prompt)


def test_lengths_of_replies_are_read_or_refused() -> None:
    assert reply_tokens("100, 300,1000") == (100, 300, 1000)
    assert reply_tokens("") == OFFLINE.reply_tokens
    for text in ("100", "3,2,1", "0,1,2", "a,b,c", "1,2,3,4", "-1,2,3"):
        with pytest.raises(InputError, match="--estimate"):
            reply_tokens(text)


# --- samples ---


def test_a_stream_is_counted_whole_and_sampled_evenly(corpus: Corpus) -> None:
    item = items(corpus)[0]

    def stream() -> Iterator[Item]:
        for number in range(2000):
            yield replace(item, candidate=str(number), text=f"text {number % 1000}")

    sample, again = Sample(50), Sample(50)
    for one in stream():
        sample.add(CandidateTable((one,)))
        again.add(CandidateTable((one,)))
    assert sample.everything.items == 1000  # Every text comes twice, and is asked about once.
    assert len(sample.items) == 50
    assert sample.items == again.items
    assert sum(int(one.text.split()[1]) < 500 for one in sample.items) == pytest.approx(25, abs=12)
    assert sample.stage("x").items == 20


def test_groups_are_sampled_whole(corpus: Corpus) -> None:
    found = sampled_groups(corpus.groups, 20)
    sizes = [len(group.candidates) for group in found]
    assert sum(sizes[:-1]) < 20 <= sum(sizes)
    assert found == sampled_groups(corpus.groups, 20)
    assert len(sampled_groups(corpus.groups, 1)) == 2


def test_a_longer_item_makes_every_call_about_it_longer() -> None:
    found = Stage.of("s", Extent(10, 20_000), Extent(2, 2_000))
    assert (found.items, found.longer) == (5.0, pytest.approx(270.0))


# --- what is paid already ---


def test_replies_of_earlier_runs_are_not_counted(corpus: Corpus) -> None:
    paid = Memory()
    paid.put("a", "scorer", Reply("known", 10, 10))
    ledger = Ledger({"scoring": Stage("all")}, paid)
    assert ledger.get("a") is not None
    with stage("scoring"):
        ledger.put("b", "scorer", Reply("new", 10, 5))
    assert ledger.get("b") is not None
    assert paid.get("b") is None
    assert ledger.used == {("all", "scorer"): Used(1, 10, 5)}


def test_only_what_is_about_an_item_is_multiplied() -> None:
    ledger = Ledger({"scoring": Stage("all", items=10, longer=5)})
    with stage("scoring"):
        ledger.put("a", "scorer", AboutItem("new", 10, 5))
        ledger.put("b", "steps", Reply("new", 10, 5))
    assert ledger.used == {("all", "scorer"): Used(10, 150, 50), ("all", "steps"): Used(1, 10, 5)}


# --- money and budget ---


def priced(tmp_path: Path, **options: object) -> Target:
    prices = tmp_path / "prices.toml"
    prices.write_text('["nobody/knows"]\ninput = 1\ncached = 0.1\noutput = 10\n')
    return Target("nobody/knows", options=LMOptions(prices=prices, **options))  # type: ignore[arg-type]


def test_money_is_tokens_times_the_users_price_and_no_cache_is_assumed(corpus: Corpus, tmp_path: Path) -> None:
    target = priced(tmp_path)
    for used in estimated("debate", corpus, tmp_path, target).total:
        assert used.usd == pytest.approx((used.input + 10 * used.output) / 1e6)
    half = estimated("debate", corpus, tmp_path, priced(tmp_path, batch="openai"))
    whole = estimated("debate", corpus, tmp_path, target)
    assert half.total[1].usd == pytest.approx((whole.total[1].usd or 0) / 2)


def test_without_a_price_there_is_no_money(corpus: Corpus, tmp_path: Path) -> None:
    told = render(estimated("single", corpus, tmp_path, Target("nobody/knows")), "role")
    assert "no price known for nobody/knows; give --prices FILE" in told
    assert "US dollars " not in told.splitlines()[2]


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (40, "covers the upper estimate"),
        (25, "covers the expected estimate, not the upper one"),
        (15, "covers 75% of the expected estimate"),
        (5, "does not cover the lower estimate: the run would stop, to be resumed"),
    ],
)
def test_a_budget_is_compared_with_the_total(calls: int, expected: str) -> None:
    target = replace(OFFLINE, options=LMOptions(budget=BudgetCaps(calls=calls)))
    rows = {"all": (Used(10, 1, 1), Used(20, 2, 2), Used(30, 3, 3))}
    assert f"--budget: calls={calls} {expected}" in render(Estimate(rows, target), "role")


def test_the_table_rounds_outwards() -> None:
    rows = {"all": (Used(1000.6, 1, 1, 0.5), Used(2000.5, 2, 2, 1.5), Used(3000.4, 3, 3, 2500))}
    told = render(Estimate(rows, OFFLINE), "role")
    assert "1,000 / 2,000 / 3,001" in told
    assert "0.50 / 1.50 / 2,500.00" in told


# --- the commands ---


@pytest.fixture
def export(corpus: Corpus, tmp_path: Path) -> Path:
    judge = CompiledJudge(corpus.task, judges("debate", corpus))
    save(tmp_path / "judge", judge, lm={"spec": "offline"}, evidence={}, name="judge")
    lines = [
        json.dumps(
            {"group": g.id, "source": g.source, "candidates": [{"id": c.id, "text": c.text} for c in g.candidates]}
        )
        for g in corpus.groups[:3]
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path / "judge"


def test_score_estimates_without_a_key_and_writes_nothing(
    export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    command = ["--program", str(export), "--in", "in.jsonl", "--out", "out.jsonl"]
    assert score.main([*command, "--lm", "openai/gpt-4o-mini", "--estimate", "--budget", "usd=0.000001"]) == 0
    told = capsys.readouterr().out
    assert "Estimate for openai/gpt-4o-mini" in told
    assert "US dollars" in told
    assert "does not cover the lower estimate" in told
    assert sorted(tmp_path.rglob("*")) == before
    assert score.main([*command, "--estimate", "9,8,7"]) == 2


def test_what_the_store_recalls_is_not_estimated_again(
    export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["--program", str(export), "--in", "in.jsonl", "--out", "out.jsonl", "--aspects", "coherence"]
    assert score.main(command) == 0
    rows = len((tmp_path / "out.jsonl").read_text().splitlines())
    capsys.readouterr()
    assert score.main([*command, "--estimate"]) == 0
    told = capsys.readouterr().out
    assert f"{rows} items to score" in told
    assert "total  0 / 0 / 0" in told
    assert score.main([*command, "--estimate", "--store", "elsewhere"]) == 0
    assert "total  0 / 0 / 0" not in capsys.readouterr().out
    assert not (tmp_path / "elsewhere").exists()


def test_judges_of_a_table_share_what_they_ask_alike(corpus: Corpus) -> None:
    names = ["rouge-l", "single", "debate", "debate+tiebreak"]
    setup = EvalSetup(corpus, corpus.task.aspects[:2], "summary", ("spearman",))
    found = estimate_comparison(OFFLINE, setup, [Entrant(name, judges(name, corpus)) for name in names]).rows
    assert list(found) == names
    size = len(items(corpus))
    assert [used.calls for used in found["rouge-l"]] == [0, 0, 0]
    assert [round(used.calls) for used in found["single"]] == [size] * 3
    # n = 3 without the first turn, which the single call has made.
    assert [round(found["debate"][case].calls) for case in (0, 2)] == [size, 6 * size]
    assert [round(found["debate+tiebreak"][case].calls) for case in (0, 2)] == [0, size]


def test_compare_estimates_without_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    command = ["--judges", "rouge-l,debate", "--aspects", "coherence", "--lm", "anthropic/claude-sonnet-4-5"]
    assert compare.main([*command, "--estimate"]) == 0
    told = capsys.readouterr().out
    assert "Estimate for anthropic/claude-sonnet-4-5" in told
    assert "rouge-l  0 / 0 / 0" in told
    assert list(tmp_path.iterdir()) == []
