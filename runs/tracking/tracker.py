"""One compile as an MLflow run: settings, data, trials as child runs, evidence, figures, the model.

    with Tracker(uri=None, store=Path("runs/store"), experiment="debate/summeval", run_name="first") as tracker:
        tracker.log_metrics({"agreement": 0.43})
        tracker.log_trial("n=2 plain", {"rounds": 2, "persona": "plain"}, {"choice_agreement": 0.41})

One thread writes with MLflow's fluent functions, in the order of calls, so that writing overlaps with waiting for LMs;
the error of a write is raised by the next call or at the end of the block. The run is active in that thread alone,
and the process's tracking URI is changed only during a write, so that the active run of a notebook stays active.
Metrics have the same names in every run, parent or child, so that the UI can compare runs.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from debate_judge.programs.lm.redaction import redact_text
from debate_judge.runs.mlflow_setup import use_tracking_uri
from debate_judge.runs.tracking.experiment_page import RUNS_QUERY, VIEW_KEY
from debate_judge.runs.tracking.run_contents import TracedDebate, log_dataset, log_debates, register_prompts
from debate_judge.runs.tracking.stale_runs import LOCK_TAG, RunLock, close_stale_runs
from debate_judge.runs.tracking.store import TrackingStore, open_tracking_store, tracking_errors
from debate_judge.runs.tracking.values import finite_values, first_line, parent_run_tags, source_tags, text_values

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from debate_judge.data.schema import Corpus
    from debate_judge.runs.tracking.model import Registration

T = TypeVar("T")

logger = logging.getLogger(__name__)

SplitName = Literal["train", "dev", "held_out"]

DETAILS_FILE = "metrics.json"
"""Artifact with numbers that are not logged as metrics."""


class TrackingError(RuntimeError):
    """The tracking store failed during a run. LM replies are stored elsewhere and are not lost."""


class Tracker:
    """A run in a tracking store, from `with` to its end.

    Entering also closes the runs of the experiment whose process was killed, see `runs.tracking.stale_runs`.

    Args:
        uri: Tracking URI; None for the SQLite database in `store`.
        store: Folder of the embedded database, its artifacts and the locks of the processes that are tracking.
        experiment: Experiment that the run belongs to, one per corpus.
        run_name: Name of the run.

    Raises:
        InputError: On entering, within seconds: the address is malformed, no server answers, the store is broken.
        TrackingError: Later, when a write fails.
    """

    def __init__(self, *, uri: str | None, store: Path, experiment: str, run_name: str) -> None:
        self._uri = uri
        self._folder = store.resolve()
        self._experiment = experiment
        self._name = run_name
        self._tracking_store: TrackingStore | None = None
        self._run_id = ""
        self._failure: Exception | None = None
        self._closed = False
        self._details: dict[str, float] = {}

    def __enter__(self) -> Tracker:
        self._tracking_store = open_tracking_store(self._uri, self._folder, self._experiment)
        self._lock = RunLock(self._tracking_store.uri, self._folder)
        self._lock.acquire()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="tracking")
        try:
            self._run_id = self._writer.submit(self._start).result()
            for run_id in close_stale_runs(self._tracking_store, self._folder, self._run_id):
                logger.info("run %s was left by a process that was killed; it is closed as KILLED", run_id)
        except BaseException:
            self._writer.shutdown()
            self._lock.release(closed=False)
            raise
        return self

    def _start(self) -> str:
        import mlflow

        tags = {**parent_run_tags(), LOCK_TAG: self._lock.name}
        with use_tracking_uri(self.tracking_store.uri), tracking_errors(self.tracking_store.uri):
            run = mlflow.start_run(experiment_id=self.tracking_store.experiment_id, run_name=self._name, tags=tags)
        run_id: str = run.info.run_id
        return run_id

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.submit(self._end, kind, error)
        self._writer.shutdown()
        self._lock.release(closed=self._closed)
        if self._failure is None:
            return
        if error is None:
            raise self._error() from self._failure
        if not isinstance(error, TrackingError):
            error.add_note(f"The tracking store failed as well: {first_line(self._failure)}")

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
        return f"{self._experiment_link()}/runs/{self.run_id}?{RUNS_QUERY}"

    def runs_link(self) -> str:
        """Address of the table of the experiment's runs, sorted by agreement, see `runs.tracking.experiment_page`."""
        return f"{self._experiment_link()}/runs?{RUNS_QUERY}&viewStateShareKey={VIEW_KEY}"

    def _experiment_link(self) -> str:
        store = self.tracking_store
        host = redact_text(store.uri).rstrip("/") if store.has_server else "http://127.0.0.1:5000"
        return f"{host}/#/experiments/{store.experiment_id}"

    # Each of these is queued for the writing thread.

    def log_settings(self, values: Mapping[str, object], params: Mapping[str, object]) -> None:
        """Log all settings as `settings.json`, and `params`, by which people tell runs apart; None is left out."""
        self.log_json("settings.json", text_values(values))
        self._write(lambda mlflow: mlflow.log_params(text_values(params)))

    def set_tags(self, values: Mapping[str, object]) -> None:
        """Set tags, with secrets removed; None is left out."""
        self._write(lambda mlflow: mlflow.set_tags(text_values(values)))

    def log_metrics(self, values: Mapping[str, float | None]) -> None:
        """Log metrics; None and values that are not finite are left out."""
        self._write(lambda mlflow: mlflow.log_metrics(finite_values(values)))

    def log_details(self, values: Mapping[str, float | None]) -> None:
        """Keep numbers for `metrics.json` that would crowd the metrics on the run's page."""
        self._details |= finite_values(values)

    def set_description(self, markdown: str) -> None:
        """Set the description at the top of the run's page."""
        self.set_tags({"mlflow.note.content": markdown})

    def log_trial(self, name: str, params: Mapping[str, object], metrics: Mapping[str, float | None]) -> None:
        """Log one finished trial as a child run."""
        experiment = self.tracking_store.experiment_id

        def log(mlflow: Any) -> None:
            with mlflow.start_run(experiment_id=experiment, run_name=name, nested=True, tags=source_tags()):
                mlflow.log_params(text_values(params))
                mlflow.log_metrics(finite_values(metrics))

        self._write(log)

    def log_dataset(self, split: SplitName, corpus: Corpus, digest: str) -> None:
        """Log one split, whose fingerprint is `digest`, as an input of the run."""
        self._write(lambda _: log_dataset(split, corpus, digest))

    def log_text(self, path: str, content: str) -> None:
        """Log a text as the artifact `path`."""
        self._write(lambda mlflow: mlflow.log_text(content, path))

    def log_json(self, path: str, value: object) -> None:
        """Log a JSON value as the artifact `path`; a number that is not finite raises ValueError at once."""
        self.log_text(path, json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False))

    def log_table(self, path: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Log rows as a table for the UI; `path` ends in .json."""
        import pandas as pd

        # dtype object: a missing number would become NaN.
        frame = pd.DataFrame(list(rows), dtype=object)
        self._write(lambda mlflow: mlflow.log_table(frame, path))

    def log_figure(self, path: str, figure: Figure) -> None:
        """Log a figure; the suffix of `path` names its format."""
        options = {"dpi": 140, "bbox_inches": "tight"}
        self._write(lambda mlflow: mlflow.log_figure(figure, path, save_kwargs=options))

    def log_prompts(self, judge: str, prompts: Mapping[str, str]) -> None:
        """Register a judge's prompts, see `runs.tracking.run_contents`."""
        self._write(lambda _: register_prompts(self.tracking_store, self.run_id, judge, prompts))

    @property
    def keeps_texts(self) -> bool:
        """Whether the store is the embedded one, which nobody else reads: only there texts may be logged."""
        return self._uri is None

    def log_debates(self, traced: Sequence[TracedDebate]) -> None:
        """Log debates as traces of the run, see `runs.tracking.run_contents`. They quote the texts of the data."""
        self._write(lambda _: log_debates(self.tracking_store, self.run_id, traced))

    def log_model(self, export: Path, *, name: str, registration: Registration | None) -> str:
        """Log an export as the artifact folder `export` and as a model that loads anywhere, and register the model.

        Args:
            export: Folder that `runs.export.folder.save` wrote.
            name: Name of the model in the run.
            registration: The registered model that it becomes a version of; None not to register it.

        Returns:
            The URI of the registered version, or of the run's model.
        """
        from debate_judge.runs.tracking.model import log_model

        uri = self._write(lambda _: log_model(self.tracking_store, self.run_id, export, name, registration)).result()
        if uri is None:
            raise self._error() from self._failure
        return uri

    def _write(self, work: Callable[[Any], T]) -> Future[T | None]:
        """Have the writing thread call `work` with the module `mlflow`, set to the run's tracking URI."""
        if self._failure is not None:
            raise self._error() from self._failure
        return self._writer.submit(self._run_write, work)

    def _run_write(self, work: Callable[[Any], T]) -> T | None:
        import mlflow

        if self._failure is None:
            try:
                with use_tracking_uri(self.tracking_store.uri):
                    return work(mlflow)
            except Exception as error:
                self._failure = error
        return None

    def _error(self) -> TrackingError:
        return TrackingError(
            f"the tracking store failed during the run: {first_line(self._failure)}\n"
            "  remedy:   check that the store is running, and run the command again; finished calls are not paid for "
            "again"
        )

    def _end(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        import mlflow

        cause, status = error if error is not None else self._failure, "FINISHED"
        try:
            with use_tracking_uri(self.tracking_store.uri):
                try:
                    if self._details:
                        mlflow.log_text(json.dumps(self._details, indent=2), DETAILS_FILE)
                    if cause is not None:
                        status = "KILLED" if kind is not None and issubclass(kind, KeyboardInterrupt) else "FAILED"
                        mlflow.set_tag("error", first_line(cause))
                finally:
                    mlflow.end_run(status)
            self._closed = True
        except Exception as failure:
            self._failure = self._failure or failure
