"""The commands that a finished compile proposes."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from debate_judge.optimize.reporting.summary import next_steps
from debate_judge.optimize.result import Result, TrackedRun
from debate_judge.optimize.settings import Settings


def test_commands_can_be_pasted_whatever_the_folder_is_called() -> None:
    result = SimpleNamespace(
        plan=SimpleNamespace(settings=Settings()),
        export=Path("my runs/exports/it's"),
        report=None,
        tracked=TrackedRun(run_id="1", ui_command=None, link="http://localhost/1", runs_link="http://localhost"),
    )
    (line,) = (line for line in next_steps(cast(Result, result)).splitlines() if line.startswith("Score "))
    words = shlex.split(line)
    assert words[words.index("score") + 1] == "my runs/exports/it's"
