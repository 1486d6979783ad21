"""Opens the tracking store: the embedded SQLite database, an MLflow server, or another database.

Its address, and a server's version and login, are checked within seconds, before any LM call is paid for: with MLflow's
own retries it takes minutes until a server that does not answer is reported.
"""

from __future__ import annotations

import glob
import os
import shlex
import socket
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.settings import redact_text
from debate_judge.runs.export.from_mlflow import embedded_uri
from debate_judge.runs.mlflow_setup import prepare_mlflow, split_login, sqlite_file, use_tracking_uri

TIMEOUT = 15.0
"""Seconds in which a server or a locked database must answer."""

VARIABLE = "MLFLOW_TRACKING_URI"
"""The environment variable with the tracking URI."""

_DATABASES = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
"""Scheme -> default port."""

_LEAST_VERSION = 3
"""MLflow 2 has no logged models, which a compile's judge becomes."""

_LOGIN = (
    "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD (or MLFLOW_TRACKING_TOKEN) to a login that may create "
    "experiments and register models"
)


@dataclass(frozen=True)
class TrackingStore:
    """An open store with its experiment."""

    uri: str
    experiment_id: str

    @property
    def ui_command(self) -> str | None:
        """The command that shows the store, quoted for any POSIX shell; None for a server, which has its own UI."""
        return None if is_server(self.uri) else f"mlflow ui --backend-store-uri {shlex.quote(redact_text(self.uri))}"


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
        problem = f"the store's folder cannot be made: {error.strerror}"
        raise InputError(problem, field="--store", found=store) from error
    uri = uri or embedded_uri(store)
    check_address(uri)
    prepare_mlflow()
    import mlflow
    from filelock import FileLock, Timeout

    lock = store / "mlflow.lock"
    try:
        # Processes that create the tables of one database at the same moment break each other.
        with FileLock(lock, timeout=120), tracking_errors(uri), use_tracking_uri(uri):
            _create_tables(uri)
            found = mlflow.get_experiment_by_name(experiment)
            if found is None:
                # Without a location of ours MLflow would put artifacts into ./mlruns of the working directory.
                location = None if is_server(uri) or uri.startswith("databricks") else (store / "artifacts").as_uri()
                return TrackingStore(uri, mlflow.create_experiment(experiment, artifact_location=location))
    except Timeout as error:
        raise InputError(
            "another process has held the tracking store's lock for two minutes",
            file=lock,
            remedy="wait for it, or end it",
        ) from error
    if found.lifecycle_stage != "active":
        raise InputError(
            f"the experiment {experiment!r} has been deleted in this tracking store",
            found=redact_text(uri),
            remedy=f"mlflow experiments restore --experiment-id {found.experiment_id}, with MLFLOW_TRACKING_URI set",
        )
    return TrackingStore(uri, found.experiment_id)


@contextmanager
def tracking_errors(uri: str) -> Iterator[None]:
    """Turn errors of MLflow and its database into an InputError with a remedy."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError) as error:
        refused = getattr(error, "error_code", "") in ("UNAUTHENTICATED", "PERMISSION_DENIED")
        raise InputError(
            "the tracking store cannot be used: " + redact_text(str(error).strip().splitlines()[0]),
            field=VARIABLE,
            found=redact_text(uri),
            remedy=_LOGIN
            if refused
            else f"repair the store as its message says, or unset {VARIABLE} for the embedded store",
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


# --- addresses ---


def is_server(uri: str) -> bool:
    """Whether the store is an MLflow server, which has a UI and keeps artifacts itself."""
    return urlsplit(uri).scheme in ("http", "https")


def check_address(uri: str) -> None:
    """Check that an address is well-formed and answers, and that a server is MLflow 3 and takes the login.

    Raises:
        InputError: It is malformed, does not answer, or names a server or a database that cannot be used.
    """
    try:
        parts = urlsplit(uri)
        host, port, file = parts.hostname, parts.port, sqlite_file(uri)
    except ValueError as error:
        raise _malformed(uri) from error
    scheme = parts.scheme.partition("+")[0]
    if host and is_server(uri):
        _check_server(uri)
    elif host and scheme in _DATABASES:
        try:
            socket.create_connection((host, port or _DATABASES[scheme]), TIMEOUT).close()
        except OSError as error:
            raise _unreachable(uri, str(error)) from error
    elif file is not None:
        _check_sqlite(file)
    elif not uri.startswith("databricks"):
        raise _malformed(uri)


def _check_server(uri: str) -> None:
    """Ask for the server's version, and with the login for its experiments, by MLflow's own client."""
    prepare_mlflow()
    from mlflow.exceptions import MlflowException
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request

    def get(path: str) -> tuple[int, str]:
        response = http_request(
            get_default_host_creds(address), path, "GET", max_retries=0, timeout=TIMEOUT, raise_on_status=False
        )
        return response.status_code, response.text.strip()

    address, _ = split_login(uri)
    try:
        with use_tracking_uri(uri):
            (version_status, version), (status, text) = (
                get("/version"),
                get("/api/2.0/mlflow/experiments/search?max_results=1"),
            )
    except (MlflowException, OSError) as error:
        reason = error.__cause__ or error
        raise _unreachable(uri, "timed out" if "imed out" in str(error) else str(reason).splitlines()[0]) from error
    if status in (401, 403):
        problem = "wants a login" if status == 401 else "does not let this login read experiments"
        raise InputError(f"the tracking server {problem} (HTTP {status})", field=VARIABLE, found=address, remedy=_LOGIN)
    major = version.partition(".")[0]
    if version_status == 200 and major.isdigit() and int(major) < _LEAST_VERSION:
        raise InputError(
            f"the tracking server is MLflow {version}, which has no logged models: the judge could not be stored there",
            field=VARIABLE,
            expected=f"MLflow {_LEAST_VERSION} or later",
            found=address,
            remedy="update the server, or unset it for the embedded store",
        )
    if status != 200 or not text.startswith("{"):
        raise _unreachable(uri, f"it answers as no MLflow server does (HTTP {status})")


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
        field=VARIABLE,
        expected="http(s)://HOST:PORT, sqlite:///FILE, postgresql://…, mysql://…, mssql://… or databricks",
        found=redact_text(uri),
        remedy="correct it, or unset it for the embedded store",
    )


def _unreachable(uri: str, why: str) -> InputError:
    start = "start it (mlflow server --port 5000)" if is_server(uri) else "start it"
    return InputError(
        f"the tracking server cannot be reached: {redact_text(why)}",
        field=VARIABLE,
        found=redact_text(uri),
        remedy=f"{start}, correct the address, or unset it for the embedded store",
    )
