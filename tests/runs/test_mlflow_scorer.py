"""MLflow: a judge as a scorer, and people's assessments as rated data."""

from __future__ import annotations

from pathlib import Path

import mlflow
import pytest
from mlflow.entities import AssessmentSource, Feedback, Trace

from debate_judge import data, load
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.optimize import plan as compile_plan
from debate_judge.optimize.settings import Settings
from debate_judge.programs import build_preset
from debate_judge.runs.check import main
from debate_judge.runs.compare import CompareFlags
from debate_judge.runs.comparison.job import prepare
from debate_judge.runs.export import read
from debate_judge.runs.human_ratings import resolve_data
from debate_judge.runs.integrations import DebateScorer
from tests.fakes import ScriptedLM
from tests.runs.integration_exports import save_judge, score_for, script
from tests.runs.score_command import export_of

__all__ = ["script"]


@pytest.fixture
def experiment(tmp_path: Path, fluent_store: str) -> str:
    """An experiment in an empty store of MLflow's."""
    created = mlflow.create_experiment("judged", artifact_location=(tmp_path / "artifacts").as_uri())
    mlflow.set_experiment("judged")
    return created


@pytest.mark.integration
def test_evaluate_has_a_feedback_for_each_aspect(
    tmp_path: Path, lms: list[ScriptedLM], experiment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_GENAI_EVAL_MAX_WORKERS", "2")
    texts = ["reply 3", "reply 16", "unreadable 4"]
    rows = [{"inputs": {"source": "Late!", "id": n}, "outputs": text} for n, text in enumerate(texts)]
    with load(save_judge(tmp_path / "judge")) as judge:
        result = mlflow.genai.evaluate(data=rows, scorers=[DebateScorer(judge=judge)])
    traces = [trace if isinstance(trace, Trace) else Trace.from_json(trace) for trace in result.result_df["trace"]]
    feedback = {
        trace.data.spans[0].outputs: {a.name: a for a in trace.info.assessments if isinstance(a, Feedback)}
        for trace in traces
    }
    assert {text: set(by_aspect) for text, by_aspect in feedback.items()} == {text: {"tone", "help"} for text in texts}
    scores = {"reply 3": score_for("reply 3"), "reply 16": score_for("reply 16"), "unreadable 4": None}
    assert {text: by_aspect["tone"].value for text, by_aspect in feedback.items()} == scores
    scored, failed = feedback["reply 16"]["help"], feedback["unreadable 4"]["help"]
    assert (scored.rationale, scored.source.source_type) == ("I read reply 16.", "LLM_JUDGE")
    assert "unreadable reply" in str(failed.error)
    assert result.metrics["tone/mean"] == pytest.approx((score_for("reply 3") + score_for("reply 16")) / 2)


def test_keys_say_which_input_is_the_source(tmp_path: Path, lms: list[ScriptedLM]) -> None:
    with load(save_judge(tmp_path / "judge")) as judge:
        named = DebateScorer(judge=judge, aspects=["tone"], source_key="question", text_key="answer")
        (feedback,) = named(inputs={"question": "q", "history": "h"}, outputs={"answer": "reply 8", "model": "m"})
        assert (feedback.name, feedback.value) == ("tone", 5)


# --- what people assessed, as rated data ---

TASK = Task("support", "question", "answer", (Aspect("helpfulness", "Does it help?", Scale(1, 5)),))
SPEC = "mlflow:support chat"


@pytest.fixture
def store(tmp_path: Path, fluent_store: str) -> str:
    mlflow.create_experiment("support chat", artifact_location=(tmp_path / "files").as_uri())
    mlflow.set_experiment("support chat")
    for number in range(3):
        with mlflow.start_span("chat") as span:
            span.set_inputs({"question": f"Where is parcel {number}?"})
            span.set_outputs(f"It is on its way, {number}.")
        mlflow.flush_trace_async_logging()
        for kind, rater, value in (("HUMAN", "ann", number + 1), ("HUMAN", "bob", number + 1), ("LLM_JUDGE", "lm", 5)):
            mlflow.log_feedback(
                trace_id=span.trace_id,
                name="helpfulness",
                value=value,
                source=AssessmentSource(kind, rater),
                rationale=f"says {rater}",
            )
    return fluent_store


def test_what_people_assessed_is_rated_data(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    groups = sorted(data.load(resolve_data(SPEC), TASK).groups, key=lambda group: group.source)
    assert [group.source for group in groups] == [f"Where is parcel {number}?" for number in range(3)]
    candidates = [group.candidates[0] for group in groups]
    assert [candidate.ratings["helpfulness"] for candidate in candidates] == [(n, n) for n in (1, 2, 3)]
    assert candidates[0].text == "It is on its way, 0."
    assert set(candidates[0].comments["helpfulness"]) == {"says ann", "says bob"}
    assert main([SPEC]) == 0
    assert "3 sources, 3 candidates" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"(?s)'support chats'.*'support chat'"):
        data.load(resolve_data("mlflow:support chats"), TASK)
    # As the test set of a compile.
    (tmp_path / "old.csv").write_text("question,answer,helpfulness\nHow much?,1 euro,1\nHow far?,2 miles,2\n")
    old = data.load(str(tmp_path / "old.csv"), TASK, ["source=question", "text=answer"])
    corpus, held_out = compile_plan.load(Settings(held_out=SPEC), old)
    assert (held_out and len(held_out.groups), len(corpus.groups)) == (3, 5)
    with pytest.raises(InputError, match="--held-out"):
        compile_plan.load(Settings(held_out="mlflow:nothing"), old)


def test_a_comparison_takes_them_and_an_export_from_mlflows_store(store: str, tmp_path: Path) -> None:
    folder = export_of(tmp_path / "mine", TASK, build_preset("single", {}), lm="offline")
    with mlflow.start_run() as run:
        mlflow.log_artifacts(str(folder), "export")
    plan = prepare(CompareFlags(data=SPEC, judges=(run.info.run_id,), part="all"))
    assert len(plan.comparison.corpus.groups) == 3
    (entrant,) = plan.entrants
    assert set(entrant.aspect_judges) == set(read(folder).judge.aspects)
