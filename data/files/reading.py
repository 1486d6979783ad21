"""Reads text files as lines, and JSON, TOML and Parquet files as records.

JSON lines and Parquet are streamed, so memory does not grow with the file; a JSON array is held in memory.
"""

from __future__ import annotations

import codecs
import json
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NoReturn, TextIO

from debate_judge.data.errors import ErrorHandler, InputError, did_you_mean, redirect_errors
from debate_judge.data.files.columns import SOURCE_WORDS, TEXT_WORDS
from debate_judge.data.files.records import Record, json_type

_SEPARATORS = " \t\r\n,"
_NO_UTF8 = re.compile("[\udc80-\udcff]")
"""Bytes that are not UTF-8, as Python decodes them."""
_BETWEEN_TOKENS = re.compile(r"[\s,:]*")
_ONE_RECORD_PER_LINE = "write every record on one line of its own, without a list around them"
_SAVE_AS_UTF8 = "save the file as UTF-8 (spreadsheets: CSV UTF-8)"
_LESS_NESTED = "leave out what is not read, or write it with fewer levels"
MAX_LINE_BYTES = 16 * 1024 * 1024
"""Bytes of a line of text, and characters of a cell; the parsed values may take twenty times as much memory."""

_MAX_FILE_BYTES = 96 * 1024 * 1024
"""Bytes of a file that has to be read as a whole."""

_MAX_VALUES = 8_000_000
_MAX_LINE_VALUES = 1_000_000
"""Values in such a file, and in a line of JSON lines; each takes at least 64 bytes in memory."""

_MAX_UNPACKED = 256 * 1024 * 1024
"""Largest uncompressed size in bytes of a Parquet column chunk with a compression ratio above 200."""

_MAX_LIST_VALUES = 8_000_000
"""Maximum number of values in lists of a Parquet row group with more than 16 values per compressed byte, each of which
takes 32 bytes in memory."""


def jsonl(path: Path, on_error: ErrorHandler | None = None) -> Iterator[Record]:
    """Stream the objects of a JSON lines file; blank lines are skipped, and bad ones if there is an `on_error`."""
    for line, text in lines(path, on_error):
        if text := text.rstrip():
            with redirect_errors(on_error):
                yield _as_record(_parse_line(text, path, line), path, line)


def json_records(path: Path, on_error: ErrorHandler | None = None) -> Iterator[Record]:
    """The objects of a JSON array, of a list in a JSON object, or of a JSON lines file (`jsonl`)."""
    layout = json_layout(path)
    if layout is None:
        return jsonl(path, on_error)
    if layout == ".":
        return iter([json_whole(path)])
    return _keyed_records(path) if layout == "*" else json_array(path, layout)


def json_array(path: Path, list_name: str = "") -> Iterator[Record]:
    """The objects of a file that is one JSON array, each with the line it begins on; the file is held in memory.

    Records of an array on one line are numbered as rows.

    Args:
        path: The file.
        list_name: Name of the list, if the file is an object that holds it.
    """
    text = read_text(path)
    # On one line, records are told apart by their numbers only.
    unit: Literal["line", "row"] = "line" if "\n" in text.strip() else "row"
    number = 0
    at, line, counted_to = (_list_start(list_name, text) if list_name else text.index("[")) + 1, 1, 0
    while True:
        # Missing or extra commas between objects are accepted: they cannot change a record.
        while at < len(text) and text[at] in _SEPARATORS:
            at += 1
        line, counted_to = line + text.count("\n", counted_to, at), at
        if at == len(text):
            raise InputError("the JSON array is not closed", file=path, line=line, expected="]")
        if text[at] == "]":
            break
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            error_line = error.lineno if isinstance(error, json.JSONDecodeError) else line
            raise _json_error(error, text, path, error_line) from None
        number += 1
        yield _as_record(value, path, line if unit == "line" else number, unit)
    # E.g. two concatenated files: the second array must not be dropped silently.
    if not list_name and (rest := text[at + 1 :].lstrip()):
        raise InputError(
            "there is text after the end of the JSON array",
            file=path,
            line=1 + text.count("\n", 0, len(text) - len(rest)),
            found=rest[:40].rstrip(),
            remedy="put all records into one array, or each on a line of its own without an array",
        )


def json_layout(path: Path) -> str | None:
    """How a JSON file holds its records: None for JSON lines, empty for an array; of one object the name of its list of
    records, `*` if its values are the records, and `.` if it is one record itself.

    The list is the object's only field, or its only list, with a usual name, of one that has no text itself.
    """
    first_lines = list(islice((t.strip() for _, t in lines(path, max_bytes=_MAX_FILE_BYTES) if t.strip()), 2))
    if first_lines and first_lines[0][0] == "[":
        return ""
    # An object that ends on the first of several lines is a record; no more of the file is read.
    if not first_lines or first_lines[0][0] != "{" or (len(first_lines) > 1 and first_lines[0][-1] not in "{[,"):
        return None
    text = read_text(path)
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    lists = [name for name, inner in value.items() if isinstance(inner, list)]
    name = lists[0] if len(lists) == 1 and lists[0] != "candidates" else ""
    is_record = any(str(key).lower() in ("group", *SOURCE_WORDS, *TEXT_WORDS) for key in value)
    is_record = is_record or any(isinstance(inner, dict) for inner in value.values())
    if name and value[name] and isinstance(value[name][0], dict) and (len(value) == 1 or not is_record):
        return name
    if len(value) > 1 and _keyed(value):
        return "*"
    return "." if len(first_lines) > 1 or len(lists) > 1 else None


def _keyed(value: Mapping[str, object]) -> list[dict[str, object]]:
    """The records in an object of records, or of lists of them, by their keys, with the key as field `key`; in an
    object of columns, the rows. Empty for another object."""
    firsts = list(value.values())
    lists: list[list[object]] = firsts if all(isinstance(v, list) and v for v in firsts) else []  # type: ignore[assignment]
    if len(lists) > 1 and len({len(v) for v in lists}) == 1 < len(lists[0]) and not isinstance(lists[0][0], dict):
        return [dict(zip(value, row, strict=True)) for row in zip(*lists, strict=True)]
    if any(str(key).lower() in ("chosen", "group", *SOURCE_WORDS, *TEXT_WORDS) for key in value):
        return []
    if all(isinstance(v, dict) and v for v in firsts):
        inner: list[dict[str, object]] = firsts  # type: ignore[assignment]
        names = [set(v) for v in inner]
        if all(str(key).isdigit() for key in names[0]) and names[0] == names[-1]:
            return [{column: cells.get(key) for column, cells in value.items()} for key in inner[0]]  # type: ignore[attr-defined]
        alike = 2 * len(names[0] & names[-1]) >= len(names[0] | names[-1])
        return [{"key": key, **v} for key, v in zip(value, inner, strict=True)] if alike else []
    if lists and all(isinstance(v[0], dict) for v in lists):
        records = [(key, v) for key, vs in zip(value, lists, strict=True) for v in vs if isinstance(v, dict)]
        alike = {*records[0][1]} == {*records[-1][1]}
        return [{"key": key, **v} for key, v in records] if alike else []
    return []


def json_whole(path: Path) -> Record:
    """A file that is one JSON object as one record."""
    return replace(json_object(path), line=1)


def _keyed_records(path: Path) -> Iterator[Record]:
    for number, values in enumerate(_keyed(json_object(path).values), start=1):
        yield Record(values, str(path), number, unit="row")


def _list_start(name: str, text: str) -> int:
    """The position of the list called `name` in the text of a valid object."""
    at = text.index("{") + 1
    while True:
        key, at = _DECODER.raw_decode(text, _BETWEEN_TOKENS.match(text, at).end())  # type: ignore[union-attr]
        at = _BETWEEN_TOKENS.match(text, at).end()  # type: ignore[union-attr]
        if key == name:
            return at
        _, at = _DECODER.raw_decode(text, at)


def json_object(path: Path, *, remedy: str | None = None) -> Record:
    """Read a file that is one JSON object; `remedy` is that of errors without a better one."""
    text = read_text(path)
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        raise _json_error(error, text, path, line, remedy) from None
    if not isinstance(value, dict):
        raise InputError("not a JSON object", file=path, expected="{…}", found=json_type(value), remedy=remedy)
    return Record(value, str(path), remedy=remedy)


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


def lines(
    path: Path, on_error: ErrorHandler | None = None, max_bytes: int | None = None, *, escape: bool = False
) -> Iterator[tuple[int, str]]:
    """Stream the lines of a text file with their numbers from 1: UTF-8, or UTF-16 with a byte order mark.

    Lines that are not UTF-8 or longer than `max_bytes` are skipped if there is an `on_error`. With `escape`, bytes that
    are not UTF-8 are left in the text, for `refuse_escaped_bytes`: a line may be a part of a row.
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
            yield from _checked_lines(stream, path, on_error, max_bytes or MAX_LINE_BYTES, escape=escape)
    except OSError as error:
        raise unreadable_error(error, path) from None


def _checked_lines(
    stream: TextIO, path: Path, on_error: ErrorHandler | None, max_length: int, *, escape: bool
) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        while line := stream.readline(max_length + 1):
            number += 1
            with redirect_errors(on_error):
                if len(line) > max_length:
                    while line and not line.endswith("\n"):
                        line = stream.readline(max_length)
                    problem = f"a line of more than {max_length >> 20} MB"
                    remedy = "write every record on one line of its own, or leave out what no judge reads"
                    raise InputError(problem, file=path, line=number, remedy=remedy)
                if not escape:
                    refuse_escaped_bytes([line], path, number)
                yield number, line
    except UnicodeDecodeError:
        problem = "not UTF-16, although it begins with a UTF-16 byte order mark"
        raise InputError(problem, file=path, line=number + 1, remedy=_SAVE_AS_UTF8) from None


def refuse_escaped_bytes(row: Sequence[str], path: Path, line: int) -> None:
    """Refuse a row of `lines` that has bytes that are not UTF-8.

    Raises:
        InputError: It has some.
    """
    for text in row:
        if not text.isascii() and (bad := _NO_UTF8.search(text)):
            problem = f"not UTF-8: character {bad.start() + 1} of the line, 0x{ord(bad[0]) & 0xFF:02x}"
            raise InputError(problem if len(row) == 1 else "not UTF-8", file=path, line=line, remedy=_SAVE_AS_UTF8)


def read_text(path: Path) -> str:
    """The text of a file that has to be read as a whole."""
    refuse_pipe(path)
    try:
        size = path.stat().st_size
    except OSError as error:
        raise unreadable_error(error, path) from None
    text = "" if size > _MAX_FILE_BYTES else "".join(text for _, text in lines(path, max_bytes=_MAX_FILE_BYTES))
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


def _parse_line(text: str, path: Path, line: int) -> object:
    if len(text) > _MAX_LINE_VALUES and _max_values_in(text) > _MAX_LINE_VALUES:
        problem = f"a line of more than {_MAX_LINE_VALUES:,} values"
        raise InputError(problem, file=path, line=line, remedy="leave out what is not read")
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        remedy = _ONE_RECORD_PER_LINE if text.rstrip()[-1] in "{[," else None
        raise _json_error(error, text, path, line, remedy) from None


def _json_error(error: Exception, text: str, path: Path, line: int, remedy: str | None = None) -> InputError:
    if not isinstance(error, json.JSONDecodeError):
        problem = str(error) if isinstance(error, _RefusedError) else "a number has thousands of digits"
        if isinstance(error, RecursionError):
            problem, remedy = "nested too deeply", _LESS_NESTED
        remedy = remedy or "correct the record, or leave it out"
        return InputError(f"not usable JSON: {problem}", file=path, line=line, remedy=remedy)
    return InputError(
        f"not valid JSON: {error.msg} (column {error.colno})",
        file=path,
        line=line,
        found=text[max(0, error.pos - 20) : error.pos + 20].strip() or None,
        remedy=remedy,
    )


def _as_record(value: object, path: Path, line: int, unit: Literal["line", "row"] = "line") -> Record:
    if not isinstance(value, dict):
        remedy = _ONE_RECORD_PER_LINE if isinstance(value, list) else 'give the value a name: {"text": "…"}'
        raise Record({}, str(path), line, unit=unit).error(
            "a record must be an object", expected="{…}", found=json_type(value), remedy=remedy
        )
    return Record(value, str(path), line, unit=unit)


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
        text_types = (pyarrow.string(), pyarrow.large_string())
        texts = [column.name for column in pyarrow.parquet.read_schema(path) if column.type in text_types]
        # With dictionary encoding, a repeated text is in memory once.
        file = pyarrow.parquet.ParquetFile(path, read_dictionary=texts)
        for batch in file.iter_batches(batch_size=_rows_per_batch(file.metadata, path)):
            columns: dict[str, Any] = {
                n: c if n in texts else _python_values(c, path, n)
                for n, c in zip(file.schema_arrow.names, batch, strict=True)
            }
            for i in range(batch.num_rows):
                number += 1
                yield {n: c[i].as_py() if n in texts else c[i] for n, c in columns.items()}
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


def _python_values(column: Any, path: Path, name: str) -> list[object]:
    """The values of a column; dates, times and durations that Python cannot represent become texts."""
    import pyarrow

    with suppress(ValueError, OverflowError, KeyError):
        return list(column.to_pylist())
    try:
        return list(column.cast(pyarrow.int64() if column.type.bit_width == 64 else pyarrow.int32()).to_pylist())
    except (ValueError, pyarrow.ArrowException) as error:
        raise InputError(
            "a value that Python cannot represent",
            file=path,
            field=name,
            found=f"{column.type}: {first_line_of(error)}",
            remedy="leave the column out, or write it as text",
        ) from None


def _rows_per_batch(metadata: Any, path: Path) -> int:
    """Rows to unpack at once, fewer where they hold long lists; refuses a column that unpacks to far more."""
    most_per_row = 1
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        all_list_values = 0
        for column in range(metadata.num_columns):
            chunk = group.column(column)
            size, unpacked = chunk.total_compressed_size, chunk.total_uncompressed_size
            list_values = chunk.num_values if metadata.schema.column(column).max_repetition_level else 0
            all_list_values += list_values
            too_many = all_list_values > _MAX_LIST_VALUES and list_values > 16 * size
            if too_many or unpacked > max(_MAX_UNPACKED, 200 * size):
                raise InputError(
                    "a column unpacks to more than can be read",
                    file=path,
                    field=chunk.path_in_schema,
                    found=f"{size:,} bytes that become {unpacked:,} bytes and {chunk.num_values:,} values",
                    remedy="leave the column out, or write the file again from its original, or as JSON lines",
                )
        most_per_row = max(most_per_row, all_list_values // max(1, group.num_rows))
    return max(1, min(1000, 1_000_000 // most_per_row))


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
