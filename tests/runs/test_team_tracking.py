"""Runs in a PostgreSQL database: several machines log there, and each can tell which processes of the others live."""

from __future__ import annotations

from pathlib import Path

import pytest

from debate_judge.data.errors import InputError
from debate_judge.runs.tracking.stale_runs import LOCK_TAG, RunLock
from debate_judge.runs.tracking.store import TrackingStore, open_tracking_store
from debate_judge.runs.tracking.tracker import Tracker
from tests.postgresql import with_password
from tests.runs.foreign_runs import started


@pytest.fixture
def place(runs_database: str, tmp_path: Path, request: pytest.FixtureRequest) -> TrackingStore:
    return open_tracking_store(runs_database, tmp_path / "a", request.node.name)


def tracker(runs_database: str, store: Path, place: TrackingStore) -> Tracker:
    experiment = place.client.get_experiment(place.experiment_id).name
    return Tracker(uri=runs_database, store=store, experiment=experiment, run_name="mine")


def status(place: TrackingStore, run: str) -> str:
    return str(place.client.get_run(run).info.status)


def test_a_run_is_logged_to_the_database(runs_database: str, place: TrackingStore, tmp_path: Path) -> None:
    with tracker(runs_database, tmp_path / "a", place) as tracking:
        tracking.log_settings({}, {"lm": "offline"})
        tracking.log_metrics({"agreement": 0.5})
    run = place.client.get_run(tracking.run_id)
    assert (run.info.status, run.data.params["lm"], run.data.metrics["agreement"]) == ("FINISHED", "offline", 0.5)
    assert "postgresql+psycopg://" in place.ui_command


def test_the_run_of_a_process_that_died_on_another_machine_is_closed_and_that_of_a_live_one_is_not(
    runs_database: str, place: TrackingStore, tmp_path: Path
) -> None:
    locks = [RunLock(runs_database, tmp_path / "elsewhere") for _ in range(2)]
    for lock in locks:
        lock.acquire()
    dead, alive = (started(place, "mine", {LOCK_TAG: lock.name}) for lock in locks)
    # What the server does when the process is gone.
    locks[0].release(closed=False)
    with tracker(runs_database, tmp_path / "b", place) as tracking:
        assert (status(place, dead), status(place, alive)) == ("KILLED", "RUNNING")
        assert place.client.get_run(dead).data.tags["successor"] == tracking.run_id
        # The lock of this very run is held by its own process.
        with tracker(runs_database, tmp_path / "c", place):
            assert status(place, tracking.run_id) == "RUNNING"
    # The database has forgotten its lock, but its process lives, as the file says on its own machine.
    locks[1]._database_lock.release()
    with tracker(runs_database, tmp_path / "elsewhere", place):
        assert status(place, alive) == "RUNNING"
    locks[1].release(closed=True)


def test_what_the_database_refuses_is_told_without_its_password(runs_database: str, tmp_path: Path) -> None:
    absent = with_password(runs_database.rpartition("/")[0] + "/no_such_database")
    wrong = runs_database.replace("judge@", "judge:Sesame-9417@")
    for address, problem in ((absent, "no_such_database"), (wrong, "password authentication failed")):
        with pytest.raises(InputError, match=problem) as caught:
            open_tracking_store(address, tmp_path, "x")
        assert "Sesame" not in str(caught.value)
        assert "remedy:" in str(caught.value)
