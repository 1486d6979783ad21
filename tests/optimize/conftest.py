"""Fixtures for the tests of compiles."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from debate_judge.runs.mlflow_setup import sqlite_file
from debate_judge.runs.tracking import store


@pytest.fixture(scope="session")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables") / "mlflow.db"


@pytest.fixture(autouse=True)
def _tables_made_once(_made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every new tracking store a copy of the first one's empty tables, whose making takes MLflow seconds.

    How they are made is tested in tests/runs/test_tracking_store.py.
    """
    make = store._make_tables

    def copied(uri: str) -> None:
        file = sqlite_file(uri)
        fresh = file is not None and file.is_file() and not file.stat().st_size
        if file is not None and fresh and _made.exists():
            shutil.copyfile(_made, file)
            return
        make(uri)
        if file is not None and fresh:
            shutil.copyfile(file, _made)

    monkeypatch.setattr(store, "_make_tables", copied)
