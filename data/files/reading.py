"""Reads text files as lines, and JSON, TOML and Parquet files as records.

JSON lines and Parquet are streamed, so memory does not grow with the file; any other JSON is held in memory.
"""

from __future__ import annotations

import codecs
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NoReturn, TextIO

from debate_judge.data.errors import ErrorHandler, InputError, did_you_mean, redirect_errors
from debate_judge.data.files.columns import SOURCE_WORDS, TEXT_WORDS
from debate_judge.data.files.records import Record, json_type

Stream = Callable[[ErrorHandler | None], Iterator[Record]]
"""Opens a file and streams its records; one that cannot be read is passed to the handler and skipped, if it ends where
its line or row does."""

_NO_UTF8 = re.compile("[\udc80-\udcff]")
"""Bytes that are not UTF-8, as Python decodes them."""
_BETWEEN_RECORDS = re.compile(r"[\s,]*")
_ONE_RECORD_PER_LINE = "write every record on one line of its own, without a list around them"
_SAVE_AS_UTF8 = "save the file as UTF-8 (spreadsheets: CSV UTF-8)"
_LESS_NESTED = "leave out what is not read, or write it with fewer levels"
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

# --- lines ---


def lines(path: Path, on_error: ErrorHandler | None = None, max_length: int = 0) -> Iterator[tuple[int, str]]:
    """Stream the lines of a text file with their numbers from 1: UTF-8, or UTF-16 with a byte order mark.

    Lines of more than `max_length` characters, by default `MAX_LINE_BYTES`, are skipped if there is an `on_error`.
    Bytes that are not UTF-8 stay in the text, for `refuse_bytes`.
    """
    refuse_pipe(path)
    try:
        with path.open("rb") as file:
            start = file.read(2)
        is_utf16 = start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        if 0 in start and not is_utf16:
            problem = "a zero byte at the beginning: this is UTF-16 without a byte order mark, or no text"
            raise InputError(problem, file=path, line=1, remedy=_SAVE_AS_UTF8)
        # newline="\n": carriage returns are kept for csv and json. A byte that is not UTF-8 becomes half a character.
        encoding, errors = ("utf-16", "strict") if is_utf16 else ("utf-8-sig", "surrogateescape")
        with path.open(encoding=encoding, errors=errors, newline="\n") as stream:
            yield from _short_lines(stream, path, on_error, max_length or MAX_LINE_BYTES)
    except OSError as error:
        raise unreadable_error(error, path) from None


def _short_lines(
    stream: TextIO, path: Path, on_error: ErrorHandler | None, max_length: int
) -> Iterator[tuple[int, str]]:
    number = 0
    try:
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


def refuse_bytes(texts: Sequence[str], path: Path, line: int) -> None:
    """Refuse the cells of a row, or a line, with bytes that are not UTF-8.

    Raises:
        InputError: There are some.
    """
    for text in texts:
        if not text.isascii() and (bad := _NO_UTF8.search(text)):
            problem = f"not UTF-8: the byte 0x{ord(bad[0]) & 0xFF:02x} after {text[: bad.start()][-20:]!r}"
            raise InputError(problem, file=path, line=line, remedy=_SAVE_AS_UTF8)


def read_text(path: Path) -> str:
    """The text of a file that has to be read as a whole."""
    refuse_pipe(path)
    try:
        size = path.stat().st_size
    except OSError as error:
        raise unreadable_error(error, path) from None
    parts = []
    for number, text in lines(path, max_length=_MAX_FILE_BYTES) if size <= _MAX_FILE_BYTES else ():
        refuse_bytes([text], path, number)
        parts.append(text)
    text = "".join(parts)
    if size > _MAX_FILE_BYTES or _max_values_in(text) > _MAX_VALUES:
        problem = f"too large for a single JSON document: over {_MAX_FILE_BYTES >> 20} MB or {_MAX_VALUES:,} values"
        raise InputError(problem, file=path, remedy=_ONE_RECORD_PER_LINE)
    return text


def _max_values_in(text: str) -> int:
    """An upper bound of the number of values in a JSON text."""
    return sum(map(text.count, ",[{"))


def refuse_pipe(path: Path) -> None:
    """Refuse a pipe or socket: it could be read only once, and reading would block while nothing is written."""
    try:
        is_pipe = path.is_fifo() or path.is_socket()
    except OSError as error:  # A name that is too long, for example.
        raise unreadable_error(error, path) from None
    if is_pipe:
        raise InputError("this is a pipe", file=path, expected="a file", remedy="write its content to a file first")


def unreadable_error(error: OSError, path: Path, what: str = "file") -> InputError:
    """The error for a file that cannot be opened; if there is none, it suggests one with a similar name."""
    if not isinstance(error, FileNotFoundError):
        return InputError(f"the {what} cannot be read: {error.strerror or error}", file=path)
    near = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    return InputError(f"no such {what}", file=path, remedy=did_you_mean(path.name, near))


# --- JSON ---


def json_source(path: Path) -> tuple[str, Stream]:
    """What a JSON file holds, empty for JSON lines and an array, and its records."""
    first, second = [*islice((t.strip() for _, t in lines(path, max_length=_MAX_FILE_BYTES) if t.strip()), 2), "", ""][
        :2
    ]
    if first.startswith("["):
        return "", lambda _: json_array(path)
    # An object that ends on the first of several lines is a record; no more of the file is read.
    if not first.startswith("{") or (second and first[-1] not in "{[,"):
        return "", lambda on_error: jsonl(path, on_error)
    text = read_text(path)
    try:
        description, rows = _records_in(_decoded(text, path, 1))
    except InputError:
        if second:
            raise
        return "", lambda on_error: jsonl(path, on_error)
    if rows:
        return description, lambda _: (_record(v, path, n, "row") for n, v in enumerate(rows, start=1))
    return ("one JSON object", lambda _: iter([json_object(path)])) if second else ("", lambda _: jsonl(path))


def json_records(path: Path) -> Iterator[Record]:
    """The records of a JSON file of any layout."""
    return json_source(path)[1](None)


def jsonl(path: Path, on_error: ErrorHandler | None = None) -> Iterator[Record]:
    """Stream the objects of a JSON lines file; blank lines are skipped, and bad ones if there is an `on_error`."""
    for line, text in lines(path, on_error):
        if text := text.rstrip():
            with redirect_errors(on_error):
                refuse_bytes([text], path, line)
                if len(text) > _MAX_LINE_VALUES and _max_values_in(text) > _MAX_LINE_VALUES:
                    problem = f"a line of more than {_MAX_LINE_VALUES:,} values"
                    raise InputError(problem, file=path, line=line, remedy="leave out what is not read")
                yield _record(_decoded(text, path, line), path, line)


def json_array(path: Path) -> Iterator[Record]:
    """The objects of a file that is one JSON array, each with the line it begins on, or its number where all are on one
    line; the file is held in memory."""
    text = read_text(path)
    unit: Literal["line", "row"] = "line" if "\n" in text.strip() else "row"
    at, line, counted_to, number = text.index("[") + 1, 1, 0, 0
    while True:
        # Missing or extra commas between objects are accepted: they cannot change a record.
        at = _BETWEEN_RECORDS.match(text, at).end()  # type: ignore[union-attr]
        line, counted_to = line + text.count("\n", counted_to, at), at
        if text[at : at + 1] in ("", "]"):
            break
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise _json_error(error, path, getattr(error, "lineno", line)) from None
        number += 1
        yield _record(value, path, line if unit == "line" else number, unit)
    if at == len(text):
        raise InputError("the JSON array is not closed", file=path, line=line, expected="]")
    # E.g. two concatenated files: the second array must not be dropped silently.
    if rest := text[at + 1 :].lstrip():
        raise InputError(
            "there is text after the end of the JSON array",
            file=path,
            line=1 + text.count("\n", 0, len(text) - len(rest)),
            found=rest[:40].rstrip(),
            remedy="put all records into one array, or each on a line of its own without an array",
        )


def json_object(path: Path, *, remedy: str | None = None) -> Record:
    """A file that is one JSON object as one record; `remedy` is that of errors without a better one."""
    value = _decoded(read_text(path), path, 1, remedy)
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


def _decoded(text: str, path: Path, line: int, remedy: str | None = None) -> object:
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        if remedy is None and text.rstrip()[-1:] in ("{", "[", ","):
            remedy = _ONE_RECORD_PER_LINE
        raise _json_error(error, path, line - 1 + getattr(error, "lineno", 1), remedy) from None


def _json_error(error: Exception, path: Path, line: int, remedy: str | None = None) -> InputError:
    if isinstance(error, json.JSONDecodeError):
        found = error.doc[max(0, error.pos - 20) : error.pos + 20].strip() or None
        problem = f"not valid JSON: {error.msg} (column {error.colno})"
        return InputError(problem, file=path, line=line, found=found, remedy=remedy)
    problem = str(error) if isinstance(error, _RefusedError) else "a number has thousands of digits"
    if isinstance(error, RecursionError):
        problem, remedy = "nested too deeply", _LESS_NESTED
    remedy = remedy or "correct the record, or leave it out"
    return InputError(f"not usable JSON: {problem}", file=path, line=line, remedy=remedy)


def _record(value: object, path: Path, line: int, unit: Literal["line", "row"] = "line") -> Record:
    if isinstance(value, dict):
        return Record(value, str(path), line, unit=unit)
    remedy = _ONE_RECORD_PER_LINE if isinstance(value, list) else 'give the value a name: {"text": "…"}'
    found = json_type(value)
    raise InputError(
        "a record must be an object", file=path, line=line, unit=unit, expected="{…}", found=found, remedy=remedy
    )


class _RefusedError(ValueError):
    """JSON that Python parses, but with a lost or changed value."""


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise _RefusedError(f"the name {next(n for n in names if names.count(n) > 1)!r} occurs twice in one object")
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise _RefusedError(f"{name} is not a JSON number; leave the value out")


_DECODER = json.JSONDecoder(object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)

# --- TOML ---


def toml(path: Path, what: str = "file") -> Record:
    """Read a TOML file as one record; errors call the file `what`."""
    refuse_pipe(path)
    line, remedy = None, None
    try:
        return Record(tomllib.loads(path.read_text(encoding="utf-8-sig")), str(path), format="toml")
    except OSError as error:
        raise unreadable_error(error, path, what) from None
    except RecursionError:
        problem, remedy = "not usable TOML: nested too deeply", _LESS_NESTED
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"\(at line (\d+), column \d+\)", str(error))
        problem, line = f"not valid TOML: {error}", int(match[1]) if match else None
        remedy = "the name stands twice: leave one of its lines out" if "overwrite" in str(error) else None
    except UnicodeDecodeError as error:
        problem = f"not UTF-8: byte {error.start + 1} of the file"
    except ValueError:
        problem = "not usable TOML: a number has thousands of digits"
    raise InputError(problem, file=path, line=line, remedy=remedy)


# --- typed rows: of Parquet, data sets and data frames ---


def typed_rows(rows: Iterable[Mapping[Any, Any]], name: str) -> Iterator[Record]:
    """Rows with typed values instead of texts; NaN, a missing number, becomes None, and a decimal a number."""
    for number, row in enumerate(rows, start=1):
        yield Record({k: _without_nan(v) for k, v in row.items()}, name, number, format="csv", unit="row")


def parquet_rows(path: Path) -> Iterator[Record]:
    """Stream the rows of a Parquet file, numbered from 1."""
    return typed_rows(_parquet_values(path), str(path))


def _parquet_values(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow
    import pyarrow.parquet

    refuse_pipe(path)
    number = 0
    try:
        schema = pyarrow.parquet.read_schema(path)
        # With dictionary encoding, a repeated text is in memory once.
        texts = [c.name for c in schema if pyarrow.types.is_string(c.type) or pyarrow.types.is_large_string(c.type)]
        file = pyarrow.parquet.ParquetFile(path, read_dictionary=texts)
        _refuse_unpacking(file.metadata, path)
        for batch in file.iter_batches(batch_size=1000):
            # Few rows at once become Python's values, because each copies its texts.
            for at in range(0, batch.num_rows, 16):
                for row in _python_rows(batch.slice(at, 16), path):
                    number += 1
                    yield row
    except InputError:
        raise
    except (OSError, pyarrow.ArrowException, ValueError, OverflowError, KeyError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise unreadable_error(error, path) from None
        raise InputError(
            "not a Parquet file that can be read",
            file=path,
            found=(f"after row {number}: " if number else "") + first_line_of(error),
            remedy="write it again from its original, or as JSON lines",
        ) from None


def _python_rows(batch: Any, path: Path) -> list[dict[str, Any]]:
    """The rows of a batch; where Python cannot represent a date, a time or a duration, the column is one of numbers."""
    import pyarrow

    columns: dict[str, list[object]] = {}
    for name, column in zip(batch.schema.names, batch, strict=True):
        try:
            columns[name] = column.to_pylist()
        except (ValueError, OverflowError, KeyError) as error:
            if not pyarrow.types.is_temporal(column.type):
                problem, found = "a value that Python cannot represent", f"{column.type}: {first_line_of(error)}"
                remedy = "leave the column out, or write it as text"
                raise InputError(problem, file=path, field=name, found=found, remedy=remedy) from None
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


def first_line_of(error: Exception) -> str:
    """The first line of an error's message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


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
