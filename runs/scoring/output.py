"""The rows of a scoring run, and the file that they are written to.

A run resumes from the store of LM replies alone (`programs.lm.store`): it starts again from the first item, and every
answered call is read from the store. Rows that an earlier run wrote are compared, byte for byte, with those of this
run; after the last of them, or from one that was cut off in the middle, rows are appended. So a stop loses no row, and
rows of another judge or input are never mixed. Only an item that the LM had not answered may have another row now: the
file is cut before it and written anew from there. A judge that calls no LM, such as a reference metric, computes again.

A table that cannot be appended to (Excel, Parquet) is made at the end, from FILE.rows.jsonl, to which rows are written
until then.

FILE.state.json says what the rows were made from (program, LM, aspects), so that another judge is refused before it
calls an LM; FILE.lock keeps a second process out.
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
from debate_judge.data.files.formats import joined_files
from debate_judge.data.files.writing import write_errors
from debate_judge.runs.scoring.tables import TABLE_FORMATS, cell_text, format_of, write_table

if TYPE_CHECKING:
    from debate_judge.programs.judge import Item
    from debate_judge.runs.runner.streaming import Score

    ScoredItems = Sequence[tuple[Item, Score]]
    """The items of one row, with their scores."""

_REMEDY = "choose another --out, or delete this file"


# --- rows: one per item, or one per text with all aspects; both may include the columns of the input ---

FIELDS = ("group", "candidate", "aspect", "score", "rounds", "stop_reason", "unscored", "reason")

PROVIDER_FAILED: frozenset[str] = frozenset({"lm error", "search error"})
"""Reasons why an item is unscored that are a failure of the provider, so that a later attempt may succeed."""

_FIELD_TYPES: Mapping[str, type] = {
    **dict.fromkeys(("score", "judge_score"), float),
    "rounds": int,
    "decision": bool,
}
"""Field -> type of its values; all others are texts."""

Row = Mapping[str, object]
"""The input's columns of one text."""


class ResultLayout(ABC):
    """The columns of a row.

    Args:
        result_columns: Pairs of a column's name and its content, a field of rows such as score; group and candidate
            come first.
        input_columns: Columns of the input, which come before. A result column that the input has as well is called
            `judge_NAME`; group and candidate are then the input's.
    """

    items: int
    """Number of items in a row."""

    def __init__(self, result_columns: Sequence[tuple[str, str]], input_columns: Sequence[str] = ()) -> None:
        self.input_columns = tuple(input_columns)
        self._included = [i for i, (name, _) in enumerate(result_columns) if i > 1 or name not in input_columns]
        columns = [(_unused_name(result_columns[i][0], input_columns), result_columns[i][1]) for i in self._included]
        self.fields = (*self.input_columns, *(name for name, _ in columns))
        if duplicates := [name for name in self.fields if self.fields.count(name) > 1]:
            raise InputError(
                f"two columns would be called {duplicates[0]!r}",
                field="--out",
                expected="aspects and columns whose names differ",
                remedy="leave out --wide, or score these aspects one by one",
            )
        self.types = {name: _FIELD_TYPES[content] for name, content in columns if content in _FIELD_TYPES}
        """Result column -> type of its values; all others are texts."""
        self.score_fields = tuple(name for name, content in columns if content == "score")

    @abstractmethod
    def result_values(self, scored: ScoredItems) -> list[Any]:
        """The values of all result columns."""

    def values(self, scored: ScoredItems, row: Row) -> list[Any]:
        """One row of `items` items, with the input's columns where they are kept.

        Raises:
            InputError: The input's first text did not have one of these columns.
        """
        if self.input_columns and (unknown := [name for name in row if name not in self.input_columns]):
            raise InputError(
                f"the first text of the input has no field {unknown[0]!r}, and results have its columns",
                field="--keep-columns",
                expected=", ".join(self.input_columns),
                found=f"candidate {scored[0][0].candidate!r} of group {scored[0][0].group!r}",
                remedy=f"give the first one {unknown[0]!r} as well, with the value null if it has none",
            )
        results = self.result_values(scored)
        return [*(json_value(row.get(name)) for name in self.input_columns), *(results[i] for i in self._included)]

    def unscored_prefixes(self, values: Sequence[Any]) -> list[list[Any]]:
        """The beginnings of rows of the same items with an unscored item: up to each score, and None in its place."""
        return [[*values[: self.fields.index(name)], None] for name in self.score_fields]


class LongRows(ResultLayout):
    """One row per item; `extra` are fields of a `Score` besides `FIELDS`."""

    items = 1

    def __init__(self, extra: Sequence[str] = (), input_columns: Sequence[str] = ()) -> None:
        super().__init__([(name, name) for name in (*FIELDS, *extra)], input_columns)
        self._extra = extra

    def result_values(self, scored: ScoredItems) -> list[Any]:
        ((item, score),) = scored
        values = [*_identity(item), score.score, score.rounds, score.stop_reason, score.unscored, score.reason]
        return [*values, *(getattr(score, name) for name in self._extra)]


class WideRows(ResultLayout):
    """One row per text: a column with the score in each aspect, then for each aspect the decision (if it has a cut, the
    lowest score that counts as yes), the reason, and why there is no score.
    """

    def __init__(
        self, cuts: Mapping[str, float | None], extra: Sequence[str] = (), input_columns: Sequence[str] = ()
    ) -> None:
        self.items = len(cuts)
        self._cuts, self._extra = cuts, extra
        result_columns = [(name, name) for name in ("group", "candidate")] + [(name, "score") for name in cuts]
        for name, cut in cuts.items():
            result_columns += [(f"{name}_{content}", content) for content in self._aspect_fields(cut)]
        super().__init__(result_columns, input_columns)

    def _aspect_fields(self, cut: float | None) -> list[str]:
        return [*self._extra, *["decision"] * (cut is not None), "reason", "unscored"]

    def result_values(self, scored: ScoredItems) -> list[Any]:
        values = [*_identity(scored[0][0])[:2], *(score.score for _, score in scored)]
        for item, score in scored:
            cut = self._cuts[item.aspect.name]
            values += [getattr(score, name) for name in self._extra]
            if cut is not None:
                values.append(None if score.score is None else score.score >= cut)
            values += [score.reason, score.unscored]
        return values


class JsonLines:
    """Rows as lines, one JSON object each; the base of the other formats."""

    def __init__(self, layout: ResultLayout) -> None:
        self.layout = layout

    @property
    def header(self) -> bytes:
        """The bytes before the first row."""
        return b""

    def row(self, scored: ScoredItems, row: Row) -> tuple[bytes, list[bytes]]:
        """One row with its line end, and the beginnings of rows of the same items in which a score is missing."""
        values = self.layout.values(scored, row)
        return self.line(values), [self.prefix(prefix) for prefix in self.layout.unscored_prefixes(values)]

    def line(self, values: Sequence[Any]) -> bytes:
        """A whole row."""
        return _json(zip(self.layout.fields, values, strict=True)) + b"\n"

    def prefix(self, values: Sequence[Any]) -> bytes:
        """The first bytes of every row that begins with these values."""
        return _json(zip(self.layout.fields, values, strict=False)).removesuffix(b"}")


class Csv(JsonLines):
    """Comma-separated with a header; an empty cell where there is no value."""

    @property
    def header(self) -> bytes:
        return self.line(self.layout.fields)

    def line(self, values: Sequence[Any]) -> bytes:
        text = io.StringIO(newline="")
        csv.writer(text).writerow(cell_text(value) if isinstance(value, list | dict) else value for value in values)
        return text.getvalue().encode()

    def prefix(self, values: Sequence[Any]) -> bytes:
        return self.line([*values, None]).removesuffix(b"\r\n")


class Transcripts(JsonLines):
    """The debate of an item as one JSON object per line, with the `extra` fields of its score."""

    def __init__(self, extra: Sequence[str]) -> None:
        super().__init__(LongRows())
        self._extra = extra

    def row(self, scored: ScoredItems, row: Row) -> tuple[bytes, list[bytes]]:
        ((item, score),) = scored
        turns = [
            {"role": t.role, "round": t.round, "score": t.score, "no_issue": t.no_issue, "text": t.text}
            for t in score.transcript.turns
        ]
        identity = _identity(item)
        values = [*zip(FIELDS, [*identity, score.score], strict=False), ("calls", score.calls), ("turns", turns)]
        values += [(name, getattr(score, name)) for name in self._extra]
        if score.unscored is not None:
            values += [("unscored", score.unscored), ("detail", score.detail)]
        return _json(values) + b"\n", [self.prefix([*identity, None])]


def _unused_name(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name = f"judge_{name}"
    return name


def _identity(item: Item) -> list[Any]:
    return [item.group, item.candidate, item.aspect.name]


def json_value(value: object) -> object:
    """A value of the input as a JSON value."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    if isinstance(value, Mapping):
        return {str(name): json_value(each) for name, each in value.items()}
    return str(value)


def _json(row: Iterable[tuple[str, Any]]) -> bytes:
    return json.dumps(dict(row), ensure_ascii=False, allow_nan=False).encode()


# --- the file ---


@dataclass
class RowTotals:
    """Counts of the rows, those of earlier runs included."""

    rows: int = 0
    existing: int = 0
    """Rows that an earlier run wrote."""
    unscored: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    """Reason -> the detail of its first item."""

    def count(self, score: Score, existing: bool) -> None:
        self.rows += 1
        self.existing += existing
        if score.unscored is not None:
            self.unscored[score.unscored] += 1
            self.examples.setdefault(score.unscored, score.detail)

    @property
    def share(self) -> float:
        """Share of unscored rows."""
        return self.unscored.total() / self.rows if self.rows else 0.0


class RowFile:
    """A file of rows: those of an earlier run are compared, further ones are appended, each in one write."""

    def __init__(self, path: Path, format: JsonLines, file: FileIO) -> None:
        self._path = path
        self._format = format
        self._file = file
        self._count = 0
        self.resumed = path.stat().st_size > 0
        """Whether an earlier run wrote to the file."""
        self._comparing = self.resumed
        self.complete = False
        """Whether all rows were added."""
        if format.header:
            self._compare_or_append(format.header, [])

    def add(self, scored: ScoredItems, row: Row) -> bool:
        """Compare or append one row; returns whether an earlier run wrote it. A different row is refused."""
        return self._compare_or_append(*self._format.row(scored, row))

    def finish(self) -> None:
        """Declare the rows complete: an incomplete row after the last one is cut off, a complete one is refused."""
        self.complete = True
        if self._comparing:
            end = self._file.tell()
            remainder = self._file.read(1 << 16)
            if b"\n" in remainder:
                raise self._mismatch("the end of the file", remainder)
            if remainder:
                self._file.truncate(end)

    def _compare_or_append(self, row: bytes, unscored: Sequence[bytes]) -> bool:
        if self._comparing:
            start = self._file.tell()
            old = self._file.read(len(row))
            if old == row:
                self._count += 1
                return True
            # A row that was cut off is a prefix of the complete one. An item that had no score may have one now.
            if not (row.startswith(old) or any(old.startswith(s) or s.startswith(old) for s in unscored)):
                raise self._mismatch(row.decode(), old + self._file.read(1000))
            self._file.truncate(start)
            self._comparing = False
        unwritten = memoryview(row)
        while unwritten:
            unwritten = unwritten[self._file.write(unwritten) :]
        return False

    def _mismatch(self, expected: str, existing: bytes) -> InputError:
        return InputError(
            "the file already exists, and this row differs from what this run gives: the input has changed since, the "
            "replies are no longer in --store, or the file holds something else",
            file=self._path,
            line=self._count + 1,
            expected=expected.rstrip(),
            found=existing.partition(b"\n")[0].decode(errors="replace").rstrip(),
            remedy=f"{_REMEDY} and run again: answers are kept in --store",
        )


class ResultWriter:
    """Writes rows, and debates to a file of their own if the key `transcripts` names one."""

    def __init__(self, rows: RowFile, items_per_row: int, debates: RowFile | None) -> None:
        self._rows = rows
        self._items_per_row = items_per_row
        self._debates = debates
        self._pending: list[tuple[Item, Score]] = []
        """Items of a row that is not complete."""
        self.resumed = rows.resumed
        self.totals = RowTotals()

    def add(self, item: Item, score: Score, row: Row) -> None:
        """Add an item, those of one row consecutively; its debate is written first, so that no row lacks one."""
        if self._debates is not None:
            self._debates.add([(item, score)], {})
        self._pending.append((item, score))
        if len(self._pending) == self._items_per_row:
            existing = self._rows.add(self._pending, row)
            for _, row_score in self._pending:
                self.totals.count(row_score, existing)
            self._pending = []

    def finish(self) -> None:
        """Declare all rows added; further ones are refused."""
        self._rows.finish()
        if self._debates is not None:
            self._debates.finish()


@contextmanager
def open_results(
    path: Path,
    *,
    provenance: Mapping[str, Any],
    input_file: Path,
    transcripts: Path | None = None,
    layout: ResultLayout,
    extra_fields: tuple[str, ...] = (),
) -> Iterator[ResultWriter]:
    """Open the files that a scoring run writes.

    Args:
        path: For the rows; its suffix names the format.
        provenance: JSON values that must equal those of an earlier run.
        input_file: The file that is scored.
        transcripts: File for the debates; None for none.
        layout: Columns of the rows.
        extra_fields: Further fields of a `Score` that transcripts have.

    Raises:
        InputError: A file cannot be written, another process writes to it, or its rows were made from something else.
    """
    suffix = format_of(path)
    _check_paths(path, input_file, transcripts)
    with ExitStack() as stack:
        rows_path = path.with_name(path.name + ".rows.jsonl") if suffix in TABLE_FORMATS else path
        file = stack.enter_context(_open_locked(rows_path, "--out", lock=path))
        _check_state(
            path, provenance, resumed=any(target.is_file() and target.stat().st_size for target in (path, rows_path))
        )
        rows = RowFile(rows_path, (Csv if suffix == ".csv" else JsonLines)(layout), file)
        debates = None
        if transcripts is not None:
            file = stack.enter_context(_open_locked(transcripts, "transcripts"))
            debates = RowFile(transcripts, Transcripts(extra_fields), file)
        yield ResultWriter(rows, layout.items, debates)
        if rows_path != path and rows.complete:
            _finish_table(path, rows_path, layout, input_file)


@contextmanager
def _open_locked(path: Path, flag: str, lock: Path | None = None) -> Iterator[FileIO]:
    """Open a file to read and append under a lock, unbuffered, so that a written row survives a kill."""
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


def _finish_table(path: Path, rows: Path, layout: ResultLayout, input_file: Path) -> None:
    """Make the table from all rows. An existing table that someone has changed is not replaced."""
    state = path.with_name(path.name + ".state.json")
    new = path.with_name(path.name + ".new")
    try:
        write_table(rows, new, suffix=path.suffix.lower(), layout=layout, input_file=input_file, out=path)
        digest = sha256(new.read_bytes()).hexdigest()
        record = json.loads(state.read_text(encoding="utf-8"))
        existing_digest = sha256(path.read_bytes()).hexdigest() if path.is_file() and path.stat().st_size else digest
        if existing_digest not in {digest, record.get("sha256")}:
            raise InputError(
                "the table was changed after it was written, and would be replaced",
                file=path,
                field="--out",
                remedy=_REMEDY + "; answers are kept in --store",
            )
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
    state.write_text(json.dumps(record | {"sha256": digest}, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    rows.unlink()


def _check_state(path: Path, provenance: Mapping[str, Any], *, resumed: bool) -> None:
    state = path.with_name(path.name + ".state.json")
    if not resumed:
        state.write_text(json.dumps(provenance, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        return
    try:
        earlier = json.loads(state.read_text(encoding="utf-8"))
        earlier_values = {name: earlier[name] for name in provenance}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        raise InputError(
            "the file already exists, and no state file says what its rows were made from",
            file=path,
            expected=f"{state.name} beside it, which every run writes",
            remedy=_REMEDY,
        ) from None
    for name, value in provenance.items():
        if earlier_values[name] != value:
            raise InputError(
                f"the file was begun with a different {name}",
                file=path,
                field=name,
                expected=str(earlier_values[name]),
                found=str(value),
                remedy=_REMEDY,
            )


def _check_paths(path: Path, input_file: Path, transcripts: Path | None) -> None:
    input_files = [Path(name) for name in joined_files(str(input_file))]
    for file in input_files:
        if not file.is_file():
            raise InputError("no such file", file=file, field="--in", remedy="check the name, and the folder it is in")
    paths = [*(("--in", file) for file in input_files), ("--out", path)]
    paths += [("transcripts", transcripts)] if transcripts is not None else []
    for flag, file in paths:
        if file.is_dir():
            raise InputError("this is a folder", file=file, field=flag, expected="a file")
        same = [other for other, other_file in paths if other_file.resolve() == file.resolve() and other != flag]
        if same:
            raise InputError("two files are the same", file=file, field=flag, expected=f"another file than {same[0]}")
