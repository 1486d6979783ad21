"""Records from files of any format: JSON, CSV, Excel, Parquet, or a Hugging Face data set.

The format follows from the name: its suffix, or `hf:NAME[:CONFIG][@SPLIT]` for the hub. The separator of a text table
is declared by Excel's line `sep=;`, or is whichever of comma, semicolon and tab splits the header into most columns, or
the vertical bar if none of them does. With a separator other than the comma, numbers may have a decimal comma; with
the comma, and in sheets, only ratings that cannot be two ratings. JSON lines, text tables, Parquet and the hub are
streamed: memory does not grow with their length.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from debate_judge.data.errors import ErrorHandler, InputError, install_hint, redirect_errors
from debate_judge.data.files import tools
from debate_judge.data.files.columns import SOURCE_WORDS, TEXT_WORDS, ColumnNames, ReadingNotes, normalized_name
from debate_judge.data.files.reading import (
    MAX_LINE_BYTES,
    Stream,
    first_line_of,
    json_object,
    json_source,
    lines,
    parquet_rows,
    refuse_bytes,
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
    stream: Stream
    whole: Callable[[], Record] | None = None
    """Reads a file that is one JSON object as one record."""
    sheet: Callable[[str], Iterator[Record]] | None = None
    """Streams the rows of a workbook's sheet, or of all for `*`, whose column `sheet` has their names."""
    second: RecordFile | None = None
    """The file in which the others' texts or ratings are."""

    def records(self, on_error: ErrorHandler | None = None) -> Iterator[Record]:
        """The records of the file."""
        return self.stream(on_error)

    def opened(self, names: ColumnNames, notes: ReadingNotes, on_error: ErrorHandler | None = None) -> Iterator[Record]:
        """The records as a mapping says: its sheet, the object around its list, and two files joined; those of tools
        as rows of ratings."""
        sheet, _, other_sheet = names.sheet.partition("+")
        records, second = self.records(on_error), self.second
        if sheet and self.sheet is None:
            raise InputError("only workbooks have sheets", file=self.name, field="columns.sheet", found=names.sheet)
        if sheet and self.sheet is not None:
            records, rows = self.sheet(sheet), self.sheet
            if other_sheet:
                second = RecordFile(f"{self.name}, sheet {other_sheet}", "", True, lambda _: rows(other_sheet))
        elif names.records and self.whole is not None:
            record = self.whole()
            if re.split(r"[.\[]", names.records)[0] in record.values:
                records = iter([record])
        if second is not None:
            records = _joined(list(records), second, names, notes)
        return tools.rows(records, notes.add, "candidate" in names.roles)

    @property
    def folder(self) -> Path:
        """The folder to which paths of task files in the records are relative."""
        return Path() if self.name.startswith(HUB) else Path(self.name).parent


def short_name(name: str) -> str:
    """A short name of a file or data set, for runs and tables."""
    if not name.startswith(HUB):
        return Path(name).stem
    return _hub_name(name)[0].rstrip("/").rpartition("/")[2] or "hub"


def is_supported(name: str) -> bool:
    """Whether the format can be detected from the name alone; no file is opened."""
    return name.startswith(HUB) or Path(name).suffix.lower() in (*SUFFIXES, *EXCEL)


def read_records(path: str | Path) -> Iterator[Record]:
    """Stream the records of a file, or of two joined by `+`; one with another suffix is JSON."""
    if not is_supported(str(path)):
        return json_source(Path(path))[1](None)
    return detect_format(path).opened(ColumnNames(), ReadingNotes(str(path)))


def detect_format(name: str | Path) -> RecordFile:
    """Detect the format of a file or data set.

    Raises:
        InputError: The format cannot be inferred from the name, the file cannot be read, or its first line cannot be a
            header.
    """
    name, path = str(name), Path(name)
    suffix = "" if name.startswith(HUB) else path.suffix.lower()
    if name.startswith(HUB):
        split = _hub_name(name)[2] or "its only one"
        return RecordFile(name, f"a set of the Hugging Face hub, split {split}", True, lambda _: _hub_rows(name))
    if len(parts := joined_files(name)) > 1:
        first, second = map(detect_format, parts)
        description = f"{first.format}, joined with {second.format}"
        return replace(first, name=name, format=description, is_default=True, second=second)
    if suffix in JSON:
        description, stream = json_source(path)
        return RecordFile(
            name, description or "JSON", not description, stream, partial(json_object, path) if description else None
        )
    if suffix in TEXT_TABLES:
        separator = _detect_separator(path)
        is_usual = separator == ("\t" if suffix == ".tsv" else ",")
        description = f"columns separated by {_SEPARATORS.get(separator, repr(separator))}"
        return RecordFile(name, description, is_usual, lambda on_error: _csv_rows(path, separator, on_error))
    if suffix in EXCEL:
        sheets = _open_workbook(path).sheets
        description = f"sheet {sheets[0]!r}" + (f", the first of {len(sheets)}" if len(sheets) > 1 else "")
        return RecordFile(
            name, description, len(sheets) == 1, lambda _: _sheet_rows(path), sheet=partial(_sheets, path)
        )
    if suffix == ".parquet":
        return RecordFile(name, "Parquet", True, lambda _: parquet_rows(path))
    expected = f"a file ending in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, or {HUB}NAME@SPLIT"
    raise InputError("the format of the data cannot be inferred from the name", file=name, expected=expected)


# --- two files ---


def joined_files(name: str) -> tuple[str, ...]:
    """The files in a name: two in `scores.csv+traces.jsonl`, else one."""
    first, plus, second = name.partition("+")
    is_pair = plus and is_supported(first) and is_supported(second) and not Path(name).exists()
    return (first, second) if is_pair else (name,)


def _joined(records: list[Record], second: RecordFile, names: ColumnNames, notes: ReadingNotes) -> Iterator[Record]:
    """Records with the fields of those of a second file; scores of tools are joined by the ids of traces, tables by the
    columns that both have."""
    if tools.tool_of(records[:200]) is not None:
        return tools.join_traces(records, second.records())
    files = [records, list(second.opened(ColumnNames(), ReadingNotes(second.name)))]
    common = [name for name in files[0][0].values if name in files[1][0].values] if all(files) else []
    choices = [names.join.split("+")] if names.join else [common, *([name] for name in common)] if common else []
    for columns in choices:
        for many, one in (files, files[::-1]):
            by_key = {_key(record, columns): record.values for record in one}
            found = sum(_key(record, columns) in by_key for record in many)
            if names.join or (len(by_key) == len(one) and 2 * found >= len(many)):
                notes.add(f"joined by {' and '.join(columns)}")
                return _with_fields(many, by_key, columns, notes)
    raise InputError(
        "no columns that two files have in common tell the records apart",
        file=second.name,
        expected="columns with the same ids in both, which are different in each record of one file",
        found=" and ".join(", ".join(map(str, rows[0].values)) if rows else "no records" for rows in files),
        remedy="name them: --columns join=COLUMN+COLUMN",
    )


def _key(record: Record, columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(record.values.get(column)) for column in columns)


def _with_fields(
    records: Iterable[Record], by_key: dict[tuple[str, ...], Any], columns: Sequence[str], notes: ReadingNotes
) -> Iterator[Record]:
    for record in records:
        if (other := by_key.get(_key(record, columns))) is None:
            notes.add("{} records have no counterpart in the other file and are left out")
        else:
            known = {name: value for name, value in record.values.items() if not is_missing(value)}
            yield replace(record, values={**record.values, **other, **known})


# --- tables ---


def _csv_rows(path: Path, separator: str, on_error: ErrorHandler | None = None) -> Iterator[Record]:
    """Stream the rows of a text table with a header line; every value is a text and names are stripped.

    A row's line is the one it begins on, also where quoted texts span several lines. A row that has too many or too few
    cells, or is not UTF-8, is passed to `on_error` and skipped; after a wrong quote no row is certain.
    """
    # The line that declares the separator becomes blank, so that line numbers stay the same.
    texts = ("\n" if n == 1 and _SEP_LINE.fullmatch(text) else text for n, text in lines(path))
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
            if separator == "\t" and (wrong := [cell for cell in row if "\t" in cell and "\n" in cell]):
                remedy = 'write a quote in a text as "", and put such a text in quotes; or save the table as CSV'
                problem = "a text in quotes over several rows"
                raise InputError(problem, file=path, line=line, found=wrong[0], remedy=remedy)
            with redirect_errors(on_error):
                refuse_bytes(row, path, line)
                yield line, row

    return _table_records(rows(), path, "line", on_error, decimal_commas=separator != ",")


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
    refuse_bytes([header], path, line)
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
    top, header = next(rows, (0, []))
    # Some programs write a second byte order mark.
    names = [cell.strip("\ufeff").strip() or f"column {n} (no name)" for n, cell in enumerate(header, start=1)]
    file = str(path)
    with Record({}, file, top, unit=unit).located():
        refuse_equal_names(names)
    one_name = sum(bool(cell.strip()) for cell in header) == 1
    for number, row in rows:
        if one_name and max(len(header), len(row)) > 1:
            raise Record({}, file, top, unit=unit).error(
                "the first row is a title and not a header",
                expected="the names of the columns in the first row, e.g. source, text, helpfulness",
                found=" ".join(header).strip(),
                remedy="delete the rows above the names of the columns",
            )
        if len(row) == len(names):
            values = dict(zip(names, row, strict=True))
            yield Record(values, file, number, format="csv", unit=unit, decimal_commas=decimal_commas)
            continue
        with redirect_errors(on_error):
            raise Record({}, file, number, unit=unit).error(
                "the row and the header differ in their number of cells",
                expected=f"{len(names)} cells: {', '.join(names)}",
                found=f"{len(row)} cells",
                remedy="put texts with separators or line breaks in double quotes",
            )


def refuse_equal_names(names: Sequence[str], file: str | None = None) -> None:
    """Refuse a table in which two columns have the same name, because one would be lost.

    Raises:
        InputError: There are such columns.
    """
    if twice := [column for column, count in Counter(names).items() if count > 1]:
        remedy = f"rename them; columns of several raters are {twice[0]}_1, {twice[0]}_2"
        raise InputError("two columns have the same name", file=file, field=twice[0], remedy=remedy)


# --- sheets ---


def _sheets(path: Path, name: str) -> Iterator[Record]:
    """The rows of a sheet, or of all for `*`."""
    sheets = _open_workbook(path).sheets
    if name not in ("*", *sheets):
        raise InputError("no such sheet", file=path, field="columns.sheet", expected=", ".join(sheets), found=name)
    if name != "*":
        yield from _sheet_rows(path, name)
    for sheet in sheets if name == "*" else ():
        yield from (replace(r, values={**r.values, "sheet": sheet}) for r in _sheet_rows(path, sheet))


def _sheet_rows(path: Path, name: str = "") -> Iterator[Record]:
    """The rows of a workbook's sheet, by default the first visible one, all values as texts; a row's number is the one
    that Excel shows."""
    sheet = _open_workbook(path, name)
    top = [[cell for cell in map(str.strip, cells) if cell] for _, cells in islice(sheet.rows(), 2)]
    has_table = len(top) == 2 and (max(map(len, top)) > 1 or normalized_name(top[0][0]) in (*SOURCE_WORDS, *TEXT_WORDS))
    if not name and len(sheet.sheets) > 1 and not has_table:
        raise InputError(
            f"the first sheet, {sheet.sheets[0]!r}, {'holds no table' if top else 'is empty'}",
            file=path,
            found="further sheets: " + ", ".join(map(repr, sheet.sheets[1:])),
            remedy="name the sheet with the data: --columns sheet=NAME, or sheet=* for all",
        )
    return _table_records(sheet.rows(), path, "row")


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


# --- data sets of the Hugging Face hub, or folders with the same layout ---


def _hub_name(name: str) -> tuple[str, str | None, str | None]:
    """Path, configuration and split of `hf:NAME[:CONFIG][@SPLIT]`."""
    set_name, _, split = name.removeprefix(HUB).partition("@")
    path, _, config = set_name.partition(":")
    if not path.strip():
        raise InputError("no name of a set", field="--data", expected=f"{HUB}NAME[:CONFIG][@SPLIT]", found=name)
    return path, config or None, split or None


def _hub_rows(name: str) -> Iterator[Record]:
    """The rows of a set, loaded by `datasets`, which caches downloads."""
    import datasets

    path, config, split = _hub_name(name)
    try:
        splits = [split] if split else datasets.get_dataset_split_names(path, config)
        rows = datasets.load_dataset(path, config, split=splits[0]) if len(splits) == 1 else ()
    except Exception as error:  # The library has no common base class: OSError, httpx and its own errors all occur.
        raise InputError(
            f"the set cannot be loaded ({type(error).__name__})",
            file=name,
            found=first_line_of(error),
            remedy="check name, configuration and split, and the network",
        ) from error
    if len(splits) != 1:
        remedy = f"name it: {name}@{splits[0]}" if splits else None
        raise InputError("the set has several splits", file=name, found=", ".join(splits), remedy=remedy)
    return typed_rows(rows, name)
