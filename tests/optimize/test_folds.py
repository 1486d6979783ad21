"""A compile by folds: nothing of a held-out source reaches its judge, the figures, and what is exported."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import pytest
from dspy.teleprompt.teleprompt import Teleprompter
from scipy import stats

from debate_judge.data.agreement.correlations import correlation
from debate_judge.data.agreement.figures import Figure, GroupScores
from debate_judge.data.calibration import Calibration
from debate_judge.optimize import compile as command
from debate_judge.optimize.held_out import COMPARED, COMPILED_MAPPED, choose_export, compare_held_out
from debate_judge.optimize.result import Result
from debate_judge.optimize.search import ChoiceScores, JudgeVariant
from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuners import Tuner, TunerContext
from debate_judge.optimize.tuners.guide import add_guide, guide_of
from debate_judge.programs.judge import Judge
from debate_judge.runs.comparison.figures import EvaluatedJudge
from debate_judge.runs.runner import DebateCache, JudgeRunner
from tests.config_keys import keys
from tests.fakes import ScriptedLM, debater, scripted_lm
from tests.optimize.compiles import compiled
from tests.optimize.small_corpus import small_corpus

SOURCES = 16


def data(folder: Path, candidates: int = 3, sources: int = SOURCES) -> str:
    """A file of ratings; each text tells what a judge that is none too good would score."""

    def candidate(source: int, number: int) -> dict[str, Any]:
        rating = 1 + (number + source) % 5
        text = f"Worth {1 + (rating + source % 3) % 5}."
        return {"id": f"c{number}", "text": text, "ratings": {"coherence": rating}}

    path = folder / f"rated-{candidates}-{sources}.jsonl"
    groups = [
        {"group": f"g{n}", "source": f"Report g{n} begins.", "candidates": [candidate(n, c) for c in range(candidates)]}
        for n in range(sources)
    ]
    path.write_text("".join(json.dumps(group) + "\n" for group in groups))
    return str(path)


def score_of_text(prompt: str) -> str:
    return re.findall(r"Worth (\d)\.", prompt)[-1]


class RecordingTuner(Teleprompter):
    """Writes down what it has seen."""

    def __init__(self, tuning: TunerContext) -> None:
        super().__init__()

    def compile(self, student: Judge, *, trainset: list[dspy.Example], **kwargs: Any) -> Judge:
        seen = sorted({item.group for example in trainset for item in example.questions})
        return add_guide(student, f"SEEN {' '.join(seen)} END")


def seen_by(text: str) -> set[str]:
    match = re.search(r"SEEN ([g\d ]+) END", text)
    return set(match[1].split()) if match else set()


@dataclass
class FoldedCompile:
    result: Result
    lm: ScriptedLM


def compile_in_folds(folder: Path, file: str, tuner: Tuner = RecordingTuner, **settings: Any) -> FoldedCompile:
    usual: dict[str, Any] = {"task": "summarization", "aspects": ("coherence",), "max_rounds": 0}
    usual |= {"trials": 2, "store": str(folder / "store")}
    lm = scripted_lm(debater(score=score_of_text))
    with JudgeRunner(lm, progress=False, cache=DebateCache()) as runner:
        result = compiled(Settings(data=file, **{**usual, **settings}), {}, runner, lm, tuner=tuner)
    return FoldedCompile(result, lm)


@pytest.fixture(scope="module")
def folded(tmp_path_factory: pytest.TempPathFactory) -> FoldedCompile:
    folder = tmp_path_factory.mktemp("folded")
    return compile_in_folds(folder, data(folder), folds=4)


def guided(scores: ChoiceScores) -> Judge:
    """The judge with a guide that a search chose from."""
    variants = scores.variants
    judge: Judge = variants[JudgeVariant("guide", "devils-advocate")].judge
    return judge


# --- leakage ---


def test_no_source_of_a_fold_was_seen_by_its_tuner_or_its_choice(folded: FoldedCompile) -> None:
    learnings, (final, *of_folds) = set(), folded.result.searches
    assert len(of_folds) == 4
    for search, fold in zip(of_folds, folded.result.plan.folds, strict=True):
        held_out = {group.id for group in fold.held_out.groups}
        seen = seen_by(guide_of(guided(search.aspects["coherence"])))
        learnings.add(frozenset(seen))
        assert len(seen) == SOURCES // 2
        assert not seen & held_out
        chosen_by = {group.group for outcomes in search.outcomes.values() for group in outcomes["coherence"].scores}
        assert chosen_by
        assert not chosen_by & held_out
    assert len(learnings) == 2, "two halves"
    chosen_by = {group.group for outcomes in final.outcomes.values() for group in outcomes["coherence"].scores}
    assert len(seen_by(guide_of(guided(final.aspects["coherence"]))) | chosen_by) == SOURCES, (
        "the exported judge uses all"
    )


def test_no_judge_was_asked_about_a_source_that_its_guide_rests_on(folded: FoldedCompile) -> None:
    calls = [(seen_by(prompt), re.findall(r"Report (g\d+) begins", prompt)) for prompt in folded.lm.prompts]
    informed = [(seen, sources) for seen, sources in calls if seen]
    assert len(informed) > SOURCES
    assert not [sources for seen, sources in informed if seen & set(sources)]


# --- figures ---


def test_judgements_are_those_of_the_texts_in_the_order_of_the_corpus(folded: FoldedCompile) -> None:
    texts = [c.text for group in folded.result.plan.evaluation_corpus.groups for c in group.candidates]
    expected = [float(score_of_text(text)) for text in texts]
    judgements = folded.result.held_out.judges["compiled"].judgements["coherence"]
    assert [getattr(judgement, "score", None) for judgement in judgements] == expected
    groups = folded.result.held_out.judges["compiled"].scores["coherence"]
    assert [score for group in groups for score in group.scores] == expected


def test_the_scores_of_a_fold_are_mapped_as_was_learnt_without_it(folded: FoldedCompile) -> None:
    plan, judge = folded.result.plan, folded.result.held_out.judges["compiled"]
    by_group = {group.group: group for group in judge.scores["coherence"]}
    answers = dict(zip([group.group for group in judge.scores["coherence"]], range(SOURCES), strict=True))
    per_group, folds = len(judge.judgements["coherence"]) // SOURCES, []
    for n, fold in enumerate(plan.folds):
        groups = [by_group[group.id] for group in fold.held_out.groups]
        judgements = [
            j for group in groups for j in judge.judgements["coherence"][per_group * answers[group.group] :][:per_group]
        ]
        step = Calibration(((1.0, 1.0 + n), (5.0, 5.0 + n)), 9, 9)
        of_fold = EvaluatedJudge({"coherence": groups}, {"coherence": judgements})
        mapped = EvaluatedJudge({"coherence": step.map_groups(groups)})
        folds.append({**dict.fromkeys(COMPARED, of_fold), COMPILED_MAPPED: mapped})
    comparison = compare_held_out(plan, folds)
    assert comparison.judges["compiled"].scores == judge.scores
    assert comparison.judges["compiled"].judgements == judge.judgements
    mapped_groups = {group.group: group.scores for group in comparison.mapped["coherence"]}
    for n, fold in enumerate(plan.folds):
        for group in fold.held_out.groups:
            scores = by_group[group.id].scores
            assert mapped_groups[group.id] == tuple(pytest.approx(score + n) for score in scores if score)
    # Nor is an aspect mapped that one fold has no map for.
    without = [{**folds[0], COMPILED_MAPPED: EvaluatedJudge({})}, *folds[1:]]
    assert compare_held_out(plan, without[::-1]).mapped == {}


def pairs(groups: list[GroupScores]) -> tuple[list[float], list[float]]:
    """All ratings, and the scores beside them."""
    rated = [(r, s) for g in groups for r, s in zip(g.ratings, g.scores, strict=True) if None not in (r, s)]
    ratings, scores = zip(*rated, strict=True)
    return list(ratings), list(scores)


def test_the_figure_is_the_mean_over_groups_and_the_interval_rests_on_these(folded: FoldedCompile) -> None:
    groups = folded.result.held_out.judges["compiled"].scores["coherence"]
    assert len({group.group for group in groups}) == len(groups) == SOURCES
    values = np.array([correlation(*pairs([group]), "spearman") or 0.0 for group in groups])
    mean = values.mean()
    half_width = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values) / (1 - mean**2)
    low, high = np.tanh([np.arctanh(mean) - half_width, np.arctanh(mean) + half_width])
    tables = folded.result.held_out.tables
    for table in (tables["compiled"].aspects["coherence"], tables["compiled"].average):
        cell = table["summary"]["spearman"]
        assert (cell.groups, cell.value) == (SOURCES, pytest.approx(values.mean()))
        assert (cell.low, cell.high) == pytest.approx((low, high))
    gain, single = folded.result.held_out.gain, tables["single"].average["summary"]["spearman"].value
    assert (gain.groups, gain.value) == (SOURCES, pytest.approx(values.mean() - (single or 0.0)))


def test_single_candidates_are_pooled_over_the_folds(tmp_path: Path) -> None:
    result = compile_in_folds(tmp_path, data(tmp_path, candidates=1, sources=24)).result
    assert (result.plan.level, len(result.plan.folds)) == ("sample", 6)
    groups = result.held_out.judges["single"].scores["coherence"]
    cell = result.held_out.tables["single"].average["sample"]["spearman"]
    assert (len(groups), cell.groups) == (24, 24)
    assert cell.value == pytest.approx(correlation(*pairs(groups), "spearman"))
    assert cell.low is not None


# --- what is exported ---


def gained(low: float | None, high: float | None) -> Figure:
    value = None if low is None or high is None else (low + high) / 2
    return Figure(value, low, high, p_value=None, groups=16, deviation=0.1)


@pytest.mark.parametrize(
    ("gain", "calls", "expected", "why"),
    [
        (gained(0.01, 0.1), 6.0, "compiled", "better than a single call"),
        (gained(-0.01, 0.1), 6.0, "single", "takes 6.0 calls per item instead of 1.0"),
        (gained(-0.01, 0.1), 1.2, "single", "takes 1.2 calls per item instead of 1.0"),
        (gained(-0.01, 0.1), 1.04, "compiled", "no more calls"),
        (gained(-0.1, -0.01), 0.5, "single", "worse than a single call"),
        (gained(None, None), 6.0, "compiled", "the compiled judge"),
    ],
)
def test_the_cheaper_judge_is_exported_where_the_gain_is_not_shown(
    folded: FoldedCompile, gain: Figure, calls: float, expected: str, why: str
) -> None:
    by_judge = {**folded.result.held_out.calls, "compiled": {"coherence": calls}, "single": {"coherence": 1.0}}
    held_out = replace(folded.result.held_out)
    # In place of what is computed when it is first asked for.
    vars(held_out).update(gain=gain, calls=by_judge)
    name, reason = choose_export(held_out)
    assert name == expected
    assert why in reason
    judge = replace(folded.result, exports=name).exported.aspects["coherence"].judge
    compiled_judge = folded.result.compiled.aspects["coherence"].judge
    assert (judge is compiled_judge) if expected == "compiled" else judge.debate_config.rounds == 0


# --- by the command ---


@dataclass
class Printed:
    folder: Path
    result: dict[str, Any]
    output: str
    stops: int
    requests: list[str]


@pytest.fixture(scope="module")
def by_command(tmp_path_factory: pytest.TempPathFactory) -> Printed:
    """A compile that its budget stops a few times on the way."""
    from debate_judge.programs import offline

    folder = tmp_path_factory.mktemp("compiled")
    small_corpus(folder)
    flags = ["--data", "small.jsonl", "--aspects", "coherence,fluency", "--max-rounds", "1", "--folds", "4"]
    flags += ["--store", "store", *keys(trials=2, json="r.json", report="none"), "--verbose"]
    requests: list[str] = []
    answer = offline.OfflineTransport.answer

    def counted(self: offline.OfflineTransport, system: str, user: str, settings: Any) -> Any:
        requests.append(f"{system}\n{user}\n{settings}")
        return answer(self, system, user, settings)

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        patch.chdir(folder)
        patch.setattr(offline.OfflineTransport, "answer", counted)
        stops = sum(command.main([*flags, "--budget", f"calls={calls}"]) != 0 for calls in (30, 60))
        assert command.main(flags) == 0
    result = json.loads((folder / "r.json").read_text())
    return Printed(folder, result, " ".join(out.getvalue().split()), stops, requests)


@pytest.mark.integration
def test_a_compile_that_was_stopped_pays_no_call_twice(by_command: Printed) -> None:
    assert by_command.stops == 2
    assert len(by_command.requests) == len(set(by_command.requests)) > 120


@pytest.mark.integration
def test_summary_json_run_and_export_say_what_the_figures_rest_on(by_command: Printed) -> None:
    assert f"Exported: {by_command.result['exported']['why']}" in by_command.output
    assert "by 4-fold nested cross-validation" in by_command.output
    folds = by_command.result["folds"]
    assert folds["count"] == len(folds["agreement"]) == 4
    assert all(math.isfinite(value) for value in folds["agreement"])
    assert by_command.result["held_out"]["compiled"]["average"]["summary"]["spearman"]["groups"] == 12
    manifest = json.loads((by_command.folder / by_command.result["export"] / "manifest.json").read_text())
    evidence = manifest["evidence"]
    assert (evidence["folds"], evidence["exported"]) == (folds, by_command.result["exported"])
    assert set(evidence["splits"]) == {"train", "dev"}, "no part is held out of the exported judge"
    assert len(evidence["compiled_on"]) == 12
