"""What a distributed run does with input that cannot be read: a line costs itself alone, and every one is counted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from debate_judge.runs.distributed import units
from debate_judge.runs.flags.parser import EXIT_INPUT
from tests.runs.distributed_command import Command, in_this_process
from tests.runs.distributed_run import group

pytestmark = pytest.mark.integration


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    with in_this_process(tmp_path, monkeypatch) as command:
        yield command


def bad_lines(path: Path) -> set[int]:
    """Write 200 lines, every eighth of them bad, each in another way than the one before; returns their places."""
    lines = [json.dumps(group(n, candidates=1)).encode() for n in range(200)]
    ways = [b"{", b"[1]", b'{"group": "\xff"}', json.dumps({**group(0), "candidates": []}).encode()]
    bad = set(range(4, 200, 8))
    for number, place in enumerate(sorted(bad)):
        lines[place] = ways[number % len(ways)]
    path.write_bytes(b"\n".join(lines))
    return bad


@pytest.mark.parametrize("size", [2000, 1 << 20])
def test_any_number_of_bad_lines_cost_only_themselves(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    path = command.folder / "in.jsonl"
    bad = bad_lines(path)
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", size)
    assert command(aspects="tone") == EXIT_INPUT
    assert [json.loads(row)["group"] for row in command.rows()] == [f"g{n}" for n in range(200) if n not in bad]
    said = capsys.readouterr().err
    assert "25 records" in said
    shown = sorted(bad) if size == 2000 else sorted(bad)[:20]
    assert {int(n) for n in re.findall(rf"error: {re.escape(str(path))}, line (\d+)", said)} == {n + 1 for n in shown}
    assert said.count(f"error: {path}, line ") == len(shown)
    assert (f"{path}: 5 further lines" in said) == (size > 2000)


@pytest.mark.parametrize("size", [40, 1 << 20])
def test_a_table_is_read_up_to_its_first_bad_row(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    """Read on behind a misplaced quote, the second line of this text would be a row of its own."""
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", size)
    lines = ["group,source,text", "g0,m,reply 0", "g1,m,reply 1", 'g2,m,"a "quoted" text', 'g9,m,injected"', "g3,m,r"]
    (command.folder / "in.csv").write_text("\n".join(lines), encoding="utf-8")
    assert command(aspects="tone") == EXIT_INPUT
    # The group of the row before may go on behind it.
    assert [json.loads(row)["group"] for row in command.rows()] == ["g0"]
    said = capsys.readouterr().err
    assert said.count("in.csv, line 4: ") == 1
    assert "not read" in said
    assert "1 records of" in said


def test_a_table_without_the_columns_is_reported_once(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    path = command.folder / "in.csv"
    path.write_text("group,answer\n" + "g,reply\n" * 500, encoding="utf-8")
    assert command() == EXIT_INPUT
    assert capsys.readouterr().err.count(f"error: {path}") == 1
    assert command.rows() == []
