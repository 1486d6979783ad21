"""One compile as an MLflow run: settings, data, trials as child runs, evidence, figures, the model.

    with Tracker(uri=None, store=Path("runs/store"), experiment="debate/summeval", run_name="first") as tracker:
        tracker.metrics({"agreement": 0.43})
        tracker.trial("n=2 plain", {"rounds": 2, "persona": "plain"}, {"choice_agreement": 0.41})

One thread writes by MLflow's fluent functions, in the order of the calls, so that writing overlaps with waiting for an
LM; the error of a write is raised by the next call or at the end of the block. The run is active in that thread alone,
and the process's tracking URI is ours only during a write, so that a notebook with a run of its own keeps it. Metrics
have the same names in every run, parent or child, so that the UI can compare runs.
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
from debate_judge.runs.tracking.contents import TracedDebate, log_dataset, log_debates, register_prompts
from debate_judge.runs.tracking.shared_view import KEY, TRAINING
from debate_judge.runs.tracking.stale_runs import TAG, RunLock, close_stale_runs
from debate_judge.runs.tracking.store import TrackingStore, explained, open_tracking_store
from debate_judge.runs.tracking.values import finite, first_line, parent_run_tags, source_tags, texts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from debate_judge.data.schema import Corpus
    from debate_judge.runs.tracking.model import Registration

T = TypeVar("T")

logger = logging.getLogger(__name__)

Part = Literal["train", "dev", "held_out"]

DETAILS = "metrics.json"
"""Artifact with the numbers that are no metrics of the run."""


class TrackingError(RuntimeError):
    """The tracking store failed in the middle of a run. Replies of LMs are kept elsewhere and are not lost."""


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
        self._place: TrackingStore | None = None
        self._run_id = ""
        self._failure: Exception | None = None
        self._closed = False
        self._details: dict[str, float] = {}

    def __enter__(self) -> Tracker:
        self._place = open_tracking_store(self._uri, self._folder, self._experiment)
        self._lock = RunLock(self._place.uri, self._folder)
        self._lock.acquire()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="tracking")
        try:
            self._run_id = self._writer.submit(self._start).result()
            for run_id in close_stale_runs(self._place, self._folder, self._run_id):
                logger.info("run %s was left by a process that was killed; it is closed as KILLED", run_id)
        except BaseException:
            self._writer.shutdown()
            self._lock.release(closed=False)
            raise
        return self

    def _start(self) -> str:
        import mlflow

        tags = {**parent_run_tags(), TAG: self._lock.name}
        with use_tracking_uri(self.place.uri), explained(self.place.uri):
            run = mlflow.start_run(experiment_id=self.place.experiment_id, run_name=self._name, tags=tags)
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
            raise self._as_error() from self._failure
        if not isinstance(error, TrackingError):
            error.add_note(f"The tracking store failed as well: {first_line(self._failure)}")

    @property
    def place(self) -> TrackingStore:
        if self._place is None:
            raise RuntimeError("a tracker is used inside its with block")
        return self._place

    @property
    def run_id(self) -> str:
        """MLflow's id of the run."""
        return self._run_id

    @property
    def ui_command(self) -> str | None:
        """The command that starts a UI on the store; None where a server has one."""
        return None if self.place.served else self.place.ui_command

    def run_link(self) -> str:
        """Address of the run's page, on its server or on a local UI."""
        return f"{self._experiment_link()}/runs/{self.run_id}?{TRAINING}"

    def runs_link(self) -> str:
        """Address of the table of the experiment's runs, sorted by agreement, see `runs.tracking.shared_view`."""
        return f"{self._experiment_link()}/runs?{TRAINING}&viewStateShareKey={KEY}"

    def _experiment_link(self) -> str:
        host = redact_text(self.place.uri).rstrip("/") if self.place.served else "http://127.0.0.1:5000"
        return f"{host}/#/experiments/{self.place.experiment_id}"

    # Each of these is done by the writing thread, after those before it.

    def settings(self, values: Mapping[str, object], shown: Mapping[str, object]) -> None:
        """Keep all settings as `settings.json`, and log those by which a person tells runs apart; None is left out."""
        self.json("settings.json", texts(values))
        self._write(lambda mlflow: mlflow.log_params(texts(shown)))

    def tags(self, values: Mapping[str, object]) -> None:
        """Log tags; secrets are taken out, None is left out."""
        self._write(lambda mlflow: mlflow.set_tags(texts(values)))

    def metrics(self, values: Mapping[str, float | None], step: int | None = None) -> None:
        """Log numbers; what is None or not finite is left out."""
        self._write(lambda mlflow: mlflow.log_metrics(finite(values), step))

    def details(self, values: Mapping[str, float | None]) -> None:
        """Keep numbers that would bury the run's page among its metrics; all of them end up in `metrics.json`."""
        self._details |= finite(values)

    def describe(self, markdown: str) -> None:
        """Set the description that the run's page opens with."""
        self.tags({"mlflow.note.content": markdown})

    def trial(self, name: str, params: Mapping[str, object], metrics: Mapping[str, float | None]) -> None:
        """Log one finished trial as a child run."""
        experiment = self.place.experiment_id

        def log(mlflow: Any) -> None:
            with mlflow.start_run(experiment_id=experiment, run_name=name, nested=True, tags=source_tags()):
                mlflow.log_params(texts(params))
                mlflow.log_metrics(finite(metrics))

        self._write(log)

    def dataset(self, part: Part, corpus: Corpus, digest: str) -> None:
        """Log one part of a split, whose fingerprint is `digest`, as the run's input."""
        self._write(lambda _: log_dataset(part, corpus, digest))

    def text(self, path: str, content: str) -> None:
        """Keep a text as the artifact `path`."""
        self._write(lambda mlflow: mlflow.log_text(content, path))

    def json(self, path: str, value: object) -> None:
        """Keep a JSON value as the artifact `path`; a number that is not finite raises ValueError here."""
        self.text(path, json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False))

    def table(self, path: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Keep rows as a table that the UI shows; `path` ends in .json."""
        import pandas as pd

        # As objects, or a column of numbers with a gap would hold NaN.
        frame = pd.DataFrame(list(rows), dtype=object)
        self._write(lambda mlflow: mlflow.log_table(frame, path))

    def figure(self, path: str, figure: Figure) -> None:
        """Keep a figure; the ending of `path` names its format."""
        look = {"dpi": 140, "bbox_inches": "tight"}
        self._write(lambda mlflow: mlflow.log_figure(figure, path, save_kwargs=look))

    def prompts(self, judge: str, prompts: Mapping[str, str]) -> None:
        """Keep a judge's prompts in the prompt registry, see `runs.tracking.contents`."""
        self._write(lambda _: register_prompts(self.place, self.run_id, judge, prompts))

    @property
    def keeps_texts(self) -> bool:
        """Whether the store is the embedded one, which nobody else reads: texts of the data may lie there."""
        return self._uri is None

    def debates(self, traced: Sequence[TracedDebate]) -> None:
        """Show debates as traces of the run, see `runs.tracking.contents`. They quote the texts of the data."""
        self._write(lambda _: log_debates(self.place, self.run_id, traced))

    def model(self, export: Path, *, name: str, registration: Registration | None) -> str:
        """Keep an export as the artifact folder `export` and as a model that loads anywhere, and register the model.

        Args:
            export: Folder that `runs.export.folder.save` wrote.
            name: Name of the model in the run.
            registration: The registered model that it becomes a version of; None: of none.

        Returns:
            The URI of the registered version, or of the run's model.
        """
        from debate_judge.runs.tracking.model import log_model

        uri = self._write(lambda _: log_model(self.place, self.run_id, export, name, registration)).result()
        if uri is None:
            raise self._as_error() from self._failure
        return uri

    def _write(self, work: Callable[[Any], T]) -> Future[T | None]:
        """Have the writing thread call `work` with MLflow, whose store is the run's meanwhile."""
        if self._failure is not None:
            raise self._as_error() from self._failure
        return self._writer.submit(self._attempt, work)

    def _attempt(self, work: Callable[[Any], T]) -> T | None:
        import mlflow

        if self._failure is None:
            try:
                with use_tracking_uri(self.place.uri):
                    return work(mlflow)
            except Exception as error:
                self._failure = error
        return None

    def _as_error(self) -> TrackingError:
        return TrackingError(
            f"the tracking store failed during the run: {first_line(self._failure)}\n"
            "  remedy:   check that the store is running, and run the command again; finished calls are not paid for "
            "again"
        )

    def _end(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        import mlflow

        cause, status = error if error is not None else self._failure, "FINISHED"
        try:
            with use_tracking_uri(self.place.uri):
                try:
                    if self._details:
                        mlflow.log_text(json.dumps(self._details, indent=2), DETAILS)
                    if cause is not None:
                        status = "KILLED" if kind is not None and issubclass(kind, KeyboardInterrupt) else "FAILED"
                        mlflow.set_tag("error", first_line(cause))
                finally:
                    mlflow.end_run(status)
            self._closed = True
        except Exception as failure:
            self._failure = self._failure or failure
