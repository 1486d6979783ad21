"""Records from files of any format: JSON lines, a JSON array, CSV, Excel, Parquet, or a Hugging Face data set.

The format follows from the name: its suffix, or `hf:NAME[:CONFIG][@SPLIT]` for the hub. The separator of a text table
(comma, semicolon or tab) is the one that divides its header into most columns; where it is not the comma, numbers may
have a decimal comma. JSON lines, text tables, Parquet and the hub are streamed: memory does not grow with their length.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from debate_judge.data.errors import InputError, install_hint
from debate_judge.data.files.hub import HUB, HubName, first_line, typed_rows
from debate_judge.data.files.reading import json_records, lines, refuse_pipe, unreadable
from debate_judge.data.files.records import Record

TEXT_TABLES, EXCEL, JSON = (".csv", ".tsv"), (".xlsx", ".xlsm", ".xls", ".ods"), (".jsonl", ".json", ".ndjson")
SUFFIXES = (*JSON, *TEXT_TABLES, ".xlsx", ".parquet")
"""Suffixes that messages name; those of other spreadsheets in `EXCEL` are read, too."""

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}


@dataclass(frozen=True)
class RecordFile:
    """A file or data set whose format is known, not yet read."""

    name: str
    """As the user wrote it."""
    format: str
    """In words, e.g. `columns separated by semicolons`."""
    usual: bool
    """Whether the format follows from the suffix alone, so that the user need not be told."""
    records: Callable[[], Iterator[Record]]
    """Opens the file and streams its records."""

    @property
    def folder(self) -> Path:
        """The folder that paths of task files in the records are relative to."""
        return Path() if self.name.startswith(HUB) else Path(self.name).parent


def stem_of(name: str) -> str:
    """A short name of a file or data set, for runs and tables."""
    if not name.startswith(HUB):
        return Path(name).stem
    return HubName.of(name).path.rstrip("/").rpartition("/")[2] or "hub"


def known(name: str) -> bool:
    """Whether a name has the form of one of the formats; no file is opened."""
    suffix = Path(name).suffix.lower()
    return name.startswith(HUB) or suffix in SUFFIXES or suffix in EXCEL


def rows(path: str | Path) -> Iterator[Record]:
    """Stream the records of a file; one with another suffix is read as JSON lines or a JSON array."""
    return recognized(path).records() if known(str(path)) else json_records(Path(path))


def recognized(name: str | Path) -> RecordFile:
    """Find out the format of a file or data set.

    Raises:
        InputError: The name does not tell the format, the file cannot be read, or its first line cannot be a header.
    """
    name = str(name)
    suffix = "" if name.startswith(HUB) else Path(name).suffix.lower()
    if name.startswith(HUB):
        wanted = HubName.of(name)
        return RecordFile(
            name, f"a set of the Hugging Face hub, split {wanted.split or 'its only one'}", True, wanted.rows
        )
    if suffix in JSON:
        return RecordFile(name, "JSON", True, lambda: json_records(Path(name)))
    if suffix in TEXT_TABLES:
        separator = _separator(Path(name))
        usual = separator == ("\t" if suffix == ".tsv" else ",")
        told = f"columns separated by {_SEPARATORS[separator]}"
        return RecordFile(name, told, usual, lambda: csv_rows(Path(name), separator))
    if suffix in EXCEL:
        sheet, others = _first_sheet(Path(name))
        told = f"sheet {sheet!r}" + (f", the first of {others + 1}" if others else "")
        return RecordFile(name, told, not others, lambda: excel_rows(Path(name)))
    if suffix == ".parquet":
        return RecordFile(name, "Parquet", True, lambda: parquet_rows(Path(name)))
    raise InputError(
        "the name does not tell the format of the data",
        file=name,
        expected=f"a file ending in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, or {HUB}NAME@SPLIT",
        found=suffix or "no suffix",
    )


def csv_rows(path: Path, separator: str | None = None) -> Iterator[Record]:
    """Stream the rows of a text table with a header line; every value is a text and names are stripped.

    A row's line is the one it begins on, also where quoted texts span several lines.

    Args:
        path: The file.
        separator: Between the cells; by default the one that divides the header into most columns.
    """
    separator = separator or _separator(path)
    # strict: a quote that is never closed would otherwise swallow the rest of the file as one text.
    reader = csv.reader((text for _, text in lines(path)), delimiter=separator, strict=True)

    def numbered() -> Iterator[tuple[int, list[str]]]:
        while True:
            line = reader.line_num + 1
            with _valid_csv(path, line):
                row = next(reader, None)
            if row is None:
                return
            yield line, row

    return _table(numbered(), str(path), "line", decimal_comma=separator != ",")


def excel_rows(path: Path) -> Iterator[Record]:
    """The rows of the first sheet of a workbook, all values as texts; a row's number is the one that Excel shows."""
    sheet = _workbook(path).get_sheet_by_index(0)
    first = sheet.start
    if first is None:
        return iter(())
    cells = enumerate(sheet.to_python(skip_empty_area=True), start=first[0] + 1)
    return _table(((number, [_cell_text(value) for value in row]) for number, row in cells), str(path), "row")


def parquet_rows(path: Path) -> Iterator[Record]:
    """Stream the rows of a Parquet file, numbered from 1."""
    import pyarrow
    import pyarrow.parquet

    refuse_pipe(path)
    try:
        file = pyarrow.parquet.ParquetFile(path)
        batches = (batch.to_pylist() for batch in file.iter_batches(batch_size=1000))
        yield from typed_rows(chain.from_iterable(batches), str(path))
    except OSError as error:
        raise unreadable(error, path) from None
    except pyarrow.ArrowException as error:
        raise InputError("not a Parquet file that can be read", file=path, found=first_line(error)) from None


@contextmanager
def _valid_csv(path: Path, line: int) -> Iterator[None]:
    try:
        yield
    except csv.Error as error:
        raise InputError(
            f"not valid CSV: {error}",
            file=path,
            line=line,
            remedy='close every quote, write a quote in a text as "", and use JSON lines for very long texts',
        ) from None


def _separator(path: Path) -> str:
    """The separator that divides the header line into most columns; the comma if none does."""
    line, header = next(((line, text) for line, text in lines(path) if text.strip()), (1, ""))
    with _valid_csv(path, line):
        return max(_SEPARATORS, key=lambda mark: len(next(csv.reader([header], delimiter=mark), [])))


def _table(
    numbered: Iterable[tuple[int, list[str]]], name: str, unit: Literal["line", "row"], *, decimal_comma: bool = False
) -> Iterator[Record]:
    """The rows below a header as records; rows in which every cell is blank are skipped."""
    header: list[str] | None = None
    for number, row in numbered:
        if not any(map(str.strip, row)):
            continue
        if header is None:
            header = _header(row, name, number, unit)
            continue
        if len(row) != len(header):
            raise InputError(
                "the row has another number of cells than the header",
                file=name,
                line=number,
                unit=unit,
                expected=f"{len(header)} cells",
                found=f"{len(row)} cells",
                remedy="put texts with separators or line breaks in double quotes",
            )
        values = dict(zip(header, row, strict=True))
        yield Record(values, name, number, format="csv", unit=unit, decimal_comma=decimal_comma)


def _header(row: list[str], name: str, line: int, unit: Literal["line", "row"]) -> list[str]:
    names = [cell.strip() for cell in row]
    if "" in names:
        raise InputError(
            f"column {names.index('') + 1} has no name",
            file=name,
            line=line,
            unit=unit,
            found=", ".join(names),
            remedy="name it or delete it (pandas writes such a column unless to_csv has index=False)",
        )
    twice = next((one for one in names if names.count(one) > 1), None)
    if twice is not None:
        raise InputError("two columns have the same name", file=name, line=line, unit=unit, field=twice)
    return names


def _workbook(path: Path) -> Any:
    try:
        import python_calamine
    except ImportError:
        raise InputError(
            "spreadsheets are read by python-calamine, which is not installed",
            file=path,
            remedy=f"{install_hint('excel')}, or save the sheet as CSV UTF-8",
        ) from None
    refuse_pipe(path)
    if not path.exists():
        raise unreadable(FileNotFoundError(), path)
    try:
        return python_calamine.CalamineWorkbook.from_path(path)
    except OSError as error:
        raise unreadable(error, path) from None
    except python_calamine.CalamineError as error:
        raise InputError("not a workbook that can be read", file=path, found=first_line(error)) from None


def _first_sheet(path: Path) -> tuple[str, int]:
    """The name of the first sheet and how many further ones there are."""
    names = _workbook(path).sheet_names
    if not names:
        raise InputError("the workbook has no sheet", file=path)
    return str(names[0]), len(names) - 1


def _cell_text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
