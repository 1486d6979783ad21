"""What a run in MLflow has besides params and metrics: the judge as a model, its prompts, the data sets.

The model loads where this project is not installed: it holds its own copy of the code (`debate_judge` without
`optimize`), the export, and pinned requirements; `runs/integrations/mlflow_model.py` loads it. Nothing is pickled, and
no signature is inferred by a run of the model.

The prompt `FAMILY.ASPECT.ROLE`, where FAMILY is the registered model's name, gets a new version whenever a compile
changes the instructions; its alias with the judge's name points to the version that this judge uses, as in
`prompts:/debate-summarization.coherence.scorer@NAME`.
"""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import debate_judge
from debate_judge.programs.lm.settings import redact_text
from debate_judge.runs.export.folder import SETTINGS
from debate_judge.runs.export.manifest import Export, read

if TYPE_CHECKING:
    from debate_judge.data.schema import Corpus

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


def log_model(export_folder: Path, name: str, registration: Registration | None) -> str:
    """Log an export in the active run, as the folder `export` and as the model `name`, and register the model if asked
    to; returns the model's URI.
    """
    import mlflow
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema
    from mlflow.types.schema import ParamSchema, ParamSpec

    def schema(columns: Mapping[str, tuple[str, bool]]) -> Schema:
        return Schema([ColSpec(kind, column, required=required) for column, (kind, required) in columns.items()])

    mlflow.log_artifacts(str(export_folder), "export")
    export, registered = read(export_folder), registration and registered_name(registration.name)
    with TemporaryDirectory() as folder, warnings.catch_warnings(), _without_messages():
        # Without an input example: MLflow would have the model score it, which costs LM calls.
        warnings.filterwarnings("ignore", "(?s).*An input example was not provided")
        package = _copy_code(Path(debate_judge.__file__).parent, Path(folder))
        logged = mlflow.pyfunc.log_model(
            name=name,
            python_model=str(package / "runs" / "integrations" / "mlflow_model.py"),
            artifacts={"export": str(export_folder.resolve())},
            code_paths=[str(package)],
            signature=ModelSignature(
                schema(_INPUTS), schema(_outputs(export)), ParamSchema([ParamSpec("scale", "string", "judge")])
            ),
            model_config=_MODEL_CONFIG,
            model_type="judge",
            metadata={"aspects": list(export.judge.aspects), "scale": _SCALE_NOTE},
            pip_requirements=_pins(export),
            registered_model_name=registered,
            await_registration_for=0,
        )
    if registration is None:
        return str(logged.model_uri)
    client, version = mlflow.MlflowClient(), str(logged.registered_model_version)
    client.update_registered_model(registered, registration.description)
    client.update_model_version(registered, version, registration.version_description)
    return f"models:/{registered}/{version}"


@contextmanager
def _without_messages() -> Iterator[None]:
    """MLflow prints that it registers a model, whatever its logging level."""
    # When this module is first imported, it ends with messages enabled.
    import mlflow.types.responses  # noqa: F401
    from mlflow.utils import logging_utils

    stream = logging_utils.MLFLOW_LOGGING_STREAM
    enabled, stream.enabled = stream.enabled, False
    try:
        yield
    finally:
        stream.enabled = enabled


def require_registrable(registration_name: str) -> None:
    """Ask before the work for the right to write to a registered model that exists; `log_model` would find out after
    it.
    """
    import mlflow
    from mlflow.exceptions import MlflowException

    client, name = mlflow.MlflowClient(), registered_name(registration_name)
    try:
        description = client.get_registered_model(name).description
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
    else:
        client.update_registered_model(name, description)


def registered_name(text: str) -> str:
    """`text` as a registered model's name: characters that are not allowed become hyphens."""
    return re.sub(r"[^\w.-]+", "-", text)


def _outputs(export: Export) -> dict[str, tuple[str, bool]]:
    """Column -> type and whether it always has a value."""
    outputs: dict[str, tuple[str, bool]] = {}
    for name in export.judge.aspects:
        outputs |= {name: ("double", False), f"{name}_reason": ("string", True), f"{name}_unscored": ("string", True)}
    return outputs


def _pins(export: Export) -> list[str]:
    packages = {name for entry in export.judge.aspects.values() for name in entry.judge.packages}
    # What follows a plus names a build, e.g. for one kind of GPU, that no index may have.
    return [f"{name}=={version(name).partition('+')[0]}" for name in sorted({*_REQUIREMENTS, *packages})]


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


# --- data sets ---


def log_dataset(context: str, corpus: Corpus, digest: str) -> None:
    """Log rated texts as an input of the run; MLflow gets columns and counts, but no text."""
    import mlflow
    import pandas as pd
    from mlflow.data.dataset_source_registry import get_dataset_source_from_json

    rows = [{"source": group.id, "candidate": c.id} for group in corpus.groups for c in group.candidates]
    frame = pd.DataFrame(rows, columns=["source", "candidate"]).assign(**dict.fromkeys(corpus.rated_aspects(), 0.0))
    origin, location = corpus.origin, redact_text(corpus.origin.location)
    kind, key = ("http", "url") if "://" in location else ("local", "uri")
    source = get_dataset_source_from_json(json.dumps({key: location}), kind)
    dataset = mlflow.data.from_pandas(frame, source, name=origin.name, digest=digest[:36])
    mlflow.log_input(dataset, context, {"revision": origin.revision} if origin.revision else None)


# --- prompts ---


def register_prompts(judge: str, prompts: Mapping[str, str]) -> None:
    """Register a judge's prompts, name -> text, point the alias `judge` to them, and link them to the run."""
    import mlflow.genai

    alias = to_alias(judge)
    for name, text in prompts.items():
        registered = prompt_name(name)
        prompt = mlflow.genai.load_prompt(registered, allow_missing=True, cache_ttl_seconds=0)
        if prompt is None or prompt.template != text:
            mlflow.genai.register_prompt(registered, text, commit_message=f"compiled as {judge}")
            prompt = mlflow.genai.load_prompt(registered, cache_ttl_seconds=0)
        mlflow.genai.set_prompt_alias(registered, alias, prompt.version)


def prompt_name(text: str) -> str:
    """`text` as a prompt's name: characters that are not allowed become hyphens."""
    return re.sub(r"[^\w.-]+", "-", text, flags=re.ASCII).strip("-") or "prompt"


def to_alias(text: str) -> str:
    """`text` as an alias. MLflow keeps `latest` and `v1`, `v2`, … for itself."""
    alias = re.sub(r"[^\w-]+", "-", text, flags=re.ASCII).strip("-") or "judge"
    return f"judge-{alias}" if re.fullmatch(r"(?i)latest|v\d+", alias) else alias
