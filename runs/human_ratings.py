"""`--data mlflow:EXPERIMENT`: human assessments in the traces of an MLflow experiment, as a file of rated texts."""

from __future__ import annotations

import os
from collections.abc import Iterator

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files.formats import RecordFile
from debate_judge.data.files.records import Record
from debate_judge.runs.mlflow_store import check_address, prepare_mlflow, sqlite_file, tracking_errors

PREFIX = "mlflow:"


def resolve_data(spec: str, flag: str = "--data") -> str | RecordFile:
    """The argument of `data.load` for a value of --data: records of an MLflow experiment, or the value itself.

    Args:
        spec: `mlflow:NAME`, with the experiment's name or id, or another value.
        flag: The flag that the value came from, for messages.
    """
    if not spec.startswith(PREFIX):
        return spec
    description = "the traces of an MLflow experiment"
    address = os.environ.get("MLFLOW_TRACKING_URI")
    return RecordFile(spec, description, True, lambda _: _traces(spec, address, flag))


def _traces(spec: str, address: str | None, flag: str) -> Iterator[Record]:
    prepare_mlflow()
    import mlflow

    uri = address or mlflow.get_tracking_uri()
    # Opening a database that does not exist would create it.
    if ":///" in uri and (database := sqlite_file(uri)) is not None and not database.exists():
        raise InputError(
            "there is no tracking store",
            field=flag,
            expected="the tracking store that has the experiment",
            found=f"no file {database}",
            remedy="set MLFLOW_TRACKING_URI to the store, or run the command in its folder",
        )
    if address:
        check_address(uri)
    client, name = mlflow.MlflowClient(tracking_uri=uri), spec.removeprefix(PREFIX)
    page_token, row = None, 0
    with tracking_errors(uri):
        experiment_ids = {experiment.name: experiment.experiment_id for experiment in client.search_experiments()}
        if name not in experiment_ids and name not in experiment_ids.values():
            raise InputError(
                f"no experiment {name!r} in the tracking store",
                field=flag,
                found=", ".join(experiment_ids) or "no experiment at all",
                remedy=did_you_mean(name, experiment_ids) or "set MLFLOW_TRACKING_URI to the store that has it",
            )
        while True:
            page = client.search_traces(locations=[experiment_ids.get(name, name)], page_token=page_token)
            for trace in page:
                row += 1
                yield Record(trace.to_dict(), spec, row, unit="row")
            page_token = page.token
            if not page_token:
                return
