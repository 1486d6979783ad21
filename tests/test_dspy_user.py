"""What a DSPy user does with a judge: call, evaluate, tune with DSPy's own optimizers, save, load."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dspy
import pytest

from debate_judge import Aspect, Debate, Scale, Task, corpus, examples, group_agreement, offline_lm
from debate_judge.data.agreement.correlations import agreement_table
from debate_judge.data.agreement.figures import GroupScores
from debate_judge.programs.devset import FAILURE_SCORE
from debate_judge.programs.judge import Unscored
from tests.fakes import debater, scripted_lm

TONE = Aspect("tone", "How the reply treats the customer.", Scale(1, 5))
POLITE = Aspect("polite", "Whether the reply is polite.", Scale(0, 1))
SUPPORT = Task("support", "customer message", "reply", (TONE, POLITE))

GROUP = corpus("sample").groups[0]
SOURCE, TEXT = GROUP.source, GROUP.candidates[0].text


@pytest.fixture
def offline() -> Iterator[Any]:
    with dspy.context(lm=offline_lm()):
        yield dspy.settings.lm


@pytest.fixture(scope="module")
def train() -> list[dspy.Example]:
    return examples(corpus("sample"), ["coherence"])[:6]


def says(**fields: Any) -> Any:
    """A context with an LM that fills in these fields."""
    return dspy.context(lm=scripted_lm(debater(**fields)))


# --- calls ---


def test_a_text_gets_a_score_and_its_reason_and_texts_of_a_source_get_lists(offline: Any) -> None:
    judge, texts = Debate(rounds=1), [candidate.text for candidate in GROUP.candidates[:3]]
    alone = [judge(source=SOURCE, text=text, aspect="coherence") for text in texts]
    first = alone[0]
    assert (first.score, first.judgement.rounds) == (first.judgement.score, 1)
    assert first.reason in [turn.text for turn in first.judgement.transcript.turns if turn.role == "scorer"]
    listed = judge(source=SOURCE, texts=texts, aspect="coherence")
    assert (listed.scores, listed.reasons) == ([p.score for p in alone], [p.reason for p in alone])
    assert len(listed.judgements) == 3
    tables = Debate(rounds=1, together=2)(source=SOURCE, texts=texts, aspect="fluency")
    assert sum(judgement.calls for judgement in tables.judgements) < sum(p.judgement.calls for p in alone)


def test_a_text_without_a_score_has_none_and_says_why() -> None:
    with says(score="nine"):
        prediction = Debate(rounds=0)(source="s", texts=["t", "u"], aspect="fluency")
    assert prediction.scores == [None, None]
    assert all(isinstance(judgement, Unscored) for judgement in prediction.judgements)
    assert all(reason.startswith("unreadable reply") for reason in prediction.reasons)


def test_a_yes_no_aspect_has_its_decision_and_names_the_cut() -> None:
    judge = Debate(rounds=0)
    for score, decision in (("0.7", True), ("0.5", True), ("0.2", False), ("nine", None)):
        with says(score=score):
            prediction = judge(source="s", text="t", aspect=POLITE)
            listed = judge(source="s", texts=["t"], aspect="groundedness")
        assert (prediction.decision, prediction.cut, listed.decisions) == (decision, 0.5, [decision])
    with says(score="3"):
        assert "decision" not in judge(source="s", text="t", aspect=TONE)


@pytest.mark.parametrize(
    ("named", "label"),
    [
        ({"aspect": "coherence"}, "news article"),
        ({"aspect": "dialogue.coherence"}, "dialogue history"),
        ({"aspect": "coherence", "task": "dialogue"}, "dialogue history"),
        ({"aspect": TONE}, "source"),
        ({"aspect": "tone", "task": SUPPORT}, "customer message"),
    ],
)
def test_aspects_by_name_by_task_and_of_your_own(named: dict[str, Any], label: str) -> None:
    with dspy.context(lm=(lm := scripted_lm(debater()))):
        Debate(rounds=0)(source="s", text="t", **named)
    assert f"\nSource: {label}." in lm.prompts[0]


def test_acall_and_calls_within_a_running_loop_or_threads(offline: Any) -> None:
    judge, call = Debate(rounds=1), {"source": SOURCE, "text": TEXT, "aspect": "coherence"}
    expected = judge(**call).score

    async def notebook() -> list[float]:
        both = await asyncio.gather(judge.acall(**call), judge.acall(**call))
        return [*(prediction.score for prediction in both), judge(**call).score]

    assert asyncio.run(notebook()) == [expected] * 3
    with ThreadPoolExecutor(4) as pool:
        dspy.configure(lm=offline)
        assert {prediction.score for prediction in pool.map(lambda _: judge(**call), range(8))} == {expected}


def test_a_judge_works_with_any_lm_of_dspy_and_asks_it_for_each_sample() -> None:
    asked: list[Any] = []

    class Plain:
        def complete(self, request: Any) -> Any:
            asked.append(request)
            message = dspy.lm15.Message.assistant("[[ ## rationale ## ]]\nFine.\n\n[[ ## score ## ]]\n4")
            usage = dspy.lm15.Usage(input_tokens=1, output_tokens=1, total_tokens=2)
            return dspy.lm15.Response(id=None, model=request.model, message=message, finish_reason="stop", usage=usage)

    class PlainAsync(Plain):
        async def complete(self, request: Any) -> Any:
            return super().complete(request)

    # DSPy's own cache tells samples apart by their number; it lies on the disk, so that a name is used once.
    with dspy.context(lm=dspy.LM(f"own/{uuid.uuid4()}", engine=Plain(), async_engine=PlainAsync())):
        assert Debate(rounds=0)(source="s", text="t", aspect="fluency").score == 4
        assert Debate(rounds=0, score_mode="sampled:3")(source="s", text="t", aspect="fluency").score == 4
    assert len(asked) == 1 + 3


# --- examples and metric ---


def test_evaluate_prints_the_summary_level_correlation(offline: Any) -> None:
    rated = examples(corpus("sample"), ["coherence"])
    result = dspy.Evaluate(devset=rated, metric=group_agreement, num_threads=4, display_progress=False)(
        Debate(rounds=1)
    )
    groups = [
        GroupScores(f"g{n}", tuple(map(str, range(len(e.texts)))), tuple(e.ratings), tuple(prediction.scores))
        for n, (e, prediction, _) in enumerate(result.results)
    ]
    cell = agreement_table({"coherence": groups}).aspects["coherence"]["summary"]["spearman"]
    assert result.score == round(100 * (cell.value or 0), 2)


def test_examples_have_what_a_call_needs(tmp_path: Path) -> None:
    def group(name: str, *ratings: int) -> dict[str, Any]:
        rated = [{"id": str(n), "text": f"{name} {n}", "ratings": {"tone": [r]}} for n, r in enumerate(ratings)]
        return {"group": name, "source": f"message {name}", "context": "Be polite.", "candidates": rated}

    file = tmp_path / "own.jsonl"
    file.write_text("\n".join(json.dumps(group(*row)) for row in (("a", 1, 3), ("b", 2, 2))))
    devset = examples(corpus(file, task=SUPPORT), ["tone"])
    assert (len(devset), devset.left_out, devset[0].ratings) == (1, {"tone": 1}, [1, 3])
    expected = {"source": "message a", "texts": ["a 0", "a 1"], "aspect": "tone", "context": "Be polite."}
    assert devset[0].inputs().toDict().items() >= expected.items()
    with says(score="3"):
        assert Debate(rounds=0)(**devset[0].inputs()).scores == [3, 3]


@pytest.mark.parametrize(
    ("scores", "value"),
    [
        ([1, 2, 3], 1.0),
        ([3, 2, 1], -1.0),
        ([2, 2, 2], 0.0),
        ([1, None, 3], 1.0),
        ([None, None, 3], FAILURE_SCORE),
        ([None, None, None], FAILURE_SCORE),
        ([1, float("nan"), 3], 1.0),
    ],
)
def test_the_metric_is_a_correlation_and_always_a_number(scores: list[Any], value: float) -> None:
    gold, prediction = dspy.Example(texts=list("abc"), ratings=[1.0, 3.0, 5.0]), dspy.Prediction(scores=scores)
    assert group_agreement(gold, prediction) == pytest.approx(value)
    assert group_agreement(gold, prediction, trace=[]) == pytest.approx(value)


@pytest.mark.parametrize("together", [0, 8])
def test_feedback_says_who_was_scored_too_high_and_names_several_by_their_numbers_in_the_call(
    together: int, offline: Any, train: list[dspy.Example]
) -> None:
    # Texts of files may begin or end with blanks.
    example, trace = train[0].copy(texts=[f" {text}\n" for text in train[0].texts]), list[Any]()
    with dspy.context(trace=trace):
        prediction = Debate(rounds=1, together=together)(**example.inputs())
    call = trace[1] if together else trace[-1]
    feedback = group_agreement(example, prediction, trace, "critic", [call])
    assert feedback.score == group_agreement(example, prediction)
    assert "wrong order" in feedback.feedback
    if not together:
        assert "This call was about candidate" in feedback.feedback
        return
    candidates = [text.strip() for text in re.split(r"\[\[ ## candidate_\d+ ## \]\]\n", call[1]["candidates"])[1:]]
    texts = [text.strip() for text in example.texts]
    assert candidates != texts[: len(candidates)]
    ratings = dict(zip(texts, example.ratings, strict=True))
    means = re.findall(r"This call was about candidate (\d+)\. The raters gave it ([\d.]+)", feedback.feedback)
    assert dict(means) == {str(number): f"{ratings[text]:.2f}" for number, text in enumerate(candidates, start=1)}


# --- DSPy's own optimizers ---

Optimizer = Callable[..., Any]
OPTIMIZERS: dict[str, tuple[Optimizer, dict[str, Any], dict[str, Any]]] = {
    "GEPA": (dspy.GEPA, {"max_metric_calls": 20, "failure_score": -1, "num_threads": 2}, {}),
    "MIPROv2": (
        dspy.MIPROv2,
        {"auto": None, "num_candidates": 2, "max_bootstrapped_demos": 1, "max_labeled_demos": 1},
        {"num_trials": 2, "minibatch": False},
    ),
    "COPRO": (dspy.COPRO, {"breadth": 2, "depth": 1}, {"eval_kwargs": {"display_progress": False}}),
    "SIMBA": (dspy.SIMBA, {"bsize": 4, "num_candidates": 2, "max_steps": 1, "max_demos": 1}, {}),
    "BootstrapFewShot": (
        dspy.BootstrapFewShot, {"metric_threshold": 0.3, "max_bootstrapped_demos": 2, "max_labeled_demos": 3}, {}
    ),
}  # fmt: skip
"""Name -> class, arguments of its constructor, and of `compile`."""


def tuned_by(name: str, judge: Debate, train: list[dspy.Example]) -> Debate:
    optimizer, settings, arguments = OPTIMIZERS[name]
    settings = {**settings, "reflection_lm": offline_lm()} if name == "GEPA" else settings
    tuned: Debate = optimizer(metric=group_agreement, **settings).compile(judge, trainset=list(train), **arguments)
    return tuned


@pytest.mark.integration
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_tunes_a_debate(name: str, train: list[dspy.Example], tmp_path: Path, offline: Any) -> None:
    judge = Debate(rounds=1, tie_breaker=True)
    tuned = tuned_by(name, judge, train)
    assert isinstance(tuned, Debate)
    assert [predictor for predictor, _ in tuned.named_predictors()] == ["scorer", "critic", "tie_breaker"]
    if name in ("COPRO", "BootstrapFewShot"):
        assert tuned.instructions() != judge.instructions() or any(p.demos for p in tuned.predictors())
    tuned.save(tmp_path / "judge.json")
    loaded = Debate(rounds=1, tie_breaker=True)
    loaded.load(tmp_path / "judge.json")
    assert loaded.instructions() == tuned.instructions()
    assert loaded(**train[0].inputs()).scores == tuned(**train[0].inputs()).scores


# --- DSPy's own records, of calls that were really made ---


def test_trace_callbacks_history_and_usage_are_those_of_the_calls(offline: Any) -> None:
    judge, trace, seen = Debate(rounds=1), list[Any](), list[str]()

    class Watch(dspy.utils.BaseCallback):  # type: ignore[misc]
        def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
            seen.append("predictor" if isinstance(instance, dspy.Predict) else type(instance).__name__)

    with dspy.context(trace=trace, callbacks=[Watch()], track_usage=True):
        prediction = judge(source=SOURCE, text=TEXT, aspect="coherence")
    predictors = {id(predictor): name for name, predictor in judge.named_predictors()}
    assert [predictors[id(step[0])] for step in trace] == ["scorer", "critic", "scorer"]
    assert seen == ["Debate", "predictor", "predictor", "predictor"]
    assert len(trace) == len(offline.history) == prediction.judgement.calls
    (usage,) = prediction.get_lm_usage().values()
    assert usage["prompt_tokens"] > 0


@pytest.mark.integration
def test_mlflow_shows_a_debate_as_a_tree(fluent_store: str) -> None:
    import mlflow

    mlflow.dspy.autolog()
    try:
        with dspy.context(lm=offline_lm()):
            Debate(rounds=1)(source="Rain fell. Roads closed.", text="Roads closed.", aspect="coherence")
        trace = mlflow.get_trace(mlflow.get_last_active_trace_id())
    finally:
        mlflow.dspy.autolog(disable=True)
    spans = [(span.name, span.span_id, span.parent_id) for span in trace.data.spans]
    turns = [number for _, number, parent in spans if parent == spans[0][1]]
    assert (spans[0][0], len(turns)) == ("Debate.forward", 3)
    for turn in turns:
        assert [name.split(".")[0] for name, _, parent in spans if parent == turn] == ["RoleLastAdapter", "JudgeLM"]
