"""Opening a tracking store: what is wrong is said at once, and runs of killed processes are closed by the next."""

from __future__ import annotations

import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.errors import InputError
from debate_judge.runs.tracking import store as tracking_store
from debate_judge.runs.tracking.stale_runs import LOCK_TAG, RunLock, close_stale_runs
from debate_judge.runs.tracking.store import TrackingStore, open_tracking_store
from debate_judge.runs.tracking.tracker import Tracker, TrackingError
from tests.postgresql import with_password
from tests.runs.registered_models import started

ROOT = Path(__file__).parents[2]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("reply", "problem"),
    [(b"", "timed out"), (b"SSH-2.0-other\r\n", "SSH-2"), (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "HTTP 502")],
    ids=["silent", "no HTTP", "gateway"],
)
def test_no_server_of_mlflow_at_the_address(
    reply: bytes, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong with an address is found before MLflow is so much as imported."""
    monkeypatch.setattr(tracking_store, "TIMEOUT", 0.3)
    monkeypatch.setattr(tracking_store, "prepare_mlflow", lambda: pytest.fail("MLflow was started"))
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(reply)
                # Until the other side has given up.
                connection.recv(1000)

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(InputError, match=problem):
            open_tracking_store(f"http://127.0.0.1:{other.getsockname()[1]}", tmp_path, "debate/tests")


_START = """
import sys
from pathlib import Path
from debate_judge.runs.tracking.tracker import Tracker
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


def test_a_store_whose_making_was_stopped_midway_can_be_made_again(
    tmp_path: Path, make_tables: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    def stop(connection: object, cursor: object, statement: str, *rest: object) -> None:
        if statement.strip().startswith("CREATE TABLE _alembic_tmp"):
            raise KeyboardInterrupt

    monkeypatch.setattr(tracking_store, "_create_tables", make_tables)
    event.listen(Engine, "after_cursor_execute", stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            open_tracking_store(None, tmp_path, "debate/tests")
    finally:
        event.remove(Engine, "after_cursor_execute", stop)
    assert started(open_tracking_store(None, tmp_path, "debate/tests"), "run")
    assert sorted(path.name for path in tmp_path.glob("mlflow.db*")) == ["mlflow.db"]


_TRACK = """
import sys
from pathlib import Path
from debate_judge.runs.tracking.tracker import Tracker

with Tracker(uri=None, store=Path(sys.argv[1]), experiment=sys.argv[2], run_name="mine") as tracker:
    tags = {"mlflow.parentRunId": tracker.run_id}
    opened = tracker.tracking_store
    opened.client.create_run(opened.experiment_id, run_name="unfinished trial", tags=tags)
    print(tracker.run_id, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for all tests; each has an experiment of its own."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def experiment(request: pytest.FixtureRequest) -> str:
    return f"debate/{request.node.name}"


def tracking(store: Path, experiment: str) -> tuple[subprocess.Popen[str], str]:
    """A process that tracks a run until its input ends, and the run's id."""
    command = [sys.executable, "-c", _TRACK, str(store), experiment]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def _tracker(store: Path, experiment: str, uri: str | None = None) -> Tracker:
    return Tracker(uri=uri, store=store, experiment=experiment, run_name="mine")


def _state(mlflow_store: TrackingStore, run_id: str) -> tuple[str, dict[str, str]]:
    run: Any = mlflow_store.client.get_run(run_id)
    return run.info.status, {name: tag for name, tag in run.data.tags.items() if name in ("error", "successor")}


def _trials(mlflow_store: TrackingStore, run_id: str) -> list[str]:
    trials = mlflow_store.client.search_runs([mlflow_store.experiment_id], f"tags.`mlflow.parentRunId` = '{run_id}'")
    return [trial.info.status for trial in trials]


@pytest.mark.integration
def test_a_killed_run_is_closed_by_the_next_and_a_live_one_is_not(store: Path, experiment: str) -> None:
    killed, dead = tracking(store, experiment)
    live, alive = tracking(store, experiment)
    killed.send_signal(signal.SIGKILL)
    killed.wait(timeout=60)
    lock = RunLock("sqlite:///mlflow.db", store)
    lock.acquire()
    other_dead = started(open_tracking_store(None, store, experiment), "another", {LOCK_TAG: lock.name})
    lock.release(closed=False)
    with _tracker(store, experiment) as tracker:
        mlflow_store = tracker.tracking_store
        error = {"error": "the process was killed before it could close the run"}
        assert _state(mlflow_store, dead) == ("KILLED", {**error, "successor": tracker.run_id})
        assert _state(mlflow_store, other_dead) == ("KILLED", error)
        assert _state(mlflow_store, alive) == ("RUNNING", {})
        assert (_trials(mlflow_store, dead), _trials(mlflow_store, alive)) == (["KILLED"], ["RUNNING"])
        assert len(list((store / "running").iterdir())) == 2, "the locks of the dead are removed"
        live.communicate("", timeout=60)
        assert _state(mlflow_store, alive) == ("FINISHED", {})
    assert _state(mlflow_store, tracker.run_id) == ("FINISHED", {})
    assert list((store / "running").iterdir()) == []


def test_a_run_that_the_store_could_not_close_is_closed_later(store: Path, experiment: str) -> None:
    def refuse(*args: object) -> None:
        raise OSError("the store is down")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(TrackingError), _tracker(store, experiment) as first:
        patch.setattr("mlflow.end_run", refuse)
    assert _state(first.tracking_store, first.run_id) == ("RUNNING", {})
    with _tracker(store, experiment) as second:
        status, tags = _state(second.tracking_store, first.run_id)
        assert (status, tags["successor"]) == ("KILLED", second.run_id)


def test_runs_of_which_nothing_is_known_here_are_left_alone(store: Path, experiment: str, tmp_path: Path) -> None:
    """Those without a lock, and those whose lock lies in another store, on this machine or on another."""
    mlflow_store = open_tracking_store(None, store, experiment)
    foreign = RunLock("sqlite:///mlflow.db", tmp_path / "elsewhere")
    foreign.acquire()
    runs = [
        started(mlflow_store, "mine", tags) for tags in ({}, {LOCK_TAG: foreign.name}, {LOCK_TAG: "../../elsewhere"})
    ]
    foreign.release(closed=False)
    assert close_stale_runs(mlflow_store, store, started(mlflow_store, "mine")) == []
    assert [_state(mlflow_store, run)[0] for run in runs] == ["RUNNING"] * 3


# --- in a PostgreSQL database, where several machines log ---


def test_the_run_of_a_process_that_died_on_another_machine_is_closed_and_that_of_a_live_one_is_not(
    runs_database: str, experiment: str, tmp_path: Path
) -> None:
    mlflow_store = open_tracking_store(runs_database, tmp_path / "a", experiment)
    assert "postgresql+psycopg://" in mlflow_store.ui_command
    locks = [RunLock(runs_database, tmp_path / "elsewhere") for _ in range(2)]
    for lock in locks:
        lock.acquire()
    dead, alive = (started(mlflow_store, "mine", {LOCK_TAG: lock.name}) for lock in locks)
    # What the server does when the process is gone.
    locks[0].release(closed=False)
    with _tracker(tmp_path / "b", experiment, runs_database) as tracker:
        tracker.log_metrics({"agreement": 0.5})
        assert (_state(mlflow_store, dead)[0], _state(mlflow_store, alive)[0]) == ("KILLED", "RUNNING")
        assert _state(mlflow_store, dead)[1]["successor"] == tracker.run_id
        # The lock of this very run is held by its own process.
        with _tracker(tmp_path / "c", experiment, runs_database):
            assert _state(mlflow_store, tracker.run_id)[0] == "RUNNING"
    run = mlflow_store.client.get_run(tracker.run_id)
    assert (run.info.status, run.data.metrics["agreement"]) == ("FINISHED", 0.5)
    # The database has forgotten its lock, but its process lives, as the file says on its own machine.
    locks[1]._database_lock.release()
    with _tracker(tmp_path / "elsewhere", experiment, runs_database):
        assert _state(mlflow_store, alive)[0] == "RUNNING"
    locks[1].release(closed=True)


def test_what_the_database_refuses_is_told_without_its_password(runs_database: str, tmp_path: Path) -> None:
    absent = with_password(runs_database.rpartition("/")[0] + "/no_such_database")
    wrong = runs_database.replace("judge@", "judge:Sesame-9417@")
    for address, problem in ((absent, "no_such_database"), (wrong, "password authentication failed")):
        with pytest.raises(InputError, match=problem) as refused:
            open_tracking_store(address, tmp_path, "x")
        assert "Sesame" not in str(refused.value)
        assert "remedy:" in str(refused.value)
