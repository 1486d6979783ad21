"""One compile or comparison as an MLflow run, written by MLflow's fluent functions.

    with Tracker(uri=None, store=Path("runs/store"), experiment="debate/summeval", run_name="first") as tracker:
        with tracker.writing():
            mlflow.log_metrics({"agreement": 0.43})
        tracker.log_trial("n=2, plain", {"n": 2, "persona": "plain"}, {"choice_agreement": 0.41})

Between the blocks the process, e.g. a notebook, has its own tracking URI and its own active run. Metrics have the same
names in every run, parent or child, so that the UI can compare runs.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from debate_judge.programs.lm.settings import redact_text
from debate_judge.runs.mlflow_setup import split_login, use_tracking_uri
from debate_judge.runs.tracking.store import TrackingStore, is_server, open_tracking_store, tracking_errors
from debate_judge.runs.tracking.values import finite_values, first_line, parent_run_tags, source_tags, text_values

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
