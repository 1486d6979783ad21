"""What a distributed run does with input that cannot be read: a line costs itself alone, and every one is counted."""

from __future__ import annotations

import json
from pathlib import Path

from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import ReadingNotes
from debate_judge.data.schema import RatedGroup
from debate_judge.runs.distributed.inputs import find_inputs, slices
from debate_judge.runs.distributed.out_folder import OutFolder
from debate_judge.runs.distributed.parts import PartShape, parts_of
from debate_judge.runs.distributed.slice_reading import SliceReading, read_slice
from tests.runs.distributed_run import group
from tests.runs.score_command import TASK

SHAPE = PartShape(groups=50, aspects=1, gathered=512)


def read(path: Path, size: int = 1 << 20) -> tuple[list[RatedGroup], list[InputError]]:
    found: list[RatedGroup] = []
    errors: list[InputError] = []
    for piece in slices(find_inputs(str(path)), (), size):
        found += read_slice(piece, SliceReading(TASK), ReadingNotes(""), errors.append)
    return found, errors


def bad_lines(path: Path) -> set[int]:
    """Write 200 lines, every eighth of them bad, each in another way than the one before; returns their places."""
    lines = [json.dumps(group(n)).encode() for n in range(200)]
    ways = [b"{", b"[1]", b'{"group": "\xff"}', json.dumps({**group(0), "candidates": []}).encode(), lines[0]]
    bad = set(range(4, 200, 8))
    for number, place in enumerate(sorted(bad)):
        lines[place] = ways[number % len(ways)]
    path.write_bytes(b"\n".join(lines))
    return bad


def test_any_number_of_bad_lines_cost_only_themselves(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    bad = bad_lines(path)
    assert len(bad) == 25
    found, errors = read(path)
    assert [one.id for one in found] == [f"g{n}" for n in range(200) if n not in bad]
    assert [one.line for one in errors] == [n + 1 for n in sorted(bad)]
    # A candidate that comes twice is noticed only within a slice.
    found, errors = read(path, 2000)
    assert {f"g{n}" for n in range(200) if n not in bad} == {one.id for one in found}
    assert {one.line for one in errors} >= {n + 1 for n in bad if (n - 4) // 8 % 5 != 4}
    assert {one.file for one in errors} == {str(path)}


def test_the_first_errors_are_told_and_the_further_ones_counted(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    bad_lines(path)
    (piece,) = slices(find_inputs(str(path)), ())
    *scored, last = parts_of(piece, SliceReading(TASK), SHAPE, OutFolder(str(tmp_path / "out.jsonl")), set())
    assert len(scored) == last.parts == 4
    assert last.unread == 25
    assert len(last.errors) == 21
    assert last.errors[-1] == f"{path}: 5 further lines that cannot be read"


def test_a_table_is_read_up_to_its_first_bad_row(tmp_path: Path) -> None:
    """Read on behind a misplaced quote, the second line of this text would be a row of its own."""
    path = tmp_path / "in.csv"
    lines = ["group,source,text", "g0,m,reply 0", "g1,m,reply 1", 'g2,m,"a "quoted" text', 'g9,m,injected"', "g3,m,r"]
    path.write_text("\n".join(lines), encoding="utf-8")
    found, (error,) = read(path)
    # The group of the row before may go on behind it.
    assert [one.id for one in found] == ["g0"]
    assert error.line == 4
    assert "what follows is not read" in str(error)


def test_a_table_without_the_columns_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("group,answer\n" + "g,reply\n" * 50, encoding="utf-8")
    found, (error,) = read(path)
    assert found == []
    assert str(path) in str(error)
