"""What a distributed run needs of a cluster: one folder for all, a service that answers, and a place for every task."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.options import BudgetCaps
from debate_judge.runs.distributed import driver, engine, service
from debate_judge.runs.distributed.driver import RunDriver
from debate_judge.runs.distributed.job import ActorNews, MeterCopy, shares_of
from debate_judge.runs.distributed.out_folder import OutFolder
from debate_judge.runs.distributed.progress import RunTotals
from debate_judge.runs.distributed.service import RunService


def elsewhere(out: OutFolder, folder: Path) -> OutFolder:
    """The folder as a process on a machine sees it where the same path is another folder."""
    sent: OutFolder = pickle.loads(pickle.dumps(out))
    sent.url = str(folder)
    return sent


def test_a_service_that_does_not_see_the_folder_does_not_start(tmp_path: Path) -> None:
    out = OutFolder(str(tmp_path / "out.jsonl"))
    out.require_made_from({"program": "p"})
    RunService(pickle.loads(pickle.dumps(out)), "run")
    with pytest.raises(InputError, match="does not see the folder"):
        RunService(elsewhere(out, tmp_path / "other.jsonl"), "run")
    again = OutFolder(str(tmp_path / "out.jsonl"))
    again.require_made_from({"program": "p"})
    assert again.token == out.token
    # Another run's folder is at the same path there.
    OutFolder(str(tmp_path / "other.jsonl")).require_made_from({"program": "p"})
    with pytest.raises(InputError, match="does not see the folder"):
        elsewhere(out, tmp_path / "other.jsonl").require_shared()


def test_a_service_that_never_comes_back_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_SILENCE", -1.0)
    monkeypatch.setattr(driver, "_GRACE", 0.0)
    totals = RunTotals({})
    RunDriver(OutFolder(str(tmp_path / "out.jsonl")), totals, lambda stop: None).run(iter(()))
    assert totals.failure is not None
    assert "service" in totals.failure[1]


@pytest.mark.parametrize("cpus", [1, 2, 4, 7, 64])
@pytest.mark.parametrize("actors", [1, 2, 4, 8, 100])
def test_actors_leave_room_for_the_tasks_that_read(cpus: int, actors: int) -> None:
    ray = SimpleNamespace(cluster_resources=lambda: {"CPU": float(cpus)})
    share = engine.cpu_share(ray, actors)
    assert 0 < share <= 1
    assert share * (actors + engine.readers(actors)) <= cpus / 2
    with pytest.raises(InputError, match="no CPU"):
        engine.cpu_share(SimpleNamespace(cluster_resources=lambda: {"GPU": 1.0}), actors)


def test_a_service_that_has_started_again_does_not_take_silence_for_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(service.time, "monotonic", lambda: now)
    out = OutFolder(str(tmp_path / "out.jsonl"))
    assert RunService(out, "run").status(stop=True).idle, "no actor has ever begun"
    again = RunService(out, "run")
    again.tell(ActorNews("one", MeterCopy(), closed=True))
    assert not again.status(stop=True).idle, "another one may be at work"
    now += 9
    again.tell(ActorNews("other", MeterCopy()))
    now += 2
    assert not again.status(stop=True).idle
    again.tell(ActorNews("other", MeterCopy(), closed=True))
    assert again.status(stop=True).idle


def test_shares_of_a_budget_are_given_once_and_are_never_more_than_it(tmp_path: Path) -> None:
    out, budget = OutFolder(str(tmp_path / "out.jsonl")), BudgetCaps(calls=7, usd=1.0)
    first = RunService(out, "run", shares_of(budget, 3))
    given = [first.share()]
    # What is started again goes on where it was; a process that replaces a killed one gets no share.
    again = RunService(out, "run", shares_of(budget, 3))
    given += [again.share() for _ in range(3)]
    assert [share and share.calls for share in given] == [3, 2, 2, None]
    assert sum(share.usd or 0.0 for share in given if share) == pytest.approx(1.0)
    assert shares_of(BudgetCaps(), 3) == []


class NoCredentialsError(Exception):
    """As botocore's, which is no `OSError`."""


def test_a_store_that_takes_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise NoCredentialsError("Unable to locate credentials")

    out = OutFolder("memory://refused/out.jsonl")
    for name in ("cat_file", "pipe_file", "exists"):
        monkeypatch.setattr(MemoryFileSystem, name, refuse)
    for ask in (out.part_names, out.require_shared, lambda: out.write_part("x", b"")):
        with pytest.raises(InputError, match=r"(?s)refused/out.jsonl.*cannot be used.*NoCredentialsError"):
            ask()
