"""The results of a scoring run on disk, written from the first row on by every run of the command.

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

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import opening
from debate_judge.runs.scoring.rows import LINES, TABLES, Csv, JsonLines, Row, RowForm, Transcripts
from debate_judge.runs.scoring.tables import require_writer, write_table

if TYPE_CHECKING:
    from debate_judge.programs.judge import Item
    from debate_judge.runs.runner.streaming import Score
    from debate_judge.runs.scoring.rows import Scored

_ANOTHER = "choose another --out, or delete this file"


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
            "the file is there already, and this row is not what this run gives: the input has changed since, the "
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
            for _, one in self._scored:
                self.tally.count(one, kept)
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
    made_from: Mapping[str, Any],
    source: Path,
    transcripts: Path | None = None,
    form: RowForm,
    extra: tuple[str, ...] = (),
) -> Iterator[Results]:
    """Open the files that a scoring run writes.

    Args:
        path: For the rows; its ending names the format.
        made_from: JSON values that an earlier run must have had alike.
        source: The file that is scored.
        transcripts: File for the debates, if they are wanted.
        form: Of the rows.
        extra: Fields of a `Score` that transcripts have besides those that all have.

    Raises:
        InputError: A place cannot be written, another process writes there, or what is there was made otherwise.
    """
    suffix = _suffix(path)
    _check_places(path, source, transcripts)
    with ExitStack() as opened:
        place = path.with_name(path.name + ".rows.jsonl") if suffix in TABLES else path
        file = opened.enter_context(_exclusive(place, "--out", lock=path))
        _check_state(path, made_from, begun=any(one.is_file() and one.stat().st_size for one in (path, place)))
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
    held = FileLock(f"{lock or path}.lock", timeout=0)
    with opening(path, flag):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            held.acquire()
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
        held.release()


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in (*LINES, *TABLES):
        raise InputError(
            "results are written as .jsonl, .csv, .xlsx or .parquet",
            file=path,
            field="--out",
            expected=", ".join((*LINES, *TABLES)),
            found=suffix or "no suffix",
        )
    require_writer(path)
    return suffix


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


def _check_state(path: Path, made_from: Mapping[str, Any], *, begun: bool) -> None:
    state = path.with_name(path.name + ".state.json")
    if not begun:
        state.write_text(json.dumps(made_from, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        return
    try:
        before = json.loads(state.read_text(encoding="utf-8"))
        known = {name: before[name] for name in made_from}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        raise InputError(
            "the file is there already, and nothing says what its rows were made from",
            file=path,
            expected=f"{state.name} beside it, which every run writes",
            remedy=_ANOTHER,
        ) from None
    for name, value in made_from.items():
        if known[name] != value:
            raise InputError(
                f"the file was begun with another {name}",
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
