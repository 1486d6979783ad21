"""Packs an export into an MLflow model that loads where this project is not installed, and registers it.

The model holds its own copy of the code (`debate_judge` without `optimize`), the export, and pinned requirements;
`runs/tracking/pyfunc.py` is how it is loaded. Nothing is pickled and nothing is inferred by running it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import debate_judge

if TYPE_CHECKING:
    from debate_judge.runs.tracking.store import Place

_FOLDERS = ("data", "programs", "runs")
"""What scoring needs of the package; `optimize` stays at home."""

_LEFT_OUT = ("runs/store", "data/sample")

_INPUTS = {
    "source": ("string", True),
    "text": ("string", True),
    "context": ("string", False),
    "aspect": ("string", False),
}
"""Column -> type and whether it is required."""

_OUTPUTS = {
    "score": ("double", False),
    "unscored": ("string", False),
    "rounds": ("long", False),
    "stop_reason": ("string", False),
    "calls": ("long", True),
}

_REQUIREMENTS = ("aiohttp", "dspy", "mlflow", "numpy", "orjson", "pandas", "scipy", "tqdm")
"""What the code of every model imports; with what its judges need besides, each is pinned to the version here."""


_CONFIG = {"lm": None, "api_base": None, "concurrency": 16}
"""What can be overridden when the model is loaded; None is what the export says."""


def log_model(
    place: Place, run_id: str, export: Path, name: str, registered_name: str, example: Sequence[Mapping[str, object]]
) -> str:
    """Keep an export in a run, as a folder and as a model, and register the model; return its registry URI.

    Args:
        place: The open store.
        run_id: The run that made the export.
        export: Folder that `runs.export.folder.save` wrote.
        name: Name of the model in the run.
        registered_name: Name in the registry; what is not allowed there becomes a hyphen.
        example: Input rows, kept as the model's example.
    """
    from mlflow.entities import LoggedModelOutput

    client = place.client
    client.log_artifacts(run_id, str(export), "export")
    logged = client.create_logged_model(place.experiment_id, name=name, source_run_id=run_id, model_type="judge")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        save_model(path, export, example, logged=logged, run_id=run_id)
        client.log_model_artifacts(logged.model_id, str(path))
    client.finalize_logged_model(logged.model_id, "READY")
    client.log_outputs(run_id, [LoggedModelOutput(logged.model_id, 0)])
    return _register(place, re.sub(r"[^\w.-]+", "-", registered_name), logged, run_id)


def save_model(
    path: Path, export: Path, example: Sequence[Mapping[str, object]], *, logged: Any = None, run_id: str | None = None
) -> None:
    """Write the model folder.

    Args:
        path: Folder to make.
        export: Folder that `runs.export.folder.save` wrote.
        example: Input rows.
        logged: The store's record that the folder belongs to, if there is one.
        run_id: The run that made the export, if there is one.
    """
    import mlflow.pyfunc
    import pandas as pd
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, Schema

    def schema(columns: Mapping[str, tuple[str, bool]]) -> Schema:
        return Schema([ColSpec(kind, name, required=required) for name, (kind, required) in columns.items()])

    record = Model(run_id=run_id)
    if logged is not None:
        record = Model(
            artifact_path=logged.artifact_location,
            run_id=run_id,
            model_uuid=logged.model_id,
            model_id=logged.model_id,
        )
    with TemporaryDirectory() as folder, _pins_unchecked():
        package = _staged(Path(debate_judge.__file__).parent, Path(folder))
        mlflow.pyfunc.save_model(
            path,
            python_model=str(package / "runs" / "tracking" / "pyfunc.py"),
            artifacts={"export": str(export.resolve())},
            code_paths=[str(package)],
            signature=ModelSignature(schema(_INPUTS), schema(_OUTPUTS)),
            input_example=pd.DataFrame(list(example)),
            model_config=_CONFIG,
            pip_requirements=_pins(export),
            mlflow_model=record,
        )


def _pins(export: Path) -> list[str]:
    from debate_judge.runs.export.manifest import read

    own = {name for chosen in read(export).judge.aspects.values() for name in chosen.judge.packages}
    # What follows a plus names a build, e.g. for one kind of GPU, that no index may have.
    return [f"{name}=={version(name).partition('+')[0]}" for name in sorted({*_REQUIREMENTS, *own})]


@contextmanager
def _pins_unchecked() -> Iterator[None]:
    """Spare MLflow's comparison of the pins with what is installed.

    It lists every file of every package, 4 s of a compile, and cannot find anything: the pins were read from
    what is installed.
    """
    from mlflow.utils import environment

    name = "warn_dependency_requirement_mismatches"
    check = getattr(environment, name, None)
    setattr(environment, name, lambda requirements: None)
    try:
        yield
    finally:
        setattr(environment, name, check)


def _staged(root: Path, folder: Path) -> Path:
    """Copy the code of the package at `root` into `folder`, without the runs and the sample that lie beside it."""
    package = folder / "debate_judge"
    left_out = [root / name for name in _LEFT_OUT]
    for file in [root / "__init__.py", *(f for name in _FOLDERS for f in (root / name).rglob("*.py"))]:
        if file.parent.name == "__pycache__" or any(file.is_relative_to(place) for place in left_out):
            continue
        copy = package / file.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    return package


def _register(place: Place, name: str, logged: Any, run_id: str) -> str:
    from mlflow.exceptions import MlflowException

    client = place.client
    try:
        client.create_registered_model(name, description="Judges compiled by debate; one version a compile.")
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    number = client.create_model_version(
        name, logged.artifact_location, run_id, model_id=logged.model_id, await_creation_for=0
    ).version
    # How the UI gets from the model of a run to its place in the registry.
    link = json.dumps([{"name": name, "version": number}])
    client.set_logged_model_tags(logged.model_id, {"mlflow.modelVersions": link})
    return f"models:/{name}/{number}"
