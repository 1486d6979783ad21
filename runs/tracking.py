"""One compile or comparison as an MLflow run, written by MLflow's fluent functions: its trials, data sets and prompts,
and the judge as a model.

    with Tracker(uri=None, store=Path("runs/store"), experiment="debate/summeval", run_name="first") as tracker:
        with tracker.writing():
            mlflow.log_metrics({"agreement": 0.43})
        tracker.log_trial("n=2, plain", {"n": 2, "persona": "plain"}, {"choice_agreement": 0.41})

Between the blocks the process, e.g. a notebook, has its own tracking URI and its own active run. Metrics have the same
names in every run, parent or child, so that the UI can compare runs.
"""

from __future__ import annotations

import io
import json
import math
import platform
import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import debate_judge
from debate_judge.programs.lm.settings import redact, redact_text
from debate_judge.runs.export import read, versions
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

CHOICE_METRIC = "choice_agreement"
"""Metric of trials and compiles: agreement on the sources by which the judge is chosen; biased upwards for the best.
One name for all, so that the UI sorts them together."""


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

    store: TrackingStore
    """Inside the block."""

    def __init__(self, *, uri: str | None, store: Path, experiment: str, run_name: str, identity: str = "") -> None:
        self._place = uri, store.resolve(), experiment
        self._name, self._identity = run_name, identity
        self._run: Any = None

    def __enter__(self) -> Tracker:
        self.store = open_tracking_store(*self._place)
        import mlflow

        identity = {"identity": self._identity, "host": platform.node()}
        tags = {**_source_tags(), "versions": ", ".join(f"{name} {v}" for name, v in versions().items()), **identity}
        with tracking_errors(self.store.uri), use_tracking_uri(self.store.uri, experiment_id=self.store.experiment_id):
            unfinished = self._unfinished_run(identity) if self._identity else None
            self._run = mlflow.start_run(run_id=unfinished, run_name=self._name, tags=tags)
        return self

    def _unfinished_run(self, identity: Mapping[str, str]) -> str | None:
        """The id of the run to continue, without the trials and the error that it had."""
        import mlflow

        def search(condition: str) -> list[Any]:
            return list(mlflow.search_runs([self.store.experiment_id], condition, output_format="list"))

        tags = " and ".join(f"tags.{name} = '{value}'" for name, value in identity.items())
        for run in search(f"attributes.status != 'FINISHED' and {tags}"):
            if run.info.run_name == self._name:
                run_id: str = run.info.run_id
                for trial in search(f"tags.`mlflow.parentRunId` = '{run_id}'"):
                    mlflow.delete_run(trial.info.run_id)
                if "error" in run.data.tags:
                    mlflow.MlflowClient().delete_tag(run_id, "error")
                return run_id
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        import mlflow

        status = "FINISHED" if error is None else "KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED"
        try:
            with self.writing():
                if error is not None:
                    mlflow.set_tag("error", _first_line(error))
                mlflow.end_run(status)
        except TrackingError as failure:
            if error is None:
                raise
            if not isinstance(error, TrackingError):
                error.add_note(f"The tracking store failed as well: {_first_line(failure.__cause__)}")

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
                f"the tracking store failed during the run: {_first_line(error)}\n"
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

        with self.writing(), mlflow.start_run(run_name=name, nested=True, tags=_source_tags()):
            mlflow.log_params(text_values(params))
            mlflow.log_metrics(finite_values(metrics))

    @property
    def run_id(self) -> str:
        """MLflow's id of the run."""
        run_id: str = self._run.info.run_id
        return run_id

    @property
    def ui_command(self) -> str | None:
        """The command that starts a UI on the store, quoted for any POSIX shell; None where a server has one."""
        uri = self.store.uri
        return None if is_server(uri) else f"mlflow ui --backend-store-uri {shlex.quote(redact_text(uri))}"

    def run_link(self) -> str:
        """Address of the run's page, on its server or on a local UI."""
        address, _ = split_login(self.store.uri)
        host = redact_text(address).rstrip("/") if is_server(address) else "http://127.0.0.1:5000"
        return f"{host}/#/experiments/{self.store.experiment_id}/runs/{self.run_id}"


def _source_tags() -> dict[str, str]:
    # MLflow would log the address of the checkout's remote, which may hold a token.
    tags = {"mlflow.source.name": Path(sys.argv[0]).name, "mlflow.source.type": "LOCAL"}
    return {**tags, "mlflow.source.git.repoURL": ""}


def _first_line(error: BaseException | None) -> str:
    """An error in one line, without secrets."""
    return redact_text(": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]]))[:500]


# --- values that can be logged ---


def text_values(values: Mapping[str, object]) -> dict[str, str]:
    """Settings as texts: secrets are removed, None is left out, lists and dicts become JSON."""
    redacted = {_mlflow_name(name): redact(value, name) for name, value in values.items() if value is not None}
    return {
        name: json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else str(value)
        for name, value in redacted.items()
    }


def finite_values(values: Mapping[str, float | None]) -> dict[str, float]:
    """Metrics without None and values that are not finite."""
    return {_mlflow_name(name): float(v) for name, v in values.items() if v is not None and math.isfinite(v)}


def _mlflow_name(text: str) -> str:
    """`text` as a name, whose segments slashes separate: characters that MLflow does not allow become underscores."""
    return "/".join(re.sub(r"[^\w. -]", "_", segment).strip(". ") or "_" for segment in text.split("/"))


# --- the judge as a model ---

_FOLDERS = ("data", "programs", "runs")
"""Packages that scoring needs; it never imports `optimize`."""

_REQUIREMENTS = (
    *("aiohttp", "dspy", "filelock", "httpx", "mlflow", "numpy", "orjson", "pandas", "psutil", "pydantic", "scipy"),
    *("SQLAlchemy", "tenacity"),
)
"""Imports of every model's code; with further packages of its judges, each is pinned to the installed version."""


def log_model(
    export_folder: Path, *, register_as: str | None = None, description: str = "", version_description: str = ""
) -> str:
    """Log an export in the active run, as the folder `export` and as the model `judge`; returns the model's URI.

    The model loads where this project is not installed: it holds its own copy of the code (`debate_judge` without
    `optimize`), the export, and pinned requirements; `runs/integrations/mlflow_model.py` loads it. Nothing is pickled.

    Args:
        export_folder: The export.
        register_as: Name to register the model by; characters that are not allowed become hyphens.
        description: Of the registered model.
        version_description: Of this version.
    """
    import mlflow
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema

    mlflow.log_artifacts(str(export_folder), "export")
    aspects, name = read(export_folder).judge.aspects, register_as and registered_name(register_as)
    inputs = [ColSpec("string", "source"), ColSpec("string", "text"), ColSpec("string", "context", required=False)]
    outputs = []
    for aspect in aspects:
        outputs += [ColSpec("double", aspect, required=False)]
        outputs += [ColSpec("string", f"{aspect}_{content}") for content in ("reason", "unscored")]
    packages = {*_REQUIREMENTS, *(package for chosen in aspects.values() for package in chosen.judge.packages)}
    # MLflow prints that it registers a model, whatever its logging level.
    with TemporaryDirectory() as folder, warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        # Without an input example: MLflow would have the model score it, which costs LM calls.
        warnings.filterwarnings("ignore", "(?s).*An input example was not provided")
        package = _copy_code(Path(debate_judge.__file__).parent, Path(folder) / "debate_judge")
        logged = mlflow.pyfunc.log_model(
            name="judge",
            python_model=str(package / "runs" / "integrations" / "mlflow_model.py"),
            artifacts={"export": str(export_folder.resolve())},
            code_paths=[str(package)],
            signature=ModelSignature(
                Schema(inputs), Schema(outputs), ParamSchema([ParamSpec("scale", "string", "judge")])
            ),
            # None means that the environment or else the export decides.
            model_config=dict.fromkeys(SETTINGS),
            model_type="judge",
            metadata={
                "aspects": list(aspects),
                "scale": "the parameter `scale` is `judge` (default) for the judge's own scores, or `raters` for what "
                "the raters would give on average, by the calibration that the compile fitted",
            },
            # What follows a plus names a build, e.g. for one kind of GPU, that no index may have.
            pip_requirements=[f"{name}=={version(name).partition('+')[0]}" for name in sorted(packages)],
            registered_model_name=name,
            await_registration_for=0,
        )
    if name is None:
        return str(logged.model_uri)
    client, number = mlflow.MlflowClient(), str(logged.registered_model_version)
    client.update_registered_model(name, description)
    client.update_model_version(name, number, version_description)
    return f"models:/{name}/{number}"


def require_registrable(model_name: str) -> None:
    """Ask before the work for the right to write to a registered model that exists; `log_model` would find out after
    it.
    """
    import mlflow
    from mlflow.exceptions import MlflowException

    client, name = mlflow.MlflowClient(), registered_name(model_name)
    try:
        client.update_registered_model(name, client.get_registered_model(name).description)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise


def registered_name(text: str) -> str:
    """`text` as a registered model's name: characters that are not allowed become hyphens."""
    return re.sub(r"[^\w.-]+", "-", text)


def _copy_code(root: Path, package: Path) -> Path:
    """Copy the code of the package at `root` into the new folder `package`; returns it."""

    def ignore(folder: str, names: list[str]) -> list[str]:
        # A folder without `__init__.py` is no package: stores of runs, which may be in the same folder, contain code,
        # too. The package `sample` has texts, which a model does not need.
        path = Path(folder)
        kept = {name for name in names if name.endswith(".py") or (path / name / "__init__.py").is_file()}
        return [name for name in names if name not in kept - {"sample"}]

    package.mkdir(parents=True)
    shutil.copyfile(root / "__init__.py", package / "__init__.py")
    for name in _FOLDERS:
        shutil.copytree(root / name, package / name, ignore=ignore)
    return package


# --- data sets and prompts ---


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


def register_prompts(judge: str, prompts: Mapping[str, str]) -> None:
    """Register a judge's prompts, name -> text, point the alias `judge` to them, and link them to the run.

    A prompt gets a new version whenever its text has changed; its alias with the judge's name points to the version
    that this judge uses, as in `prompts:/debate-summarization.coherence.scorer@NAME`.
    """
    import mlflow.genai

    alias = re.sub(r"[^\w-]+", "-", judge, flags=re.ASCII).strip("-") or "judge"
    # MLflow keeps these for itself.
    alias = f"judge-{alias}" if re.fullmatch(r"(?i)latest|v\d+", alias) else alias
    for given_name, text in prompts.items():
        name = re.sub(r"[^\w.-]+", "-", given_name, flags=re.ASCII).strip("-") or "prompt"
        prompt = mlflow.genai.load_prompt(name, allow_missing=True, cache_ttl_seconds=0)
        if prompt is None or prompt.template != text:
            mlflow.genai.register_prompt(name, text, commit_message=f"compiled as {judge}")
            prompt = mlflow.genai.load_prompt(name, cache_ttl_seconds=0)
        mlflow.genai.set_prompt_alias(name, alias, prompt.version)
