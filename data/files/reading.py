"""Files as records: JSON lines, JSON arrays and CSV as streams of them, a JSON object or a TOML file as one.

JSON lines and CSV are read a line at a time: memory stays flat however long the file is.
"""

from __future__ import annotations

import csv
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files.records import Record, kind

_BOM = b"\xef\xbb\xbf"
_GAP = " \t\r\n,"
_ONE_A_LINE = "write every record on one line of its own, without a list around them"


def jsonl(path: Path) -> Iterator[Record]:
    """Stream the objects of a JSON lines file; blank lines are skipped."""
    for line, text in lines(path):
        if text := text.rstrip():
            yield _as_record(_parse_line(text, path, line), path, line)


def json_array(path: Path) -> Iterator[Record]:
    """The objects of a file that is one JSON array, each with the line it begins on. Read in whole."""
    text = "".join(part for _, part in lines(path))
    at, line, counted = text.index("[") + 1, 1, 0
    while True:
        # Commas between objects are not counted: a missing or an extra one cannot change a record.
        while at < len(text) and text[at] in _GAP:
            at += 1
        line, counted = line + text.count("\n", counted, at), at
        if at == len(text):
            raise InputError("the JSON array is not closed", file=path, line=line, expected="]", found="nothing more")
        if text[at] == "]":
            return
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            wrong = error.lineno if isinstance(error, json.JSONDecodeError) else line
            raise _bad_json(error, text, path, wrong) from None
        yield _as_record(value, path, line)


def json_records(path: Path) -> Iterator[Record]:
    """The objects of a JSON array or of a JSON lines file, whichever the file is."""
    first = next((text.lstrip() for _, text in lines(path) if text.strip()), "")
    return json_array(path) if first.startswith("[") else jsonl(path)


def rows(path: Path) -> Iterator[Record]:
    """Stream the records of a file: CSV if its suffix is .csv, else JSON as in `json_records`."""
    return csv_rows(path) if path.suffix.lower() == ".csv" else json_records(path)


def json_object(path: Path, *, remedy: str | None = None) -> Record:
    """Read a file that is one JSON object.

    Args:
        path: The file.
        remedy: What to do about an error in it that has no better remedy of its own.
    """
    text = "".join(part for _, part in lines(path))
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        raise _bad_json(error, text, path, line, remedy) from None
    if not isinstance(value, dict):
        raise InputError("not a JSON object", file=path, expected="{…}", found=kind(value), remedy=remedy)
    return Record(value, str(path), remedy=remedy)


def toml(path: Path, what: str = "file") -> Record:
    """Read a TOML file as one record.

    Args:
        path: The file.
        what: What it is called in errors, e.g. "task file".
    """
    _refuse_pipe(path)
    try:
        return Record(tomllib.loads(path.read_text(encoding="utf-8-sig")), str(path), format="toml")
    except RecursionError:
        raise InputError("not usable TOML: nested too deeply", file=path) from None
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at line (\d+), column \d+\)", str(error))
        raise InputError(f"not valid TOML: {error}", file=path, line=int(place.group(1)) if place else None) from None
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8: byte {error.start + 1} of the file", file=path) from None
    except ValueError:
        raise InputError("not usable TOML: a number has thousands of digits", file=path) from None
    except OSError as error:
        raise _unreadable(error, path, what) from None


def csv_rows(path: Path) -> Iterator[Record]:
    """Stream the rows of a CSV file with a header line; every value is a text and names are stripped.

    A row's line is the one it begins on, also where quoted texts span several lines.
    """
    # strict: a quote that is never closed would otherwise swallow the rest of the file as one text.
    reader = csv.reader((text for _, text in lines(path)), strict=True)
    header: list[str] | None = None
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise InputError(
                f"not valid CSV: {error}",
                file=path,
                line=line,
                remedy='close every quote, write a quote inside a text as "", and use JSON lines for very long texts',
            ) from None
        if row is None:
            return
        if not row:
            continue
        if header is None:
            header = _header(row, path, line)
        elif len(row) != len(header):
            raise InputError(
                "the row has another number of cells than the header",
                file=path,
                line=line,
                expected=f"{len(header)} cells",
                found=f"{len(row)} cells",
                remedy="put texts with commas or line breaks in double quotes",
            )
        else:
            yield Record(dict(zip(header, row, strict=True)), str(path), line, format="csv")


def _header(row: list[str], path: Path, line: int) -> list[str]:
    names = [name.strip() for name in row]
    if len(names) == 1 and any(mark in names[0] for mark in ";\t"):
        raise InputError(
            "the columns are not separated by commas", file=path, line=line, found=names[0], remedy="export with commas"
        )
    if "" in names:
        raise InputError(
            f"column {names.index('') + 1} has no name",
            file=path,
            line=line,
            found=", ".join(names),
            remedy="name it or delete it (pandas writes such a column unless to_csv has index=False)",
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError("two columns have the same name", file=path, line=line, field=twice)
    return names


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Stream the lines of a UTF-8 text file with their numbers from 1."""
    _refuse_pipe(path)
    try:
        with path.open("rb") as stream:
            for number, raw in enumerate(stream, start=1):
                data = raw.removeprefix(_BOM) if number == 1 else raw
                try:
                    yield number, data.decode()
                except UnicodeDecodeError as error:
                    raise InputError(
                        f"not UTF-8: byte {error.start + 1} of the line",
                        file=path,
                        line=number,
                        found=f"byte 0x{data[error.start]:02x}",
                        remedy="save the file as UTF-8 (spreadsheets: CSV UTF-8)",
                    ) from None
    except OSError as error:
        raise _unreadable(error, path) from None


def _refuse_pipe(path: Path) -> None:
    """Refuse what could be read once at most, and where nothing writes to it, not even that."""
    if path.is_fifo() or path.is_socket():
        raise InputError("this is a pipe", file=path, expected="a file", remedy="write its content to a file first")


def _unreadable(error: OSError, path: Path, what: str = "file") -> InputError:
    if not isinstance(error, FileNotFoundError):
        return InputError(f"the {what} cannot be read: {error.strerror}", file=path)
    near = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    return InputError(f"no such {what}", file=path, remedy=did_you_mean(path.name, near))


def _parse_line(text: str, path: Path, line: int) -> object:
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise _bad_json(error, text, path, line, _ONE_A_LINE if text.strip() in ("{", "[") else None) from None


def _bad_json(error: Exception, text: str, path: Path, line: int, remedy: str | None = None) -> InputError:
    if not isinstance(error, json.JSONDecodeError):
        problem = str(error) if isinstance(error, _RefusedError) else "a number has thousands of digits"
        problem = "nested too deeply" if isinstance(error, RecursionError) else problem
        return InputError(f"not usable JSON: {problem}", file=path, line=line, remedy=remedy)
    return InputError(
        f"not valid JSON: {error.msg} (column {error.colno})",
        file=path,
        line=line,
        found=text[max(0, error.pos - 20) : error.pos + 20].strip() or None,
        remedy=remedy,
    )


def _as_record(value: object, path: Path, line: int) -> Record:
    if not isinstance(value, dict):
        remedy = _ONE_A_LINE if isinstance(value, list) else None
        raise InputError(
            "a record must be an object", file=path, line=line, expected="{…}", found=kind(value), remedy=remedy
        )
    return Record(value, str(path), line)


class _RefusedError(ValueError):
    """JSON that Python accepts at the price of a lost or changed value."""


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise _RefusedError(f"the name {next(n for n in names if names.count(n) > 1)!r} occurs twice in one object")
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise _RefusedError(f"{name} is not a JSON number; leave the value out")


_DECODER = json.JSONDecoder(object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
