"""Packs an export into an MLflow model that loads where this project is not installed, and registers it.

The model holds its own copy of the code (`debate_judge` without `optimize`), the export, and pinned requirements;
`runs/integrations/mlflow_model.py` loads it. Nothing is pickled, and no signature is inferred by a run of the model.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import debate_judge
from debate_judge.runs.export.folder import SETTINGS
from debate_judge.runs.export.manifest import Export, read

if TYPE_CHECKING:
    from debate_judge.runs.tracking.store import TrackingStore

_FOLDERS = ("data", "programs", "runs")
"""Packages that scoring needs; it never imports `optimize`."""

_EXCLUDED_PACKAGE = "sample"
"""The package in `data` with the sample's texts, which a model does not need."""

_INPUTS = {
    "source": ("string", True),
    "text": ("string", True),
    "context": ("string", False),
}
"""Column -> type and whether it is required."""

_SCALE_NOTE = (
    "the parameter `scale` is `judge` (default) for the judge's own scores, or `raters` for what the raters would give "
    "on average, by the calibration that the compile fitted"
)
"""What the signature has no place for, in the model's metadata."""

_REQUIREMENTS = (
    *("aiohttp", "dspy", "filelock", "httpx", "mlflow", "numpy", "orjson", "pandas", "psutil", "pydantic", "scipy"),
    *("SQLAlchemy", "tenacity"),
)
"""Imports of every model's code; with further packages of its judges, each is pinned to the installed version."""


_MODEL_CONFIG = dict.fromkeys(SETTINGS)
"""Keys of `model_config` when the model is loaded; None means the environment or else the export decides."""


@dataclass(frozen=True, kw_only=True)
class Registration:
    """How a model is registered."""

    name: str
    """Registered name; characters that are not allowed become hyphens. Its newest version is `models:/NAME/latest`."""
    description: str
    """Description of the registered model."""
    version_description: str
    """Description of this version."""


def log_model(tracking: TrackingStore, export_folder: Path, name: str, registration: Registration | None) -> str:
    """Log an export in the active run, as a folder and as the model `name`, and register the model if asked to; returns
    the model's URI.
    """
    import mlflow
    import pandas as pd
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema
    from mlflow.types.schema import ParamSchema, ParamSpec

    def schema(columns: Mapping[str, tuple[str, bool]]) -> Schema:
        return Schema([ColSpec(kind, column, required=required) for column, (kind, required) in columns.items()])

    mlflow.log_artifacts(str(export_folder), "export")
    export, registered_name = read(export_folder), registration and re.sub(r"[^\w.-]+", "-", registration.name)
    with TemporaryDirectory() as folder, _skip_mlflow_checks():
        package = _copy_code(Path(debate_judge.__file__).parent, Path(folder))
        logged = mlflow.pyfunc.log_model(
            name=name,
            python_model=str(package / "runs" / "integrations" / "mlflow_model.py"),
            artifacts={"export": str(export_folder.resolve())},
            code_paths=[str(package)],
            signature=ModelSignature(
                schema(_INPUTS),
                schema(_outputs(export)),
                ParamSchema([ParamSpec("scale", "string", "judge")]),
            ),
            input_example=pd.DataFrame([_example(export)]),
            model_config=_MODEL_CONFIG,
            model_type="judge",
            metadata={"aspects": list(export.judge.aspects), "scale": _SCALE_NOTE},
            pip_requirements=_pins(export),
            registered_model_name=registered_name,
            await_registration_for=0,
        )
    if registration is None:
        return str(logged.model_uri)
    client, version = tracking.client, str(logged.registered_model_version)
    client.update_registered_model(registered_name, registration.description)
    client.update_model_version(registered_name, version, registration.version_description)
    return f"models:/{registered_name}/{version}"


def _outputs(export: Export) -> dict[str, tuple[str, bool]]:
    """Column -> type and whether it always has a value."""
    outputs: dict[str, tuple[str, bool]] = {}
    for name in export.judge.aspects:
        outputs |= {name: ("double", False), f"{name}_reason": ("string", True), f"{name}_unscored": ("string", True)}
    return outputs


def _example(export: Export) -> dict[str, str]:
    """An invented input row: a model may go where the texts of its compile may not."""
    task = export.judge.task
    return {
        "source": f"Invented {task.source_label}: the ferry crosses the bay in 22 minutes.",
        "text": f"Invented {task.candidate_label}: a crossing takes 22 minutes.",
        "context": f"Invented {task.context_label}: the bay is eight kilometres wide.",
    }


def _pins(export: Export) -> list[str]:
    packages = {name for entry in export.judge.aspects.values() for name in entry.judge.packages}
    # What follows a plus names a build, e.g. for one kind of GPU, that no index may have.
    pins = [f"{name}=={version(name).partition('+')[0]}" for name in sorted({*_REQUIREMENTS, *packages})]
    return pins


@contextmanager
def _skip_mlflow_checks() -> Iterator[None]:
    """Skip two checks of MLflow when it logs a model.

    One compares the pins with the installed packages, from which they were read: 4 s to no effect. The other has the
    model score the input example, which would cost LM calls.
    """
    from mlflow.models import utils
    from mlflow.utils import environment

    checks = (environment, "warn_dependency_requirement_mismatches"), (utils, "_validate_serving_input")
    originals = [getattr(module, name, None) for module, name in checks]
    for module, name in checks:
        setattr(module, name, lambda *args, **kwargs: None)
    try:
        yield
    finally:
        for (module, name), check in zip(checks, originals, strict=True):
            setattr(module, name, check)


def _copy_code(root: Path, folder: Path) -> Path:
    """Copy the code of the package at `root` into `folder`; returns the copy."""
    package = folder / "debate_judge"
    package.mkdir(parents=True)
    shutil.copyfile(root / "__init__.py", package / "__init__.py")
    for name in _FOLDERS:
        shutil.copytree(root / name, package / name, ignore=_non_code)
    return package


def _non_code(folder: str, names: list[str]) -> list[str]:
    """The names in a folder that are neither modules nor packages, for `shutil.copytree` to ignore.

    A folder without `__init__.py` is no package: stores of runs, which may be in the same folder, contain code, too.
    """
    path = Path(folder)
    kept = {name for name in names if name.endswith(".py") or (path / name / "__init__.py").is_file()}
    return [name for name in names if name not in kept or name == _EXCLUDED_PACKAGE]
