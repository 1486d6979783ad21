"""Rows of scores as lines of a file: JSON lines or CSV, and which part of a file consists of whole rows.

Rows are only ever appended, so a run that was killed leaves whole rows and at most one torn one at the end.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from debate_judge.data.errors import InputError
from debate_judge.programs.judge import Item
from debate_judge.runs.runner.streaming import Score

FIELDS = ("group", "candidate", "aspect", "score", "rounds", "stop_reason", "unscored")
SUFFIXES = (".jsonl", ".csv")


class Identity(NamedTuple):
    """Which item a row is about."""

    group: str
    candidate: str
    aspect: str

    @classmethod
    def of(cls, item: Item) -> Identity:
        return cls(item.group, item.candidate, item.aspect.name)

    def __str__(self) -> str:
        return f"group {self.group!r}, candidate {self.candidate!r}, {self.aspect}"


@dataclass(frozen=True, slots=True)
class Written:
    """A whole row that is in the file already."""

    identity: Identity
    unscored: str | None
    line: int
    end: int
    """Position in the file just behind the row, in bytes."""


class Format(Protocol):
    """How rows are spelled."""

    header: bytes
    quoted: bool
    """Whether a line end inside quotes ends no row."""

    def encode(self, item: Item, score: Score) -> bytes:
        """One row, its line end included."""

    def decode(self, row: bytes) -> tuple[Identity, str | None]:
        """Identity and reason for having no score.

        Raises:
            ValueError: it is no row of this format.
        """


class JsonLines:
    """One JSON object a line."""

    header = b""
    quoted = False

    def encode(self, item: Item, score: Score) -> bytes:
        row = dict(zip(FIELDS, _values(item, score), strict=True))
        return (json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n").encode()

    def decode(self, row: bytes) -> tuple[Identity, str | None]:
        values = json.loads(row)
        if not isinstance(values, dict) or list(values) != list(FIELDS):
            raise ValueError("it has other fields")
        return Identity(values["group"], values["candidate"], values["aspect"]), values["unscored"]


class Csv:
    """Comma-separated with a header; an empty cell where there is no value."""

    header = (",".join(FIELDS) + "\r\n").encode()
    quoted = True

    def encode(self, item: Item, score: Score) -> bytes:
        text = io.StringIO(newline="")
        csv.writer(text).writerow(_values(item, score))
        return text.getvalue().encode()

    def decode(self, row: bytes) -> tuple[Identity, str | None]:
        cells = next(csv.reader(io.StringIO(row.decode(), newline=""), strict=True))
        if len(cells) != len(FIELDS):
            raise ValueError("it has another number of cells")
        return Identity(*cells[:3]), cells[-1] or None


def format_of(path: Path) -> Format:
    """The format that the file's ending names.

    Raises:
        InputError: it names none.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(
            "results are written as .jsonl or .csv",
            file=path,
            expected=" or ".join(SUFFIXES),
            found=suffix or "no suffix",
        )
    return Csv() if suffix == ".csv" else JsonLines()


def transcript_line(item: Item, score: Score) -> bytes:
    """The item's whole debate as one JSON line."""
    turns = [
        {"role": t.role, "round": t.round, "score": t.score, "no_issue": t.no_issue, "text": t.text}
        for t in score.transcript.turns
    ]
    row = {**Identity.of(item)._asdict(), "score": score.score, "calls": score.calls, "turns": turns}
    if score.unscored is not None:
        row |= {"unscored": score.unscored, "detail": score.detail}
    return (json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n").encode()


def whole_rows(path: Path, form: Format) -> Iterator[Written]:
    """The rows of a file up to the first that is torn.

    Raises:
        InputError: the file has another header, or a whole line that is no row.
    """
    end = len(form.header)
    with path.open("rb") as file:
        first = file.read(end)
        if len(first) == end and first != form.header:
            raise _foreign(path, 1, "it has another header", first)
        for number, record in enumerate(_records(file, form.quoted), 1 + bool(end)):
            try:
                identity, unscored = form.decode(record)
            except (ValueError, TypeError, csv.Error) as error:
                raise _foreign(path, number, str(error), record) from None
            end += len(record)
            yield Written(identity, unscored, number, end)


def whole_lines(path: Path) -> Iterator[int]:
    """The position behind each whole line of a file."""
    end = 0
    with path.open("rb") as file:
        for line in _records(file, False):
            end += len(line)
            yield end


def _records(lines: io.BufferedReader, quoted: bool) -> Iterator[bytes]:
    held = b""
    for line in lines:
        held += line
        # Inside quotes, which come in pairs, a line end belongs to an id.
        if line.endswith(b"\n") and not (quoted and held.count(b'"') % 2):
            yield held
            held = b""


def _values(item: Item, score: Score) -> list[object]:
    return [*Identity.of(item), score.score, score.rounds, score.stop_reason, score.unscored]


def _foreign(path: Path, line: int, why: str, found: bytes) -> InputError:
    return InputError(
        f"the file is there already and holds something else: {why}",
        file=path,
        line=line,
        expected="rows that an earlier run of this command wrote",
        found=found.decode(errors="replace").strip(),
        remedy="choose another --out, or delete this file",
    )
