"""What a distributed run reads: the same groups as one process reads, cut into units; and what it cannot read."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import fsspec
import pandas as pd
import pyarrow.parquet as pq
import pytest

from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import ReadingNotes
from debate_judge.data.schema import RatedGroup
from debate_judge.runs.distributed import units
from debate_judge.runs.distributed.units import ReadingOptions, cut_into_units, find_inputs, read_unit
from debate_judge.runs.flags.parser import EXIT_INPUT, EXIT_LM
from debate_judge.runs.scoring.scorer import new_groups
from tests.data.test_formats import workbook
from tests.runs.distributed_command import Command, group, in_this_process, write_groups
from tests.runs.score_command import TASK


def sized(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", size)
    monkeypatch.setattr(units, "MAX_UNIT_BYTES", size)


def read(
    pattern: str | Path, columns: tuple[str, ...] = (), shared: bool = False
) -> tuple[list[RatedGroup | InputError], list[list[RatedGroup]]]:
    """The groups and errors of all units, and the groups by unit."""
    entries: list[RatedGroup | InputError] = []
    options = ReadingOptions(TASK, columns=columns, shares_calls=shared)
    by_unit = []
    for unit in cut_into_units(find_inputs(str(pattern)), columns, shared):
        by_unit.append([])
        for rated in read_unit(unit, options, ReadingNotes(""), entries.append):
            entries.append(rated)  # Between its errors.
            by_unit[-1].append(rated)
    return entries, by_unit


def ids(entries: list[RatedGroup | InputError]) -> list[str]:
    return [entry.id for entry in entries if isinstance(entry, RatedGroup)]


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()


@pytest.mark.parametrize("size", [60, 333, 5000, 1 << 20])
def test_ranges_of_bytes_hold_every_group_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Lines of any length, with blank ones between and without an end, are read whole."""
    sized(monkeypatch, size)
    path, plain = tmp_path / "in.jsonl", write_groups(tmp_path / "plain.jsonl", range(40))
    groups = [{**group(n), "source": "ä" * (n * 37 % 400 + 1)} for n in range(30)]
    path.write_text("\n\n".join(json.dumps(g, ensure_ascii=False) for g in groups), encoding="utf-8-sig")
    for file, count in ((plain, 40), (path, 30)):
        entries, by_unit = read(file)
        assert entries == list(new_groups(file, TASK))
        assert len(entries) == count
        assert len(by_unit) == -(-file.stat().st_size // size)


def write_table(path: Path, sources: int) -> Path:
    """Rows without ids, over two lines each, of which as many belong to a source."""
    rows = [[f"message {n // sources}", f"reply\n{n}"] for n in range(60)]
    if path.suffix == ".xlsx":
        return workbook(path, [["source", "text"], *rows])
    frame = pd.DataFrame(rows, columns=["source", "text"])
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
    whole = list(new_groups(path, TASK))
    sized(monkeypatch, path.stat().st_size // 7)
    entries, by_unit = read(path, shared=shared)
    assert entries == whole
    assert 7 <= len(by_unit) <= 8
    # It is read from its beginning for each, and so only so often.
    sized(monkeypatch, 1)
    entries, by_unit = read(path, shared=shared)
    assert entries == whole
    assert len(by_unit) == units.MAX_TABLE_UNITS


def test_globs_and_urls_name_files_in_order(
    tmp_path: Path, memory: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    sized(monkeypatch, 300)
    for number in (2, 0, 1):
        file = write_groups(tmp_path / f"in-{number}.jsonl", range(number * 5, number * 5 + 5))
        memory.pipe_file(f"/texts/{file.name}", file.read_bytes())
    for pattern in (tmp_path / "in-*.jsonl", f"file://{tmp_path}/in-*.jsonl", "memory://texts/in-*.jsonl"):
        assert ids(read(pattern)[0]) == [f"g{n}" for n in range(15)]


def test_columns_have_the_names_that_the_user_gives(memory: fsspec.AbstractFileSystem) -> None:
    memory.pipe_file("/texts/in.csv", b"id,question,answer\n1,who?,reply 1\n1,who?,reply 2\n")
    ((rated,), _) = read("memory://texts/in.csv", columns=("group=id", "source=question", "text=answer"))
    assert [c.text for c in rated.candidates] == ["reply 1", "reply 2"]
    ((error,), _) = read("memory://texts/in.csv", columns=("source=question",))
    assert "memory:///texts/in.csv" in str(error)
    assert "'text' is missing" in str(error)


def write_sources(path: Path, sources: list[int]) -> Path:
    lines = [json.dumps({**group(n), "source": f"message {source}"}) for n, source in enumerate(sources)]
    path.write_text("\n\n".join(lines[:70]) + "\n" + "\n".join(lines[70:]), encoding="utf-8")
    return path


@pytest.mark.parametrize("size", [60, 333, 5000])
def test_groups_that_share_calls_are_in_one_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    sized(monkeypatch, size)
    path = write_sources(tmp_path / "in.jsonl", [n // (1 + n * 7 % 5) for n in range(60)] + [99] * 30 + [7])
    entries, by_unit = read(path, shared=True)
    assert entries == list(new_groups(path, TASK))
    assert len(by_unit) > 1
    assert all(earlier[-1].source != later[0].source for earlier, later in pairwise(by_unit))


def test_where_sources_change_is_found_in_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_sources(tmp_path / "in.jsonl", [1] * 1000 + [2] * 10)
    counts: list[int] = []

    class Counted(io.FileIO):
        def readinto(self, buffer: Any) -> int | None:
            counts.append(super().readinto(buffer) or 0)
            return counts[-1]

    monkeypatch.setattr(units, "open_input", lambda place: io.BufferedReader(Counted(place)))
    sized(monkeypatch, path.stat().st_size // 20 + 1)
    assert [len(groups) for groups in read(path, shared=True)[1]] == [1000, 10]
    # Once to find the places, and once to copy each unit.
    assert sum(counts) < 2.2 * path.stat().st_size


RECORDS = [json.dumps(group(n)) for n in range(4)]


@pytest.mark.parametrize("size", [100, 1 << 20])
@pytest.mark.parametrize(
    "text",
    [
        '{"data": [\n' + ",\n".join(RECORDS) + "\n]}\n",
        "[\n" + ",\n".join(RECORDS) + "\n]\n",
        "[" + ", ".join(RECORDS) + "]",
    ],
    ids=["object", "array", "line"],
)
def test_records_in_one_json_value_are_read_as_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, size: int
) -> None:
    sized(monkeypatch, size)
    path = tmp_path / "in.json"
    path.write_text(text, encoding="utf-8-sig")
    assert read(path)[0] == list(new_groups(path, TASK))
    assert ids(read(path)[0]) == ["g0", "g1", "g2", "g3"]


# --- what cannot be read: a line costs itself alone, and every one is counted ---


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    with in_this_process(tmp_path, monkeypatch) as command:
        yield command


BAD = [b"{", b"[1]", b'{"group": "\xff"}', json.dumps({**group(0), "candidates": []}).encode()]


@pytest.mark.integration
@pytest.mark.parametrize("size", [2000, 1 << 20])
def test_any_number_of_bad_lines_cost_only_themselves(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    lines = [json.dumps(group(n, candidates=1)).encode() for n in range(200)]
    bad = list(range(4, 200, 8))
    for number, place in enumerate(bad):
        lines[place] = BAD[number % len(BAD)]
    path = command.folder / "in.jsonl"
    path.write_bytes(b"\n".join(lines))
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", size)
    assert command(aspects="tone") == EXIT_INPUT
    assert [json.loads(row)["group"] for row in command.lines()] == [f"g{n}" for n in range(200) if n not in bad]
    output = capsys.readouterr().err
    assert "25 records" in output
    shown = bad if size == 2000 else bad[:20]
    reported = re.findall(rf"error: {re.escape(str(path))}, line (\d+)", output)
    assert sorted(map(int, reported)) == [place + 1 for place in shown]
    assert (f"{path}: 5 further lines" in output) == (size > 2000)


@pytest.mark.integration
def test_a_run_from_one_store_to_another_goes_on_after_a_stop(
    command: Command, memory: fsspec.AbstractFileSystem, capsys: pytest.CaptureFixture[str]
) -> None:
    write_groups(command.folder / "in-0.jsonl", range(10))
    write_groups(command.folder / "in-1.csv", range(10, 15))
    write_groups(command.folder / "in-2.parquet", range(15, 20))
    memory.put(f"{command.folder}/in-*", "/texts/")
    places: dict[str, str | Path] = {"in": "memory://texts/in-*", "out": "memory://texts/scores.parquet"}
    assert command(budget="calls=60", **places) == EXIT_LM
    stopped = len(memory.glob("/texts/scores.parquet/part-*"))
    assert command(**places) == 0
    parts = memory.glob("/texts/scores.parquet/part-*")
    assert stopped < len(parts)
    # A listing of the store has no order, and all handles of one of its files share a position.
    tables = [pq.read_table(io.BytesIO(memory.cat_file(part))) for part in sorted(parts)]
    rows = [row for table in tables for row in table.to_pylist()]
    assert [row["group"] for row in rows] == [f"g{n}" for n in range(20) for _ in range(4)]
    assert all(row["score"] is not None for row in rows)
    assert max(command.server.answered.values()) == 1
    # The same texts on this machine have the same rows.
    assert command() == 0
    assert [json.loads(row) for row in command.lines()] == rows
    # A part that is lost is made again; an input that has changed is refused.
    memory.rm_file(parts[1])
    assert command(**places) == 0
    assert memory.exists(parts[1])
    content = memory.cat_file("/texts/in-1.csv")
    memory.pipe_file("/texts/in-1.csv", content.replace(b"message 12", b"message 99"))
    assert command(**places) == EXIT_INPUT
    assert "different inputs" in capsys.readouterr().err


@pytest.mark.integration
@pytest.mark.parametrize("size", [40, 1 << 20])
def test_a_table_is_read_up_to_its_first_bad_row(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    """Read on behind a misplaced quote, the second line of this text would be a row of its own."""
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", size)
    lines = ["group,source,text", "g0,m,reply 0", "g1,m,reply 1", 'g2,m,"a "quoted" text', 'g9,m,injected"', "g3,m,r"]
    (command.folder / "in.csv").write_text("\n".join(lines), encoding="utf-8")
    # A table without the columns is reported once, too.
    (command.folder / "in-2.csv").write_text("group,answer\n" + "g,reply\n" * 500, encoding="utf-8")
    assert command(aspects="tone") == EXIT_INPUT
    # The group of the row before may go on behind it.
    assert [json.loads(row)["group"] for row in command.lines()] == ["g0"]
    output = capsys.readouterr().err
    assert [output.count(text) for text in ("in.csv, line 4: ", "in-2.csv")] == [1, 1]
    assert "what follows is not read" in output
