"""Records from files of any format: JSON, CSV, Excel, Parquet, or a Hugging Face data set; and TOML files.

The format follows from the name: its suffix, or `hf:NAME[:CONFIG][@SPLIT]` for the hub. The separator of a text table
is declared by Excel's line `sep=;`, or is whichever of comma, semicolon and tab splits the header into most columns, or
the vertical bar if none of them does. With a separator other than the comma, numbers may have a decimal comma; with
the comma, and in sheets, only ratings that cannot be two ratings. JSON lines, text tables, Parquet and the hub are
streamed: memory does not grow with their length. Any other JSON is held in memory.
"""

from __future__ import annotations

import codecs
import csv
import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from debate_judge.data.errors import ErrorHandler, InputError, did_you_mean, install_hint, redirect_errors
from debate_judge.data.files import tools
from debate_judge.data.files.columns import SOURCE_WORDS, TEXT_WORDS, ColumnNames, ReadingNotes, normalized_name
from debate_judge.data.files.records import Record, is_missing, json_type
from debate_judge.data.files.workbook import Sheet, open_workbook

TEXT_TABLES, EXCEL, JSON = (".csv", ".tsv"), (".xlsx", ".xlsm", ".xls", ".ods"), (".jsonl", ".json", ".ndjson")
SUFFIXES = (*JSON, *TEXT_TABLES, ".xlsx", ".parquet")
"""Suffixes that messages name; the other ones in `EXCEL` are read, too."""

HUB = "hf:"
"""Prefix of names of data sets."""

MAX_LINE_BYTES = 16 * 1024 * 1024
"""Bytes of a line of text, and characters of a cell; the parsed values may take twenty times as much memory."""

_MAX_FILE_BYTES = 96 * 1024 * 1024
"""Bytes of a file that has to be read as a whole."""

_MAX_VALUES, _MAX_LINE_VALUES = 8_000_000, 1_000_000
"""Values in such a file, and in a line of JSON lines; each takes at least 64 bytes in memory."""

_MAX_UNPACKED = 256 * 1024 * 1024
"""Largest uncompressed size in bytes of a Parquet column chunk with a compression ratio above 200."""

_MAX_LIST_VALUES = 8_000_000
"""Maximum number of values in a list column of a Parquet row group with more than 16 values per compressed byte."""

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_SEP_LINE = re.compile(r'"?sep=(.)"?[\r\n]*', re.IGNORECASE)
"""The line in which Excel declares the separator."""
_NO_UTF8 = re.compile("[\udc80-\udcff]")
"""Bytes that are not UTF-8, as Python decodes them."""
_BETWEEN_RECORDS = re.compile(r"[ \t\r\n,]*")
_ONE_RECORD_PER_LINE = "write every record on one line of its own, without a list around them"
_SAVE_AS_UTF8 = "save the file as UTF-8 (spreadsheets: CSV UTF-8)"

Stream = Callable[[ErrorHandler | None], Iterator[Record]]
"""Opens a file and streams its records; one that cannot be read is passed to the handler and skipped, if it ends where
its line or row does."""


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
        if sheet:
            rows = self.sheet
            if rows is None:
                raise InputError("only workbooks have sheets", file=self.name, field="columns.sheet", found=sheet)
            records = rows(sheet)
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
        return json_records(Path(path))
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
        description, stream = _json_source(path)
        whole = partial(json_object, path) if description else None
        return RecordFile(name, description or "JSON", not description, stream, whole)
    if suffix in TEXT_TABLES:
        separator = _detect_separator(path)
        is_usual = separator == ("\t" if suffix == ".tsv" else ",")
        description = f"columns separated by {_SEPARATORS.get(separator, repr(separator))}"
        return RecordFile(name, description, is_usual, partial(_csv_rows, path, separator))
    if suffix in EXCEL:
        sheets = _open_workbook(path).sheets
        description = f"sheet {sheets[0]!r}" + (f", the first of {len(sheets)}" if len(sheets) > 1 else "")
        return RecordFile(
            name, description, len(sheets) == 1, lambda _: _first_sheet(path), sheet=partial(_sheets, path)
        )
    if suffix == ".parquet":
        return RecordFile(name, "Parquet", True, lambda _: typed_rows(_parquet_values(path), name))
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
            keys = [tuple(str(record.values.get(column)) for column in columns) for record in many]
            by_key = {tuple(str(record.values.get(column)) for column in columns): record.values for record in one}
            if names.join or (len(by_key) == len(one) and 2 * sum(key in by_key for key in keys) >= len(many)):
                notes.add(f"joined by {' and '.join(columns)}")
                return _with_fields(many, [by_key.get(key) for key in keys], notes)
    raise InputError(
        "no columns that two files have in common tell the records apart",
        file=second.name,
        expected="columns with the same ids in both, which are different in each record of one file",
        found=" and ".join(", ".join(map(str, rows[0].values)) if rows else "no records" for rows in files),
        remedy="name them: --columns join=COLUMN+COLUMN",
    )


def _with_fields(
    records: Sequence[Record], others: Sequence[Mapping[str, object] | None], notes: ReadingNotes
) -> Iterator[Record]:
    for record, other in zip(records, others, strict=True):
        if other is None:
            notes.add("{} records have no counterpart in the other file and are left out")
        else:
            known = {name: value for name, value in record.values.items() if not is_missing(value)}
            yield replace(record, values={**record.values, **other, **known})


# --- text ---


def lines(path: Path, on_error: ErrorHandler | None = None, max_length: int = 0) -> Iterator[tuple[int, str]]:
    """Stream the lines of a text file with their numbers from 1: UTF-8, or UTF-16 with a byte order mark.

    Lines of more than `max_length` characters, by default `MAX_LINE_BYTES`, are skipped if there is an `on_error`.
    Bytes that are not UTF-8 stay in the text, for `_refuse_bytes`.
    """
    number, max_length = 0, max_length or MAX_LINE_BYTES
    with _reading(path):
        with path.open("rb") as file:
            start = file.read(2)
        is_utf16 = start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        if 0 in start and not is_utf16:
            problem = "a zero byte at the beginning: this is UTF-16 without a byte order mark, or no text"
            raise InputError(problem, file=path, line=1, remedy=_SAVE_AS_UTF8)
        # newline="\n": carriage returns are kept for csv and json. A byte that is not UTF-8 becomes half a character.
        encoding, errors = ("utf-16", "strict") if is_utf16 else ("utf-8-sig", "surrogateescape")
        try:
            with path.open(encoding=encoding, errors=errors, newline="\n") as stream:
                while line := stream.readline(max_length + 1):
                    number += 1
                    if len(line) <= max_length:
                        yield number, line
                        continue
                    while line and not line.endswith("\n"):
                        line = stream.readline(max_length)
                    with redirect_errors(on_error):
                        problem = f"a line of more than {max_length >> 20} MB"
                        remedy = "write every record on one line of its own, or leave out what no judge reads"
                        raise InputError(problem, file=path, line=number, remedy=remedy)
        except UnicodeDecodeError:
            problem = "not UTF-16, although it begins with a UTF-16 byte order mark"
            raise InputError(problem, file=path, line=number + 1, remedy=_SAVE_AS_UTF8) from None


@contextmanager
def _reading(path: Path, what: str = "file") -> Iterator[None]:
    """Convert errors of opening and decoding a file; a pipe is refused, because it could be read only once, and reading
    would block while nothing is written."""
    try:
        if path.is_fifo() or path.is_socket():
            raise InputError("this is a pipe", file=path, expected="a file", remedy="write its content to a file first")
        yield
    except FileNotFoundError:
        near = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        raise InputError(f"no such {what}", file=path, remedy=did_you_mean(path.name, near)) from None
    except OSError as error:
        raise InputError(f"the {what} cannot be read: {error.strerror or error}", file=path) from None


def _refuse_bytes(texts: Sequence[str], path: Path, line: int) -> None:
    """Refuse the cells of a row, or a line, with bytes that are not UTF-8.

    Raises:
        InputError: There are some.
    """
    for text in texts:
        if not text.isascii() and (bad := _NO_UTF8.search(text)):
            problem = f"not UTF-8: the byte 0x{ord(bad[0]) & 0xFF:02x} after {text[: bad.start()][-20:]!r}"
            raise InputError(problem, file=path, line=line, remedy=_SAVE_AS_UTF8)


def read_text(path: Path, what: str = "file") -> str:
    """The text of a file that has to be read as a whole; errors call the file `what`."""
    with _reading(path, what):
        size = path.stat().st_size
    parts = []
    for number, line in lines(path, max_length=_MAX_FILE_BYTES) if size <= _MAX_FILE_BYTES else ():
        _refuse_bytes([line], path, number)
        parts.append(line)
    text = "".join(parts)
    if size > _MAX_FILE_BYTES or _max_values_in(text) > _MAX_VALUES:
        problem = f"too large for a single document: over {_MAX_FILE_BYTES >> 20} MB or {_MAX_VALUES:,} values"
        raise InputError(problem, file=path, remedy=_ONE_RECORD_PER_LINE)
    return text


def _max_values_in(text: str) -> int:
    """An upper bound of the number of values in a JSON text."""
    return sum(map(text.count, ",[{"))


def _reason(error: ValueError) -> str:
    """The message, without Python's advice to programmers about numbers with thousands of digits."""
    return str(error).partition("; use sys.")[0]


def toml(path: Path, what: str = "file") -> Record:
    """Read a TOML file as one record; errors call the file `what`."""
    text, line, remedy = read_text(path, what), None, None
    try:
        return Record(tomllib.loads(text), str(path), format="toml")
    except RecursionError:
        problem = "nested too deeply"
    except ValueError as error:
        match = re.search(r"\(at line (\d+), column \d+\)", str(error))
        problem, line = _reason(error), int(match[1]) if match else None
        remedy = "the name stands twice: leave one of its lines out" if "overwrite" in str(error) else None
    raise InputError(f"not valid TOML: {problem}", file=path, line=line, remedy=remedy)


# --- JSON ---


def json_records(path: Path) -> Iterator[Record]:
    """The records of a JSON file of any layout."""
    return _json_source(path)[1](None)


def _json_source(path: Path) -> tuple[str, Stream]:
    """What a JSON file holds, empty for JSON lines and an array, and its records."""
    head = islice((text.strip() for _, text in lines(path, max_length=_MAX_FILE_BYTES) if text.strip()), 2)
    first, second = (*head, "", "")[:2]
    if first.startswith("["):
        return "", lambda _: _json_array(path)
    # An object that ends on the first of several lines is a record; no more of the file is read.
    if not first.startswith("{") or (second and first[-1] not in "{[,"):
        return "", partial(jsonl, path)
    try:
        description, rows = _records_in(_decoded(read_text(path), path))
    except InputError:
        if second:
            raise
        rows = []
    if rows:
        return description, lambda _: (_record(value, path, n, "row") for n, value in enumerate(rows, start=1))
    return ("one JSON object", lambda _: iter([json_object(path)])) if second else ("", partial(jsonl, path))


def jsonl(path: Path, on_error: ErrorHandler | None = None) -> Iterator[Record]:
    """Stream the objects of a JSON lines file; blank lines are skipped, and bad ones if there is an `on_error`."""
    for line, text in lines(path, on_error):
        if text := text.rstrip():
            with redirect_errors(on_error):
                _refuse_bytes([text], path, line)
                if len(text) > _MAX_LINE_VALUES and _max_values_in(text) > _MAX_LINE_VALUES:
                    problem = f"a line of more than {_MAX_LINE_VALUES:,} values"
                    raise InputError(problem, file=path, line=line, remedy="leave out what is not read")
                yield _record(_decoded(text, path, line), path, line)


def _json_array(path: Path) -> Iterator[Record]:
    """The objects of a file that is one JSON array, each with the line it begins on, or its number where all are on one
    line. Only the text is held in memory."""
    text = read_text(path)
    unit: Literal["line", "row"] = "line" if "\n" in text.strip() else "row"
    start, at, line, number = 0, text.index("[") + 1, 1, 0
    while True:
        # Missing or extra commas between objects are accepted: they cannot change a record.
        at = _BETWEEN_RECORDS.match(text, at).end()  # type: ignore[union-attr]
        line, start, number = line + text.count("\n", start, at), at, number + 1
        if text[at : at + 1] in ("", "]"):
            break
        with _json_errors(path, line, at=at):
            value, at = _DECODER.raw_decode(text, at)
        yield _record(value, path, line if unit == "line" else number, unit)
    if text[at:].strip() != "]":  # Not closed, or e.g. two concatenated files, of which none must be lost.
        _decoded(text, path, remedy="close the array, and put all records into one, or each on a line without an array")


def json_object(path: Path, *, remedy: str | None = None) -> Record:
    """A file that is one JSON object as one record; `remedy` is that of errors without a better one."""
    value = _decoded(read_text(path), path, remedy=remedy)
    if not isinstance(value, dict):
        raise InputError("not a JSON object", file=path, expected="{…}", found=json_type(value), remedy=remedy)
    return Record(value, str(path), remedy=remedy)


def _records_in(value: Any) -> tuple[str, list[Any]]:
    """The records in an object and where they are: in its only list, under its keys, which are then the field `key`, or
    in columns of equal length. None if the object is a record itself."""
    cells = list(value.values())
    lists = [name for name, cell in value.items() if isinstance(cell, list)]
    is_record = any(key.lower() in ("chosen", "group", *SOURCE_WORDS, *TEXT_WORDS) for key in value)
    columns = [dict(enumerate(cell)) if isinstance(cell, list) else cell for cell in cells]
    if len(columns) > 1 and all(isinstance(c, dict) and len(c) > 1 and c.keys() == columns[0].keys() for c in columns):
        numbered = all(str(key).isdigit() for key in columns[0])
        if numbered and not any(isinstance(cell, dict) for c in columns for cell in islice(c.values(), 1)):
            return "columns of one JSON object", [
                {k: c[n] for k, c in zip(value, columns, strict=True)} for n in columns[0]
            ]
    inner = value[lists[0]] if len(lists) == 1 and lists[0] != "candidates" else []
    is_inside = len(value) == 1 or not (is_record or any(isinstance(cell, dict) for cell in cells))
    if inner and is_inside and isinstance(inner[0], dict):
        return f"the records are the list {lists[0]!r} of one JSON object", inner
    keyed = [(key, item) for key, cell in value.items() for item in (cell if isinstance(cell, list) else [cell])]
    if is_record or len(value) < 2 or not all(isinstance(item, dict) and item for _, item in keyed) or not keyed:
        return "", []
    first, last = set(keyed[0][1]), set(keyed[-1][1])
    alike = 2 * len(first & last) >= len(first | last) and (not lists or first == last)
    return "one JSON object of records, by their keys", [{"key": k, **item} for k, item in keyed] if alike else []


def _decoded(text: str, path: Path, line: int = 1, remedy: str | None = None) -> Any:
    if remedy is None and text.rstrip()[-1:] in ("{", "[", ","):
        remedy = _ONE_RECORD_PER_LINE
    with _json_errors(path, line, remedy):
        return _DECODER.decode(text)


@contextmanager
def _json_errors(path: Path, line: int, remedy: str | None = None, at: int = 0) -> Iterator[None]:
    """Convert errors of decoding the value that begins on this line, at this place of the text."""
    found = None
    try:
        yield
        return
    except json.JSONDecodeError as error:
        problem, line = (
            f"not valid JSON: {error.msg} (column {error.colno})",
            line + error.doc.count("\n", at, error.pos),
        )
        found = error.doc[max(0, error.pos - 20) : error.pos + 20].strip() or None
    except RecursionError:
        problem, remedy = "not usable JSON: nested too deeply", "leave out what is not read"
    except ValueError as error:  # Of a number with thousands of digits, or one of those below.
        problem, remedy = f"not usable JSON: {_reason(error)}", remedy or "correct the record, or leave it out"
    raise InputError(problem, file=path, line=line, found=found, remedy=remedy)


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        (name, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the name {name!r} occurs twice in one object")
    return values


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number; leave the value out")


# Python would parse these with a lost or a changed value.
_DECODER = json.JSONDecoder(object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)


def _record(value: object, path: Path, line: int, unit: Literal["line", "row"] = "line") -> Record:
    if isinstance(value, dict):
        return Record(value, str(path), line, unit=unit)
    remedy = _ONE_RECORD_PER_LINE if isinstance(value, list) else 'give the value a name: {"text": "…"}'
    where: Any = {"file": path, "line": line, "unit": unit}
    raise InputError("a record must be an object", **where, expected="{…}", found=json_type(value), remedy=remedy)


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
                _refuse_bytes(row, path, line)
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
    _refuse_bytes([header], path, line)
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
    table = Record({}, str(path), top, format="csv", unit=unit, decimal_commas=decimal_commas)
    # Some programs write a second byte order mark.
    names = [cell.strip("\ufeff").strip() or f"column {n} (no name)" for n, cell in enumerate(header, start=1)]
    with table.located():
        refuse_equal_names(names)
    one_name = sum(bool(cell.strip()) for cell in header) == 1
    for number, row in rows:
        if one_name and max(len(header), len(row)) > 1:
            raise table.error(
                "the first row is a title and not a header",
                expected="the names of the columns in the first row, e.g. source, text, helpfulness",
                found=" ".join(header).strip(),
                remedy="delete the rows above the names of the columns",
            )
        if len(row) == len(names):
            yield replace(table, values=dict(zip(names, row, strict=True)), line=number)
            continue
        with redirect_errors(on_error):
            raise replace(table, line=number).error(
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
    """The rows of a sheet, or of all for `*`, all values as texts; a row's number is the one that Excel shows."""
    sheets = _open_workbook(path).sheets
    if name not in ("*", *sheets):
        raise InputError("no such sheet", file=path, field="columns.sheet", expected=", ".join(sheets), found=name)
    for each in sheets if name == "*" else [name]:
        for record in _table_records(_open_workbook(path, each).rows(), path, "row"):
            yield replace(record, values={**record.values, "sheet": each}) if name == "*" else record


def _first_sheet(path: Path) -> Iterator[Record]:
    """The rows of the first visible sheet, which has to hold a table if there are others."""
    sheet = _open_workbook(path)
    top = [[cell for cell in map(str.strip, cells) if cell] for _, cells in islice(sheet.rows(), 2)]
    has_table = len(top) == 2 and (max(map(len, top)) > 1 or normalized_name(top[0][0]) in (*SOURCE_WORDS, *TEXT_WORDS))
    if len(sheet.sheets) > 1 and not has_table:
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
        problem = "spreadsheets are read by python-calamine, which is not installed"
        remedy = f"{install_hint('excel')}, or save the sheet as CSV UTF-8"
        raise InputError(problem, file=path, remedy=remedy) from None
    with _reading(path):
        try:
            return open_workbook(str(path), name)
        except ValueError as error:
            remedy = "delete cells, rows and columns outside the data, or save the sheet as CSV UTF-8"
            raise InputError("not a workbook that can be read", file=path, found=str(error), remedy=remedy) from None


# --- typed rows: of Parquet, data sets and data frames ---


def typed_rows(rows: Iterable[Mapping[Any, Any]], name: str) -> Iterator[Record]:
    """Rows with typed values instead of texts; NaN, a missing number, becomes None, and a decimal a number."""
    for number, row in enumerate(rows, start=1):
        yield Record({k: _without_nan(v) for k, v in row.items()}, name, number, format="csv", unit="row")


def _without_nan(value: object) -> object:
    if hasattr(value, "tolist"):  # pandas reads a list of a Parquet file as an array.
        value = value.tolist()
    if isinstance(value, Decimal):
        value = int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value


def _parquet_values(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow
    import pyarrow.parquet

    number = 0
    with _reading(path):
        try:
            path.open("rb").close()
            schema = pyarrow.parquet.read_schema(path)
            # With dictionary encoding, a repeated text is in memory once.
            is_text = (pyarrow.types.is_string, pyarrow.types.is_large_string)
            texts = [column.name for column in schema if any(test(column.type) for test in is_text)]
            file = pyarrow.parquet.ParquetFile(path, read_dictionary=texts)
            _refuse_unpacking(file.metadata, path)
            for batch in file.iter_batches(batch_size=1000):
                # Few rows at once become Python's values, because each copies its texts.
                for at in range(0, batch.num_rows, 16):
                    for row in _python_rows(batch.slice(at, 16)):
                        number += 1
                        yield row
        except (pyarrow.ArrowException, ValueError, OverflowError, KeyError, OSError) as error:
            if isinstance(error, InputError) or (isinstance(error, OSError) and error.errno is not None):
                raise
            raise InputError(
                "not a Parquet file that can be read",
                file=path,
                found=(f"after row {number}: " if number else "") + _first_line_of(error),
                remedy="write it again from its original, or as JSON lines",
            ) from None


def _python_rows(batch: Any) -> list[dict[str, Any]]:
    """The rows of a batch; where Python cannot represent a date, a time or a duration, the column is one of numbers."""
    import pyarrow

    columns: dict[str, list[object]] = {}
    for name, column in zip(batch.schema.names, batch, strict=True):
        try:
            columns[name] = column.to_pylist()
        except (ValueError, OverflowError, KeyError):
            if not pyarrow.types.is_temporal(column.type):
                raise
            columns[name] = column.view(f"int{column.type.bit_width}").to_pylist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _refuse_unpacking(metadata: Any, path: Path) -> None:
    """Refuse a column that unpacks to far more than its size.

    Raises:
        InputError: There is one.
    """
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, range(metadata.num_columns)):
            size, unpacked = chunk.total_compressed_size, chunk.total_uncompressed_size
            in_lists = chunk.num_values if chunk.num_values > group.num_rows else 0
            if unpacked > max(_MAX_UNPACKED, 200 * size) or in_lists > max(_MAX_LIST_VALUES, 16 * size):
                raise InputError(
                    "a column unpacks to more than can be read",
                    file=path,
                    field=chunk.path_in_schema,
                    found=f"{size:,} bytes that become {unpacked:,} bytes and {chunk.num_values:,} values",
                    remedy="leave the column out, or write the file again from its original, or as JSON lines",
                )


def _first_line_of(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


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
            found=_first_line_of(error),
            remedy="check name, configuration and split, and the network",
        ) from error
    if len(splits) != 1:
        remedy = f"name it: {name}@{splits[0]}" if splits else None
        raise InputError("the set has several splits", file=name, found=", ".join(splits), remedy=remedy)
    return typed_rows(rows, name)
