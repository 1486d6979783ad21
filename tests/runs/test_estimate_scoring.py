"""Estimates of scoring and comparing: what the judges then really ask lies between the lower and the upper case."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from debate_judge import data
from debate_judge.data.schema import Corpus
from debate_judge.programs import JUDGES, build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.judge import corpus_items
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs import compare, score
from debate_judge.runs.estimates.items import estimate_scoring
from debate_judge.runs.evaluation.entrants import Entrant, entrants, named_judges
from debate_judge.runs.evaluation.evaluate import estimate_evaluation
from debate_judge.runs.export.folder import save
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import debater, scripted_lm
from tests.runs.sample_estimates import OFFLINE, estimated, items, judges

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    whole = data.load("sample", None)
    return replace(whole, groups=whole.groups[:4])


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


@pytest.mark.parametrize(("decision", "case"), [("NO ISSUE", 0), ("ISSUE", 2)])
def test_the_extremes_are_what_such_an_lm_asks(decision: str, case: int, corpus: Corpus, tmp_path: Path) -> None:
    number = count()
    lm = scripted_lm(debater(decision=decision, rationale=lambda prompt: f"reason {next(number)}"))
    real = executed("debate+tiebreak", corpus, lm)
    rows = estimated("debate+tiebreak", corpus, tmp_path).rows
    assert {role: round(row[case].calls) for role, row in rows.items() if row[case].calls} == real


def test_expected_scores_are_read_off_probabilities_to_the_end(corpus: Corpus, tmp_path: Path) -> None:
    config = {**JUDGES["debate"].config, "score_mode": "expected"}
    one = {corpus.task.aspects[0].name: AspectJudge(build("debate", config))}
    judge, aspects = CompiledJudge(corpus.task, one), corpus.task.aspects[:1]
    found, _ = estimate_scoring(OFFLINE, judge, aspects, iter(items(corpus, 1)))
    # A Scorer who could not be read would end its debate at once, with two calls of its own and none of the Critic's.
    assert found.rows["critic"][2].calls == pytest.approx(3 * len(items(corpus, 1)))


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
    command = [str(export), "--in", "in.jsonl", "--out", "out.jsonl"]
    assert score.main([*command, "--lm", "openai/gpt-4o-mini", "--estimate", "--budget", "usd=0.000001"]) == 0
    told = capsys.readouterr().out
    assert "Estimate for openai/gpt-4o-mini" in told
    assert "US dollars" in told
    assert "lower estimate" in told
    assert sorted(tmp_path.rglob("*")) == before


def test_what_the_store_recalls_is_not_estimated_again(
    export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = [str(export), "--in", "in.jsonl", "--out", "out.jsonl", "--aspects", "coherence"]
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
    own = [Entrant(name, judges(name, corpus)) for name in names]
    found = estimate_evaluation(OFFLINE, corpus, corpus.task.aspects[:2], own).rows
    assert list(found) == names
    size = len(items(corpus))
    assert [used.calls for used in found["rouge-l"]] == [0, 0, 0]
    assert [round(used.calls) for used in found["single"]] == [size] * 3
    # n = 3 without the first turn, which the single call has made.
    assert [round(found["debate"][case].calls) for case in (0, 2)] == [size, 6 * size]
    assert [round(found["debate+tiebreak"][case].calls) for case in (0, 2)] == [0, size]


def test_ablations_are_in_the_estimate_and_shorter_debates_are_free(corpus: Corpus) -> None:
    aspects = corpus.task.aspects[:2]
    own = entrants(named_judges(["debate[rounds=3]", "debate[rounds=0|1|2]", "debate[sample=1,rounds=0]"]), aspects)
    found = estimate_evaluation(OFFLINE, corpus, aspects, own).rows
    calls = {name: [round(used.calls) for used in three] for name, three in found.items()}
    size = len(items(corpus))
    assert calls["debate[rounds=3]"][0] == 2 * size
    assert [calls[f"debate[rounds={n}]"] for n in range(3)] == [[0, 0, 0]] * 3
    assert calls["debate[sample=1,rounds=0]"] == [size] * 3


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
