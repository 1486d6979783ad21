"""MLflow's configuration in this project's processes: no telemetry, no log noise, short timeouts."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from urllib.parse import unquote, urlsplit

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


_LOCK = RLock()


@contextmanager
def use_tracking_uri(uri: str, *, registry: bool = True) -> Iterator[None]:
    """Set MLflow's tracking URI, and unless `registry` is false its registry URI, inside the block.

    MLflow has one URI per process, so blocks of several threads wait for each other, and the old URI is restored.
    """
    from mlflow.tracking._model_registry import utils as models
    from mlflow.tracking._tracking_service import utils as runs

    with _LOCK:
        previous = runs._tracking_uri, models._registry_uri
        try:
            # Not `mlflow.set_tracking_uri`, which also sets environment variables, while other threads read them.
            runs._tracking_uri = uri
            if registry:
                models._registry_uri = uri
            yield
        finally:
            runs._tracking_uri, models._registry_uri = previous
