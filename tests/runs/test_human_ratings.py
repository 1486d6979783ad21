"""What people assessed in traces of an MLflow experiment, read from its store."""

from __future__ import annotations

import json
from pathlib import Path

import mlflow
import pytest
from mlflow.entities import AssessmentSource

from debate_judge import data
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.optimize.rated_data import load
from debate_judge.optimize.settings import Settings
from debate_judge.programs import build_preset
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs.after.common import corpus_for, find_export
from debate_judge.runs.after.recheck import RecheckFlags
from debate_judge.runs.check import main
from debate_judge.runs.export.folder import read, save
from debate_judge.runs.human_ratings import rated_file

TASK = Task("support", "question", "answer", (Aspect("helpfulness", "Does it help?", Scale(1, 5)),))


@pytest.fixture
def store(tmp_path: Path, fluent_store: str) -> str:
    mlflow.create_experiment("support chat", artifact_location=(tmp_path / "files").as_uri())
    mlflow.set_experiment("support chat")
    for number in range(3):
        with mlflow.start_span("chat") as span:
            span.set_inputs({"question": f"Where is parcel {number}?"})
            span.set_outputs(f"It is on its way, {number}.")
        mlflow.flush_trace_async_logging()
        for rater in ("ann", "bob"):
            person = AssessmentSource("HUMAN", rater)
            mlflow.log_feedback(
                trace_id=span.trace_id, name="helpfulness", value=number + 1, source=person, rationale=f"says {rater}"
            )
        judge = AssessmentSource("LLM_JUDGE", "some-model")
        mlflow.log_feedback(trace_id=span.trace_id, name="helpfulness", value=5, source=judge)
    return fluent_store


def test_what_people_assessed_is_rated_data(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = data.load(rated_file("mlflow:support chat", store), TASK)
    found = {group.source: group.candidates[0] for group in corpus.groups}
    assert {source: one.ratings["helpfulness"] for source, one in found.items()} == {
        f"Where is parcel {number}?": (number + 1.0, number + 1.0) for number in range(3)
    }
    assert found["Where is parcel 0?"].text == "It is on its way, 0."
    assert set(found["Where is parcel 0?"].comments["helpfulness"]) == {"says ann", "says bob"}
    assert main(["mlflow:support chat", "--tracking-uri", store]) == 0
    assert "3 sources, 3 candidates" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"(?s)'support chats'.*'support chat'"):
        data.load(rated_file("mlflow:support chats", store), TASK)


def test_commands_after_a_compile_take_them_and_exports_from_the_store_that_is_named(
    store: str, tmp_path: Path
) -> None:
    judge = CompiledJudge(TASK, {"helpfulness": AspectJudge(build_preset("single", {}))})
    folder = save(tmp_path / "mine", judge, lm={"spec": "offline"}, evidence={}, name="mine")
    with mlflow.start_run() as run:
        mlflow.log_artifacts(str(folder), "export")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/other.db")
    spec = "mlflow:support chat"
    flags = RecheckFlags(export=run.info.run_id, data=spec, tracking_uri=store)
    found = find_export(flags, flags.export)
    assert found.fingerprint == read(folder).fingerprint
    assert len(corpus_for(found, spec, flags).groups) == 3


def test_a_compile_can_be_measured_on_them(store: str, tmp_path: Path) -> None:
    rows = [{"question": f"How much is {n}?", "answer": f"{n} euros", "helpfulness": n} for n in (1, 2)]
    (tmp_path / "old.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    corpus = data.load(str(tmp_path / "old.jsonl"), TASK, ["source=question", "text=answer"])
    found = load(Settings(held_out="mlflow:support chat", tracking_uri=store), corpus)
    assert (len(found.held_out.groups), len(found.corpus.groups)) == (3, 5)
    with pytest.raises(InputError) as caught:
        load(Settings(held_out="mlflow:nothing", tracking_uri=store), corpus)
    assert caught.value.field == "--held-out"


def test_other_data_are_left_to_the_loader() -> None:
    assert rated_file("ratings.csv") == "ratings.csv"
