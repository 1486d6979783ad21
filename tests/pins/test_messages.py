"""What every judge sends, under which keys it is stored and what comes of it are as they were pinned.

`python -m tests.pins.renew` renews the pins, on purpose; `git diff tests/pins/pinned` then shows what has changed.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.pins.cases import CASES, PINNED
from tests.pins.recording import digest

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("name", CASES)
def test_a_command_sends_and_finds_what_is_pinned(name: str, tmp_path: Path) -> None:
    found, calls = CASES[name](name, tmp_path)
    expected = json.loads((PINNED / f"{name}.json").read_text(encoding="utf-8"))
    known = set(expected["each"].split())
    new = {digest(call): call for call in calls if digest(call)[:8] not in known}
    if new:
        text = "\n".join(f"--- {m['role']}\n{m['content']}" for m in next(iter(new.values()))["messages"])
        pytest.fail(f"{name}: {len(new)} of {len(calls)} calls have messages that are not pinned; the first:\n{text}")
    assert found == expected
