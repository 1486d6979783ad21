"""MLflow in this project's processes: its settings, its tracking stores, and downloads from them.

A store is the embedded SQLite database, an MLflow server, or another database. Its address, and a server's version and
login, are checked within seconds, before any LM call is paid for: with MLflow's own retries it takes minutes until a
server that does not answer is reported. Nothing that is set for MLflow here stays set.
"""

from __future__ import annotations

import glob
import logging
import os
import re
import socket
import sqlite3
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.settings import redact_text
from debate_judge.runs.command_line import environment

VARIABLE = "MLFLOW_TRACKING_URI"
"""The environment variable with the tracking URI."""

DEFAULT_FOLDER = Path("runs/store")
"""The folder of the embedded store of compiles with the default `--store`, below the working directory."""

_DEFAULTS = {
    # No usage statistics leave the machine, and stdout and stderr stay ours.
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    # A model takes its requirements from us, not from a lock file in the working directory.
    "MLFLOW_UV_AUTO_DETECT": "false",
    # A server that dies during a run costs seconds, not the four minutes of MLflow's defaults.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}

_TIMEOUT = 15.0
"""Seconds in which a server or a locked database must answer."""

_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}

_LOGIN = (
    "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD (or MLFLOW_TRACKING_TOKEN) to a login that may create "
    "experiments and register models"
)


def prepare_mlflow() -> None:
    """Set these defaults and import MLflow; environment variables that are already set are kept."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    import mlflow  # noqa: F401 - configures its loggers when it is imported

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(os.environ["MLFLOW_LOGGING_LEVEL"])
    # It warns if parameters of the run have the same names as settings of the model.
    logging.getLogger("mlflow.models.model").setLevel(logging.ERROR)


def sqlite_file(uri: str) -> Path | None:
    """The database file of a `sqlite:///FILE` URI; None for any other URI."""
    scheme, _, rest = uri.partition(":///")
    file = unquote(rest.partition("?")[0])
    return Path(file) if file and scheme.partition("+")[0] == "sqlite" else None


def embedded_uri(folder: Path) -> str:
    """The tracking URI of the embedded store in a folder."""
    return f"sqlite:///{(folder / 'mlflow.db').resolve()}"


def is_server(uri: str) -> bool:
    """Whether the store is an MLflow server, which has a UI and keeps artifacts itself."""
    return uri.partition(":")[0].strip().lower() in ("http", "https")


def split_login(uri: str) -> tuple[str, dict[str, str]]:
    """A server's URI without the login in it, and the environment variables from which MLflow takes the login.

    So the password is in no address that MLflow logs, prints or stores.
    """
    parts = urlsplit(uri)
    login, separator, host = parts.netloc.rpartition("@")
    if not is_server(uri) or not separator:
        return uri, {}
    user, _, password = login.partition(":")
    variables = {"MLFLOW_TRACKING_USERNAME": unquote(user), "MLFLOW_TRACKING_PASSWORD": unquote(password)}
    return urlunsplit(parts._replace(netloc=host)), variables


_LOCK = RLock()


@contextmanager
def use_tracking_uri(
    uri: str, *, registry: bool = True, experiment_id: str | None = None, runs: Sequence[Any] = ()
) -> Iterator[None]:
    """Direct MLflow's fluent functions to a store inside the block; afterwards all is as the caller had it.

    MLflow has one URI per process, so blocks of several threads wait for each other.

    Args:
        uri: Tracking URI; may hold a login.
        registry: Whether it is the registry's URI as well.
        experiment_id: The active experiment.
        runs: The active runs, the innermost last; more may be started and ended in the block.
    """
    from mlflow.tracking import fluent
    from mlflow.tracking._model_registry import utils as models
    from mlflow.tracking._tracking_service import utils as tracking

    address, login = split_login(uri)
    # `start_run` would continue the run that MLFLOW_RUN_ID names.
    with _LOCK, environment({"MLFLOW_RUN_ID": None, **login}):
        before = tracking._tracking_uri, models._registry_uri, fluent._active_experiment_id
        active, last = fluent._active_run_stack.get(), fluent._last_active_run_id.get()
        try:
            # Not `mlflow.set_tracking_uri`, which also sets environment variables, while other threads read them.
            tracking._tracking_uri, fluent._active_experiment_id = address, experiment_id
            if registry:
                models._registry_uri = address
            fluent._active_run_stack.set(list(runs))
            yield
        finally:
            tracking._tracking_uri, models._registry_uri, fluent._active_experiment_id = before
            fluent._active_run_stack.set(active)
            fluent._last_active_run_id.set(last)


# --- opening a store ---


class TrackingStore(NamedTuple):
    """An open store with its experiment."""

    uri: str
    experiment_id: str


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
        problem, remedy = "another process has held the tracking store's lock for two minutes", "wait for it, or end it"
        raise InputError(problem, file=lock, remedy=remedy) from error
    if found.lifecycle_stage != "active":
        remedy = f"mlflow experiments restore --experiment-id {found.experiment_id}, with {VARIABLE} set"
        raise _unusable(uri, f"its experiment {experiment!r} has been deleted", remedy)
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
        remedy = _LOGIN if refused else f"repair it as the message says, or unset {VARIABLE} for the embedded store"
        raise _unusable(uri, str(error).strip().splitlines()[0], remedy) from error


def _create_tables(uri: str) -> None:
    """Create the tables of a new SQLite database in a temporary file and rename it.

    MLflow creates them in many small steps, which take a second; a process that is killed in between leaves a database
    that nobody can open any more.
    """
    from mlflow import MlflowClient

    file = sqlite_file(uri)
    # Parameters after the file would not stand at the end of the URI of the temporary one.
    if file is None or "?" in uri or not file.is_file() or file.stat().st_size:
        return
    for leftover in file.parent.glob(f"{glob.escape(file.name)}.*.new*"):
        leftover.unlink()
    # A new name each time: MLflow remembers by name which databases have their tables.
    suffix = f".{uuid.uuid4().hex}.new"
    MlflowClient(tracking_uri=uri + suffix).search_experiments(max_results=1)
    if not file.stat().st_size:
        os.replace(f"{file}{suffix}", file)


def check_address(uri: str) -> None:
    """Check that an address is well-formed and answers, and that a server is MLflow 3 and takes the login.

    Raises:
        InputError: It is malformed, does not answer, or names a server or a database that cannot be used.
    """
    try:
        parts = urlsplit(uri)
        host, port, file = parts.hostname, parts.port, sqlite_file(uri)
    except ValueError:
        host = port = file = None
    scheme = uri.partition(":")[0].partition("+")[0]
    try:
        if host and is_server(uri):
            _check_server(uri)
        elif host and scheme in _PORTS:
            socket.create_connection((host, port or _PORTS[scheme]), _TIMEOUT).close()
        elif file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(file, timeout=_TIMEOUT)) as database:
                database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)):
                raise PermissionError("it cannot be written")
        elif not uri.startswith("databricks"):
            raise ValueError("expected http(s)://HOST:PORT, sqlite:///FILE, postgresql://…, mysql://… or databricks")
    except InputError:
        raise
    except (OSError, ValueError, sqlite3.Error) as error:
        raise _unusable(uri, str(error)) from error


def _check_server(uri: str) -> None:
    """Ask for the server's version, and with the login for its experiments, by MLflow's own client."""
    prepare_mlflow()
    from mlflow.exceptions import MlflowException
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request

    address, _ = split_login(uri)
    responses = []
    try:
        with use_tracking_uri(uri):
            for path in ("/version", "/api/2.0/mlflow/experiments/search?max_results=1"):
                options: dict[str, Any] = {"max_retries": 0, "timeout": _TIMEOUT, "raise_on_status": False}
                responses.append(http_request(get_default_host_creds(address), path, "GET", **options))
    except MlflowException as error:
        raise OSError("timed out" if "imed out" in str(error) else str(error.__cause__ or error)) from error
    version, experiments = responses
    if experiments.status_code in (401, 403):
        raise _unusable(uri, f"it wants a login, or another one (HTTP {experiments.status_code})", _LOGIN)
    major = version.text.strip().partition(".")[0]
    if version.status_code == 200 and major.isdigit() and int(major) < 3:
        # It has no logged models, which a compile's judge becomes.
        remedy = "update it to MLflow 3 or later, or unset the variable for the embedded store"
        raise _unusable(uri, f"it is MLflow {version.text.strip()}, which cannot hold the judge", remedy)
    if experiments.status_code != 200 or not experiments.text.strip().startswith("{"):
        raise OSError(f"it answers as no MLflow server does (HTTP {experiments.status_code})")


def _unusable(uri: str, why: str, remedy: str = "") -> InputError:
    start = "start it (mlflow server --port 5000)" if is_server(uri) else "start or repair it"
    return InputError(
        f"the tracking store cannot be used: {redact_text(why.splitlines()[0])}",
        field=VARIABLE,
        found=redact_text(uri),
        remedy=remedy or f"{start}, correct the address, or unset it for the embedded store",
    )


# --- downloads ---

_RUN = re.compile(r"(?:runs:/)?([0-9a-f]{32})(?:/(.+))?")
"""The address of a run or of one of its artifacts."""


@contextmanager
def download(address: str, *, folder: Path = DEFAULT_FOLDER, uri: str | None = None) -> Iterator[Path]:
    """Download an artifact to a temporary folder, which is deleted after the block; yields the path of the copy.

    Args:
        address: `models:/NAME/VERSION`, `models:/NAME@ALIAS`, `runs:/RUN/PATH`, or the id of a compile's run, whose
            export is meant.
        folder: Folder of the embedded store, used if no tracking URI is given or set for MLflow.
        uri: Tracking URI of the store.

    Raises:
        InputError: There is no such store, or it has nothing at this address.
    """
    prepare_mlflow()
    import mlflow
    from mlflow.artifacts import download_artifacts

    run = _RUN.fullmatch(address)
    artifact = address if run is None else f"runs:/{run[1]}/{run[2] or 'export'}"
    # MLflow resolves `models:/` with its global URI, whatever URI a call is given.
    current = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    uri = uri or current or embedded_uri(folder)
    remedy = f"set {VARIABLE} to the store that holds it; the compile printed the address"
    file = sqlite_file(uri)
    # MLflow would create an empty database.
    if file is not None and not file.is_file():
        raise InputError(f"no MLflow store to read {address} from", file=file, expected="a database", remedy=remedy)
    with (
        # A registry of the caller's own stays.
        nullcontext() if uri == current else use_tracking_uri(uri, registry=False),
        tempfile.TemporaryDirectory(prefix="artifact-") as copies,
    ):
        try:
            copy = download_artifacts(artifact_uri=artifact, dst_path=copies)
        except Exception as error:
            problem = f"MLflow could not provide {artifact}: {redact_text(str(error))}"
            raise InputError(problem, field=VARIABLE, found=redact_text(uri), remedy=remedy) from error
        yield Path(copy)
