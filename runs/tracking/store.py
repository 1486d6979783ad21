"""Opens the tracking store: the embedded SQLite database, another database, or an MLflow server.

Its address is checked within seconds, before MLflow is imported: with MLflow's own retries it takes minutes until a
server that does not answer is reported.
"""

from __future__ import annotations

import glob
import os
import shlex
import socket
import sqlite3
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.redaction import redact_text
from debate_judge.runs.export.from_mlflow import embedded_uri
from debate_judge.runs.mlflow_setup import prepare_mlflow, sqlite_file

TIMEOUT = 4.0
"""Seconds in which a server or a locked database must answer."""

_DATABASES = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
"""Scheme -> default port."""


@dataclass(frozen=True)
class TrackingStore:
    """An open store with its experiment."""

    client: Any
    uri: str
    experiment_id: str

    @property
    def has_server(self) -> bool:
        """Whether the store is a server, with a UI of its own."""
        return is_server(self.uri)

    @property
    def ui_command(self) -> str:
        """The command that shows a store without a server of its own, quoted for any POSIX shell."""
        return f"mlflow ui --backend-store-uri {shlex.quote(redact_text(self.uri))}"


def open_tracking_store(uri: str | None, store: Path, experiment: str) -> TrackingStore:
    """Open a store and its experiment; create what does not exist.

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
        uri = embedded_uri(store)
    check_address(uri)
    prepare_mlflow()
    from filelock import FileLock, Timeout

    lock = store / "mlflow.lock"
    try:
        # Processes that create the tables of one database at the same moment break each other.
        with tracking_errors(uri), FileLock(lock, timeout=120):
            _create_tables(uri)
            return _open(uri, store, experiment)
    except Timeout as error:
        raise InputError(
            "another process has held the tracking store's lock for two minutes",
            file=lock,
            remedy="wait for it, or end it",
        ) from error


@contextmanager
def tracking_errors(uri: str) -> Iterator[None]:
    """Turn errors of MLflow and its database into an InputError with a remedy."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError) as error:
        raise InputError(
            "the tracking store cannot be used: " + redact_text(str(error).strip().splitlines()[0]),
            field="tracking URI",
            found=redact_text(uri),
            remedy="repair the store as its message says, or leave the URI out for the embedded store",
        ) from error


def _create_tables(uri: str) -> None:
    """Create the tables of a new SQLite database in a temporary file and rename it.

    MLflow creates them in many small steps, which take a second; a process that is killed in between leaves a database
    that MLflow refuses from then on.
    """
    from mlflow import MlflowClient

    file = sqlite_file(uri)
    if file is None or "?" in uri or not file.is_file() or file.stat().st_size:
        return
    for leftover in file.parent.glob(f"{glob.escape(file.name)}.*.new*"):
        leftover.unlink()
    # A new name each time: MLflow remembers by name which databases have their tables.
    suffix = f".{uuid.uuid4().hex}.new"
    MlflowClient(tracking_uri=uri + suffix).search_experiments(max_results=1)
    if not file.stat().st_size:
        os.replace(f"{file}{suffix}", file)


def _open(uri: str, store: Path, experiment: str) -> TrackingStore:
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    existing = client.get_experiment_by_name(experiment)
    if existing is None:
        # Without a location of ours MLflow would put artifacts into ./mlruns of the working directory.
        location = None if is_server(uri) or uri.startswith("databricks") else (store / "artifacts").as_uri()
        try:
            experiment_id = client.create_experiment(experiment, artifact_location=location)
            return TrackingStore(client, uri, experiment_id)
        except MlflowException:
            # The lock holds on one machine only: a process on another may have created it meanwhile.
            existing = client.get_experiment_by_name(experiment)
            if existing is None:
                raise
    if existing.lifecycle_stage != "active":
        raise InputError(
            f"the experiment {experiment!r} has been deleted in this tracking store",
            found=redact_text(uri),
            remedy=f"mlflow experiments restore --experiment-id {existing.experiment_id}, with MLFLOW_TRACKING_URI set",
        )
    return TrackingStore(client, uri, existing.experiment_id)


# --- addresses ---


def is_server(uri: str) -> bool:
    """Whether the store is an MLflow server, which has a UI and keeps artifacts itself."""
    return urlsplit(uri).scheme in ("http", "https")


def check_address(uri: str) -> None:
    """Check that an address is well-formed and answers.

    Raises:
        InputError: It is malformed, does not answer, or names a database that cannot be used.
    """
    try:
        parts = urlsplit(uri)
        host, port, file = parts.hostname, parts.port, sqlite_file(uri)
    except ValueError as error:
        raise _malformed(uri) from error
    scheme = parts.scheme.partition("+")[0]
    if host and (is_server(uri) or scheme in _DATABASES):
        try:
            _check_health(uri) if is_server(uri) else _check_port(host, port or _DATABASES[scheme])
        except (OSError, HTTPException, ValueError) as error:
            raise _unreachable(uri, str(getattr(error, "reason", error)) or type(error).__name__) from error
    elif file is not None:
        _check_sqlite(file)
    elif not uri.startswith("databricks"):
        raise _malformed(uri)


def _check_health(uri: str) -> None:
    request = urllib.request.Request(uri.rstrip("/") + "/health", headers={"User-Agent": "debate-judge"})
    try:
        urllib.request.urlopen(request, timeout=TIMEOUT).close()
    except urllib.error.HTTPError as error:
        # Only a server error means that MLflow is down: a gateway may guard or hide this path.
        if error.code >= 500:
            raise OSError(f"it answers HTTP {error.code}") from error


def _check_port(host: str, port: int) -> None:
    socket.create_connection((host, port), TIMEOUT).close()


def _check_sqlite(file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(file, timeout=TIMEOUT)) as database:
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            writable = os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)
    except (OSError, sqlite3.Error) as error:
        raise InputError(f"not a database that can be used: {error}", file=file, remedy="name another file") from error
    if not writable:
        raise InputError("the database cannot be written", file=file, remedy="change its permissions, or name another")


def _malformed(uri: str) -> InputError:
    return InputError(
        "not a tracking URI",
        field="tracking URI",
        expected="http(s)://HOST:PORT, sqlite:///FILE, postgresql://…, mysql://…, mssql://… or databricks",
        found=redact_text(uri),
        remedy="correct it, or leave it out for the embedded store",
    )


def _unreachable(uri: str, why: str) -> InputError:
    start = "start it (mlflow server --port 5000)" if is_server(uri) else "start it"
    return InputError(
        f"the tracking server cannot be reached: {redact_text(why)}",
        field="tracking URI",
        found=redact_text(uri),
        remedy=f"{start}, correct the address, or leave it out for the embedded store",
    )
