"""A compile by folds: nothing of a held-out source reaches its judge, and the figures."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import pytest
from dspy.teleprompt.teleprompt import Teleprompter

from debate_judge.data.agreement.intervals import logit_interval
from debate_judge.data.agreement.results import Difference
from debate_judge.data.agreement.tables import correlation
from debate_judge.data.calibration import Calibration
from debate_judge.optimize.evaluation.comparison import _calibrated, choose_export
from debate_judge.optimize.result import Result
from debate_judge.optimize.search.points import JudgeVariant
from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuners import Tuner, TunerContext
from debate_judge.optimize.tuners.guide import add_guide, guide_of
from debate_judge.programs.judge import Judge
from debate_judge.runs.runner.debate_cache import DebateCache
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import ScriptedLM, debater, scripted_lm
from tests.optimize.compiles import compiled

SOURCES, CANDIDATES = 16, 3


def rating(source: int, candidate: int) -> int:
    return 1 + (candidate + source) % 5


def data(folder: Path, candidates: int = CANDIDATES, sources: int = SOURCES) -> str:
    """A file of ratings; each text tells what a judge that is none too good would score."""
    path = folder / f"rated-{candidates}-{sources}.jsonl"
    with path.open("w") as out:
        for n in range(sources):
            own = [(f"c{c}", rating(n, c)) for c in range(candidates)]
            rated = [
                {"id": name, "text": f"Worth {1 + (value + n % 3) % 5}.", "ratings": {"coherence": value}}
                for name, value in own
            ]
            out.write(json.dumps({"group": f"g{n}", "source": f"Report g{n} begins.", "candidates": rated}) + "\n")
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
    found = re.search(r"SEEN ([g\d ]+) END", text)
    return set(found[1].split()) if found else set()


@dataclass
class FoldedCompile:
    result: Result
    lm: ScriptedLM


def compile_in_folds(folder: Path, file: str, tuner: Tuner = RecordingTuner, **settings: Any) -> FoldedCompile:
    usual: dict[str, Any] = {"task": "summarization", "aspects": ("coherence",), "max_rounds": 0, "resamples": 200}
    usual |= {"together": 0, "trials": 2, "store": str(folder / "store")}
    lm = scripted_lm(debater(score=score_of_text))
    with JudgeRunner(lm, progress=False, cache=DebateCache()) as runner:
        result = compiled(Settings(data=file, **{**usual, **settings}), {}, runner, lm, tuner=tuner)
    return FoldedCompile(result, lm)


@pytest.fixture(scope="module")
def folded(tmp_path_factory: pytest.TempPathFactory) -> FoldedCompile:
    folder = tmp_path_factory.mktemp("folded")
    return compile_in_folds(folder, data(folder), folds=4)


# --- leakage ---


def test_no_source_of_a_fold_was_seen_by_its_tuner_or_its_choice(folded: FoldedCompile) -> None:
    assert len(folded.result.evaluations) == 4
    learnings = set()
    for evaluation in folded.result.evaluations:
        held_out = {group.id for group in evaluation.held_out.groups}
        found = evaluation.searches["coherence"]
        judge = found.scores.variants[JudgeVariant("guide", folded.result.plan.judge.config()["persona"])].judge
        seen = seen_by(guide_of(judge))
        learnings.add(frozenset(seen))
        assert len(seen) == SOURCES // 2
        assert not seen & held_out
        chosen_by = {group.group for outcome in found.outcomes for group in outcome.scores["coherence"]}
        assert chosen_by
        assert not chosen_by & held_out
    assert len(learnings) == 2, "two halves"


def test_no_judge_was_asked_about_a_source_that_its_guide_rests_on(folded: FoldedCompile) -> None:
    asked = [(seen_by(prompt), re.findall(r"Report (g\d+) begins", prompt)) for prompt in folded.lm.prompts]
    informed = [(seen, sources) for seen, sources in asked if seen]
    assert len(informed) > SOURCES
    assert not [sources for seen, sources in informed if seen & set(sources)]


def test_the_exported_judge_uses_all_sources(folded: FoldedCompile) -> None:
    found = folded.result.searches["coherence"]
    judge = found.scores.variants[JudgeVariant("guide", folded.result.plan.judge.config()["persona"])].judge
    own = {group.group for outcome in found.outcomes for group in outcome.scores["coherence"]}
    assert len(seen_by(guide_of(judge)) | own) == SOURCES


# --- figures ---


def test_judgements_are_those_of_the_texts_in_the_order_of_the_corpus(folded: FoldedCompile) -> None:
    texts = [c.text for group in folded.result.plan.data.evaluation_corpus.groups for c in group.candidates]
    judgements = folded.result.held_out.judgements["compiled"]["coherence"]
    assert [getattr(judgement, "score", None) for judgement in judgements] == [
        float(score_of_text(text)) for text in texts
    ]
    groups = folded.result.held_out.scores["compiled"]["coherence"]
    assert [score for group in groups for score in group.scores] == [float(score_of_text(text)) for text in texts]


def test_the_scores_of_a_fold_are_mapped_as_was_learnt_without_it(folded: FoldedCompile) -> None:
    maps = [Calibration(((1.0, 1.0 + n), (5.0, 5.0 + n)), 9, 9) for n in range(4)]
    evaluations = [
        replace(evaluation, judge=replace(evaluation.judge, aspects={"coherence": replace(own, calibration=one)}))
        for one, evaluation in zip(maps, folded.result.evaluations, strict=True)
        for own in evaluation.judge.aspects.values()
    ]
    (mapped,) = _calibrated(folded.result.plan, evaluations).values()
    by_group = {group.group: group.scores for group in mapped}
    for n, evaluation in enumerate(evaluations):
        for group in evaluation.scores["compiled"]["coherence"]:
            assert by_group[group.group] == tuple(pytest.approx(score + n) for score in group.scores if score)


def test_the_figure_is_the_mean_over_groups_and_the_interval_rests_on_these(folded: FoldedCompile) -> None:
    values: dict[str, list[float]] = {}
    for evaluation in folded.result.evaluations:
        for group in evaluation.scores["compiled"]["coherence"]:
            ratings, scores = [r for r in group.ratings if r is not None], [s for s in group.scores if s is not None]
            values.setdefault(group.group, []).append(correlation(ratings, scores, "spearman") or 0.0)
    assert {len(found) for found in values.values()} == {1}
    means = np.array([np.mean(found) for found in values.values()])
    expected = logit_interval(float(means.mean()), (means - means.mean()) / len(means))
    for table in (
        folded.result.held_out.tables["compiled"].aspects["coherence"],
        folded.result.held_out.tables["compiled"].average,
    ):
        found = table["summary"]["spearman"]
        assert found.groups == SOURCES
        assert found.value == pytest.approx(means.mean())
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    gain = folded.result.held_out.gain
    assert gain.groups == SOURCES
    assert gain.value == pytest.approx(
        folded.result.held_out.tables["compiled"].average["summary"]["spearman"].value
        - (folded.result.held_out.tables["single"].average["summary"]["spearman"].value or 0.0)
    )


def test_single_candidates_are_pooled_over_the_folds(tmp_path: Path) -> None:
    found = compile_in_folds(tmp_path, data(tmp_path, candidates=1, sources=24))
    assert found.result.plan.data.level == "sample"
    assert len(found.result.evaluations) == 6
    pairs = [
        (group.ratings[0], group.scores[0])
        for evaluation in found.result.evaluations
        for group in evaluation.scores["single"]["coherence"]
    ]
    ratings, scores = ([float(v) for v in side if v is not None] for side in zip(*pairs, strict=True))
    cell = found.result.held_out.tables["single"].average["sample"]["spearman"]
    assert len(pairs) == cell.groups == 24
    assert cell.value == pytest.approx(correlation(ratings, scores, "spearman"))
    assert cell.low is not None


# --- what is exported ---


def gained(low: float | None, high: float | None) -> Difference:
    return Difference(None if low is None or high is None else (low + high) / 2, low, high, None, 16, "t", 0.1)


@pytest.mark.parametrize(
    ("gain", "calls", "keep", "expected", "why"),
    [
        (gained(0.01, 0.1), 6.0, "cheaper", "compiled", "which is better than a single call"),
        (gained(-0.01, 0.1), 6.0, "cheaper", "single", "does not show that it is better than a single call, and it"),
        (gained(-0.01, 0.1), 6.0, "cheaper", "single", "takes 6.0 calls per item instead of 1.0"),
        (gained(-0.01, 0.1), 6.0, "compiled", "compiled", "as keep=compiled asks, although held-out does not"),
        (gained(-0.01, 0.1), 0.5, "cheaper", "compiled", "which takes no more calls"),
        (gained(-0.1, -0.01), 0.5, "cheaper", "single", "worse than a single call"),
        (gained(-0.1, -0.01), 0.5, "compiled", "compiled", "although held-out shows that it is worse"),
        (gained(None, None), 6.0, "cheaper", "compiled", "the compiled judge"),
    ],
)
def test_the_cheaper_judge_is_exported_where_the_gain_is_not_shown(
    folded: FoldedCompile, gain: Difference, calls: float, keep: Any, expected: str, why: str
) -> None:
    held_out = replace(
        folded.result.held_out,
        gain=gain,
        calls={**folded.result.held_out.calls, "compiled": {"coherence": calls}, "single": {"coherence": 1.0}},
    )
    plan = replace(folded.result.plan, settings=Settings(keep=keep))
    found = choose_export(plan, folded.result.compiled, held_out)
    assert found.name == expected
    assert why in found.reason
    judge = found.judge.aspects["coherence"].judge
    own = folded.result.compiled if expected == "compiled" else None
    assert (judge is own.aspects["coherence"].judge) if own else judge.debate_config.rounds == 0


def test_a_learning_curve_ends_with_what_the_compiled_judges_had_learnt(tmp_path: Path) -> None:
    """And learns it once: asked again, an LM that writes freely would write something else."""
    learnt_from: list[int] = []

    class Counting(RecordingTuner):
        def compile(self, student: Judge, *, trainset: list[dspy.Example], **kwargs: Any) -> Judge:
            learnt_from.append(len(trainset))
            return super().compile(student, trainset=trainset)

    result = compile_in_folds(tmp_path, data(tmp_path), Counting, folds=4, learning_curve=True).result
    assert [step.sources for step in result.learning_curve.steps] == [0, 4, 8]
    assert sorted(learnt_from) == [4, 4, 8, 8], "each half of the sources, and a part of it"
