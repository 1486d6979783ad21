"""Downloads exports from MLflow by the address of a registered model or of a run's artifact."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.settings import redact_text
from debate_judge.runs.export.manifest import Export, read
from debate_judge.runs.mlflow_setup import prepare_mlflow, sqlite_file, use_tracking_uri

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


def fetch(address: str, judges: Collection[str] = (), store: MLflowStore = DEFAULT_STORE) -> Export:
    """Read an export from MLflow.

    The tracking store is `store.uri`, else the one set for MLflow (`mlflow.set_tracking_uri`, MLFLOW_TRACKING_URI),
    else the embedded one in `store.folder`.

    Args:
        address: `models:/NAME/VERSION`, `models:/NAME@ALIAS`, `runs:/RUN/PATH`, or the id of a compile's run.
        judges: As in `runs.export.folder.load`.
        store: Where MLflow's models and runs are looked up.

    Raises:
        InputError: There is no such store, it has nothing at this address, or no export there.
    """
    run = _RUN_ADDRESS.fullmatch(address)
    uri = address if run is None else f"runs:/{run[1]}/{run[2] or _EXPORT_ARTIFACT}"
    # An export is read into memory, so that the copy can be deleted.
    with _download(uri, "a store with the run or the registered model of a compile", store) as path:
        return read(path, judges)


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
