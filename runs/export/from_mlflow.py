"""Exports that are kept in MLflow, fetched by the address of a registered model or of a run's artifact."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.redaction import clean_text
from debate_judge.runs.export.manifest import Export, read
from debate_judge.runs.mlflow_setup import prepare_mlflow, sqlite_file

EMBEDDED = Path("runs/store/mlflow.db")
"""The store that a compile writes to by default, below the folder that it was started in."""

_VARIABLE = "MLFLOW_TRACKING_URI"

_REMEDY = "set MLFLOW_TRACKING_URI to the store that holds it; the compile printed the address"


def fetch(uri: str, judges: Collection[str] = ()) -> Export:
    """Read an export from MLflow.

    The tracking store is the one that MLflow has been told of (`mlflow.set_tracking_uri`, MLFLOW_TRACKING_URI), else
    the embedded one below the working directory.

    Args:
        uri: `models:/NAME/VERSION`, `models:/NAME@ALIAS` or `runs:/RUN/PATH`.
        judges: As in `runs.export.load`.

    Raises:
        InputError: There is no such store, nothing at this address in it, or no export there.
    """
    # The judge is wholly in memory once it is read, so the copy need not stay.
    with _downloaded(uri, "a store with a model that a compile has registered") as place:
        return read(place, judges)


def run_artifact(run_id: str, name: str, folder: Path | None = None) -> str:
    """The text that a run holds as the artifact `name`.

    Args:
        run_id: MLflow's id of the run.
        name: Path of the artifact in the run.
        folder: Folder of an embedded store; None for the tracking store that `fetch` takes.

    Raises:
        InputError: There is no such store, no such run or no such artifact.
    """
    with _downloaded(f"runs:/{run_id}/{name}", f"a store with a run that holds {name}", folder) as place:
        return Path(place).read_text(encoding="utf-8")


@contextmanager
def _downloaded(uri: str, expected: str, folder: Path | None = None) -> Iterator[str]:
    """The place of a copy, for as long as the block lasts."""
    prepare_mlflow()
    from mlflow.artifacts import download_artifacts

    with _store(uri, folder) as store, tempfile.TemporaryDirectory(prefix="artifact-") as copies:
        try:
            place = download_artifacts(artifact_uri=uri, dst_path=copies)
        except Exception as error:
            raise InputError(
                f"MLflow could not give {uri}: {clean_text(str(error))}",
                field="tracking URI",
                expected=expected,
                found=clean_text(store),
                remedy=_REMEDY,
            ) from error
        yield place


@contextmanager
def _store(uri: str, folder: Path | None) -> Iterator[str]:
    """The URI of the store, which is MLflow's for as long as the block lasts.

    MLflow resolves `models:/` with its global URI, whichever one a call is given, and makes an empty database where it
    finds none: by default in the working directory.
    """
    import mlflow

    before: str | None = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    embedded = EMBEDDED if folder is None else folder / EMBEDDED.name
    store = before if before is not None and folder is None else f"sqlite:///{embedded.resolve()}"
    file = sqlite_file(store)
    if file is not None and not file.is_file():
        raise InputError(f"no MLflow store to take {uri} from", file=file, expected="a database", remedy=_REMEDY)
    if store == before:
        yield store
        return
    # Setting it sets the variable as well, from which MLflow then reads it.
    variable = os.environ.get(_VARIABLE)
    mlflow.set_tracking_uri(store)
    try:
        yield store
    finally:
        mlflow.set_tracking_uri(before if variable is None else None)
        if variable is not None:
            os.environ[_VARIABLE] = variable
