"""Rows of scores, and whole debates, as lines of a file: JSON lines or CSV.

A row is about one item (`LongRows`), or about one text in all aspects (`WideRows`); both may carry the columns of the
input.
"""

from __future__ import annotations

import csv
import io
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from debate_judge.data.errors import InputError

if TYPE_CHECKING:
    from debate_judge.programs.judge import Item
    from debate_judge.runs.runner.streaming import Score

    Scored = Sequence[tuple[Item, Score]]
    """The items of one row, with their scores."""

FIELDS = ("group", "candidate", "aspect", "score", "rounds", "stop_reason", "unscored", "reason")

LINES, TABLES = (".jsonl", ".csv"), (".xlsx", ".parquet")
"""Formats that grow row by row, and those that are written whole."""

PROVIDER_FAILED: frozenset[str] = frozenset({"lm error", "search error"})
"""Reasons that are a provider's failure, so that a later attempt may fare better."""

_KINDS: Mapping[str, type] = {
    **dict.fromkeys(("score", "judge_score", "low", "high"), float),
    **dict.fromkeys(("rounds", "together", "joint"), int),
    **dict.fromkeys(("to_people", "decision"), bool),
}
"""What columns hold that hold no texts."""

Row = Mapping[str, object]
"""The input's columns of one text."""


class RowForm(ABC):
    """The columns of a row.

    Args:
        own: Our columns, group and candidate first -> what they hold: a key of `_KINDS`, or the name of a text.
        kept: Columns of the input, which stand before ours. One of ours that the input has as well is called
            `judge_NAME`; group and candidate are then the input's.
    """

    items: int
    """Items that one row is about."""

    def __init__(self, own: Sequence[tuple[str, str]], kept: Sequence[str] = ()) -> None:
        self.kept = tuple(kept)
        self._shown = [at for at, (name, _) in enumerate(own) if at > 1 or name not in kept]
        named = [(_free_name(own[at][0], kept), own[at][1]) for at in self._shown]
        self.fields = (*self.kept, *(name for name, _ in named))
        if twice := [name for name in self.fields if self.fields.count(name) > 1]:
            raise InputError(
                f"two columns would be called {twice[0]!r}",
                field="--out",
                expected="aspects and columns whose names differ",
                remedy="leave out --wide, or score these aspects one by one",
            )
        self.kinds: dict[str, type] = {name: _KINDS[what] for name, what in named if what in _KINDS}
        """Column -> what its values are, if they are no texts; nothing is known of those of the input."""
        self.scores = tuple(name for name, what in named if what == "score")

    @abstractmethod
    def own_values(self, scored: Scored) -> list[Any]:
        """The values of our columns."""

    def values(self, scored: Scored, row: Row) -> list[Any]:
        """One row of as many items as `items`, with the input's columns where they are kept.

        Raises:
            InputError: The input's first text did not have one of these columns.
        """
        if self.kept and (new := [name for name in row if name not in self.kept]):
            raise InputError(
                f"the first text of the input has no field {new[0]!r}, and the columns of the results are those of the "
                "first",
                field="--keep-columns",
                expected=", ".join(self.kept),
                found=f"candidate {scored[0][0].candidate!r} of group {scored[0][0].group!r}",
                remedy=f"give the first one {new[0]!r} as well, with the value null if it has none",
            )
        own = self.own_values(scored)
        return [*(plain(row.get(name)) for name in self.kept), *(own[at] for at in self._shown)]

    def unscored_beginnings(self, values: Sequence[Any]) -> list[list[Any]]:
        """How rows of the same items begin in which a score is missing: up to the first that is."""
        return [[*values[: self.fields.index(name)], None] for name in self.scores]


class LongRows(RowForm):
    """A row an item; `extra` are fields of a `Score` besides `FIELDS`."""

    items = 1

    def __init__(self, extra: Sequence[str] = (), kept: Sequence[str] = ()) -> None:
        super().__init__([(name, name) for name in (*FIELDS, *extra)], kept)
        self._extra = extra

    def own_values(self, scored: Scored) -> list[Any]:
        ((item, score),) = scored
        own = [*_identity(item), score.score, score.rounds, score.stop_reason, score.unscored, score.reason]
        return [*own, *(getattr(score, name) for name in self._extra)]


class WideRows(RowForm):
    """A row a text: the score in a column for each aspect, and beside it decision (where the aspect has a cut, the
    least score that is a yes), reason, and why there is none.
    """

    def __init__(self, cuts: Mapping[str, float | None], extra: Sequence[str] = (), kept: Sequence[str] = ()) -> None:
        self.items = len(cuts)
        self._cuts, self._extra = cuts, [name for name in extra if name not in ("together", "joint")]
        own = [(name, name) for name in ("group", "candidate")] + [(name, "score") for name in cuts]
        own += [(f"{name}_{part}", part) for name, cut in cuts.items() for part in self._parts(cut)]
        super().__init__(own, kept)

    def _parts(self, cut: float | None) -> list[str]:
        return [*self._extra, *["decision"] * (cut is not None), "reason", "unscored"]

    def own_values(self, scored: Scored) -> list[Any]:
        values = [*_identity(scored[0][0])[:2], *(score.score for _, score in scored)]
        for item, score in scored:
            cut = self._cuts[item.aspect.name]
            values += [getattr(score, name) for name in self._extra]
            if cut is not None:
                values.append(None if score.score is None else score.score >= cut)
            values += [score.reason, score.unscored]
        return values


class JsonLines:
    """Rows of a form as lines, one JSON object each; the base of the other formats."""

    def __init__(self, form: RowForm) -> None:
        self.form = form

    @property
    def header(self) -> bytes:
        """What stands before the first row."""
        return b""

    def row(self, scored: Scored, row: Row) -> tuple[bytes, list[bytes]]:
        """One row with its line end, and how rows of the same items begin in which a score is missing."""
        values = self.form.values(scored, row)
        return self.line(values), [self.beginning(start) for start in self.form.unscored_beginnings(values)]

    def line(self, values: Sequence[Any]) -> bytes:
        """A whole row."""
        return _json(zip(self.form.fields, values, strict=True)) + b"\n"

    def beginning(self, values: Sequence[Any]) -> bytes:
        """What rows with these first values have in common."""
        return _json(zip(self.form.fields, values, strict=False)).removesuffix(b"}")


class Csv(JsonLines):
    """Comma-separated with a header; an empty cell where there is no value."""

    @property
    def header(self) -> bytes:
        return self.line(self.form.fields)

    def line(self, values: Sequence[Any]) -> bytes:
        text = io.StringIO(newline="")
        csv.writer(text).writerow(cell(value) if isinstance(value, list | dict) else value for value in values)
        return text.getvalue().encode()

    def beginning(self, values: Sequence[Any]) -> bytes:
        return self.line([*values, None]).removesuffix(b"\r\n")


class Transcripts(JsonLines):
    """The item's whole debate as one JSON object a line, with the `extra` fields of its score."""

    def __init__(self, extra: Sequence[str]) -> None:
        super().__init__(LongRows())
        self._extra = extra

    def row(self, scored: Scored, row: Row) -> tuple[bytes, list[bytes]]:
        ((item, score),) = scored
        turns = [
            {"role": t.role, "round": t.round, "score": t.score, "no_issue": t.no_issue, "text": t.text}
            for t in score.transcript.turns
        ]
        first = _identity(item)
        values = [*zip(FIELDS, [*first, score.score], strict=False), ("calls", score.calls), ("turns", turns)]
        values += [(name, getattr(score, name)) for name in self._extra]
        if score.unscored is not None:
            values += [("unscored", score.unscored), ("detail", score.detail)]
        return _json(values) + b"\n", [self.beginning([*first, None])]


def _free_name(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name = f"judge_{name}"
    return name


def _identity(item: Item) -> list[Any]:
    return [item.group, item.candidate, item.aspect.name]


def plain(value: object) -> object:
    """A value of the input as JSON knows it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    return str(value)


def cell(value: object) -> str | None:
    """A value of the input as a text, nested ones as JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _json(row: Iterable[tuple[str, Any]]) -> bytes:
    return json.dumps(dict(row), ensure_ascii=False, allow_nan=False).encode()
