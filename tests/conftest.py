"""Fixtures for all tests."""

from __future__ import annotations

import gc
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from hypothesis import settings

from debate_judge.runs import mlflow_store
from debate_judge.runs.mlflow_store import prepare_mlflow, sqlite_file

ROOT = Path(__file__).parent.parent

# LiteLLM would fetch a price list on import, in every process that a test starts, and wait where there is no network.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")


# Of what is imported once and kept, nothing is ever garbage, and to go through it took a sixth of the tests' time.
gc.set_threshold(100_000, 50, 100)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores, for most tests wait for a process or a server."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


# A machine that is busy for a moment is no defect.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(autouse=True)
def starts_nothing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold the tests that are not marked `integration` to starting no server and no process, but for those that MLflow
    asks about the machine."""
    if request.node.get_closest_marker("integration") or request.node.get_closest_marker("soak"):
        return
    popen = subprocess.Popen.__init__

    def bind(self: socket.socket, address: object) -> None:
        raise AssertionError(f"this test opens a server at {address}: mark it `integration`")

    def start(self: subprocess.Popen[bytes], args: Any, *rest: Any, **options: Any) -> None:
        if args[0] not in ("git", "uname", "lscpu"):
            raise AssertionError(f"this test starts {args}: mark it `integration`")
        popen(self, args, *rest, **options)

    monkeypatch.setattr(socket.socket, "bind", bind)
    monkeypatch.setattr(subprocess.Popen, "__init__", start)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with human-rated public sets; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("DEBATE_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no human-rated public sets here: set DEBATE_DATA to the folder that holds summeval.jsonl")
    return folder


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this run of the tests share."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session")
def new_tables(run_folder: Path) -> Callable[[Path], None]:
    """Writes the database of a new tracking store, as a copy of one whose making took MLflow seconds."""
    make = mlflow_store._create_tables
    template = run_folder / "tables.db"

    def copy(file: Path) -> None:
        with FileLock(f"{template}.lock"):
            if not template.exists():
                first = run_folder / "tables.first.db"
                first.touch()
                make(f"sqlite:///{first}")
                first.rename(template)
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(template, file)

    return copy


@pytest.fixture(scope="session", autouse=True)
def make_tables(new_tables: Callable[[Path], None]) -> Iterator[Callable[[str], None]]:
    """Let every new tracking store begin with such a copy; the fixture is what otherwise makes its tables."""
    make = mlflow_store._create_tables

    def copied(uri: str) -> None:
        file = sqlite_file(uri)
        if file is None or "?" in uri or not file.is_file() or file.stat().st_size:
            make(uri)
        else:
            new_tables(file)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mlflow_store, "_create_tables", copied)
        yield make


@pytest.fixture
def fluent_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an empty store that MLflow's fluent functions use for the length of a test."""
    prepare_mlflow()
    import mlflow
    from mlflow.tracking import fluent

    # What `mlflow.set_experiment` sets in this process and, for processes that it starts, in the environment.
    monkeypatch.setattr(fluent, "_active_experiment_id", None)
    for name in ("MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    # Else every flush of what is traced waits for a second.
    monkeypatch.setenv("MLFLOW_ENABLE_ASYNC_TRACE_LOGGING", "false")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    (tmp_path / "mlflow.db").touch()
    mlflow_store._create_tables(uri)
    # Not `store.used`, which would keep other threads from theirs.
    mlflow.set_tracking_uri(uri)
    yield uri
    mlflow.set_tracking_uri(None)
