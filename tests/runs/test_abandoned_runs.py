"""Runs whose process was killed: closed by the next one, while those of processes that are alive are left alone."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from debate_judge.runs.tracking.abandoned import TAG, RunLock, close_abandoned
from debate_judge.runs.tracking.store import Place, open_place
from debate_judge.runs.tracking.tracker import Tracker, TrackingError
from tests.runs.started import started

_TRACK = """
import sys
from pathlib import Path
from debate_judge.runs.tracking.tracker import Tracker

with Tracker(uri=None, store=Path(sys.argv[1]), experiment=sys.argv[2], run_name=sys.argv[3]) as tracker:
    tags = {"mlflow.parentRunId": tracker.run_id}
    tracker.place.client.create_run(tracker.place.experiment_id, run_name="unfinished trial", tags=tags)
    print(tracker.run_id, flush=True)
    sys.stdin.read()
"""

Started = tuple[subprocess.Popen[str], str]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for all tests, as its tables take seconds to make; each test has an experiment of its own."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def experiment(request: pytest.FixtureRequest) -> str:
    return f"debate/{request.node.name}"


def tracking(store: Path, experiment: str, name: str) -> Started:
    """A process that tracks a run until its input ends, and the run's id."""
    arguments = [sys.executable, "-c", _TRACK, str(store), experiment, name]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def _tracker(store: Path, experiment: str) -> Tracker:
    return Tracker(uri=None, store=store, experiment=experiment, run_name="mine")


def _state(place: Place, run_id: str) -> tuple[str, dict[str, str]]:
    run: Any = place.client.get_run(run_id)
    tags = {name: value for name, value in run.data.tags.items() if name in ("error", "successor")}
    return run.info.status, tags


def test_a_killed_run_is_closed_by_the_next_and_a_live_one_is_not(store: Path, experiment: str) -> None:
    killed, dead = tracking(store, experiment, "mine")
    live, alive = tracking(store, experiment, "mine")
    killed.send_signal(signal.SIGKILL)
    killed.wait(timeout=60)
    lock = RunLock("sqlite:///mlflow.db", store)
    lock.acquire()
    other_dead = started(open_place(None, store, experiment), "another", {TAG: lock.name})
    lock.release(closed=False)
    with _tracker(store, experiment) as tracker:
        place = tracker.place
        error = {"error": "the process was killed before it could close the run"}
        assert _state(place, dead) == ("KILLED", {**error, "successor": tracker.run_id})
        assert _state(place, other_dead) == ("KILLED", error)
        assert _state(place, alive) == ("RUNNING", {})
        trials = place.client.search_runs([place.experiment_id], f"tags.`mlflow.parentRunId` = '{dead}'")
        assert [trial.info.status for trial in trials] == ["KILLED"]
        trials = place.client.search_runs([place.experiment_id], f"tags.`mlflow.parentRunId` = '{alive}'")
        assert [trial.info.status for trial in trials] == ["RUNNING"]
        assert len(list((store / "running").iterdir())) == 2, "the locks of the dead are removed"
        live.communicate("", timeout=60)
        assert _state(place, alive) == ("FINISHED", {})
    assert _state(place, tracker.run_id) == ("FINISHED", {})
    assert list((store / "running").iterdir()) == []


def test_a_run_that_the_store_could_not_close_is_closed_later(store: Path, experiment: str) -> None:
    def refuse(*args: object) -> None:
        raise OSError("the store is down")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(TrackingError), _tracker(store, experiment) as first:
        patch.setattr("mlflow.end_run", refuse)
    assert _state(first.place, first.run_id) == ("RUNNING", {})
    with _tracker(store, experiment) as second:
        status, tags = _state(second.place, first.run_id)
        assert (status, tags["successor"]) == ("KILLED", second.run_id)


def test_runs_of_which_nothing_is_known_here_are_left_alone(store: Path, experiment: str, tmp_path: Path) -> None:
    """Those without a lock, and those whose lock lies in another store, on this machine or on another."""
    place = open_place(None, store, experiment)
    foreign = RunLock("sqlite:///mlflow.db", tmp_path / "elsewhere")
    foreign.acquire()
    runs = [started(place, "mine", tags) for tags in ({}, {TAG: foreign.name}, {TAG: "../../elsewhere"})]
    foreign.release(closed=False)
    assert close_abandoned(place, store, started(place, "mine", {})) == []
    assert [_state(place, run)[0] for run in runs] == ["RUNNING"] * 3
