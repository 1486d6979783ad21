"""Places that a command writes to are tried first, and nothing that is there changes by it."""

from __future__ import annotations

import os
from pathlib import Path

from debate_judge.data.files.writing import require_writable, write_json


def test_what_is_there_stays_as_it_is_and_what_is_not_stays_away(tmp_path: Path) -> None:
    there, new = tmp_path / "a.json", tmp_path / "b" / "c" / "d.json"
    there.write_text("old")
    require_writable(there, "--json")
    require_writable(new, "--json")
    require_writable(None, "--json")
    require_writable("/dev/null", "--json")
    assert there.read_text() == "old"
    assert new.parent.is_dir()
    assert not list(new.parent.iterdir())
    write_json(new, {"a": 1}, "--json")
    assert new.read_text() == '{\n  "a": 1\n}\n'


def test_a_pipe_that_nobody_reads_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    require_writable(tmp_path / "pipe", "--json")
