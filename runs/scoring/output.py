"""The rows of a scoring run, and their file on disk, which every run of the command writes from the first row on.

What makes a run continue is the store of LM replies alone (`programs.lm.store`): a run that was stopped is made
again from its beginning, and every answered call is recalled. Rows that an earlier run left are not written a second
time but compared, byte for byte, with what this run gives; where they end, or where one is torn, the file grows on.
Thus a further stop loses no row, and rows of another judge or input are never added to. Only an item that the LM had
not answered may have another row now; it is written anew with all that follows it. A judge that asks no LM, such as a
reference metric, computes again.

A table that is written whole (Excel, Parquet) is made at the end, from rows that grow in FILE.rows.jsonl until then.

Beside FILE stand FILE.state.json, which says what the rows were made from (program, LM, aspects), so that another
judge is refused by name before it asks anything, and FILE.lock, which keeps a second process out.
"""

from __future__ import annotations

import csv
import io
import json
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import write_errors
from debate_judge.runs.scoring.tables import TABLES, cell, format_of, write_table

if TYPE_CHECKING:
    from debate_judge.programs.judge import Item
    from debate_judge.runs.runner.streaming import Score

    Scored = Sequence[tuple[Item, Score]]
    """The items of one row, with their scores."""

_ANOTHER = "choose another --out, or delete this file"


# --- rows: about one item, or about one text in all aspects; both may carry the columns of the input ---

FIELDS = ("group", "candidate", "aspect", "score", "rounds", "stop_reason", "unscored", "reason")

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


def _json(row: Iterable[tuple[str, Any]]) -> bytes:
    return json.dumps(dict(row), ensure_ascii=False, allow_nan=False).encode()


# --- their file ---


@dataclass
class RowTotals:
    """What the results hold, rows of earlier runs included."""

    rows: int = 0
    kept: int = 0
    """Rows that were there before this run."""
    unscored: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    """Reason -> the first detail met."""

    def count(self, score: Score, kept: bool) -> None:
        self.rows += 1
        self.kept += kept
        if score.unscored is not None:
            self.unscored[score.unscored] += 1
            self.examples.setdefault(score.unscored, score.detail)

    @property
    def share(self) -> float:
        """Unscored rows in all rows."""
        return self.unscored.total() / self.rows if self.rows else 0.0


class RowFile:
    """A file of rows: those of an earlier run are compared, further ones are appended, each in one write."""

    def __init__(self, path: Path, form: JsonLines, file: FileIO) -> None:
        self._path = path
        self._form = form
        self._file = file
        self._count = 0
        self.begun = path.stat().st_size > 0
        """Whether an earlier run has left something."""
        self._comparing = self.begun
        self.complete = False
        """Whether all rows were added."""
        if form.header:
            self._put(form.header, [])

    def add(self, scored: Scored, row: Row) -> bool:
        """Compare or append one row; returns whether it was there already. Another row there is refused."""
        return self._put(*self._form.row(scored, row))

    def finish(self) -> None:
        """Say that no row follows; what a stop left torn behind the last one is cut off, a further row refused."""
        self.complete = True
        if self._comparing:
            end = self._file.tell()
            rest = self._file.read(1 << 16)
            if b"\n" in rest:
                raise self._other("the end of the file", rest)
            if rest:
                self._file.truncate(end)

    def _put(self, row: bytes, unscored: Sequence[bytes]) -> bool:
        if self._comparing:
            start = self._file.tell()
            there = self._file.read(len(row))
            if there == row:
                self._count += 1
                return True
            # A row that was cut short begins like the whole one. An item that had no score may have one now.
            if not (row.startswith(there) or any(there.startswith(s) or s.startswith(there) for s in unscored)):
                raise self._other(row.decode(), there + self._file.read(1000))
            self._file.truncate(start)
            self._comparing = False
        left = memoryview(row)
        while left:
            left = left[self._file.write(left) :]
        return False

    def _other(self, expected: str, there: bytes) -> InputError:
        return InputError(
            "the file already exists, and this row differs from what this run gives: the input has changed since, the "
            "replies are no longer in --store, or the file holds something else",
            file=self._path,
            line=self._count + 1,
            expected=expected.rstrip(),
            found=there.partition(b"\n")[0].decode(errors="replace").rstrip(),
            remedy=f"{_ANOTHER} and run again: answers are kept in --store",
        )


class Results:
    """The rows, and the debates if they are wanted."""

    def __init__(self, rows: RowFile, items: int, debates: RowFile | None) -> None:
        self._rows = rows
        self._items = items
        self._debates = debates
        self._scored: list[tuple[Item, Score]] = []
        """Of a row that is not complete."""
        self.begun = rows.begun
        self.tally = RowTotals()

    def add(self, item: Item, score: Score, row: Row) -> None:
        """Add an item, those of one row after one another; its transcript goes first, so that no row is without one."""
        if self._debates is not None:
            self._debates.add([(item, score)], {})
        self._scored.append((item, score))
        if len(self._scored) == self._items:
            kept = self._rows.add(self._scored, row)
            for _, scored_item in self._scored:
                self.tally.count(scored_item, kept)
            self._scored = []

    def finish(self) -> None:
        """Say that all items have their rows; further rows are refused."""
        self._rows.finish()
        if self._debates is not None:
            self._debates.finish()


@contextmanager
def open_results(
    path: Path,
    *,
    provenance: Mapping[str, Any],
    source: Path,
    transcripts: Path | None = None,
    form: RowForm,
    extra: tuple[str, ...] = (),
) -> Iterator[Results]:
    """Open the files that a scoring run writes.

    Args:
        path: For the rows; its ending names the format.
        provenance: JSON values that an earlier run must have had alike.
        source: The file that is scored.
        transcripts: File for the debates, if they are wanted.
        form: Of the rows.
        extra: Fields of a `Score` that transcripts have besides those that all have.

    Raises:
        InputError: A place cannot be written, another process writes there, or what is there was made otherwise.
    """
    suffix = format_of(path)
    _check_places(path, source, transcripts)
    with ExitStack() as opened:
        place = path.with_name(path.name + ".rows.jsonl") if suffix in TABLES else path
        file = opened.enter_context(_exclusive(place, "--out", lock=path))
        _check_state(
            path, provenance, begun=any(target.is_file() and target.stat().st_size for target in (path, place))
        )
        rows = RowFile(place, (Csv if suffix == ".csv" else JsonLines)(form), file)
        debates = None
        if transcripts is not None:
            file = opened.enter_context(_exclusive(transcripts, "transcripts"))
            debates = RowFile(transcripts, Transcripts(extra), file)
        yield Results(rows, form.items, debates)
        if place != path and rows.complete:
            _put_table(path, place, form, source)


@contextmanager
def _exclusive(path: Path, flag: str, lock: Path | None = None) -> Iterator[FileIO]:
    """Open a file to read and append, unbuffered, so that a row has left the process when its write returns."""
    file_lock = FileLock(f"{lock or path}.lock", timeout=0)
    with write_errors(path, flag):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file_lock.acquire()
        except Timeout:
            raise InputError(
                "another process is writing to this file",
                file=path,
                field=flag,
                remedy="wait until it ends, or choose another file",
            ) from None
        file = FileIO(path, "a+")
    try:
        with file:
            file.seek(0)
            yield file
    finally:
        file_lock.release()


def _put_table(path: Path, rows: Path, form: RowForm, source: Path) -> None:
    """Make the table from all rows. One that somebody has worked on since is not replaced."""
    state = path.with_name(path.name + ".state.json")
    made = path.with_name(path.name + ".new")
    try:
        write_table(rows, made, suffix=path.suffix.lower(), form=form, source=source, out=path)
        digest = sha256(made.read_bytes()).hexdigest()
        record = json.loads(state.read_text(encoding="utf-8"))
        there = sha256(path.read_bytes()).hexdigest() if path.is_file() and path.stat().st_size else digest
        if there not in {digest, record.get("sha256")}:
            raise InputError(
                "the table was changed after it was written, and would be replaced",
                file=path,
                field="--out",
                remedy=_ANOTHER + "; answers are kept in --store",
            )
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)
    state.write_text(json.dumps(record | {"sha256": digest}, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    rows.unlink()


def _check_state(path: Path, provenance: Mapping[str, Any], *, begun: bool) -> None:
    state = path.with_name(path.name + ".state.json")
    if not begun:
        state.write_text(json.dumps(provenance, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        return
    try:
        before = json.loads(state.read_text(encoding="utf-8"))
        known = {name: before[name] for name in provenance}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        raise InputError(
            "the file already exists, and no state file says what its rows were made from",
            file=path,
            expected=f"{state.name} beside it, which every run writes",
            remedy=_ANOTHER,
        ) from None
    for name, value in provenance.items():
        if known[name] != value:
            raise InputError(
                f"the file was begun with a different {name}",
                file=path,
                field=name,
                expected=str(known[name]),
                found=str(value),
                remedy=_ANOTHER,
            )


def _check_places(path: Path, source: Path, transcripts: Path | None) -> None:
    if not source.is_file():
        raise InputError("no such file", file=source, field="--in")
    places = {"--in": source, "--out": path} | ({"transcripts": transcripts} if transcripts is not None else {})
    for name, place in places.items():
        if place.is_dir():
            raise InputError("this is a folder", file=place, field=name, expected="a file")
        same = [other for other, its in places.items() if its.resolve() == place.resolve() and other != name]
        if same:
            raise InputError("two files are the same", file=place, field=name, expected=f"another file than {same[0]}")
