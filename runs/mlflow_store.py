"""MLflow's configuration in this project's processes: no telemetry, no log noise, short timeouts, nothing left set."""

from __future__ import annotations

import glob
import logging
import os
import re
import shlex
import socket
import sqlite3
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.settings import redact_text
from debate_judge.runs.command_line import environment

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
    parts = urlsplit(uri)
    if parts.scheme.partition("+")[0] != "sqlite" or not uri.startswith(f"{parts.scheme}:///") or len(parts.path) < 2:
        return None
    return Path(unquote(uri.partition(":///")[2]))


def split_login(uri: str) -> tuple[str, dict[str, str]]:
    """A server's URI without the login in it, and the environment variables from which MLflow takes the login.

    So the password is in no address that MLflow logs, prints or stores.
    """
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or "@" not in parts.netloc:
        return uri, {}
    login, _, host = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    names = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
    return urlunsplit(parts._replace(netloc=host)), dict(zip(names, map(unquote, (user, password)), strict=True))


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


DEFAULT_DATABASE = Path("runs/store/mlflow.db")
"""The MLflow database of compiles with the default `--store`, below the working directory."""


_REGISTERED_MODEL = re.compile(r"models:/(.+)")

_RUN_ADDRESS = re.compile(r"(?:runs:/)?([0-9a-f]{32})(?:/(.+))?")

_EXPORT_ARTIFACT = "export"
"""The artifact of a compile's run that is its export."""

_REMEDY = "set MLFLOW_TRACKING_URI to the store that holds it; the compile printed the address"


@dataclass(frozen=True)
class MLflowStore:
    """Where MLflow's models and runs are looked up."""

    uri: str | None = None
    """Tracking URI; None for the one set for MLflow."""
    folder: Path = DEFAULT_DATABASE.parent
    """Folder of the embedded store, used if no tracking URI is given or set."""


DEFAULT_STORE = MLflowStore()


def embedded_uri(folder: Path) -> str:
    """The tracking URI of the embedded store in a folder."""
    return f"sqlite:///{(folder / DEFAULT_DATABASE.name).resolve()}"


def in_mlflow(address: str) -> bool:
    """Whether this is an address of an export in MLflow: `models:/…`, `runs:/…`, or the id of a run."""
    return bool(
        _REGISTERED_MODEL.fullmatch(address) or (_RUN_ADDRESS.fullmatch(address) and not Path(address).exists())
    )


@contextmanager
def download(address: str, store: MLflowStore = DEFAULT_STORE) -> Iterator[str]:
    """Download an export from MLflow to a temporary folder, which is deleted after the block; yields the path.

    The tracking store is `store.uri`, else the one set for MLflow (`mlflow.set_tracking_uri`, MLFLOW_TRACKING_URI),
    else the embedded one in `store.folder`.

    Args:
        address: `models:/NAME/VERSION`, `models:/NAME@ALIAS`, `runs:/RUN/PATH`, or the id of a compile's run.
        store: Where MLflow's models and runs are looked up.

    Raises:
        InputError: There is no such store, or it has nothing at this address.
    """
    run = _RUN_ADDRESS.fullmatch(address)
    uri = address if run is None else f"runs:/{run[1]}/{run[2] or _EXPORT_ARTIFACT}"
    with _download(uri, "a store with the run or the registered model of a compile", store) as path:
        yield path


def run_artifact(run_id: str, name: str, folder: Path | None = None) -> str:
    """The text of a run's artifact; from the embedded store in `folder`, by default from the store of `fetch`."""
    store = DEFAULT_STORE if folder is None else MLflowStore(embedded_uri(folder))
    with _download(f"runs:/{run_id}/{name}", f"a store with a run that holds {name}", store) as path:
        return Path(path).read_text(encoding="utf-8")


@contextmanager
def _download(uri: str, expected: str, store: MLflowStore) -> Iterator[str]:
    """Download to a temporary folder, which is deleted after the block; yields the path of the copy."""
    prepare_mlflow()
    from mlflow.artifacts import download_artifacts

    with _tracking_uri(uri, store) as tracking_uri, tempfile.TemporaryDirectory(prefix="artifact-") as copies:
        try:
            copy = download_artifacts(artifact_uri=uri, dst_path=copies)
        except Exception as error:
            raise InputError(
                f"MLflow could not provide {uri}: {redact_text(str(error))}",
                field="MLFLOW_TRACKING_URI",
                expected=expected,
                found=redact_text(tracking_uri),
                remedy=_REMEDY,
            ) from error
        yield copy


@contextmanager
def _tracking_uri(uri: str, store: MLflowStore) -> Iterator[str]:
    """Set MLflow's tracking URI during the block; yields it.

    MLflow resolves `models:/` with its global URI, whatever URI a call is given, and creates an empty database if there
    is none, by default in the working directory.
    """
    import mlflow

    previous_uri: str | None = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    tracking_uri = store.uri or previous_uri or embedded_uri(store.folder)
    file = sqlite_file(tracking_uri)
    if file is not None and not file.is_file():
        raise InputError(f"no MLflow store to read {uri} from", file=file, expected="a database", remedy=_REMEDY)
    if tracking_uri == previous_uri:
        yield tracking_uri
        return
    with use_tracking_uri(tracking_uri, registry=False):
        yield tracking_uri
