"""What a compile of the sample with the offline LM chooses, how well it agrees, and what it takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.pins.cases import PINNED, compile_sample

pytestmark = pytest.mark.integration

AGREEMENT, CALLS = 0.02, 0.2
"""How far agreement may move, and the share by which calls may."""


def test_the_sample_compiles_to_what_is_pinned(tmp_path: Path) -> None:
    expected = json.loads((PINNED / "sample.json").read_text(encoding="utf-8"))
    found = compile_sample(tmp_path)
    assert found["chosen"] == expected["chosen"]
    assert found["held_out"] == pytest.approx(expected["held_out"], abs=AGREEMENT)
    assert found["lm_calls"] == pytest.approx(expected["lm_calls"], rel=CALLS)
