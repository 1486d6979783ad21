"""What a distributed run reads and writes: the same groups as one process reads, in parts that stand whole."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import fsspec
import pytest

from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import ReadingNotes
from debate_judge.data.schema import RatedGroup
from debate_judge.runs.distributed import inputs, slice_reading
from debate_judge.runs.distributed.inputs import find_inputs, slices
from debate_judge.runs.distributed.slice_reading import SliceReading, read_slice
from debate_judge.runs.scoring.new_texts import new_groups
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
    with pytest.raises(InputError, match="cannot be reached"):
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


def write_sources(path: Path, sources: list[int]) -> Path:
    groups = [{**group(n), "task": TASK.name, "source": f"message {source}"} for n, source in enumerate(sources)]
    lines = [json.dumps(one) for one in groups]
    path.write_text("\n\n".join(lines[:70]) + "\n" + "\n".join(lines[70:]), encoding="utf-8")
    return path


def by_slice(path: Path, size: int, gathered: int) -> list[list[RatedGroup]]:
    pieces = slices(find_inputs(str(path)), (), size, gathered)
    return [list(read_slice(one, READING, ReadingNotes(""), pytest.fail)) for one in pieces]


@pytest.mark.parametrize("size", [60, 150, 333, 1000, 5000])
def test_groups_that_share_calls_are_in_one_slice(tmp_path: Path, size: int) -> None:
    path = write_sources(tmp_path / "in.jsonl", [n // (1 + n * 7 % 5) for n in range(60)] + [99] * 30 + [7])
    found = by_slice(path, size, 512)
    assert [one for those in found for one in those] == list(new_groups(path, TASK))
    assert len(found) > 1
    assert all(found)
    assert all(one[-1].source != other[0].source for one, other in pairwise(found))


@pytest.mark.parametrize("size", [60, 150, 333, 1000, 5000])
def test_a_source_of_many_groups_is_cut_where_the_judge_begins_another_table(tmp_path: Path, size: int) -> None:
    """Each group has two candidates, so with six at a table one may begin behind every third group of a source."""
    sources = [1] * 5 + [2] * 100 + [3]
    path = write_sources(tmp_path / "in.jsonl", sources)
    found = by_slice(path, size, 6)
    assert [one for those in found for one in those] == list(new_groups(path, TASK))
    assert {sources.index(n) for n in (2, 3)} | set(range(0, 5, 3)) | set(range(5, 105, 3)) >= {
        int(those[0].id[1:]) for those in found
    }
    line = path.stat().st_size // len(sources) + 2
    assert max(len(those) for those in found) <= size // line + 4


def test_judges_that_read_texts_alone_have_slices_of_one_size(tmp_path: Path) -> None:
    path = write_sources(tmp_path / "in.jsonl", [1] * 100)
    found = by_slice(path, path.stat().st_size // 5 + 1, 1)
    assert [one for those in found for one in those] == list(new_groups(path, TASK))
    assert len(found) == 5
    assert all(15 <= len(those) <= 25 for those in found)


def test_a_file_about_one_source_is_read_a_few_times_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_sources(tmp_path / "in.jsonl", [1] * 3000)
    read = 0

    class Counted(io.FileIO):
        def readinto(self, buffer: Any) -> int | None:
            nonlocal read
            found = super().readinto(buffer)
            read += found or 0
            return found

    def opened(place: str) -> Any:
        return io.BufferedReader(Counted(place))

    monkeypatch.setattr(inputs, "open_input", opened)
    monkeypatch.setattr(slice_reading, "open_input", opened)
    found = by_slice(path, path.stat().st_size // 20 + 1, 512)
    assert sum(len(those) for those in found) == 3000
    assert [int(those[0].id[1:]) % 256 for those in found] == [0] * 12
    # Where tables end is found in one pass, some of it twice.
    assert read < 4 * path.stat().st_size


RECORDS = [json.dumps(group(n)) for n in range(4)]


@pytest.mark.parametrize(
    "text",
    [
        '{"data": [\n' + ",\n".join(RECORDS) + "\n]}\n",
        "[\n" + ",\n".join(RECORDS) + "\n]\n",
        "\n[\n" + ",\n".join(RECORDS) + "\n]\n",
        '{"name": "x",\n"data": [\n' + ",\n".join(RECORDS) + "\n]}\n",
        "[" + ", ".join(RECORDS) + "]",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_records_in_one_json_value_are_read_as_in_one_process(tmp_path: Path, text: str, encoding: str) -> None:
    path = tmp_path / "in.json"
    path.write_text(text, encoding=encoding)
    whole = list(new_groups(path, TASK))
    assert len(whole) == 4
    assert read(path) == whole
    assert read(path, 100) == whole
