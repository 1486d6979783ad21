"""Runs in an embedded store. MLflow is slow to start, so what can share a store shares one."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import subprocess
import sys
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.runs.mlflow_store import open_tracking_store, prepare_mlflow
from debate_judge.runs.tracking import Tracker, TrackingError, finite_values, log_dataset, text_values
from tests.hostile_server import HostileServer, sized

EXPERIMENT = "debate/tests"
SECRET = "correct-horse-battery"

CORPUS = Corpus(
    Task("t", "text", "summary", (Aspect("clarity & style", "how clear", Scale(1, 5)),)),
    (
        RatedGroup("a", "one", (Candidate("1", "x"), Candidate("2", "y"))),
        RatedGroup("b", "two", (Candidate("1", "z"),)),
    ),
    Origin("toy", f"https://reader:{SECRET}@example.org/toy.jsonl", "r1"),
)


def _tracker(store: Path, name: str = "run") -> Tracker:
    return Tracker(uri=None, store=store, experiment=EXPERIMENT, run_name=name)


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A store with one run in which everything was logged once."""
    prepare_mlflow()
    import mlflow

    store = tmp_path_factory.mktemp("with space") / "store"
    elsewhere = tmp_path_factory.mktemp("cwd")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(elsewhere)
        patch.setenv("SOME_API_KEY", "an-unusual-value-0815")
        with _tracker(store, "everything") as tracker:
            tracker.log_settings(
                {"deadline": 900, "api_key": SECRET},
                {
                    "rounds": (0, 1, 2),
                    "nothing": None,
                    "max_tokens": 2000,
                    "api_key": SECRET,
                    "api_base": f"http://me:{SECRET}@127.0.0.1:8000/v1",
                    "headers": {"Authorization": f"Bearer {SECRET}", "X-Team": "judges"},
                },
            )
            with tracker.writing():
                mlflow.set_tags(text_values({"level": "summary", "note": "seen an-unusual-value-0815 here"}))
                mlflow.log_metrics(
                    finite_values({"logged": 0.5, "absent": None, "broken": math.nan, "endless": math.inf})
                )
                log_dataset("train", CORPUS, "aaaa")
                log_dataset("dev", CORPUS, "bbbb")
            tracker.log_trial("n=0", {"rounds": 0, "persona": None}, {"dev/spearman": 0.25, "lm_calls_per_item": 1})
            tracker.log_trial("n=1 plain", {"rounds": 1, "persona": "plain"}, {"dev/spearman": 0.5, "p": math.nan})
    client = mlflow.MlflowClient(tracker.store.uri)
    artifacts = store / "artifacts" / tracker.run_id / "artifacts"
    run = client.get_run(tracker.run_id)
    return SimpleNamespace(store=store, cwd=elsewhere, tracker=tracker, client=client, run=run, artifacts=artifacts)


def test_a_run_is_finished_and_says_with_what_it_was_made(logged: SimpleNamespace) -> None:
    info, run_data = logged.run.info, logged.run.data
    assert (info.status, info.run_name, run_data.tags["level"]) == ("FINISHED", "everything", "summary")
    assert run_data.tags["versions"].startswith(f"python {sys.version.split()[0]}, dspy ")
    assert info.artifact_uri == logged.artifacts.as_uri()
    assert not list(logged.cwd.iterdir()), "nothing is in the working directory"
    # What has no value is left out.
    assert set(run_data.metrics) == {"logged"}


def test_trials_are_finished_children_with_their_own_params_and_metrics(logged: SimpleNamespace) -> None:
    children = logged.client.search_runs(
        [logged.run.info.experiment_id], f"tags.`mlflow.parentRunId` = '{logged.run.info.run_id}'"
    )
    single, plain = sorted(children, key=lambda run: run.info.run_name)
    assert {single.info.status, plain.info.status} == {"FINISHED"}
    assert (single.data.params, plain.data.params) == ({"rounds": "0"}, {"rounds": "1", "persona": "plain"})
    assert (single.data.metrics["lm_calls_per_item"], plain.data.metrics) == (1, {"dev/spearman": 0.5})


def test_an_address_for_other_processes_is_left_as_it_is(
    logged: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////nowhere.db")
    with _tracker(logged.store, "elsewhere") as tracker:
        assert os.environ["MLFLOW_TRACKING_URI"] == "sqlite:////nowhere.db"
    assert logged.client.get_run(tracker.run_id).info.status == "FINISHED"


def test_parts_of_the_split_are_inputs_with_digest_and_use(logged: SimpleNamespace) -> None:
    inputs = {tuple(tag.value for tag in used.tags): used.dataset for used in logged.run.inputs.dataset_inputs}
    digests = {tags: dataset.digest for tags, dataset in inputs.items()}
    assert digests == {("train", "r1"): "aaaa", ("dev", "r1"): "bbbb"}
    dataset = inputs["dev", "r1"]
    assert (dataset.name, json.loads(dataset.profile)["num_rows"]) == ("toy", 3)
    assert json.loads(dataset.source) == {"url": "https://example.org/toy.jsonl"}


def test_settings_are_kept_and_secrets_are_not(logged: SimpleNamespace) -> None:
    assert logged.run.data.params == {
        "rounds": "[0, 1, 2]",
        "max_tokens": "2000",
        "api_key": "[removed]",
        "api_base": "http://127.0.0.1:8000/v1",
        "headers": '{"Authorization": "[removed]", "X-Team": "judges"}',
    }
    assert json.loads((logged.artifacts / "settings.json").read_text()) == {"deadline": "900", "api_key": "[removed]"}
    assert logged.run.data.tags["note"] == "seen [removed] here"
    everything = b"".join(p.read_bytes() for p in logged.store.rglob("*") if p.is_file())
    assert b"max_tokens" in everything
    assert SECRET.encode() not in everything


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (KeyboardInterrupt(), "KILLED", "KeyboardInterrupt"),
        (OSError(f"no route to http://me:{SECRET}@host/\nsecond line"), "FAILED", "OSError: no route to http://host/"),
    ],
)
def test_what_ends_the_work_is_the_end_of_the_run(
    logged: SimpleNamespace, error: BaseException, status: str, message: str
) -> None:
    tracker = _tracker(logged.store)
    with suppress(type(error)), tracker:
        tracker.log_settings({}, {"before": 1})
        raise error
    run = logged.client.get_run(tracker.run_id)
    assert (run.info.status, run.data.tags["error"], run.data.params) == (status, message, {"before": "1"})


def test_a_write_that_fails_is_raised_and_hides_no_error(logged: SimpleNamespace) -> None:
    tracker = _tracker(logged.store)
    with suppress(TrackingError), tracker:
        for rounds in (1, 2):
            tracker.log_settings({}, {"rounds": rounds})
    run = logged.client.get_run(tracker.run_id)
    assert run.info.status == "FAILED"
    assert "Changing param values" in run.data.tags["error"]
    tracker = _tracker(logged.store)

    def end_elsewhere() -> None:
        with tracker:
            tracker._run.info._run_id = "0" * 32
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as hidden:
        end_elsewhere()
    assert "not found" in hidden.value.__notes__[0]


# --- stores: what is wrong is said at once ---


ROOT = Path(__file__).parents[2]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("version", "status", "body", "message"),
    [
        ("2.22.0", 200, "{}", r"MLflow 2.22.0(.|\n)*MLflow 3 or later"),
        ("3.17.2", 401, "no", r"wants a login(.|\n)*MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"),
        ("<html>", 200, "<html>", "no MLflow server"),
        ("<html>", 502, "<html>", "HTTP 502"),
    ],
)
def test_a_server_is_asked_first(version: str, status: int, body: str, message: str, tmp_path: Path) -> None:
    def send(request: bytes) -> list[bytes]:
        is_version = request.startswith(b"GET /version ")
        return [sized((version if is_version else body).encode(), status=b"%d X" % (200 if is_version else status))]

    with HostileServer(send) as server, pytest.raises(InputError, match=message) as refused:
        open_tracking_store(server.origin.replace("//", f"//ann:{SECRET}@"), tmp_path, EXPERIMENT)
    login = b"Authorization: Basic " + b64encode(f"ann:{SECRET}".encode())
    assert all(login in request for request in server.requests)
    assert SECRET not in str(refused.value)


def test_a_process_has_its_own_store_and_run_before_and_after(logged: SimpleNamespace, fluent_store: str) -> None:
    import mlflow

    with mlflow.start_run(experiment_id="0") as own:
        with _tracker(logged.store, "inner") as tracker:
            assert mlflow.active_run().info.run_id == own.info.run_id
            tracker.log_trial("n=0", {"n": 0}, {})
        assert (mlflow.get_tracking_uri(), mlflow.active_run().info.run_id) == (fluent_store, own.info.run_id)
        mlflow.log_metric("mine", 1.0)
    assert mlflow.last_active_run().data.metrics == {"mine": 1.0}
    run = logged.client.get_run(tracker.run_id)
    assert "mlflow.parentRunId" not in run.data.tags


_START = """
import sys
from pathlib import Path
from debate_judge.runs.tracking import Tracker
assert "mlflow" not in sys.modules, "importing the tracker must not import MLflow"
with Tracker(uri=None, store=Path(sys.argv[1]), experiment="debate/race", run_name=sys.argv[2]) as tracker:
    tracker.log_trial("child", {"rounds": 1}, {"dev/spearman": 0.5})
from mlflow.telemetry import get_telemetry_client
assert get_telemetry_client() is None, "usage statistics are on"
"""


@pytest.mark.integration
def test_two_processes_may_start_on_a_fresh_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "GITHUB_ACTIONS", "PYTEST_CURRENT_TEST", "MLFLOW_DISABLE_TELEMETRY", "MLFLOW_LOGGING_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _START, str(tmp_path / "store"), name],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in "ab"
    ]
    assert [process.communicate(timeout=120)[0] for process in processes] == ["", ""]
    assert [process.returncode for process in processes] == [0, 0]
    with sqlite3.connect(tmp_path / "store" / "mlflow.db") as database:
        assert database.execute("SELECT count(*) FROM experiments WHERE name = 'debate/race'").fetchone() == (1,)
        runs = database.execute("SELECT name, status FROM runs ORDER BY name").fetchall()
    assert runs == [*((name, "FINISHED") for name in "ab"), *[("child", "FINISHED")] * 2]


def test_a_run_that_was_not_finished_is_continued_by_the_same_work_with_its_trials_anew(tmp_path: Path) -> None:
    def begin(name: str, identity: str) -> Tracker:
        return Tracker(uri=None, store=tmp_path, experiment=EXPERIMENT, run_name=name, identity=identity)

    killed = begin("mine", "abc").__enter__()
    killed.log_settings({}, {"n": 1})
    killed.log_trial("n=1", {"n": 1}, {"choice_agreement": 0.5})
    import mlflow

    client, experiment = mlflow.MlflowClient(killed.store.uri), killed.store.experiment_id
    for name, identity in (("other", "abc"), ("mine", "def")):
        with begin(name, identity) as other:
            assert other.run_id != killed.run_id
    with suppress(ZeroDivisionError), begin("mine", "abc") as failed:
        raise ZeroDivisionError
    with begin("mine", "abc") as continued:
        continued.log_settings({}, {"n": 1})
        continued.log_trial("n=1", {"n": 1}, {"choice_agreement": 0.5})
    assert killed.run_id == failed.run_id == continued.run_id
    run = client.get_run(continued.run_id)
    assert (run.info.status, "error" in run.data.tags) == ("FINISHED", False)
    assert len(client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{continued.run_id}'")) == 1
    with begin("mine", "abc") as again:
        assert again.run_id != continued.run_id, "a finished run is left as it is"
