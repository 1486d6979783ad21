"""Files that are broken, or made to take all memory or time of whoever reads them: each ends in our error."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from debate_judge.data.errors import InputError
from debate_judge.data.files import formats, groups, reading, workbook
from debate_judge.data.files.columns import ColumnNames
from debate_judge.data.files.formats import read_records
from debate_judge.data.files.groups import iter_groups, load
from debate_judge.data.files.task_file import guess_task
from tests.data.files_of_rows import TASK
from tests.data.test_formats import workbook as sheet_file

Change = Callable[[bytes], bytes | None]


def with_sheet(path: Path, change: Change) -> Path:
    """A workbook whose only sheet has been changed, or taken out where `change` returns None."""
    source = sheet_file(path.with_suffix(".zip"), [("text", "tone"), ("x", 4)])
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as new:
        for name in old.namelist():
            content = change(old.read(name)) if name.endswith("sheet1.xml") else old.read(name)
            if content is not None:
                new.writestr(name, content)
    return path


def added(cell: bytes) -> Change:
    return lambda sheet: sheet.replace(b"</sheetData>", cell + b"</sheetData>")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda sheet: sheet[: len(sheet) // 2], "XmlError"),
        (lambda sheet: None, "WorksheetNotFound"),
        (added(b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'), "more than 1024 MB"),
    ],
    ids=["broken", "no sheet", "a cell in the last corner"],
)
def test_a_workbook_that_cannot_be_read(tmp_path: Path, change: Change, words: str) -> None:
    with pytest.raises(InputError, match=rf"(?s)a\.xlsx: not a workbook.*{words}.*save the sheet as CSV"):
        load(with_sheet(tmp_path / "a.xlsx", change), TASK)


@pytest.mark.integration
def test_a_workbook_that_unpacks_to_more_than_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"x" * (160 << 20)
    cell = b'<row r="9"><c r="A9" t="inlineStr"><is><t>' + text + b"</t></is></c></row>"
    path = with_sheet(tmp_path / "a.xlsx", added(cell))
    monkeypatch.setattr(workbook, "MAX_MEMORY", 128 << 20)
    with pytest.raises(InputError, match="more than 128 MB"):
        load(path, TASK)


@pytest.mark.integration
def test_a_workbook_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = with_sheet(tmp_path / "a.xlsx", lambda sheet: sheet)
    monkeypatch.setattr(workbook, "MAX_SECONDS", 0)
    with pytest.raises(InputError, match="more than 0 seconds"):
        load(path, TASK)


def test_parquet_with_a_date_that_python_cannot_hold(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    days = pa.array([1, 9_000_000_000_000], pa.timestamp("s"))
    pq.write_table(pa.table({"text": ["a", "b"], "tone": [1, 2], "day": days}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"(?s)a\.parquet: not a Parquet file.*out of range"):
        load(tmp_path / "a.parquet", TASK)


def test_parquet_whose_column_unpacks_to_far_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "_MAX_UNPACKED", 4 << 20)
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({"text": ["x" * (1 << 20)] * 8, "tone": [1] * 8})
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd", use_dictionary=False)
    with pytest.raises(InputError, match="field 'text': a column unpacks to more"):
        load(tmp_path / "a.parquet", TASK)


def test_a_text_that_parquet_holds_once_is_not_unpacked_before_it_is_needed(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 6000, pa.int32()), pa.array(["x" * (1 << 20)]))
    pq.write_table(pa.table({"text": text, "tone": [1, 2] * 3000}), tmp_path / "a.parquet", store_schema=False)
    before = pa.total_allocated_bytes()
    stream = iter_groups(tmp_path / "a.parquet", TASK)
    assert len(next(stream).group.candidates[0].text) == 1 << 20
    assert pa.total_allocated_bytes() - before < 64 << 20
    with pytest.raises(InputError, match=r"(?s)too much data to hold in memory.*256 MB of text.*up to row 2\d\d"):
        load(tmp_path / "a.parquet", TASK)


def test_more_rows_than_rated_data_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_MAX_RECORDS", 100)
    (tmp_path / "a.csv").write_text("text,tone\n" + "x,4\n" * 101)
    with pytest.raises(InputError, match=r"(?s)at most 100 records.*up to line 102"):
        load(tmp_path / "a.csv", TASK)
    assert len(list(iter_groups(tmp_path / "a.csv", TASK))) == 101, "what is streamed has no limit"


def test_an_endless_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 1 << 20)
    for encoding in ("utf-8", "utf-16"):
        (tmp_path / "a.jsonl").write_text('{"text": "' + "x" * (2 << 20) + '"}\n{"text": "y"}\n', encoding=encoding)
        with pytest.raises(InputError, match="line 1: a line of more than 1 MB"):
            list(reading.jsonl(tmp_path / "a.jsonl"))
    told: list[InputError] = []
    (tmp_path / "a.jsonl").write_text('{"text": "' + "x" * (2 << 20) + '"}\n{"text": "y"}\n')
    assert [record.line for record in reading.jsonl(tmp_path / "a.jsonl", told.append)] == [2]
    assert [error.line for error in told] == [1]


def test_a_line_or_a_file_of_very_many_values(tmp_path: Path) -> None:
    lists = "[" + "[]," * 1_000_000 + "[]]"
    (tmp_path / "b.jsonl").write_text('{"text": "x", "a": ' + lists + "}")
    with pytest.raises(InputError, match="line 1: a line of more than 1,000,000 values"):
        load(tmp_path / "b.jsonl", TASK)
    (tmp_path / "c.json").write_text('{"data": [' + "[]," * 9_000_000 + "[]]}")
    with pytest.raises(InputError, match="too large for a single JSON document"):
        load(tmp_path / "c.json", TASK)


@pytest.mark.integration
def test_a_hundred_thousand_unknown_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    record = {"text": "x", "tone": 3, **{f"key_{i}": i for i in range(100_000)}}
    (tmp_path / "a.jsonl").write_text(json.dumps(record))
    assert load(tmp_path / "a.jsonl", TASK).groups[0].candidates[0].ratings == {"tone": (3.0,)}
    assert "'key_19' (holds numbers), and others" in caplog.text
    assert len(caplog.text) < 2000


def test_more_aspects_than_anyone_rates(tmp_path: Path) -> None:
    names = [f"key{i}" for i in range(101)]
    (tmp_path / "a.csv").write_text("text," + ",".join(names) + "\n" + "x" + ",1" * 101 + "\ny" + ",2" * 101 + "\n")
    with pytest.raises(InputError, match=r"(?s)too many columns look like ratings.*101"):
        guess_task(read_records(tmp_path / "a.csv"), ColumnNames(), "a")


def test_long_sources_and_zero_bytes_are_honest(tmp_path: Path) -> None:
    source = "word, " * 40_000
    (tmp_path / "a.csv").write_text(f'source,text,tone\n"{source}",x\0y,4\n')
    (group,) = load(tmp_path / "a.csv", TASK).groups
    assert (group.source, group.candidates[0].text) == (source, "x\0y")


def test_a_quote_that_is_never_closed_does_not_swallow_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text,tone\n"' + ("x" * (1 << 20) + "\n") * 17)
    with pytest.raises(InputError, match=r"(?s)line 2: not valid CSV: field larger.*close every quote"):
        load(tmp_path / "a.csv", TASK)
