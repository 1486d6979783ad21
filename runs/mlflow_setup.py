"""MLflow's configuration in this project's processes: no telemetry, no log noise, short timeouts, nothing left set."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

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
