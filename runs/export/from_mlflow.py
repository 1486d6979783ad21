"""Exports that are kept in MLflow, fetched by the address of a registered model or of a run's artifact."""

from __future__ import annotations

import tempfile
from pathlib import Path

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.redaction import clean_text
from debate_judge.runs.export.manifest import Export, read
from debate_judge.runs.mlflow_setup import prepare_mlflow, sqlite_file

EMBEDDED = Path("runs/store/mlflow.db")
"""The store that a compile writes to by default, below the folder that it was started in."""

_REMEDY = "set MLFLOW_TRACKING_URI to the store that holds it; the compile printed the address"


def fetch(uri: str) -> Export:
    """Read an export from MLflow.

    The tracking store is the one that MLflow has been told of (`mlflow.set_tracking_uri`, MLFLOW_TRACKING_URI), else
    the embedded one below the working directory.

    Args:
        uri: `models:/NAME/VERSION`, `models:/NAME@ALIAS` or `runs:/RUN/PATH`.

    Raises:
        InputError: There is no such store, nothing at this address in it, or no export there.
    """
    store = _store(uri)
    from mlflow.artifacts import download_artifacts

    # The judge is wholly in memory once it is read, so the copy need not stay.
    with tempfile.TemporaryDirectory(prefix="judge-") as folder:
        try:
            place = download_artifacts(artifact_uri=uri, dst_path=folder, tracking_uri=store)
        except Exception as error:
            raise InputError(
                f"MLflow could not give {uri}: {clean_text(str(error))}",
                field="tracking URI",
                expected="a store with a model that optimize/compile.py has registered",
                found=clean_text(store),
                remedy=_REMEDY,
            ) from error
        return read(place)


def _store(uri: str) -> str:
    """URI of the tracking store, which MLflow would create empty if it were absent."""
    prepare_mlflow()
    import mlflow

    store = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else f"sqlite:///{EMBEDDED.resolve()}"
    file = sqlite_file(store)
    if file is not None and not file.is_file():
        raise InputError(f"no MLflow store to take {uri} from", file=file, expected="a database", remedy=_REMEDY)
    return store
