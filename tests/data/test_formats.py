"""The formats that people's data come in: each must give the same groups, or an error that says what to do."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter

from debate_judge import data
from debate_judge.data.errors import InputError
from debate_judge.data.files import formats
from debate_judge.data.files.columns import ColumnNames
from debate_judge.data.files.formats import detect_format, read_records, typed_rows
from debate_judge.data.files.groups import iter_groups, load
from debate_judge.data.schema import Corpus, group_to_json
from debate_judge.runs.draft import draft_mapping
from tests.data.files_of_rows import TASK, Table, separated

HEADER = ("group", "source", "candidate", "text", "tone", "solved")
ROWS: Table = [
    ("g1", "Where is it, please?", "a", "Over there.", 4.5, "yes"),
    ("g1", "Where is it, please?", "b", "No idea; sorry.", 2, "no"),
    ("g2", "Wann – und wo?", "a", "Morgen.", 5, ""),
]


def workbook(path: Path, rows: Table, more: int = 0, before: Table | None = None, hidden: bool = False) -> Path:
    """A workbook with data from its third row on, `more` empty sheets, or one `before` that may be hidden."""
    with xlsxwriter.Workbook(path) as book:
        for content in [rows, *([[]] * more)] if before is None else [before, rows]:
            sheet = book.add_worksheet()
            if hidden and content is before:
                sheet.hide()
            elif content is rows:
                sheet.activate()
            for number, row in enumerate(content, start=2):
                sheet.write_row(number, 0, row)
    return path


def parquet(path: Path, rows: Table = ROWS, header: Sequence[str] = HEADER) -> Path:
    import pyarrow
    import pyarrow.parquet

    # A column of a data set has one type; a value that is missing is None.
    columns = {name: [row[i] if row[i] != "" else None for row in rows] for i, name in enumerate(header)}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def groups_of(corpus: Corpus) -> list[dict[str, object]]:
    return [group_to_json(group) for group in corpus.groups]


def in_json(path: Path, rows: object, indent: int | None = None) -> Path:
    path.write_text(json.dumps(rows, indent=indent))
    return path


def marked_lines(path: Path, rows: Sequence[object]) -> Path:
    path.write_bytes("\ufeff\n".encode() + "\r\n\n".join(json.dumps(r, ensure_ascii=False) for r in rows).encode())
    return path


RATED = [
    {"id": "a", "text": "Over there.", "ratings": {"tone": 4.5, "solved": 1}},
    {"id": "b", "text": "No idea; sorry.", "ratings": {"tone": 2, "solved": 0}},
    {"id": "a", "text": "Morgen.", "ratings": {"tone": 5}},
]
GROUPS = [
    {"group": "g1", "source": "Where is it, please?", "candidates": RATED[:2]},
    {"group": "g2", "source": "Wann – und wo?", "candidates": RATED[2:]},
]
TEXTS = [HEADER, *ROWS]
FLAT = [{k: v for k, v in zip(HEADER, row, strict=True) if v != ""} for row in ROWS]
FORMATS: dict[str, Callable[[Path], Path]] = {
    "commas and a mark": lambda folder: separated(folder / "a.csv", TEXTS, ",", "utf-8-sig"),
    "semicolons and decimal commas": lambda folder: separated(folder / "a.csv", TEXTS, ";", comma=True),
    "UTF-16": lambda folder: separated(folder / "a.csv", TEXTS, ";", "utf-16", comma=True),
    "tabs": lambda folder: separated(folder / "a.tsv", TEXTS, "\t", "utf-16"),
    "JSON lines with a mark and blank ones": lambda folder: marked_lines(folder / "a.jsonl", GROUPS),
    "an array of groups": lambda folder: in_json(folder / "a.json", GROUPS, indent=1),
    "an array, called JSON lines": lambda folder: in_json(folder / "a.jsonl", GROUPS, indent=1),
    "an array of rows on a line": lambda folder: in_json(folder / "a.json", FLAT),
    "Parquet": lambda folder: parquet(folder / "a.parquet"),
}


@pytest.fixture
def expected(tmp_path: Path) -> list[dict[str, object]]:
    """The groups as the project's own format has them."""
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(map(json.dumps, GROUPS)))
    return groups_of(load(path, TASK))


@pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS)
def test_every_format_gives_the_same_groups(tmp_path: Path, write: Callable[[Path], Path], expected: object) -> None:
    assert groups_of(load(write(tmp_path), TASK)) == expected


@pytest.mark.integration
@pytest.mark.parametrize("case", ["alone", "beside others", "behind a hidden one"])
def test_a_sheet_of_excel(tmp_path: Path, case: str, expected: object, caplog: pytest.LogCaptureFixture) -> None:
    hidden: Table | None = [("text", "tone"), ("x", 1)] if case == "behind a hidden one" else None
    more = 2 if case == "beside others" else 0
    path = workbook(tmp_path / "a.xlsx", [HEADER, *ROWS], more=more, before=hidden, hidden=hidden is not None)
    assert groups_of(load(path, TASK)) == expected
    assert [record.location for record in read_records(path)] == ["row 4", "row 5", "row 6"]
    assert ("'Sheet1'" in caplog.text) == (case == "beside others")


def test_parquet_with_decimals_and_with_times_that_python_cannot_represent(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    far = pa.array([0, 9_000_000_000_000], pa.timestamp("s"))
    columns: dict[str, Any] = {"text": ["x", "y"], "tone": [Decimal("4.50"), Decimal(2)]}
    for kind in (pa.timestamp("s"), pa.duration("s"), pa.timestamp("s", "Mars/Olympus")):
        columns[str(kind)] = far.cast("int64").cast(kind)
    pa.parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    rated = [c.ratings for g in load(tmp_path / "a.parquet", TASK).groups for c in g.candidates]
    assert rated == [{"tone": (4.5,)}, {"tone": (2.0,)}]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`datasets` keeps what it reads in the folder of the test."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    datasets.disable_progress_bars()


@pytest.mark.usefixtures("hub")
def test_a_set_of_the_hub_by_name_and_split(tmp_path: Path, expected: object) -> None:
    folder = tmp_path / "replies"
    folder.mkdir()
    parquet(folder / "train.parquet")
    corpus = data.load(f"hf:{folder}@train", TASK)
    assert groups_of(corpus) == expected
    assert (corpus.origin.name, corpus.origin.location) == ("replies", f"hf:{folder}@train")
    assert len(data.load(f"hf:{folder}", TASK).groups) == 2, "its only split needs no name"
    assert len(data.load(f"hf:{folder}@train[:2]", TASK).groups) == 1


def test_missing_numbers_are_none_however_deep_they_are() -> None:
    nested = {"candidates": [{"ratings": {"tone": float("nan"), "solved": [1.0, float("nan")]}}]}
    (record,) = typed_rows([nested], "hf:made")
    assert record.values == {"candidates": [{"ratings": {"tone": None, "solved": [1.0, None]}}]}


# --- files that are broken, or made to take all memory or time ---


def test_a_text_that_parquet_holds_once_is_not_unpacked_before_it_is_needed(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 6000, pa.int32()), pa.array(["x" * (1 << 20)]))
    pq.write_table(pa.table({"text": text, "tone": [1, 2] * 3000}), tmp_path / "a.parquet", store_schema=False)
    before = pa.total_allocated_bytes()
    stream = iter_groups(tmp_path / "a.parquet", TASK)
    assert len(next(stream).group.candidates[0].text) == 1 << 20
    assert pa.total_allocated_bytes() - before < 64 << 20
    with pytest.raises(InputError, match=r"(?s)256 MB.*row 2\d\d"):
        load(tmp_path / "a.parquet", TASK)


def test_an_endless_line_is_left_out_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "MAX_LINE_BYTES", 1 << 20)
    errors: list[InputError] = []
    (tmp_path / "a.jsonl").write_text('{"text": "' + "x" * (2 << 20) + '"}\n{"text": "y"}\n')
    assert [record.line for record in formats.jsonl(tmp_path / "a.jsonl", errors.append)] == [2]
    assert [error.line for error in errors] == [1]


@pytest.mark.integration
def test_twenty_thousand_unknown_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    record = {"text": "x", "tone": 3, **{f"key_{i}": i for i in range(20_000)}}
    (tmp_path / "a.jsonl").write_text(json.dumps(record))
    assert load(tmp_path / "a.jsonl", TASK).groups[0].candidates[0].ratings == {"tone": (3.0,)}
    assert "not read: 'key_0', 'key_1', " in caplog.text
    assert len(caplog.text) < 2000


def test_names_of_its_own_in_every_record_are_asked_about(tmp_path: Path) -> None:
    rows = [{"text": f"A text {i}.", **{f"key_{i}_{j}": j for j in range(5)}} for i in range(2000)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(InputError, match="10,001 different fields"):
        draft_mapping(detect_format(tmp_path / "a.jsonl"), ColumnNames(), "a")


def test_a_header_longer_than_a_cell_may_be(tmp_path: Path) -> None:
    csv.field_size_limit(131_072)  # What another test may have raised.
    (tmp_path / "a.csv").write_text(f"text,tone,{'x' * 140_000}\nx,4,0\n")
    assert load(tmp_path / "a.csv", TASK).groups[0].candidates[0].ratings == {"tone": (4.0,)}


ROW = {"text": "A reply.", "tone": 4}


@pytest.mark.parametrize(
    ("document", "key"),
    [
        ({"text": {"0": "A reply.", "1": "No."}, "tone": {"0": 4, "1": 2}}, {}),
        ({"text": ["A reply.", "No."], "tone": [4, 2]}, {}),
        ({"x": ROW, "y": {**ROW, "tone": 2}}, {"key": "x"}),
        ({"x": [ROW, ROW], "y": [ROW]}, {"key": "x"}),
        ({"rows": [ROW]}, {}),
    ],
    ids=["columns by index", "columns as lists", "records by key", "lists of records by key", "a list of records"],
)
def test_one_json_object_holds_the_records(tmp_path: Path, document: dict[str, object], key: dict[str, object]) -> None:
    (tmp_path / "a.json").write_text(json.dumps(document, indent=1))
    first = next(read_records(tmp_path / "a.json"))
    assert (first.location, first.values) == ("row 1", key | ROW)
