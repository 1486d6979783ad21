"""The benchmarks run, and measure what they say where the truth is known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from debate_judge import data
from debate_judge.data.agreement.correlations import agreement_table
from debate_judge.optimize.search import Point
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import corpus_items
from tests.bench import compile_over_http, coverage, prefix
from tests.bench.harness import Population, populations
from tests.bench.prefix import Request, as_sent, parts, role_first, run, shares, tokenizer
from tests.bench.selection import ROUNDS, RULES, Scored, measured
from tests.fakes import debater, hold, only, scripted_lm


@pytest.mark.integration
def test_the_bench_of_coverage_writes_its_figures(tmp_path: Path) -> None:
    out = tmp_path / "f.json"
    assert coverage.main(["--replicates", "1", "--groups", "5", "--json", str(out)]) == 0
    rows = json.loads(out.read_text())
    assert rows
    assert all({"figure", "5 groups", "5, %"} <= set(row) for row in rows)


# --- intervals and p-values ---


@pytest.fixture(scope="module")
def population() -> Population:
    return next(populations("sample", seed=0))


def test_intervals_of_nearly_the_whole_set_hold_its_value(population: Population) -> None:
    groups = population.groups(0, population.everything)
    value = agreement_table({"x": groups}).aspects["x"]["summary"]["spearman"].value
    assert value is not None
    assert 0.2 < value < 0.8
    assert coverage.truths(population)["summary"] == value
    assert coverage.coverage(population, [60], 2, seed=3)["summary", 60] == [(True, True)] * 2


def test_equal_judges_have_the_same_scores_in_another_order(population: Population) -> None:
    which = np.arange(6)
    equal = coverage.exchanged(population, which.tolist(), np.random.default_rng(1))
    before = np.sort(np.stack([judge[which] for judge in population.judges]), axis=0)
    assert np.array_equal(np.sort(np.stack(equal.judges), axis=0), before)
    assert any(not np.array_equal(a, b[which]) for a, b in zip(equal.judges, population.judges, strict=True))
    # Below six groups there is no p-value, and so no error.
    hits = coverage.type_one(population, [5], 2, seed=0)["p < .05, summary", 5]
    assert not any(now for now, _ in hits)


# --- the choice ---

POINTS = [Point("none", "strict", 0, False, "given"), Point("none", "strict", ROUNDS, False, "given")]
POINTS += [Point("none", f"other {n}", 1, False, "given") for n in range(20)]


@pytest.mark.parametrize(
    ("truth", "noise", "calls"), [(0.6, 0.001, {"pooled": 3, "best": 3}), (0.3985, 1e-6, {"pooled": 3, "best": 7})]
)
def test_the_pooled_rule_leaves_what_is_nearly_the_best_for_fewer_calls(
    truth: float, noise: float, calls: dict[str, int]
) -> None:
    """Twenty points of one round are equally good, beside the single call and the whole debate, which has .4."""
    agreement = np.array([0.3, 0.4] + [truth] * 20)
    values = agreement[None, :, None] + np.random.default_rng(0).normal(0, noise, (4, len(POINTS), 40))
    values[0, :, 3] = np.nan
    known = Scored(POINTS, values, np.ones_like(values) * np.array([1.0, 7.0] + [3.0] * 20)[None, :, None])
    figures = measured(known, splits=5)
    assert {name: figures[name]["calls"] for name in RULES} == calls
    assert all(abs(figures[name]["agreement"] - max(truth, 0.4)) < 0.01 for name in RULES)
    assert figures["single call"]["agreement"] < figures["untuned debate"]["agreement"]


# --- prefixes ---


def letters(text: str) -> list[int]:
    """A letter is a token."""
    return [ord(letter) for letter in text]


def shares_of(*texts: tuple[float, str], answered: float = 1.0) -> prefix.Shares:
    """Of requests that are sent at a time and answered so much later."""
    return shares([Request(sent, sent + answered, {"text": text}) for sent, text in texts], as_sent, letters)


def test_shares_by_hand() -> None:
    # Of 100 tokens, the second request finds 37, or 2 blocks of 16; the third begins like none before it.
    share = shares_of((0, "a" * 40), (1, "a" * 37 + "b" * 3), (2, "b" * 20))
    assert share == prefix.Shares(32 / 100, 0, 100 / 3, 68 / 3)
    # Hosted providers keep no prefix of less than 1,024 tokens.
    assert shares_of((0, "a" * 1023), (1, "a" * 1023)).blocks_128 == 0
    assert shares_of((0, "a" * 1200), (1, "a" * 1200)).blocks_128 == 1152 / 2400
    # What has not been answered cannot be found.
    assert shares_of((0, "a" * 16), (0, "a" * 16), (0.5, "a" * 16)).blocks_16 == 0
    assert shares_of((0, "a" * 16), (0, "a" * 16), (1, "a" * 16)).blocks_16 == 1 / 3
    assert shares_of((0, "a" * 16), (5, "a" * 16), (9, "a" * 16), answered=9).blocks_16 == 1 / 3


def test_a_request_of_ours_is_taken_apart_without_loss() -> None:
    item = corpus_items(data.load("sample"), data.load("sample").task.aspects[0])[0]
    lm = scripted_lm(debater(feedback="An issue."))
    hold(lm, only(Debate(rounds=1).judge([item])))
    messages = [{"content": lm.systems[1]}, {"content": lm.prompts[1]}]
    pieces = parts(messages)
    assert list(pieces) == ["system", "task", "source", "aspect", "candidate", "debate", "role", "request"]
    assert "".join(as_sent(pieces)) == f"<|system|>\n{messages[0]['content']}\n<|user|>\n{messages[1]['content']}"
    assert sorted(role_first(pieces)) == sorted(pieces.values())


def test_our_layout_beats_the_naive_one_and_a_call_that_goes_ahead_saves_what_haste_loses() -> None:
    sample = data.load("sample")
    few = replace(sample, groups=sample.groups[:4])
    alone, without, ahead = run(few, 1), run(few, 32, prefix_warmup=False), run(few, 32)
    assert len(alone) == len(without) == len(ahead)
    ours = shares(alone, as_sent, tokenizer()).blocks_16
    assert shares(alone, role_first, tokenizer()).blocks_16 < ours
    assert shares(without, as_sent, tokenizer()).blocks_16 < ours - 0.05
    assert shares(ahead, as_sent, tokenizer()).blocks_16 > ours - 0.01
    # Waiting costs one reply's time where there are more places than sources.
    assert max(r.answered for r in ahead) <= max(r.answered for r in without) + 1
    assert run(few, 32) == ahead


def test_the_longest_chain_of_calls_by_hand() -> None:
    assert compile_over_http.longest_chain([(0, 2), (1, 3), (2, 4), (3.5, 5), (4, 6)]) == 3
