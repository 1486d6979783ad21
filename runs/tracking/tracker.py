"""One compile or comparison as an MLflow run: settings, data, trials as child runs, evidence, figures, the model.

    with Tracker(uri=None, store=Path("runs/store"), experiment="debate/summeval", run_name="first") as tracker:
        tracker.log_metrics({"agreement": 0.43})
        tracker.log_trial("n=2, plain", {"n": 2, "persona": "plain"}, {"choice_agreement": 0.41})

Runs are written by MLflow's client, under their ids: the active run and the tracking URI of the process, e.g. of a
notebook, stay as they are. Metrics have the same names in every run, parent or child, so that the UI can compare runs.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from debate_judge.programs.lm.redaction import redact_text
from debate_judge.runs.mlflow_setup import use_tracking_uri
from debate_judge.runs.tracking.run_contents import TracedDebate, dataset_input, log_debates, register_prompts
from debate_judge.runs.tracking.store import TrackingStore, open_tracking_store, tracking_errors
from debate_judge.runs.tracking.values import finite_values, first_line, parent_run_tags, source_tags, text_values

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from debate_judge.data.schema import Corpus
    from debate_judge.runs.tracking.model import Registration

SplitName = Literal["train", "dev", "held_out"]

DETAILS_FILE = "metrics.json"
"""Artifact with numbers that are not logged as metrics."""

IDENTITY_TAG, _HOST_TAG = "identity", "host"


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
        self._tracking_store: TrackingStore | None = None
        self._run_id = ""
        self._details: dict[str, float] = {}

    def __enter__(self) -> Tracker:
        self._tracking_store = open_tracking_store(self._uri, self._folder, self._experiment)
        with tracking_errors(self._tracking_store.uri):
            self._run_id = self._unfinished_run() or self._new_run()
        return self

    def _unfinished_run(self) -> str | None:
        """The id of the run to continue, without the trials and the error that it had."""
        if not self._identity:
            return None
        client, experiments = self.tracking_store.client, [self.tracking_store.experiment_id]
        tags = f"tags.{IDENTITY_TAG} = '{self._identity}' and tags.{_HOST_TAG} = '{platform.node()}'"
        for run in client.search_runs(experiments, f"attributes.status != 'FINISHED' and {tags}"):
            if run.info.run_name == self._name:
                run_id: str = run.info.run_id
                for trial in client.search_runs(experiments, f"tags.`mlflow.parentRunId` = '{run_id}'"):
                    client.delete_run(trial.info.run_id)
                if "error" in run.data.tags:
                    client.delete_tag(run_id, "error")
                client.update_run(run_id, status="RUNNING")
                return run_id
        return None

    def _new_run(self) -> str:
        tags = parent_run_tags() | {_HOST_TAG: platform.node()}
        tags |= {IDENTITY_TAG: self._identity} if self._identity else {}
        run = self.tracking_store.client.create_run(self.tracking_store.experiment_id, run_name=self._name, tags=tags)
        run_id: str = run.info.run_id
        return run_id

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        client, status = self.tracking_store.client, "FINISHED"
        try:
            with self._writing():
                if self._details:
                    client.log_text(self._run_id, json.dumps(self._details, indent=2), DETAILS_FILE)
                if error is not None:
                    status = "KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED"
                    client.set_tag(self._run_id, "error", first_line(error))
                client.set_terminated(self._run_id, status)
        except TrackingError as failure:
            if error is None:
                raise
            if not isinstance(error, TrackingError):
                error.add_note(f"The tracking store failed as well: {first_line(failure.__cause__)}")

    @property
    def tracking_store(self) -> TrackingStore:
        if self._tracking_store is None:
            raise RuntimeError("a tracker is used inside its with block")
        return self._tracking_store

    @property
    def run_id(self) -> str:
        """MLflow's id of the run."""
        return self._run_id

    @property
    def ui_command(self) -> str | None:
        """The command that starts a UI on the store; None where a server has one."""
        return None if self.tracking_store.has_server else self.tracking_store.ui_command

    def run_link(self) -> str:
        """Address of the run's page, on its server or on a local UI."""
        store = self.tracking_store
        host = redact_text(store.uri).rstrip("/") if store.has_server else "http://127.0.0.1:5000"
        return f"{host}/#/experiments/{store.experiment_id}/runs/{self.run_id}"

    def log_settings(self, values: Mapping[str, object], params: Mapping[str, object]) -> None:
        """Log all settings as `settings.json`, and `params`, by which people tell runs apart; None is left out."""
        self.log_json("settings.json", text_values(values))
        self.log_params(params)

    def log_params(self, params: Mapping[str, object]) -> None:
        """Log parameters, with secrets removed; None is left out."""
        with self._writing():
            self.tracking_store.client.log_batch(self.run_id, params=_params(params))

    def set_tags(self, values: Mapping[str, object]) -> None:
        """Set tags, with secrets removed; None is left out."""
        with self._writing():
            for name, text in text_values(values).items():
                self.tracking_store.client.set_tag(self.run_id, name, text)

    def log_metrics(self, values: Mapping[str, float | None]) -> None:
        """Log metrics; None and values that are not finite are left out."""
        with self._writing():
            self.tracking_store.client.log_batch(self.run_id, metrics=_metrics(values))

    def log_details(self, values: Mapping[str, float | None]) -> None:
        """Keep numbers for `metrics.json` that would crowd the metrics on the run's page."""
        self._details |= finite_values(values)

    def set_description(self, markdown: str) -> None:
        """Set the description at the top of the run's page."""
        self.set_tags({"mlflow.note.content": markdown})

    def log_trial(self, name: str, params: Mapping[str, object], metrics: Mapping[str, float | None]) -> None:
        """Log one finished trial as a child run."""
        client, experiment = self.tracking_store.client, self.tracking_store.experiment_id
        with self._writing():
            tags = source_tags() | {"mlflow.parentRunId": self.run_id}
            trial = client.create_run(experiment, run_name=name, tags=tags).info.run_id
            client.log_batch(trial, params=_params(params), metrics=_metrics(metrics))
            client.set_terminated(trial)

    def log_dataset(self, split: SplitName, corpus: Corpus, digest: str) -> None:
        """Log one split, whose fingerprint is `digest`, as an input of the run."""
        with self._writing():
            self.tracking_store.client.log_inputs(self.run_id, [dataset_input(split, corpus, digest)])

    def log_text(self, path: str, content: str) -> None:
        """Log a text as the artifact `path`."""
        with self._writing():
            self.tracking_store.client.log_text(self.run_id, content, path)

    def log_json(self, path: str, value: object) -> None:
        """Log a JSON value as the artifact `path`; a number that is not finite raises ValueError."""
        self.log_text(path, json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False))

    def log_table(self, path: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Log rows as a table for the UI; `path` ends in .json."""
        import pandas as pd

        with self._writing():
            # dtype object: a missing number would become NaN.
            self.tracking_store.client.log_table(self.run_id, pd.DataFrame(list(rows), dtype=object), path)

    def log_figure(self, path: str, figure: Figure) -> None:
        """Log a figure; the suffix of `path` names its format."""
        options = {"dpi": 140, "bbox_inches": "tight"}
        with self._writing():
            self.tracking_store.client.log_figure(self.run_id, figure, path, save_kwargs=options)

    def log_prompts(self, judge: str, prompts: Mapping[str, str]) -> None:
        """Register a judge's prompts, see `runs.tracking.run_contents`."""
        with self._writing():
            register_prompts(self.tracking_store, self.run_id, judge, prompts)

    @property
    def keeps_texts(self) -> bool:
        """Whether the store is the embedded one, which nobody else reads: only there texts may be logged."""
        return self._uri is None

    def log_debates(self, traced: Sequence[TracedDebate]) -> None:
        """Log debates as traces of the run, see `runs.tracking.run_contents`. They quote the texts of the data."""
        with self._writing():
            log_debates(self.tracking_store, self.run_id, traced)

    def log_model(self, export: Path, *, name: str, registration: Registration | None) -> str:
        """Log an export as the artifact folder `export` and as a model that loads anywhere, and register the model.

        Args:
            export: Folder that `runs.export.folder.save` wrote.
            name: Name of the model in the run.
            registration: The registered model that it becomes a version of; None not to register it.

        Returns:
            The URI of the registered version, or of the run's model.
        """
        import mlflow

        from debate_judge.runs.tracking.model import log_model

        with self._writing(), mlflow.start_run(run_id=self.run_id, nested=True):
            return log_model(self.tracking_store, export, name, registration)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Raise whatever MLflow raises as a TrackingError; some of its client's methods use the process's URI."""
        try:
            with use_tracking_uri(self.tracking_store.uri):
                yield
        except Exception as error:
            raise TrackingError(
                f"the tracking store failed during the run: {first_line(error)}\n"
                "  remedy:   check that the store is running, and run the command again; finished calls are not paid "
                "for again"
            ) from error


def _params(values: Mapping[str, object]) -> list[Any]:
    from mlflow.entities import Param

    return [Param(name, text) for name, text in text_values(values).items()]


def _metrics(values: Mapping[str, float | None]) -> list[Any]:
    from mlflow.entities import Metric

    now = int(1000 * time.time())
    return [Metric(name, value, now, 0) for name, value in finite_values(values).items()]
