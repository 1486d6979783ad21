"""Opens the store that runs are kept in: the embedded SQLite database, another database, or an MLflow server."""

from __future__ import annotations

import glob
import os
import shlex
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.redaction import clean_text
from debate_judge.programs.lm.sql.postgresql import driven_by_psycopg, only_holder, sqlalchemy_address
from debate_judge.runs.mlflow_setup import prepare_mlflow, sqlite_file
from debate_judge.runs.tracking.address import check_address, is_server
from debate_judge.runs.tracking.shared_view import experiment_tags

_TURN = RLock()


@contextmanager
def used(uri: str) -> Iterator[None]:
    """MLflow's fluent functions write to the store at `uri` inside the block.

    MLflow knows one store a process, so blocks of several threads take turns, and what was set before is set again.
    """
    from mlflow.tracking._model_registry import utils as registry
    from mlflow.tracking._tracking_service import utils as tracking

    with _TURN:
        before = tracking._tracking_uri, registry._registry_uri
        try:
            # Not by MLflow's functions, which set variables of the environment, too, while other threads read these.
            tracking._tracking_uri = registry._registry_uri = uri
            yield
        finally:
            tracking._tracking_uri, registry._registry_uri = before


@dataclass(frozen=True)
class Place:
    """An open store with its experiment."""

    client: Any
    uri: str
    experiment_id: str

    def running(self, condition: str) -> list[Any]:
        """The experiment's runs that have not ended, those among them that meet a condition of MLflow's search."""
        found = self.client.search_runs([self.experiment_id], f"attributes.status = 'RUNNING' and {condition}")
        return list(found)

    @property
    def served(self) -> bool:
        """Whether the store is a server, with a UI of its own."""
        return is_server(self.uri)

    @property
    def ui_command(self) -> str:
        """The command that shows a store without a server of its own, quoted for any POSIX shell."""
        # The UI imports LiteLLM, which fetches a price list first and, where there is no network, never returns. It
        # also starts eight processes, of 330 MB each, for jobs of MLflow's own judges.
        lean = "LITELLM_LOCAL_MODEL_COST_MAP=True MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false"
        return f"{lean} mlflow ui --backend-store-uri {shlex.quote(clean_text(self.uri))}"


def open_place(uri: str | None, store: Path, experiment: str) -> Place:
    """Open a store and its experiment, making what is absent.

    Args:
        uri: Tracking URI; None for the SQLite database in `store`.
        store: Folder of the embedded database, and of the artifacts of every store without a server.
        experiment: Name of the experiment.

    Raises:
        InputError: The address is malformed, no server answers there, or the store cannot be used.
    """
    store = store.resolve()
    try:
        store.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"the store's folder cannot be made: {error.strerror}", field="store", found=store) from error
    if uri is None:
        uri = f"sqlite:///{store}/mlflow.db"
    check_address(uri)
    uri = sqlalchemy_address(uri)
    prepare_mlflow()
    from filelock import FileLock, Timeout

    lock = store / "mlflow.lock"
    try:
        # Processes that create the tables of one database at the same moment break each other.
        with explained(uri), FileLock(lock, timeout=120), _alone_in_database(uri):
            _make_tables(uri)
            return _open(uri, store, experiment)
    except Timeout as error:
        raise InputError(
            "another process has held the tracking store's lock for two minutes",
            file=lock,
            remedy="wait for it, or end it",
        ) from error


@contextmanager
def _alone_in_database(uri: str) -> Iterator[None]:
    """The same among the machines of a team, where their database can tell."""
    if driven_by_psycopg(uri):
        with only_holder(uri, "tracking URI", "tables of runs", "opens the tracking store"):
            yield
    else:
        yield


@contextmanager
def explained(uri: str) -> Iterator[None]:
    """Turn what MLflow and its database raise into an InputError with a remedy."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError) as error:
        raise InputError(
            "the tracking store cannot be used: " + clean_text(str(error).strip().splitlines()[0]),
            field="tracking URI",
            found=clean_text(uri),
            remedy="repair the store as its message says, or leave the URI out for the embedded store",
        ) from error


def _make_tables(uri: str) -> None:
    """Make the tables of a new SQLite database in a temporary file and move it into place.

    MLflow makes them in many small steps, which take a second; a process that is killed between two of them
    leaves a database that MLflow refuses from then on.
    """
    from mlflow import MlflowClient

    file = sqlite_file(uri)
    if file is None or "?" in uri or not file.is_file() or file.stat().st_size:
        return
    for left in file.parent.glob(f"{glob.escape(file.name)}.*.new*"):
        left.unlink()
    # A name that was never used before: MLflow remembers by name which databases have their tables.
    suffix = f".{uuid.uuid4().hex}.new"
    MlflowClient(tracking_uri=uri + suffix).search_experiments(max_results=1)
    if not file.stat().st_size:
        os.replace(f"{file}{suffix}", file)


def _open(uri: str, store: Path, experiment: str) -> Place:
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    found = client.get_experiment_by_name(experiment)
    if found is None:
        # Without a location of ours MLflow would put artifacts into ./mlruns of the working directory.
        local = None if is_server(uri) or uri.startswith("databricks") else (store / "artifacts").as_uri()
        try:
            made = client.create_experiment(experiment, artifact_location=local, tags=experiment_tags({}))
            return Place(client, uri, made)
        except MlflowException:
            # The lock holds on one machine only: a process on another may have created it in the meantime.
            found = client.get_experiment_by_name(experiment)
            if found is None:
                raise
    if found.lifecycle_stage != "active":
        raise InputError(
            f"the experiment {experiment!r} has been deleted in this tracking store",
            found=clean_text(uri),
            remedy=f"mlflow experiments restore --experiment-id {found.experiment_id}, with MLFLOW_TRACKING_URI set",
        )
    for name, value in experiment_tags(found.tags).items():
        client.set_experiment_tag(found.experiment_id, name, value)
    return Place(client, uri, found.experiment_id)
