"""Opens where runs are kept: the embedded SQLite store, another database, or an MLflow server.

What can be found out about an address cheaply is found out before MLflow is imported, because its own
retries take minutes to say that nobody is there.
"""

from __future__ import annotations

import glob
import logging
import os
import shlex
import socket
import sqlite3
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.redaction import clean_text

TIMEOUT = 4.0
"""Seconds that a server is given to answer before a run."""

_DATABASES = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
"""Scheme -> default port."""

_FORMS = "http(s)://HOST:PORT, sqlite:///FILE, postgresql://…, mysql://…, mssql://… or databricks"

_DEFAULTS = {
    # No usage statistics leave the machine, and stdout and stderr stay ours.
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    # A model takes its requirements from us, not from a lock file of the folder that we were started in.
    "MLFLOW_UV_AUTO_DETECT": "false",
    # A server that dies during a run costs seconds, not the four minutes of MLflow's defaults.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}


@dataclass(frozen=True)
class Place:
    """An open store with its experiment."""

    client: Any
    uri: str
    experiment_id: str

    def start_run(self, name: str, tags: Mapping[str, str]) -> str:
        """Start a run and return its id.

        Raises:
            InputError: The store takes no runs.
        """
        with _explained(self.uri):
            run = self.client.create_run(self.experiment_id, run_name=name, tags=dict(tags))
        run_id: str = run.info.run_id
        return run_id

    @property
    def served(self) -> bool:
        """Whether the store is a server, with a UI of its own."""
        return is_server(self.uri)

    @property
    def ui_command(self) -> str:
        """The command that shows a store without a server of its own, ready for any POSIX shell."""
        # The UI imports LiteLLM, which fetches a price list first and, where there is no network, never returns.
        return f"LITELLM_LOCAL_MODEL_COST_MAP=True mlflow ui --backend-store-uri {shlex.quote(clean_text(self.uri))}"


def open_place(uri: str | None, store: Path, experiment: str) -> Place:
    """Open a store and its experiment, making what is absent.

    Args:
        uri: Tracking URI; None for the SQLite database in `store`.
        store: Folder of the embedded database, and of the artifacts of every store without a server.
        experiment: Name of the experiment.

    Raises:
        InputError: The address is malformed, nobody answers there, or the store cannot be used.
    """
    store = store.resolve()
    try:
        store.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"the store's folder cannot be made: {error.strerror}", field="store", found=store) from error
    if uri is None:
        uri = f"sqlite:///{store}/mlflow.db"
    _check(uri)
    prepare_mlflow()
    from filelock import FileLock, Timeout

    lock = store / "mlflow.lock"
    try:
        # Processes that create the tables of one database at the same moment break each other.
        with _explained(uri), FileLock(lock, timeout=120):
            _make_tables(uri)
            return _open(uri, store, experiment)
    except Timeout as error:
        raise InputError(
            "another process has held the tracking store's lock for two minutes",
            file=lock,
            remedy="wait for it, or end it",
        ) from error


@contextmanager
def _explained(uri: str) -> Iterator[None]:
    """Turn what MLflow and its database raise into an error that can be acted on."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError) as error:
        raise InputError(
            "the tracking store cannot be used: " + clean_text(str(error).strip().splitlines()[0]),
            field="tracking URI",
            found=clean_text(uri),
            remedy="mend the store as its message says, or leave the URI out for the embedded store",
        ) from error


def prepare_mlflow() -> None:
    """Set what keeps MLflow quiet and private in this process. Variables that are set already win."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    import mlflow  # noqa: F401 - configures its loggers when it is imported

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(os.environ["MLFLOW_LOGGING_LEVEL"])


def is_server(uri: str) -> bool:
    return urlsplit(uri).scheme in ("http", "https")


def _make_tables(uri: str) -> None:
    """Make the tables of a new SQLite database aside and move them into place.

    They take MLflow a second of small steps, and a process that ends among them leaves a database that it refuses.
    """
    if urlsplit(uri).scheme != "sqlite":
        return
    from mlflow import MlflowClient

    file = Path(unquote(uri.partition(":///")[2]))
    if "?" in uri or not file.is_file() or file.stat().st_size:
        return
    for left in file.parent.glob(f"{glob.escape(file.name)}.*.new*"):
        left.unlink()
    # Under a name of its own, for MLflow remembers what it has seen under a name.
    end = f".{uuid.uuid4().hex}.new"
    MlflowClient(tracking_uri=uri + end).search_experiments(max_results=1)
    if not file.stat().st_size:
        os.replace(f"{file}{end}", file)


def _open(uri: str, store: Path, experiment: str) -> Place:
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    found = client.get_experiment_by_name(experiment)
    if found is None:
        # Else MLflow puts artifacts into ./mlruns of whatever folder the command was started in.
        local = None if is_server(uri) or uri.startswith("databricks") else (store / "artifacts").as_uri()
        try:
            return Place(client, uri, client.create_experiment(experiment, artifact_location=local))
        except MlflowException:
            # Somebody on another machine may have been faster.
            found = client.get_experiment_by_name(experiment)
            if found is None:
                raise
    if found.lifecycle_stage != "active":
        raise InputError(
            f"the experiment {experiment!r} has been deleted in this tracking store",
            found=clean_text(uri),
            remedy=f"mlflow experiments restore --experiment-id {found.experiment_id}, with MLFLOW_TRACKING_URI set",
        )
    return Place(client, uri, found.experiment_id)


def _check(uri: str) -> None:
    """Reject what can be known to fail, within seconds."""
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _malformed(uri) from error
    scheme = parts.scheme.partition("+")[0]
    if scheme in ("http", "https") and host:
        _check_server(uri)
    elif scheme in _DATABASES and host:
        _check_port(uri, host, port or _DATABASES[scheme])
    elif scheme == "sqlite" and uri.startswith(f"{parts.scheme}:///") and len(parts.path) > 1:
        _check_sqlite(Path(unquote(uri.partition(":///")[2])))
    elif not uri.startswith("databricks"):
        raise _malformed(uri)


def _malformed(uri: str) -> InputError:
    return InputError(
        "not a tracking URI",
        field="tracking URI",
        expected=_FORMS,
        found=clean_text(uri),
        remedy="correct it, or leave it out for the embedded store",
    )


def _check_server(uri: str) -> None:
    request = urllib.request.Request(uri.rstrip("/") + "/health", headers={"User-Agent": "debate-judge"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT):
            return
    except urllib.error.HTTPError as error:
        # Anything else than a server error is an answer; a gateway may guard or hide this path.
        if error.code >= 500:
            raise _unreachable(uri, f"it answers HTTP {error.code}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise _unreachable(uri, str(getattr(error, "reason", error)) or type(error).__name__) from error


def _check_port(uri: str, host: str, port: int) -> None:
    try:
        socket.create_connection((host, port), TIMEOUT).close()
    except OSError as error:
        raise _unreachable(uri, str(error)) from error


def _unreachable(uri: str, why: str) -> InputError:
    start = "start it (mlflow server --port 5000)" if is_server(uri) else "start it"
    return InputError(
        f"the tracking server cannot be reached: {clean_text(why)}",
        field="tracking URI",
        found=clean_text(uri),
        remedy=f"{start}, correct the address, or leave it out for the embedded store",
    )


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
