"""What a distributed run reads: the same groups as one process reads, cut into units."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import fsspec
import pandas as pd
import pytest

from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import ReadingNotes
from debate_judge.data.schema import RatedGroup
from debate_judge.runs.distributed import units
from debate_judge.runs.distributed.units import ReadingOptions, Unit, cut_into_units, find_inputs, read_unit
from debate_judge.runs.scoring.scorer import new_groups
from tests.data.test_formats import workbook
from tests.runs.distributed_run import group, write_jsonl
from tests.runs.score_command import TASK


def sized(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", size)
    monkeypatch.setattr(units, "MAX_UNIT_BYTES", size)


def read(
    pattern: str | Path, columns: tuple[str, ...] = (), shared: bool = False
) -> tuple[list[RatedGroup | InputError], list[Unit]]:
    """The groups and errors of all units, and the units."""
    found: list[RatedGroup | InputError] = []
    pieces = cut_into_units(find_inputs(str(pattern)), columns, shared)
    for piece in pieces:
        how = ReadingOptions(TASK, columns=columns, shares_calls=shared)
        for one in read_unit(piece, how, ReadingNotes(""), found.append):
            found.append(one)  # Between its errors.
    return found, pieces


@pytest.fixture
def memory() -> Iterator[str]:
    system = fsspec.filesystem("memory")
    yield "memory://texts"
    system.store.clear()


@pytest.mark.parametrize("size", [60, 333, 5000, 1 << 20])
def test_ranges_of_bytes_hold_every_group_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    sized(monkeypatch, size)
    path = write_jsonl(tmp_path / "in.jsonl", range(40))
    found, pieces = read(path)
    assert found == list(new_groups(path, TASK))
    assert len(pieces) == -(-path.stat().st_size // size)
    assert sum(piece.size for piece in pieces) == path.stat().st_size


def test_lines_of_any_length_and_without_an_end_are_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "in.jsonl"
    groups = [{**group(n), "source": "ä" * (n * 37 % 400 + 1)} for n in range(30)]
    path.write_text("\n\n".join(json.dumps(g, ensure_ascii=False) for g in groups), encoding="utf-8-sig")
    whole = list(new_groups(path, TASK))
    assert len(whole) == 30
    for size in (50, 77, 400, 1234):
        sized(monkeypatch, size)
        assert read(path)[0] == whole


def write_table(path: Path, sources: int) -> Path:
    """Rows without ids, some of them over several lines, of which as many belong to a source."""
    rows = [{"source": f"message {n // sources}", "text": f"reply\n{n}"} for n in range(60)]
    if path.suffix == ".xlsx":
        return workbook(path, [["source", "text"], *([row["source"], row["text"]] for row in rows)])
    frame = pd.DataFrame(rows)
    if path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        (frame.to_csv if path.suffix == ".csv" else frame.to_parquet)(path, index=False)
    return path


@pytest.mark.integration
@pytest.mark.parametrize(
    ("kind", "sources", "shared"),
    # A workbook is read in a process of its own, and slowly.
    [*product([".csv", ".parquet", ".jsonl"], [3], [False, True]), (".csv", 50, True), (".xlsx", 3, True)],
)
def test_tables_are_cut_between_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, sources: int, shared: bool
) -> None:
    path = write_table(tmp_path / f"in{kind}", sources)
    sized(monkeypatch, path.stat().st_size // 7)
    found, pieces = read(path, shared=shared)
    assert found == list(new_groups(path, TASK))
    assert 7 <= len(pieces) <= 8
    # It is read from its beginning for each, and so only so often.
    sized(monkeypatch, 1)
    found, pieces = read(path, shared=shared)
    assert found == list(new_groups(path, TASK))
    assert len(pieces) == units.MAX_TABLE_UNITS


def test_globs_and_urls_name_files_in_order(tmp_path: Path, memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sized(monkeypatch, 300)
    for number in (2, 0, 1):
        write_jsonl(tmp_path / f"in-{number}.jsonl", range(number * 5, number * 5 + 5))
        fsspec.filesystem("memory").pipe_file(
            f"/texts/in-{number}.jsonl", (tmp_path / f"in-{number}.jsonl").read_bytes()
        )
    ids = [f"g{n}" for n in range(15)]
    for pattern in (tmp_path / "in-*.jsonl", f"file://{tmp_path}/in-*.jsonl", f"{memory}/in-*.jsonl"):
        assert [found.id for found in read(pattern)[0] if isinstance(found, RatedGroup)] == ids
    assert [file.name for file in find_inputs(f"{memory}/in-1.jsonl")] == ["memory:///texts/in-1.jsonl"]


def test_bad_lines_are_reported_with_their_place_and_stop_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [json.dumps(group(n)) for n in range(30)]
    lines[11] = '{"group": "broken"'
    lines[20] = json.dumps({"group": "g20", "source": "s", "candidates": [{"id": "c", "text": 7}]})
    lines[27] = json.dumps(group(26))
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    before = path.read_bytes()
    for size in (1 << 20, 700):
        sized(monkeypatch, size)
        found, _ = read(path)
        assert [one.id for one in found if isinstance(one, RatedGroup)] == [
            f"g{n}" for n in range(30) if n not in (11, 20, 27)
        ]
        errors = [one for one in found if isinstance(one, InputError)]
        assert [(one.file, one.line) for one in errors] == [(str(path), 12), (str(path), 21), (str(path), 28)]
        assert errors[1].field == "candidates[0].text"
        assert "a second time" in str(errors[2])
    assert path.read_bytes() == before


def test_columns_have_the_names_that_the_user_gives(tmp_path: Path, memory: str) -> None:
    text = "id,question,answer\n1,who?,reply 1\n1,who?,reply 2\n"
    fsspec.filesystem("memory").pipe_file("/texts/in.csv", text.encode())
    ((found,), _) = read(f"{memory}/in.csv", columns=("group=id", "source=question", "text=answer"))
    assert [c.text for c in found.candidates] == ["reply 1", "reply 2"]
    ((error,), _) = read(f"{memory}/in.csv", columns=("source=question",))
    assert "memory:///texts/in.csv" in str(error)
    assert "'text' is missing" in str(error)


def write_sources(path: Path, sources: list[int]) -> Path:
    groups = [{**group(n), "task": TASK.name, "source": f"message {source}"} for n, source in enumerate(sources)]
    lines = [json.dumps(one) for one in groups]
    path.write_text("\n\n".join(lines[:70]) + "\n" + "\n".join(lines[70:]), encoding="utf-8")
    return path


def by_unit(path: Path, shared: bool) -> list[list[RatedGroup]]:
    pieces = cut_into_units(find_inputs(str(path)), (), shared)
    how = ReadingOptions(TASK, shares_calls=shared)
    return [list(read_unit(one, how, ReadingNotes(""), pytest.fail)) for one in pieces]


@pytest.mark.parametrize("size", [60, 333, 5000])
def test_groups_that_share_calls_are_in_one_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    sized(monkeypatch, size)
    path = write_sources(tmp_path / "in.jsonl", [n // (1 + n * 7 % 5) for n in range(60)] + [99] * 30 + [7])
    found = by_unit(path, shared=True)
    assert [one for groups in found for one in groups] == list(new_groups(path, TASK))
    assert len(found) > 1
    assert all(found)
    assert all(one[-1].source != other[0].source for one, other in pairwise(found))


def test_where_sources_change_is_found_in_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_sources(tmp_path / "in.jsonl", [1] * 3000 + [2] * 10)
    passed = 0

    class Counted(io.FileIO):
        def readinto(self, buffer: Any) -> int | None:
            nonlocal passed
            found = super().readinto(buffer)
            passed += found or 0
            return found

    def opened(place: str) -> Any:
        return io.BufferedReader(Counted(place))

    monkeypatch.setattr(units, "open_input", opened)
    sized(monkeypatch, path.stat().st_size // 20 + 1)
    assert [len(groups) for groups in by_unit(path, shared=True)] == [3000, 10]
    # Once to find the places, and once to copy each unit.
    assert passed < 2.2 * path.stat().st_size


RECORDS = [json.dumps(group(n)) for n in range(4)]


@pytest.mark.parametrize(
    "text",
    [
        '{"data": [\n' + ",\n".join(RECORDS) + "\n]}\n",
        "[\n" + ",\n".join(RECORDS) + "\n]\n",
        "[" + ", ".join(RECORDS) + "]",
    ],
)
def test_records_in_one_json_value_are_read_as_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    path = tmp_path / "in.json"
    path.write_text(text, encoding="utf-8-sig")
    whole = list(new_groups(path, TASK))
    assert len(whole) == 4
    assert read(path)[0] == whole
    sized(monkeypatch, 100)
    assert read(path)[0] == whole
