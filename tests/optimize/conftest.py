"""Fixtures for the tests of compiles."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from debate_judge.runs.mlflow_setup import sqlite_file
from debate_judge.runs.tracking import store


@pytest.fixture(scope="session", autouse=True)
def _tables_made_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give every new tracking store a copy of the first one's empty tables, whose making takes MLflow seconds.

    How they are made is tested in tests/runs/test_tracking_store.py.
    """
    made = tmp_path_factory.mktemp("tables") / "mlflow.db"
    make = store._make_tables

    def copied(uri: str) -> None:
        file = sqlite_file(uri)
        fresh = file is not None and file.is_file() and not file.stat().st_size
        if fresh and made.exists():
            shutil.copyfile(made, file)
            return
        make(uri)
        if fresh:
            shutil.copyfile(file, made)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_make_tables", copied)
        yield
