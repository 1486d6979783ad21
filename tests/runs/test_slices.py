"""What a distributed run reads and writes: the same groups as one process reads, in parts that stand whole."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import ReadingNotes
from debate_judge.data.schema import RatedGroup
from debate_judge.programs.judge import Item
from debate_judge.programs.transcript import EMPTY
from debate_judge.runs.distributed.inputs import find_inputs, slices
from debate_judge.runs.distributed.out_folder import OutFolder
from debate_judge.runs.distributed.parts import PartRows, ScoringPart, parts_of
from debate_judge.runs.distributed.slice_reading import SliceReading, read_slice
from debate_judge.runs.runner.streaming import Score
from debate_judge.runs.scoring.new_texts import new_groups
from debate_judge.runs.scoring.output import RowTotals
from tests.runs.distributed_run import group, write_csv, write_jsonl, write_parquet
from tests.runs.score_command import TASK

READING = SliceReading(TASK)


def read(pattern: str | Path, size: int = 1 << 20, columns: tuple[str, ...] = ()) -> list[RatedGroup | InputError]:
    found: list[RatedGroup | InputError] = []
    for piece in slices(find_inputs(str(pattern)), columns, size):
        for one in read_slice(piece, SliceReading(TASK, columns=columns), ReadingNotes(""), found.append):
            found.append(one)  # Between its errors.
    return found


@pytest.fixture
def memory() -> Iterator[str]:
    system = fsspec.filesystem("memory")
    yield "memory://texts"
    system.store.clear()


@pytest.mark.parametrize("size", [60, 333, 5000, 1 << 20])
def test_ranges_of_bytes_hold_every_group_once(tmp_path: Path, size: int) -> None:
    path = write_jsonl(tmp_path / "in.jsonl", range(40))
    assert read(path, size) == list(new_groups(path, TASK))
    assert len(slices(find_inputs(str(path)), (), size)) == -(-path.stat().st_size // size)


def test_lines_of_any_length_and_without_an_end_are_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    groups = [{**group(n), "source": "ä" * (n * 37 % 400 + 1)} for n in range(30)]
    path.write_text("\n\n".join(json.dumps(g, ensure_ascii=False) for g in groups), encoding="utf-8-sig")
    whole = list(new_groups(path, TASK))
    assert len(whole) == 30
    for size in (50, 77, 400, 1234):
        assert read(path, size) == whole


def test_tables_are_not_cut(tmp_path: Path) -> None:
    jsonl = tmp_path / "rows.jsonl"
    rows = [{"source": f"message {n // 3}", "text": f"reply {n}"} for n in range(30)]
    jsonl.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for path in (write_csv(tmp_path / "a.csv", range(30)), write_parquet(tmp_path / "b.parquet", range(30)), jsonl):
        assert len(slices(find_inputs(str(path)), (), 100)) == 1
        assert read(path, 100) == list(new_groups(path, TASK))


def test_globs_and_urls_name_files_in_order(tmp_path: Path, memory: str) -> None:
    for number in (2, 0, 1):
        write_jsonl(tmp_path / f"in-{number}.jsonl", range(number * 5, number * 5 + 5))
        fsspec.filesystem("memory").pipe_file(
            f"/texts/in-{number}.jsonl", (tmp_path / f"in-{number}.jsonl").read_bytes()
        )
    ids = [f"g{n}" for n in range(15)]
    for pattern in (tmp_path / "in-*.jsonl", f"file://{tmp_path}/in-*.jsonl", f"{memory}/in-*.jsonl"):
        assert [found.id for found in read(pattern, 300) if isinstance(found, RatedGroup)] == ids
    assert [file.name for file in find_inputs(f"{memory}/in-1.jsonl")] == ["memory:///texts/in-1.jsonl"]
    with pytest.raises(InputError, match="no such file"):
        find_inputs(str(tmp_path / "*.csv"))
    with pytest.raises(InputError, match="cannot be listed"):
        find_inputs("nowhere://bucket/x.jsonl")


def test_bad_lines_are_told_with_their_place_and_stop_no_other(tmp_path: Path) -> None:
    lines = [json.dumps(group(n)) for n in range(30)]
    lines[11] = '{"group": "broken"'
    lines[20] = json.dumps({"group": "g20", "source": "s", "candidates": [{"id": "c", "text": 7}]})
    lines[27] = json.dumps(group(26))
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    before = path.read_bytes()
    for size in (1 << 20, 700):
        found = read(path, size)
        assert [one.id for one in found if isinstance(one, RatedGroup)] == [
            f"g{n}" for n in range(30) if n not in (11, 20, 27)
        ]
        errors = [one for one in found if isinstance(one, InputError)]
        assert [(one.file, one.line) for one in errors] == [(str(path), 12), (str(path), 21), (str(path), 28)]
        assert errors[1].field == "candidates[0].text"
        assert "the candidate of line 27" in str(errors[2])
    assert path.read_bytes() == before


def test_a_file_that_cannot_be_read_stops_no_other(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", range(3))
    (tmp_path / "b.parquet").write_bytes(b"no parquet")
    (tmp_path / "c.csv").write_text('group,source,text\ng8,m,reply 1\ng9,m,reply 2\ng9,"m,reply 3\n', encoding="utf-8")
    found = read(tmp_path / "*")
    assert [one.id for one in found if isinstance(one, RatedGroup)] == ["g0", "g1", "g2", "g8"]
    errors = [one for one in found if isinstance(one, InputError)]
    assert [(Path(str(one.file)).name, one.line) for one in errors] == [("b.parquet", None), ("c.csv", 4)]


def test_columns_have_the_names_that_the_user_gives(tmp_path: Path, memory: str) -> None:
    text = "id,question,answer\n1,who?,reply 1\n1,who?,reply 2\n"
    fsspec.filesystem("memory").pipe_file("/texts/in.csv", text.encode())
    (found,) = read(f"{memory}/in.csv", columns=("group=id", "source=question", "text=answer"))
    assert isinstance(found, RatedGroup)
    assert [c.text for c in found.candidates] == ["reply 1", "reply 2"]
    (error,) = read(f"{memory}/in.csv", columns=("source=question",))
    assert "memory:///texts/in.csv" in str(error)
    assert "'text' is missing" in str(error)


# --- parts ---


def parts(path: Path, out: OutFolder, size: int = 4) -> list[ScoringPart]:
    (piece,) = slices(find_inputs(str(path)), ())
    return list(parts_of(piece, READING, size, out, out.part_names()))


def rows_of(part: ScoringPart, out: OutFolder, unscored: str | None = None) -> PartRows:
    rows = PartRows(out.suffix)
    for one in pickle.loads(part.groups):
        for candidate in one.candidates:
            item = Item(one.id, candidate.id, TASK, TASK.aspects[0], one.source, candidate.text)
            score = None if unscored else 3.0
            rows.add(item, Score(score, score, 1, "no issue", unscored, "", 2.0, 1, 1, EMPTY))
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
    system = out._store[0]
    monkeypatch.setattr(type(system), "mv", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
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
    out.finish_slice("00000-00001", totals)
    found = OutFolder(str(tmp_path / "out.parquet")).finished()
    assert found["00000-00001"] == RowTotals(5, 5, totals.unscored, totals.examples)
