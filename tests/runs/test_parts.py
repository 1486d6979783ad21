"""The parts that a distributed run writes: cut where no calls are shared, and trusted where they stand whole."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from debate_judge.data.errors import InputError
from debate_judge.programs.judge import Item
from debate_judge.programs.transcript import EMPTY
from debate_judge.runs.distributed.inputs import find_inputs, slices
from debate_judge.runs.distributed.out_folder import OutFolder
from debate_judge.runs.distributed.parts import PartRows, PartShape, ScoringPart, parts_of
from debate_judge.runs.distributed.slice_reading import SliceReading
from debate_judge.runs.runner.streaming import Score
from debate_judge.runs.scoring.output import RowTotals
from tests.runs.distributed_run import group, write_jsonl
from tests.runs.score_command import TASK


@pytest.fixture
def memory() -> Iterator[str]:
    system = fsspec.filesystem("memory")
    yield "memory://texts"
    system.store.clear()


SHAPE = PartShape(groups=4, aspects=1, gathered=512)


def parts(path: Path, out: OutFolder, shape: PartShape = SHAPE) -> list[ScoringPart]:
    (piece,) = slices(find_inputs(str(path)), ())
    return list(parts_of(piece, SliceReading(TASK), shape, out, out.part_names()))


def rows_of(part: ScoringPart, out: OutFolder, unscored: str | None = None) -> PartRows:
    rows = PartRows(out.suffix)
    for one in pickle.loads(part.groups):
        for candidate in one.candidates:
            item = Item(one.id, candidate.id, TASK, TASK.aspects[0], one.source, candidate.text)
            score = None if unscored else 3.0
            rows.add(item, Score(score, score, 1, "no issue", unscored, "", "Clear.", 2.0, 1, 1, EMPTY))
    return rows


@pytest.mark.parametrize("kind", [".jsonl", ".parquet"])
@pytest.mark.parametrize("where", ["folder", "memory"])
def test_parts_that_stand_are_counted_and_not_scored(tmp_path: Path, memory: str, kind: str, where: str) -> None:
    path = write_jsonl(tmp_path / "in.jsonl", range(10))
    out = OutFolder(f"{memory}/out{kind}" if where == "memory" else str(tmp_path / f"out{kind}"))
    first = parts(path, out)
    assert [part.name for part in first] == ["00000-00000-000000", "00000-00000-000001", "00000-00000-000002", ""]
    assert [part.parts for part in first] == [None, None, None, 3]
    out.write_part(first[0].name, rows_of(first[0], out).encoded())
    out.write_part(first[1].name, rows_of(first[1], out, unscored="lm error").encoded())
    again = parts(path, pickle.loads(pickle.dumps(out)))
    assert again[0].standing == RowTotals(8, 8)
    assert not again[0].groups
    # What the LM had not answered is asked again.
    assert again[1].groups == first[1].groups
    assert again[2].groups == first[2].groups


def test_parquet_holds_what_json_lines_hold(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path, tables = write_jsonl(tmp_path / "in.jsonl", range(4)), {}
    for kind in (".jsonl", ".parquet"):
        out = OutFolder(str(tmp_path / f"out{kind}"))
        part = parts(path, out)[0]
        out.write_part(part.name, rows_of(part, out).encoded())
        tables[kind] = out.local
    (lines,) = tables[".jsonl"].glob("part-*")
    assert pq.read_table(tables[".parquet"]).to_pylist() == [json.loads(line) for line in lines.open()]


def test_a_part_that_was_not_written_whole_is_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = OutFolder(str(tmp_path / "out.jsonl"))
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        out.write_part("00000-00000-000000", b"{}\n")
    assert out.part_names() == set()


def test_a_folder_is_made_from_one_thing(tmp_path: Path) -> None:
    out = OutFolder(str(tmp_path / "out.jsonl"))
    inputs = [{"name": "a", "size": 1}, {"name": "b", "size": 2}]
    made = {"program": "p", "aspects": ("tone",), "inputs": inputs}
    out.require_made_from(made)
    out.require_made_from(made)
    with pytest.raises(InputError, match="another program") as caught:
        out.require_made_from({**made, "program": "q"})
    assert "another --out" in str(caught.value)
    with pytest.raises(InputError, match="another inputs") as caught:
        out.require_made_from({**made, "inputs": [inputs[0], {"name": "b", "size": 3}]})
    assert caught.value.found == "{'name': 'b', 'size': 3}"
    (tmp_path / "out.jsonl" / "_manifest.json").unlink()
    out.write_part("00000-00000-000000", b"{}\n")
    with pytest.raises(InputError, match="nothing says what they were made from"):
        out.require_made_from(made)


def test_one_run_at_a_time_writes_into_a_folder(tmp_path: Path) -> None:
    out = OutFolder(str(tmp_path / "out.jsonl"))
    with out.exclusive(), pytest.raises(InputError, match="another run"), out.exclusive():
        pass
    with pytest.raises(InputError, match="names the format"):
        OutFolder(str(tmp_path / "out.csv"))
    with pytest.raises(InputError, match="no store"):
        OutFolder("nowhere://bucket/out.jsonl").part_names()


def test_slices_that_stand_whole_are_known(tmp_path: Path) -> None:
    out = OutFolder(str(tmp_path / "out.parquet"))
    totals = RowTotals(5)
    totals.unscored["refused"] = 2
    totals.examples["refused"] = "the provider withholds"
    for number in range(2):
        out.write_part(f"00000-00001-00000{number}", b"rows")
    out.finish_slice("00000-00001", 2, totals)
    found = OutFolder(str(tmp_path / "out.parquet")).finished()
    assert found == {"00000-00001": RowTotals(5, 5, totals.unscored, totals.examples)}
    # Whatever took a part away, it is scored again.
    (tmp_path / "out.parquet" / "part-00000-00001-000001.parquet").unlink()
    assert out.finished() == {}


@pytest.mark.parametrize("kind", [".jsonl", ".parquet"])
@pytest.mark.parametrize("damage", ["empty", "cut", "fewer"])
def test_a_damaged_part_is_scored_again(tmp_path: Path, kind: str, damage: str) -> None:
    path, out = write_jsonl(tmp_path / "in.jsonl", range(4)), OutFolder(str(tmp_path / f"out{kind}"))
    (part, _) = parts(path, out)
    content = rows_of(part, out).encoded()
    fewer = ScoringPart("", groups=pickle.dumps(pickle.loads(part.groups)[:3]))
    left = {"empty": b"", "cut": content[: len(content) // 2], "fewer": rows_of(fewer, out).encoded()}[damage]
    out.write_part(part.name, left)
    (again, end) = parts(path, out)
    assert again.standing is None
    assert again.groups == part.groups
    assert end.notes == [f"{path}: 1 of its parts were damaged, and are scored again"]


def test_groups_that_may_share_calls_are_in_one_part(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    sources = [0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 3, 3, 3, 4]
    groups = [{**group(n), "source": f"message {source}"} for n, source in enumerate(sources)]
    path.write_text("".join(json.dumps(one) + "\n" for one in groups), encoding="utf-8")

    def numbers(gathered: int) -> list[list[int]]:
        found = parts(path, OutFolder(str(tmp_path / "out.jsonl")), PartShape(2, 1, gathered))
        return [[int(g.id[1:]) for g in pickle.loads(one.groups)] for one in found if one.groups]

    assert numbers(512) == [[0, 1, 2], [3, 4], [5, 6, 7, 8, 9, 10, 11, 12], [13]]
    # A judge begins another table after so many candidates of one source.
    assert numbers(6) == [[0, 1, 2], [3, 4], [5, 6, 7, 8], [9, 10, 11], [12, 13]]
