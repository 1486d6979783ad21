"""Files that are broken, or made to take all memory or time of whoever reads them: each ends in our error."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from debate_judge.data.errors import InputError
from debate_judge.data.files import reading
from debate_judge.data.files.columns import ColumnNames
from debate_judge.data.files.formats import detect_format
from debate_judge.data.files.groups import iter_groups, load
from debate_judge.runs.draft import draft_mapping
from tests.data.files_of_rows import TASK


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
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 1 << 20)
    errors: list[InputError] = []
    (tmp_path / "a.jsonl").write_text('{"text": "' + "x" * (2 << 20) + '"}\n{"text": "y"}\n')
    assert [record.line for record in reading.jsonl(tmp_path / "a.jsonl", errors.append)] == [2]
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
    unread = "x" * 140_000
    (tmp_path / "a.csv").write_text(f"text,tone,{unread}\nx,4,0\n")
    assert detect_format(tmp_path / "a.csv").is_default
    assert load(tmp_path / "a.csv", TASK).groups[0].candidates[0].ratings == {"tone": (4.0,)}
