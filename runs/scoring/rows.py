"""Rows of scores, and whole debates, as lines of a file: JSON lines or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.programs.judge import Item
from debate_judge.runs.runner.streaming import Score

FIELDS = ("group", "candidate", "aspect", "score", "rounds", "stop_reason", "unscored")
SUFFIXES = (".jsonl", ".csv")


class JsonLines:
    """One JSON object a line; the base of the other formats."""

    header = b""

    def encode(self, item: Item, score: Score) -> bytes:
        """One row, its line end included."""
        return _json(zip(FIELDS, _values(item, score), strict=True)) + b"\n"

    def unscored_start(self, item: Item) -> bytes:
        """How every row begins that has no score for this item."""
        return _json(zip(FIELDS, [*_identity(item), None], strict=False)).removesuffix(b"}")


class Csv(JsonLines):
    """Comma-separated with a header; an empty cell where there is no value."""

    header = (",".join(FIELDS) + "\r\n").encode()

    def encode(self, item: Item, score: Score) -> bytes:
        return self._line(_values(item, score))

    def unscored_start(self, item: Item) -> bytes:
        return self._line([*_identity(item), None, None]).removesuffix(b"\r\n")

    def _line(self, values: Iterable[object]) -> bytes:
        text = io.StringIO(newline="")
        csv.writer(text).writerow(values)
        return text.getvalue().encode()


class Transcripts(JsonLines):
    """The item's whole debate as one JSON object a line."""

    def encode(self, item: Item, score: Score) -> bytes:
        turns = [
            {"role": t.role, "round": t.round, "score": t.score, "no_issue": t.no_issue, "text": t.text}
            for t in score.transcript.turns
        ]
        row = [*zip(FIELDS, [*_identity(item), score.score], strict=False), ("calls", score.calls), ("turns", turns)]
        if score.unscored is not None:
            row += [("unscored", score.unscored), ("detail", score.detail)]
        return _json(row) + b"\n"


def format_of(path: Path) -> JsonLines:
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


def _identity(item: Item) -> list[Any]:
    return [item.group, item.candidate, item.aspect.name]


def _values(item: Item, score: Score) -> list[Any]:
    return [*_identity(item), score.score, score.rounds, score.stop_reason, score.unscored]


def _json(row: Iterable[tuple[str, Any]]) -> bytes:
    return json.dumps(dict(row), ensure_ascii=False, allow_nan=False).encode()
