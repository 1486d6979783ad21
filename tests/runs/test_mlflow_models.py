"""A registered judge, used by a process without this project and its versions and prompts."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from importlib.metadata import packages_distributions, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import PERMISSION_DENIED

from debate_judge import Debate
from debate_judge.data.calibration import Calibration
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs import build_preset
from debate_judge.programs.judge import AspectJudge
from debate_judge.runs import loaded, tracking
from debate_judge.runs.export import read
from debate_judge.runs.mlflow_store import tracking_errors, use_tracking_uri
from debate_judge.runs.tracking import Tracker, register_prompts
from tests.runs.score_command import export_of

SOURCE = "The ferry Grey Heron carries 240 passengers. A crossing of the bay takes 22 minutes."
NO_TEXT = "no text: the text is empty"
MAP = Calibration(((1, 1.5), (5, 3.5)), 14, 112)
ASPECTS = ("clarity", "truth")
TEXTS = [f"The ferry takes {n} minutes to cross the bay." for n in range(8)]


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """An exported judge of two aspects, registered twice."""
    scale = Scale(1, 5)
    task = Task("toy", "article", "summary", (Aspect("clarity", "easy to read", scale), Aspect("truth", "true", scale)))
    clarity = AspectJudge(Debate(rounds=1), "half", MAP)
    truth = AspectJudge(build_preset("single", {}), calibration=MAP)
    folder = tmp_path_factory.mktemp("registered")
    exported = export_of(folder / "exports" / "toy", task, clarity, truth, lm="offline")
    tracker = Tracker(uri=None, store=folder / "store", experiment="debate/toy", run_name="toy")
    with tracker, tracker.writing():
        about = {"register_as": "judges: a/b", "description": "Judges."}
        uris = [tracking.log_model(exported, **about, version_description=text) for text in ("one", "two")]
    client = MlflowClient(tracker.store.uri)
    newest = client.get_model_version("judges-a-b", "2")
    location = client.get_logged_model(newest.source.removeprefix("models:/")).artifact_location
    return SimpleNamespace(
        uri=tracker.store.uri,
        uris=uris,
        export=exported,
        run=client.get_run(tracker.run_id),
        artifacts=folder / "store" / "artifacts" / tracker.run_id / "artifacts",
        path=Path(location.removeprefix("file://")),
        version=newest,
        client=client,
    )


def test_each_compile_is_a_new_version_that_belongs_to_its_run(logged: SimpleNamespace) -> None:
    assert logged.uris == ["models:/judges-a-b/1", "models:/judges-a-b/2"]
    assert (logged.version.run_id, logged.version.status) == (logged.run.info.run_id, "READY")
    assert len(logged.run.outputs.model_outputs) == 2
    assert logged.version.description == "two"
    registered = logged.client.get_registered_model("judges-a-b")
    assert registered.description == "Judges."


def test_the_model_is_code_and_json_with_pinned_requirements(logged: SimpleNamespace) -> None:
    code = [p.relative_to(logged.path / "code") for p in (logged.path / "code").rglob("*") if p.is_file()]
    assert {p.suffix for p in code} == {".py"}
    assert {p.parts[1] for p in code if len(p.parts) > 1} == {"__init__.py", "data", "programs", "runs"}
    assert not [p for p in code if {"store", "sample", "__pycache__"} & {*p.parts}], "texts of a user or of ours"
    requirements = (logged.path / "requirements.txt").read_text().split()
    assert {f"dspy=={version('dspy')}"} <= {*requirements}
    assert all("==" in line for line in requirements)
    manifest = (logged.export / "manifest.json").read_bytes()
    assert (logged.artifacts / "export" / "manifest.json").read_bytes() == manifest
    assert read(logged.path).fingerprint == json.loads(manifest)["fingerprint"]


_USE = """
import io, json, os, sys
import mlflow.pyfunc, pandas as pd
from mlflow.pyfunc.scoring_server import predictions_to_json

model = mlflow.pyfunc.load_model(sys.argv[1], model_config={"concurrency": 4})
rows = pd.DataFrame(json.loads(sys.stdin.read()))
rows.index = [10 * i for i in range(len(rows))]
scored = model.predict(rows)
served = io.StringIO()
predictions_to_json(scored, served)
plain = model.predict(rows[["source", "text"]].iloc[:2])
mapped = model.predict(rows.iloc[:2], params={"scale": "raters"})
try:
    mlflow.pyfunc.load_model(sys.argv[1], model_config={"lm": "nonsense"})
    refused = ""
except Exception as error:
    refused = str(error)
files = [module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "debate_judge"]
print(json.dumps({
    "rows": json.loads(served.getvalue())["predictions"],
    "index": [int(label) for label in scored.index],
    "without a context": plain[["clarity", "truth"]].values.tolist(),
    "mapped": mapped[["clarity", "truth"]].values.tolist(),
    "files": files,
    "refused": refused,
    "folder": os.listdir(),
}))
"""


@pytest.fixture(scope="module")
def abroad(logged: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process elsewhere makes of the model, in a folder where a user has modules with names of ours."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for name in ("data", "programs", "runs", "optimize"):
        (elsewhere / name).mkdir()
        for file in (f"{name}.py", f"{name}/__init__.py"):
            (elsewhere / file).write_text("raise RuntimeError('a module of the user was imported')\n")
    before = {*os.listdir(elsewhere)}
    rows = [{"source": SOURCE, "text": text, "context": ""} for text in [*TEXTS, ""]]
    done = subprocess.run(
        [sys.executable, "-c", _USE, str(logged.path)],
        input=json.dumps(rows),
        cwd=elsewhere,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**result, "left behind": {*result["folder"]} - before}


@pytest.mark.integration
def test_the_code_comes_from_the_model_and_its_imports_are_among_the_requirements(
    abroad: dict[str, Any], logged: SimpleNamespace
) -> None:
    assert len(abroad["files"]) > 20
    assert {Path(f).is_relative_to(logged.path / "code" / "debate_judge") for f in abroad["files"]} == {True}
    assert abroad["left behind"] == set()
    assert "'nonsense'" in abroad["refused"]
    top = [node for file in abroad["files"] for node in ast.parse(Path(file).read_text(encoding="utf-8")).body]
    names = {alias.name for node in top if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in top if isinstance(node, ast.ImportFrom)}
    foreign = {name.partition(".")[0] for name in names} - {*sys.stdlib_module_names, "debate_judge"}
    required = {line.partition("==")[0] for line in (logged.path / "requirements.txt").read_text().split()}
    providers = packages_distributions()
    assert {name for name in foreign if not required & set(providers[name])} == set()


@pytest.mark.integration
def test_there_is_a_row_for_each_text_with_the_scores_of_the_export(
    abroad: dict[str, Any], logged: SimpleNamespace
) -> None:
    with loaded.load(logged.export) as judge:
        expected = judge.score_many([{"source": SOURCE, "text": text} for text in TEXTS])
    *rows, empty = abroad["rows"]
    assert abroad["index"] == [10 * n for n in range(len(TEXTS) + 1)]
    for row, of_text in zip(rows, expected, strict=True):
        for aspect, score in of_text.items():
            assert row[aspect] == score.score
            assert (row[f"{aspect}_reason"], row[f"{aspect}_unscored"]) == (score.reason, "")
    scores = [[row["clarity"], row["truth"]] for row in rows[:2]]
    assert abroad["without a context"] == scores
    assert abroad["mapped"] == [[MAP.map_score(score) for score in row] for row in scores]
    assert [empty[f"{aspect}{end}"] for aspect in ASPECTS for end in ("", "_unscored")] == [None, NO_TEXT] * 2


# --- the registries ---


def test_a_prompt_has_a_version_a_wording_and_the_judges_name_as_alias(tmp_path: Path) -> None:
    name = "debate-toy-task.clarity.scorer"
    with Tracker(uri=None, store=tmp_path / "store", experiment="debate/prompts", run_name="r") as tracker:
        for judge, text in (("one", "Rate."), ("two, again", "Rate."), ("three", "Rate {{with}} care.")):
            with tracker.writing():
                register_prompts(judge, {"debate-toy task.clarity.scorer": text})
    client = MlflowClient(tracker.store.uri, tracker.store.uri)
    versions = {a: client.get_prompt_version_by_alias(name, a) for a in ("one", "two-again", "three")}
    assert {alias: int(p.version) for alias, p in versions.items()} == {"one": 1, "two-again": 1, "three": 2}
    assert versions["three"].template == "Rate {{with}} care."
    linked = json.loads(client.get_run(tracker.run_id).data.tags["mlflow.linkedPrompts"])
    assert {"name": name, "version": "2"} in linked


def test_the_right_to_register_is_asked_for_without_a_trace(
    logged: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise MlflowException("Permission denied", PERMISSION_DENIED)

    with use_tracking_uri(logged.uri):
        tracking.require_registrable("never made")
        tracking.require_registrable("judges: a/b")
        monkeypatch.setattr(MlflowClient, "update_registered_model", refuse)
        with pytest.raises(InputError, match="MLFLOW_TRACKING_USERNAME"), tracking_errors(logged.uri):
            tracking.require_registrable("judges: a/b")
    assert [model.name for model in logged.client.search_registered_models()] == ["judges-a-b"]
    assert logged.client.get_registered_model("judges-a-b").description == "Judges."
