"""Packs an export into an MLflow model that loads where this project is not installed, and registers it.

The model holds its own copy of the code (`debate_judge` without `optimize`), the export, and pinned requirements;
`runs/tracking/pyfunc.py` is how it is loaded. Nothing is pickled and nothing is inferred by running it.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import debate_judge
from debate_judge.runs.export.manifest import Export, read
from debate_judge.runs.export.process import SETTINGS
from debate_judge.runs.tracking.champion import ALIAS, Challenger, challenge

if TYPE_CHECKING:
    from debate_judge.runs.tracking.store import TrackingStore

logger = logging.getLogger(__name__)

_FOLDERS = ("data", "programs", "runs")
"""What scoring needs of the package; it never imports `optimize`."""

_LEFT_OUT = "sample"
"""The package in `data` whose texts need not travel with a model."""

_INPUTS = {
    "source": ("string", True),
    "text": ("string", True),
    "context": ("string", False),
    "aspect": ("string", False),
}
"""Column -> type and whether it is required."""

_OUTPUTS = {
    "aspect": ("string", True),
    "score": ("double", False),
    "judge_score": ("double", False),
    "unscored": ("string", False),
    "reason": ("string", True),
    # A whole number, but in Spark MLflow cannot make a column of them with a null in it.
    "rounds": ("double", False),
    "stop_reason": ("string", False),
    "calls": ("double", True),
    "together": ("long", True),
    "joint": ("long", True),
}
"""Column -> type and whether it always has a value, in the layout `rows`."""

_USE = {
    "rows": (
        "An input row that names an aspect gives one output row; one whose aspect is absent, null or empty gives one "
        "for each aspect of the judge, in the order of `aspects`. Output rows follow the order of the input rows and "
        "repeat their index."
    ),
    "params": (
        "scale: `judge` (default) for the judge's own scores, `raters` for what the raters would give on average, by "
        "the map that the compile fitted; `judge_score` is the judge's own in either case. layout: `rows` (default) as "
        "above, or `columns`, which Spark needs: each input row gives one output row with a column of scores for each "
        "aspect, `unscored` (reasons, else empty) and `calls`."
    ),
}
"""What the signature cannot say, kept in the model's metadata."""

_REQUIREMENTS = (
    *("aiohttp", "dspy", "filelock", "httpx", "mlflow", "numpy", "orjson", "pandas", "psutil", "pydantic", "scipy"),
    *("SQLAlchemy", "tenacity"),
)
"""What the code of every model imports; with what its judges need besides, each is pinned to the version here."""

_TEAM = "psycopg"
"""The driver of the extra `team`, by which a served judge shares its replies if DEBATE_REPLIES is set."""

_CONFIG = dict.fromkeys(SETTINGS)
"""What can be given when the model is loaded; None is what the environment or else the export says."""

_PARAMETERS = {"scale": "judge", "layout": "rows"}
"""Parameter of a prediction -> its default."""


@dataclass(frozen=True, kw_only=True)
class Registration:
    """How a model is entered into the registry."""

    name: str
    """Registered name; what is not allowed there becomes a hyphen. Its newest version is `models:/NAME/latest`."""
    about: str
    """Description of the registered model."""
    version: str
    """Description of this version."""
    challenge: Challenger
    """What it is compared with the champion by."""


def log_model(place: TrackingStore, run_id: str, export: Path, name: str, registration: Registration | None) -> str:
    """Keep an export in the active run, as a folder and as the model `name`, and register the model if it is to be;
    returns
    the model's URI.
    """
    import mlflow
    import pandas as pd
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema
    from mlflow.types.schema import ParamSchema, ParamSpec

    def schema(columns: Mapping[str, tuple[str, bool]]) -> Schema:
        return Schema([ColSpec(kind, column, required=required) for column, (kind, required) in columns.items()])

    mlflow.log_artifacts(str(export), "export")
    read_export, registered = read(export), registration and re.sub(r"[^\w.-]+", "-", registration.name)
    with TemporaryDirectory() as folder, _unchecked():
        package = _staged(Path(debate_judge.__file__).parent, Path(folder))
        logged = mlflow.pyfunc.log_model(
            name=name,
            python_model=str(package / "runs" / "tracking" / "pyfunc.py"),
            artifacts={"export": str(export.resolve())},
            code_paths=[str(package)],
            signature=ModelSignature(
                schema(_INPUTS),
                schema(_OUTPUTS),
                ParamSchema([ParamSpec(parameter, "string", usual) for parameter, usual in _PARAMETERS.items()]),
            ),
            input_example=pd.DataFrame([_example(read_export)]),
            model_config=_CONFIG,
            model_type="judge",
            metadata={"aspects": list(read_export.judge.aspects), **_USE},
            pip_requirements=_pins(read_export),
            registered_model_name=registered,
            await_registration_for=0,
        )
    if registration is None:
        return str(logged.model_uri)
    client, version = place.client, str(logged.registered_model_version)
    client.update_registered_model(registered, registration.about)
    client.update_model_version(registered, version, registration.version)
    decided = challenge(place, str(registered), version, registration.challenge)
    client.set_tag(run_id, ALIAS, decided)
    logger.info(decided)
    return f"models:/{registered}/{version}"


def _example(export: Export) -> dict[str, str]:
    """An invented input row: a model goes where the texts that it was compiled on may not."""
    task = export.judge.task
    return {
        "source": f"Invented {task.source_label}: the ferry crosses the bay in 22 minutes.",
        "text": f"Invented {task.candidate_label}: a crossing takes 22 minutes.",
        "context": f"Invented {task.context_label}: the bay is eight kilometres wide.",
        "aspect": next(iter(export.judge.aspects)),
    }


def _pins(export: Export) -> list[str]:
    packages = {name for chosen in export.judge.aspects.values() for name in chosen.judge.packages}
    # What follows a plus names a build, e.g. for one kind of GPU, that no index may have.
    pins = [f"{name}=={version(name).partition('+')[0]}" for name in sorted({*_REQUIREMENTS, *packages})]
    with suppress(PackageNotFoundError):
        pins.append(f"{_TEAM}[binary]=={version(_TEAM)}")
    return pins


@contextmanager
def _unchecked() -> Iterator[None]:
    """Spare what MLflow tries on a model that it logs.

    It compares the pins with what is installed, which lists every file of every package for 4 s and cannot find
    anything, because the pins were read from there; and it has the model score the example, which would pay for a call.
    """
    from mlflow.models import utils
    from mlflow.utils import environment

    checks = (environment, "warn_dependency_requirement_mismatches"), (utils, "_validate_serving_input")
    usual = [getattr(module, name, None) for module, name in checks]
    for module, name in checks:
        setattr(module, name, lambda *args, **kwargs: None)
    try:
        yield
    finally:
        for (module, name), check in zip(checks, usual, strict=True):
            setattr(module, name, check)


def _staged(root: Path, folder: Path) -> Path:
    """Copy the code of the package at `root` into `folder`; returns the copy."""
    package = folder / "debate_judge"
    package.mkdir(parents=True)
    shutil.copyfile(root / "__init__.py", package / "__init__.py")
    for name in _FOLDERS:
        shutil.copytree(root / name, package / name, ignore=_no_code)
    return package


def _no_code(folder: str, names: list[str]) -> list[str]:
    """Of the names in a folder what is no module and no package of modules.

    A folder without `__init__.py` is no package: stores of runs, which may lie beside the code, hold code as well.
    """
    path = Path(folder)
    kept = {name for name in names if name.endswith(".py") or (path / name / "__init__.py").is_file()}
    return [name for name in names if name not in kept or name == _LEFT_OUT]
