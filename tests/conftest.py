"""Fixtures for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with human-rated public sets; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("DEBATE_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no human-rated public sets here: set DEBATE_DATA to the folder that holds summeval.jsonl")
    return folder
