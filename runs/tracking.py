"""One compile or comparison as an MLflow run, written by MLflow's fluent functions.

    with Tracker(uri=None, store=Path("runs/store"), experiment="debate/summeval", run_name="first") as tracker:
        with tracker.writing():
            mlflow.log_metrics({"agreement": 0.43})
        tracker.log_trial("n=2, plain", {"n": 2, "persona": "plain"}, {"choice_agreement": 0.41})

Between the blocks the process, e.g. a notebook, has its own tracking URI and its own active run. Metrics have the same
names in every run, parent or child, so that the UI can compare runs.
"""

from __future__ import annotations

import json
import math
import platform
import re
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Any

import debate_judge
from debate_judge.programs.lm.settings import redact, redact_text
from debate_judge.runs.export import Export, read
from debate_judge.runs.loaded import SETTINGS
from debate_judge.runs.mlflow_store import (
    TrackingStore,
    is_server,
    open_tracking_store,
    split_login,
    tracking_errors,
    use_tracking_uri,
)

if TYPE_CHECKING:
    from debate_judge.data.schema import Corpus


EXIT_TRACKING = 4
"""Exit code of commands, besides those in `runs.command_line`."""

_IDENTITY, _HOST = "identity", "host"
"""Tags by which a run is found again."""


class TrackingError(RuntimeError):
    """The tracking store failed during a run. LM replies are stored elsewhere and are not lost."""


class Tracker:
    """A run in a tracking store, from `with` to its end.

    Args:
        uri: Tracking URI; None for the SQLite database in `store`.
        store: Folder of the embedded database and its artifacts.
        experiment: Experiment that the run belongs to, one per corpus.
        run_name: Name of the run.
        identity: Fingerprint of the work, as a tag. A run of this name and identity that this machine has begun and
            not finished, e.g. because its process was killed, is continued.

    Raises:
        InputError: On entering, within seconds: the address is malformed, no server answers, the store is broken.
        TrackingError: Later, when a write fails.
    """

    def __init__(self, *, uri: str | None, store: Path, experiment: str, run_name: str, identity: str = "") -> None:
        self._uri, self._folder, self._experiment = uri, store.resolve(), experiment
        self._name, self._identity = run_name, identity
        self._store: TrackingStore | None = None
        self._run: Any = None

    def __enter__(self) -> Tracker:
        self._store = store = open_tracking_store(self._uri, self._folder, self._experiment)
        import mlflow

        with tracking_errors(store.uri), use_tracking_uri(store.uri, experiment_id=store.experiment_id):
            tags = {
                **parent_run_tags(),
                _HOST: platform.node(),
                **({_IDENTITY: self._identity} if self._identity else {}),
            }
            self._run = mlflow.start_run(run_id=self._unfinished_run(), run_name=self._name, tags=tags)
        return self

    def _unfinished_run(self) -> str | None:
        """The id of the run to continue, without the trials and the error that it had."""
        import mlflow

        if not self._identity:
            return None

        def search(condition: str) -> list[Any]:
            return list(mlflow.search_runs([self.store.experiment_id], condition, output_format="list"))

        tags = f"tags.{_IDENTITY} = '{self._identity}' and tags.{_HOST} = '{platform.node()}'"
        for run in search(f"attributes.status != 'FINISHED' and {tags}"):
            if run.info.run_name == self._name:
                run_id: str = run.info.run_id
                for trial in search(f"tags.`mlflow.parentRunId` = '{run_id}'"):
                    mlflow.delete_run(trial.info.run_id)
                if "error" in run.data.tags:
                    mlflow.MlflowClient().delete_tag(run_id, "error")
                return run_id
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import mlflow

        status = "FINISHED" if error is None else "KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED"
        try:
            with self.writing():
                if error is not None:
                    mlflow.set_tag("error", first_line(error))
                mlflow.end_run(status)
        except TrackingError as failure:
            if error is None:
                raise
            if not isinstance(error, TrackingError):
                error.add_note(f"The tracking store failed as well: {first_line(failure.__cause__)}")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """MLflow's fluent functions write to this run in the block, in any thread.

        Raises:
            TrackingError: The store failed.
        """
        from mlflow.exceptions import MlflowException
        from requests import RequestException
        from sqlalchemy.exc import SQLAlchemyError

        try:
            with use_tracking_uri(self.store.uri, experiment_id=self.store.experiment_id, runs=[self._run]):
                yield
        except (MlflowException, RequestException, SQLAlchemyError, OSError) as error:
            raise TrackingError(
                f"the tracking store failed during the run: {first_line(error)}\n"
                "  remedy:   check that the store is running, and run the command again; finished calls are not paid "
                "for again"
            ) from error

    def log_settings(self, values: Mapping[str, object], params: Mapping[str, object]) -> None:
        """Log all settings as `settings.json`, and `params`, by which people tell runs apart; secrets are removed."""
        import mlflow

        with self.writing():
            mlflow.log_dict(text_values(values), "settings.json")
            mlflow.log_params(text_values(params))

    def log_trial(self, name: str, params: Mapping[str, object], metrics: Mapping[str, float | None]) -> None:
        """Log one finished trial as a child run."""
        import mlflow

        with self.writing(), mlflow.start_run(run_name=name, nested=True, tags=source_tags()):
            mlflow.log_params(text_values(params))
            mlflow.log_metrics(finite_values(metrics))

    @property
    def store(self) -> TrackingStore:
        if self._store is None:
            raise RuntimeError("a tracker is used inside its with block")
        return self._store

    @property
    def run_id(self) -> str:
        """MLflow's id of the run."""
        run_id: str = self._run.info.run_id
        return run_id

    @property
    def ui_command(self) -> str | None:
        """The command that starts a UI on the store; None where a server has one."""
        return self.store.ui_command

    def run_link(self) -> str:
        """Address of the run's page, on its server or on a local UI."""
        address, _ = split_login(self.store.uri)
        host = redact_text(address).rstrip("/") if is_server(address) else "http://127.0.0.1:5000"
        return f"{host}/#/experiments/{self.store.experiment_id}/runs/{self.run_id}"


CHOICE_METRIC = "choice_agreement"
"""Metric of trials and compiles: agreement on the sources by which the judge is chosen; biased upwards for the best.
One name for all, so that the UI sorts them together."""

_PACKAGES = ("dspy", "mlflow", "optuna", "numpy", "debate-judge")


def name_segment(text: str) -> str:
    """`text` as one segment of a name: characters that MLflow does not allow become underscores."""
    return "".join(c if c.isalnum() or c in "_-. " else "_" for c in text).strip(". ") or "_"


def mlflow_name(text: str) -> str:
    """`text` as a name whose segments are separated by slashes."""
    return "/".join(map(name_segment, text.split("/")))


def text_values(values: Mapping[str, object]) -> dict[str, str]:
    """Settings as texts: secrets are removed, None is left out, lists and dicts become JSON."""
    redacted = {mlflow_name(name): redact(value, name) for name, value in values.items() if value is not None}
    return {name: value if isinstance(value, str) else _compact(value) for name, value in redacted.items()}


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else str(value)


def finite_values(values: Mapping[str, float | None]) -> dict[str, float]:
    """Metrics without None and values that are not finite."""
    return {mlflow_name(name): float(v) for name, v in values.items() if v is not None and math.isfinite(v)}


def parent_run_tags() -> dict[str, str]:
    """Tags of every parent run: the command that started it and the versions of Python and packages."""
    return {**source_tags(), "versions": ", ".join(map(" ".join, versions().items()))}


def versions() -> dict[str, str]:
    """Python, this project and the libraries that results depend on -> installed version."""
    installed = {"python": sys.version.split()[0]}
    for package in _PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed


def source_tags() -> dict[str, str]:
    """Tags of every run, parent or child."""
    # MLflow would log the address of the checkout's remote, which may hold a token.
    tags = {"mlflow.source.name": Path(sys.argv[0]).name, "mlflow.source.type": "LOCAL"}
    return {**tags, "mlflow.source.git.repoURL": ""}


def first_line(error: BaseException | None) -> str:
    """An error in one line, without secrets."""
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return redact_text(text)[:500]


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
