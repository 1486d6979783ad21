"""Records from files of any format: JSON lines, a JSON array, CSV, Excel, Parquet, or a Hugging Face data set.

The format follows from the name: its suffix, or `hf:NAME[:CONFIG][@SPLIT]` for the hub. The separator of a text table
is declared by Excel's line `sep=;`, or is whichever of comma, semicolon and tab splits the header into most columns, or
the vertical bar if none of them does. With a separator other than the comma, numbers may have a decimal comma; with
the comma, and in sheets, only ratings that cannot be two ratings. JSON lines, text
tables, Parquet and the hub are streamed: memory does not grow with their length.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from debate_judge.data.errors import ErrorHandler, InputError, install_hint, redirect_errors
from debate_judge.data.files import tools
from debate_judge.data.files.columns import SOURCE_WORDS, TEXT_WORDS, ColumnNames, ReadingNotes, normalized_name
from debate_judge.data.files.reading import (
    MAX_LINE_BYTES,
    first_line_of,
    json_layout,
    json_records,
    json_whole,
    lines,
    parquet_rows,
    refuse_escaped_bytes,
    refuse_pipe,
    typed_rows,
    unreadable_error,
)
from debate_judge.data.files.records import Record, is_missing
from debate_judge.data.files.workbook import Sheet, WorkbookError, open_workbook

TEXT_TABLES, EXCEL, JSON = (".csv", ".tsv"), (".xlsx", ".xlsm", ".xls", ".ods"), (".jsonl", ".json", ".ndjson")
SUFFIXES = (*JSON, *TEXT_TABLES, ".xlsx", ".parquet")
"""Suffixes that messages name; the other ones in `EXCEL` are read, too."""

HUB = "hf:"
"""Prefix of names of data sets."""

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_TEXT_NAMES = {*SOURCE_WORDS, *TEXT_WORDS}
_JSON_LAYOUTS = {"": "JSON", "*": "one JSON object of records, by their keys", ".": "one JSON object"}

_SEP_LINE = re.compile(r'"?sep=(.)"?[\r\n]*', re.IGNORECASE)
"""The line in which Excel declares the separator."""


@dataclass(frozen=True)
class RecordFile:
    """A file or data set whose format was detected, not yet read."""

    name: str
    """As the user wrote it."""
    format: str
    """Description, e.g. `columns separated by semicolons`."""
    is_default: bool
    """Whether the format is the usual one of the suffix, so that no note is needed."""
    stream: Callable[[ErrorHandler | None], Iterator[Record]]
    """Opens the file and streams its records; see `records`."""
    whole: Callable[[], Record] | None = None
    """Reads a file that is one JSON object as one record."""
    sheet: Callable[[str], Iterator[Record]] | None = None
    """Streams the rows of a workbook's sheet, or of all for `*`, whose column `sheet` has their names."""
    second: RecordFile | None = None
    """The file in which the others' texts or ratings are."""

    def records(self, on_error: ErrorHandler | None = None) -> Iterator[Record]:
        """The records of the file; one that cannot be read is passed to `on_error` and skipped, if it ends where its
        line or row does."""
        return self.stream(on_error)

    def opened(self, names: ColumnNames, notes: ReadingNotes, on_error: ErrorHandler | None = None) -> Iterator[Record]:
        """The records as a mapping says: its sheet, the object around its list, and two files joined; those of tools
        as rows of ratings."""
        records, second, sheet = self._opened(names, on_error), self.second, self.sheet
        first_sheet, plus, other_sheet = names.sheet.partition("+")
        if sheet is not None and plus:
            records = sheet(first_sheet)
            second = RecordFile(f"{self.name}, sheet {other_sheet}", "", True, lambda _: sheet(other_sheet))
        if second is not None:
            records = _joined(records, second, names, notes)
        return tools.rows(records, notes.add, "candidate" in names.roles)

    def _opened(self, names: ColumnNames, on_error: ErrorHandler | None) -> Iterator[Record]:
        if names.sheet:
            if self.sheet is None:
                raise InputError("only workbooks have sheets", file=self.name, field="columns.sheet", found=names.sheet)
            return self.sheet(names.sheet)
        first_list = names.records.partition("[")[0].partition(".")[0]
        if names.records and self.whole is not None and first_list in (record := self.whole()).values:
            return iter([record])
        return self.records(on_error)

    @property
    def folder(self) -> Path:
        """The folder to which paths of task files in the records are relative."""
        return Path() if self.name.startswith(HUB) else Path(self.name).parent


def short_name(name: str) -> str:
    """A short name of a file or data set, for runs and tables."""
    if not name.startswith(HUB):
        return Path(name).stem
    return HubName.parse(name).path.rstrip("/").rpartition("/")[2] or "hub"


def is_supported(name: str) -> bool:
    """Whether the format can be detected from the name alone; no file is opened."""
    return name.startswith(HUB) or Path(name).suffix.lower() in (*SUFFIXES, *EXCEL)


def read_records(path: str | Path) -> Iterator[Record]:
    """Stream the records of a file, or of two joined by `+`; one with another suffix is JSON lines or a JSON array."""
    if len(joined_files(str(path))) > 1:
        return detect_format(path).opened(ColumnNames(), ReadingNotes(str(path)))
    return detect_format(path).records() if is_supported(str(path)) else json_records(Path(path))


def detect_format(name: str | Path) -> RecordFile:
    """Detect the format of a file or data set.

    Raises:
        InputError: The format cannot be inferred from the name, the file cannot be read, or its first line cannot be a
            header.
    """
    name = str(name)
    suffix = "" if name.startswith(HUB) else Path(name).suffix.lower()
    if name.startswith(HUB):
        hub_name = HubName.parse(name)
        return RecordFile(
            name,
            f"a set of the Hugging Face hub, split {hub_name.split or 'its only one'}",
            True,
            lambda _: hub_name.rows(),
        )
    if len(parts := joined_files(name)) > 1:
        first, second = map(detect_format, parts)
        description = f"{first.format}, joined with {second.format}"
        return replace(first, name=name, format=description, is_default=True, second=second)
    path = Path(name)
    if suffix in JSON:
        layout = json_layout(path)
        whole = (lambda: json_whole(path)) if layout not in (None, "") else None
        description = _JSON_LAYOUTS.get(layout or "", f"the records are the list {layout!r} of one JSON object")
        return RecordFile(name, description, layout in (None, ""), lambda on_error: json_records(path, on_error), whole)
    if suffix in TEXT_TABLES:
        separator = _detect_separator(path)
        is_usual = separator == ("\t" if suffix == ".tsv" else ",")
        description = f"columns separated by {_SEPARATORS.get(separator, repr(separator))}"
        return RecordFile(name, description, is_usual, lambda on_error: csv_rows(path, separator, on_error))
    if suffix in EXCEL:
        sheets = _open_workbook(path).sheets
        description = f"sheet {sheets[0]!r}" + (f", the first of {len(sheets)}" if len(sheets) > 1 else "")
        return RecordFile(
            name, description, len(sheets) == 1, lambda _: excel_rows(path), sheet=lambda sheet: _sheets(path, sheet)
        )
    if suffix == ".parquet":
        return RecordFile(name, "Parquet", True, lambda _: parquet_rows(path))
    expected = f"a file ending in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, or {HUB}NAME@SPLIT"
    raise InputError("the format of the data cannot be inferred from the name", file=name, expected=expected)


def joined_files(name: str) -> tuple[str, ...]:
    """The files in a name: two in `scores.csv+traces.jsonl`, else one."""
    first, plus, second = name.partition("+")
    is_pair = plus and is_supported(first) and is_supported(second) and not Path(name).exists()
    return (first, second) if is_pair else (name,)


def csv_rows(path: Path, separator: str, on_error: ErrorHandler | None = None) -> Iterator[Record]:
    """Stream the rows of a text table with a header line; every value is a text and names are stripped.

    A row's line is the one it begins on, also where quoted texts span several lines. A row that has too many or too few
    cells, or is not UTF-8, is passed to `on_error` and skipped; after a wrong quote no row is certain.
    """
    # The line that declares the separator becomes blank, so that line numbers stay the same.
    texts = (
        "\n" if number == 1 and _SEP_LINE.fullmatch(text) else text
        for number, text in lines(path, escape=on_error is not None)
    )
    # strict: an unclosed quote would otherwise make the rest of the file one text.
    reader = csv.reader(texts, delimiter=separator, strict=True)

    def rows() -> Iterator[tuple[int, list[str]]]:
        while True:
            line = reader.line_num + 1
            with _csv_errors(path, line):
                row = next(reader, None)
            if row is None:
                return
            # Where quotes are not escaped, two of them that begin cells would make the rows in between one text.
            if separator == "\t" and any("\t" in cell and "\n" in cell for cell in row):
                raise InputError(
                    "a text in quotes over several rows",
                    file=path,
                    line=line,
                    found=next(cell for cell in row if "\t" in cell and "\n" in cell),
                    remedy='write a quote in a text as "", and put such a text in quotes; or save the table as CSV',
                )
            with redirect_errors(on_error):
                refuse_escaped_bytes(row, path, line)
                yield line, row

    return _table_records(rows(), path, "line", on_error, decimal_commas=separator != ",")


def _joined(records: Iterator[Record], second: RecordFile, names: ColumnNames, notes: ReadingNotes) -> Iterator[Record]:
    """Records with the fields of those of a second file; scores of tools are joined by the ids of traces, tables by the
    columns that both have."""
    head = list(islice(records, 200))
    if tools.tool_of(head) is not None:
        return tools.join_traces(chain(head, records), second.records())
    many, one = [*head, *records], list(second.opened(ColumnNames(), ReadingNotes(second.name)))
    columns = names.join.split("+") if names.join else _common_columns(many, one)
    if columns is None:
        many, one = one, many
        columns = _common_columns(many, one)
    if columns is None:
        known = " and ".join(", ".join(map(str, rows[0].values)) if rows else "no records" for rows in (one, many))
        raise InputError(
            "no columns that two files have in common tell the records apart",
            file=second.name,
            expected="columns with the same ids in both, which are different in each record of one file",
            found=known,
            remedy="name them: --columns join=COLUMN+COLUMN",
        )
    notes.add(f"joined by {' and '.join(columns)}")
    by_key = {tuple(str(record.values.get(c)) for c in columns): record.values for record in one}

    def rows() -> Iterator[Record]:
        for record in many:
            other = by_key.get(tuple(str(record.values.get(c)) for c in columns))
            if other is None:
                notes.add("{} records have no counterpart in the other file and are left out")
            else:
                known = {name: value for name, value in record.values.items() if not is_missing(value)}
                yield replace(record, values={**record.values, **other, **known})

    return rows()


def _common_columns(many: Sequence[Record], one: Sequence[Record]) -> list[str] | None:
    """The columns by which most records of the first file find one of the second; None if there are none."""
    if not many or not one:
        return None
    common = [name for name in many[0].values if name in one[0].values]
    for columns in (common, *([name] for name in common)) if common else ():
        counts = Counter(tuple(str(record.values.get(c)) for c in columns) for record in one)
        found = sum(tuple(str(record.values.get(c)) for c in columns) in counts for record in many)
        if 2 * found >= len(many) and max(counts.values()) == 1:
            return list(columns)
    return None


def _sheets(path: Path, name: str) -> Iterator[Record]:
    """The rows of a sheet, or of all for `*`; those of a sheet without a table are left out then."""
    sheets = _open_workbook(path).sheets
    if name not in ("*", *sheets):
        raise InputError("no such sheet", file=path, field="columns.sheet", expected=", ".join(sheets), found=name)
    for sheet in sheets if name == "*" else [name]:
        for record in excel_rows(path, sheet):
            yield replace(record, values={**record.values, "sheet": sheet}) if name == "*" else record


def excel_rows(path: Path, name: str = "") -> Iterator[Record]:
    """The rows of a workbook's sheet, by default the first visible one, all values as texts; a row's number is the one
    that Excel shows."""
    sheet = _open_workbook(path, name)
    first, *others = sheet.sheets if not name else [name]
    top = [[cell for cell in map(str.strip, cells) if cell] for _, cells in islice(sheet.rows(), 2)]
    one_text = all(len(cells) == 1 for cells in top) and not (len(top) > 1 and _is_text_column(top[0][0]))
    if others and (len(top) < 2 or one_text):
        raise InputError(
            f"the first sheet, {first!r}, {'holds no table' if top else 'is empty'}",
            file=path,
            found="further sheets: " + ", ".join(map(repr, others)),
            remedy="name the sheet with the data: --columns sheet=NAME, or sheet=* for all",
        )
    return _table_records(sheet.rows(), path, "row")


@contextmanager
def _csv_errors(path: Path, line: int) -> Iterator[None]:
    # Long sources exceed Python's limit for a cell, 131,072 characters, which is global to the process.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))
    try:
        yield
    except csv.Error as error:
        problem, remedy = f"not valid CSV: {error}", 'close every quote, and write a quote in a text as ""'
        if str(error).startswith("new-line"):
            problem = "the lines end in carriage returns alone, as on old Macs"
            remedy = "save it again as CSV UTF-8; if only texts hold carriage returns, put these in double quotes"
        raise InputError(problem, file=path, line=line, remedy=remedy) from None


def _detect_separator(path: Path) -> str:
    """The separator that the first line declares, or that splits the header into most columns; by default the comma."""
    line, header = next(((line, text) for line, text in lines(path) if text.strip()), (1, ""))
    if declared := _SEP_LINE.fullmatch(header):
        return declared[1]
    with _csv_errors(path, line):
        columns = {mark: len(next(csv.reader([header], delimiter=mark), [])) for mark in _SEPARATORS}
    bars = columns.pop("|")  # It occurs within names, so it counts only if nothing else splits the header.
    return "|" if max(columns.values()) < 2 <= bars else max(columns, key=columns.__getitem__)


def _table_records(
    numbered_rows: Iterable[tuple[int, list[str]]],
    path: Path,
    unit: Literal["line", "row"],
    on_error: ErrorHandler | None = None,
    *,
    decimal_commas: bool = False,
) -> Iterator[Record]:
    """The rows below a header as records; rows in which every cell is blank are skipped.

    Args:
        numbered_rows: Rows with their numbers.
        path: The file.
        unit: Whether the numbers are lines or rows.
        on_error: Called with the error of a row that has not the header's number of cells.
        decimal_commas: Whether numbers have them.
    """
    rows = ((number, row) for number, row in numbered_rows if any(map(str.strip, row)))
    header_number, header = next(rows, (0, []))

    def at(line: int) -> Record:
        return Record({}, str(path), line, format="csv", unit=unit, decimal_commas=decimal_commas)

    # Some programs write a second byte order mark.
    names = [
        cell.strip("\ufeff").strip() or f"column {number} (no name)" for number, cell in enumerate(header, start=1)
    ]
    with at(header_number).located():
        refuse_equal_names(names)
    for number, row in rows:
        if len([cell for cell in header if cell.strip()]) == 1 < max(len(header), len(row)):
            raise at(header_number).error(
                "the first row is a title and not a header",
                expected="the names of the columns in the first row, e.g. source, text, helpfulness",
                found=" ".join(header).strip(),
                remedy="delete the rows above the names of the columns",
            )
        with redirect_errors(on_error):
            if len(row) != len(names):
                raise at(number).error(
                    "the row and the header differ in their number of cells",
                    expected=f"{len(names)} cells: {', '.join(names)}",
                    found=f"{len(row)} cells",
                    remedy="put texts with separators or line breaks in double quotes",
                )
            yield replace(at(number), values=dict(zip(names, row, strict=True)))


def refuse_equal_names(names: Sequence[str], file: str | None = None) -> None:
    """Refuse a table in which two columns have the same name, because one would be lost.

    Raises:
        InputError: There are such columns.
    """
    if twice := [column for column, count in Counter(names).items() if count > 1]:
        remedy = f"rename them; columns of several raters are {twice[0]}_1, {twice[0]}_2"
        raise InputError("two columns have the same name", file=file, field=twice[0], remedy=remedy)


def _is_text_column(name: str) -> bool:
    """Whether this is a usual name of a source or text column, and so no title above the table."""
    return normalized_name(name) in _TEXT_NAMES


def _open_workbook(path: Path, name: str = "") -> Sheet:
    try:
        import python_calamine  # noqa: F401 (another process reads with it)
    except ImportError:
        raise InputError(
            "spreadsheets are read by python-calamine, which is not installed",
            file=path,
            remedy=f"{install_hint('excel')}, or save the sheet as CSV UTF-8",
        ) from None
    refuse_pipe(path)
    try:
        sheet = open_workbook(str(path), name)
    except OSError as error:
        raise unreadable_error(error, path) from None
    except WorkbookError as error:
        raise InputError(
            "not a workbook that can be read",
            file=path,
            found=str(error),
            remedy="delete cells, rows and columns outside the data, or save the sheet as CSV UTF-8",
        ) from None
    if not sheet.sheets:
        raise InputError("the workbook has no sheet", file=path)
    return sheet


# --- data sets of the Hugging Face hub, or folders with the same layout: `hf:NAME[:CONFIG][@SPLIT]` ---


@dataclass(frozen=True)
class HubName:
    """A parsed name `hf:NAME[:CONFIG][@SPLIT]`."""

    name: str
    path: str
    config: str | None
    split: str | None

    @classmethod
    def parse(cls, name: str) -> HubName:
        set_name, _, split = name.removeprefix(HUB).partition("@")
        path, _, config = set_name.partition(":")
        if not path.strip():
            raise InputError("no name of a set", field="--data", expected=f"{HUB}NAME[:CONFIG][@SPLIT]", found=name)
        return cls(name, path, config or None, split or None)

    def rows(self) -> Iterator[Record]:
        """The rows of the set; raises `InputError` if it cannot be loaded, or has several splits and none is named."""
        return typed_rows(self._loaded(), self.name)

    def fingerprint(self) -> str:
        """The fingerprint of `datasets`: it changes with the revision, or with the files of a folder."""
        return str(self._loaded()._fingerprint)

    def _loaded(self) -> Any:
        """The set, loaded by `datasets`, which caches downloads."""
        import datasets

        try:
            split = self.split or self._only_split(datasets.get_dataset_split_names(self.path, self.config))
            return datasets.load_dataset(self.path, self.config, split=split)
        except InputError:
            raise
        except Exception as error:  # The library has no common base class: OSError, httpx and its own errors all occur.
            raise InputError(
                f"the set cannot be loaded ({type(error).__name__})",
                file=self.name,
                found=first_line_of(error),
                remedy="check name, configuration and split, and the network",
            ) from error

    def _only_split(self, names: Sequence[str]) -> str:
        if len(names) == 1:
            return names[0]
        raise InputError(
            "the set has several splits",
            file=self.name,
            found=", ".join(names),
            remedy=f"name it: {self.name}@{names[0]}" if names else None,
        )
