"""A store that an earlier version of this code has recorded gives the same tables without one call."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.pins.cases import RECORDED, REPLAYED, compared
from tests.pins.recording import Recorder

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("name", REPLAYED)
def test_a_recorded_store_replays_without_a_call(name: str, tmp_path: Path) -> None:
    store = shutil.copytree(RECORDED / "store", tmp_path / "store")
    with Recorder() as server:
        server.revoke_after = 0
        assert compared(name, tmp_path, store, server) == json.loads((RECORDED / "tables.json").read_text())[name]
    assert server.requests == 0
