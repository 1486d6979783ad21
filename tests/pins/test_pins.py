"""What every judge sends, under which keys it is stored and what comes of it are as they were pinned.

`python -m tests.pins.renew` renews the pins, on purpose; `git diff tests/pins/pinned` then shows what has changed.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.pins.cases import CASES, PINNED, compile_sample, pin
from tests.pins.recording import content, digest

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("name", CASES)
def test_a_command_sends_and_finds_what_is_pinned(name: str, tmp_path: Path) -> None:
    found, calls = pin(name, tmp_path)
    expected = json.loads((PINNED / f"{name}.json").read_text(encoding="utf-8"))
    known = set(expected["each"].split())
    new = [call for call in calls if digest(call)[:8] not in known]
    if new:
        text = "\n".join(f"--- {message['role']}\n{content(message)}" for message in new[0]["messages"])
        pytest.fail(f"{name}: {len(new)} of {len(calls)} calls have messages that are not pinned; the first:\n{text}")
    assert found == expected


def test_the_sample_compiles_to_what_is_pinned(tmp_path: Path) -> None:
    """Chosen judges; held-out agreement within 0.02; calls within 20 %."""
    expected = json.loads((PINNED / "sample.json").read_text(encoding="utf-8"))
    compiled = compile_sample(tmp_path)
    assert compiled["chosen"] == expected["chosen"]
    assert compiled["held_out"] == pytest.approx(expected["held_out"], abs=0.02)
    assert compiled["lm_calls"] == pytest.approx(expected["lm_calls"], rel=0.2)
