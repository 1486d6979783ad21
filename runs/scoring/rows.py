"""Rows of scores, and whole debates, as lines of a file: JSON lines or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from debate_judge.data.errors import InputError

if TYPE_CHECKING:
    from debate_judge.programs.judge import Item, Judge
    from debate_judge.runs.runner.streaming import Score

FIELDS = ("group", "candidate", "aspect", "score", "rounds", "stop_reason", "unscored", "reason")

SUFFIXES = (".jsonl", ".csv")

PROVIDER_FAILED: frozenset[str] = frozenset({"lm error", "search error"})
"""Reasons that are a provider's failure, so that a later attempt may fare better."""


class JsonLines:
    """One JSON object a line; the base of the other formats.

    Args:
        extra: Fields of a `Score` that stand in rows besides `FIELDS`, see `extra_fields`.
    """

    def __init__(self, extra: tuple[str, ...] = ()) -> None:
        self.extra = extra

    @property
    def header(self) -> bytes:
        """What stands before the first row."""
        return b""

    def encode(self, item: Item, score: Score) -> bytes:
        """One row, its line end included."""
        return _json(zip(self.fields(), self.values(item, score), strict=True)) + b"\n"

    def unscored_start(self, item: Item) -> bytes:
        """How every row begins that has no score for this item."""
        return _json(zip(FIELDS, [*_identity(item), None], strict=False)).removesuffix(b"}")

    def fields(self) -> tuple[str, ...]:
        """Names of a row's values."""
        return FIELDS + self.extra

    def values(self, item: Item, score: Score) -> list[Any]:
        """One row."""
        values = [*_identity(item), score.score, score.rounds, score.stop_reason, score.unscored, score.reason]
        return [*values, *(getattr(score, name) for name in self.extra)]


class Csv(JsonLines):
    """Comma-separated with a header; an empty cell where there is no value."""

    @property
    def header(self) -> bytes:
        return self._line(self.fields())

    def encode(self, item: Item, score: Score) -> bytes:
        return self._line(self.values(item, score))

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
        row += [(name, getattr(score, name)) for name in self.extra]
        if score.unscored is not None:
            row += [("unscored", score.unscored), ("detail", score.detail)]
        return _json(row) + b"\n"


def extra_fields(judges: Iterable[Judge], *, mapped: bool = False) -> tuple[str, ...]:
    """What rows of these judges say besides `FIELDS`.

    Args:
        judges: The judges of the aspects that are scored.
        mapped: Whether scores are on the raters' scale.

    Returns:
        Names of fields of a `Score`: how many candidates, and how many aspects, shared the calls, where some do; the
        judge's own score where the score is mapped.
    """
    known = list(judges)
    joint = any(judge.joint for judge in known)
    company = ["together"] * (joint or any(judge.together > 1 for judge in known)) + ["joint"] * joint
    return (*company, *["judge_score"] * mapped)


def format_of(path: Path, extra: tuple[str, ...] = ()) -> JsonLines:
    """The format that the file's ending names; `extra` as for `JsonLines`.

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
    return Csv(extra) if suffix == ".csv" else JsonLines(extra)


def _identity(item: Item) -> list[Any]:
    return [item.group, item.candidate, item.aspect.name]


def _json(row: Iterable[tuple[str, Any]]) -> bytes:
    return json.dumps(dict(row), ensure_ascii=False, allow_nan=False).encode()
