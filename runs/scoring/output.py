"""The results of one scoring run on disk: continued where they stopped, and only if they belong together.

Beside FILE stands FILE.state.json, which says what the rows were made from: the program, the LM, the aspects
and the input as it was. Rows of two judges in one file would be worthless, so any difference is an error.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.programs.judge import Item
from debate_judge.runs.runner.streaming import Score
from debate_judge.runs.scoring.rows import Identity, Written, format_of, transcript_line, whole_lines, whole_rows


@dataclass
class RowTotals:
    """What the results hold, rows of earlier runs included."""

    rows: int = 0
    unscored: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    """Reason -> the first detail met in this run."""

    def count(self, unscored: str | None, detail: str = "") -> None:
        self.rows += 1
        if unscored is not None:
            self.unscored[unscored] += 1
            if detail:
                self.examples.setdefault(unscored, detail)

    @property
    def share(self) -> float:
        """Unscored rows in all rows."""
        return self.unscored.total() / self.rows if self.rows else 0.0


class Results:
    """Appends rows to a file, each in one write, so that the file holds whole rows whenever it is looked at.

    Args:
        path: The file; its ending names the format.
        made_from: JSON values that an earlier run must have had alike.
        source: The file that is scored. It may have grown since; what an earlier run saw of it must be the same.
        transcripts: File for the debates, if they are wanted.

    Raises:
        InputError: what is there cannot be continued.
    """

    def __init__(
        self, path: Path, *, made_from: Mapping[str, Any], source: Path, transcripts: Path | None = None
    ) -> None:
        self.path = path
        self.tally = RowTotals()
        self._form = format_of(path)
        self._state = path.with_name(path.name + ".state.json")
        self._transcripts = transcripts
        self._source = source
        _check_places(path, source, transcripts)
        started = path.exists() and path.stat().st_size > 0
        before = self._read_state(started)
        if started:
            self._check_state(before, made_from)
        self._check_transcripts(before)
        for file in (path, transcripts):
            if file is not None:
                file.parent.mkdir(parents=True, exist_ok=True)
        self._rows = _open(path)
        self._debates = None if transcripts is None else _open(transcripts)
        if not started:
            self._rows.truncate(0)
        self._write_state(made_from, before)

    def resume(self, items: Iterator[Item]) -> int:
        """Take from `items` what has a row already, and cut off what a kill left torn.

        Returns:
            How many rows there were.

        Raises:
            InputError: the rows are not about these items.
        """
        end = 0
        for row in whole_rows(self.path, self._form):
            item = next(items, None)
            if item is None or Identity.of(item) != row.identity:
                raise self._astray(row, item)
            self.tally.count(row.unscored)
            end = row.end
        self._rows.truncate(end)
        self._rows.seek(end)
        if end == 0:
            _append(self._rows, self._form.header)
        self._resume_transcripts()
        return self.tally.rows

    def add(self, item: Item, score: Score) -> None:
        """Append one row; its transcript goes first, so that no row is ever without one."""
        if self._debates is not None:
            _append(self._debates, transcript_line(item, score))
        _append(self._rows, self._form.encode(item, score))
        self.tally.count(score.unscored, score.detail)

    def __enter__(self) -> Results:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rows.close()
        if self._debates is not None:
            self._debates.close()

    def _resume_transcripts(self) -> None:
        if self._transcripts is None or self._debates is None:
            return
        end = count = 0
        for place in whole_lines(self._transcripts):
            if count == self.tally.rows:
                break
            end, count = place, count + 1
        if count < self.tally.rows:
            raise InputError(
                "there are fewer transcripts than rows of scores",
                file=self._transcripts,
                expected=f"{self.tally.rows} lines, one for each row of {self.path.name}",
                found=f"{count} lines",
                remedy=f"go on without --transcripts, or delete {self.path} and run again: answers are kept in --store",
            )
        self._debates.truncate(end)
        self._debates.seek(end)

    def _read_state(self, needed: bool) -> dict[str, Any]:
        try:
            state = json.loads(self._state.read_text(encoding="utf-8"))
            return {
                "made_from": dict(state["made_from"]),
                "input": (int(state["input"]["bytes"]), str(state["input"]["sha256"])),
                "transcripts": state["transcripts"],
            }
        except (OSError, ValueError, KeyError, TypeError):
            if not needed:
                return {}
            raise InputError(
                "the file is there already, and nothing says what its rows were made from",
                file=self.path,
                expected=f"{self._state.name} beside it, which every run writes",
                remedy="choose another --out, or delete this file",
            ) from None

    def _check_state(self, before: Mapping[str, Any], made_from: Mapping[str, Any]) -> None:
        for name, value in made_from.items():
            known = before["made_from"].get(name)
            if known != value:
                raise InputError(
                    f"the file was begun with another {name}",
                    file=self.path,
                    field=name,
                    expected=str(known),
                    found=str(value),
                    remedy="choose another --out, or delete this file",
                )
        seen = before["input"]
        if _digest(self._source, seen[0]) != seen:
            raise InputError(
                "the input has changed since this file was begun",
                file=self._source,
                expected=f"its first {seen[0]} bytes as they were",
                remedy=f"choose another --out, or delete {self.path} and run again: answers are kept in --store",
            )

    def _check_transcripts(self, before: Mapping[str, Any]) -> None:
        file = self._transcripts
        if file is not None and file.exists() and file.stat().st_size and before.get("transcripts") != file.name:
            raise InputError(
                "the file is there already and does not belong to this --out",
                file=file,
                field="--transcripts",
                expected="a new file, or the one that an earlier run of this command wrote",
                remedy="choose another file, or delete this one",
            )

    def _write_state(self, made_from: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        size, digest = _digest(self._source, self._source.stat().st_size)
        state = {
            "made_from": made_from,
            "input": {"name": self._source.name, "bytes": size, "sha256": digest},
            "transcripts": before.get("transcripts") if self._transcripts is None else self._transcripts.name,
        }
        temporary = self._state.with_name(self._state.name + ".new")
        temporary.write_text(json.dumps(state, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        temporary.replace(self._state)

    def _astray(self, row: Written, item: Item | None) -> InputError:
        return InputError(
            "the rows are not in the order of the input",
            file=self.path,
            line=row.line,
            expected="the end of the file" if item is None else str(Identity.of(item)),
            found=str(row.identity),
            remedy="choose another --out, or delete this file",
        )


def _check_places(path: Path, source: Path, transcripts: Path | None) -> None:
    if not source.is_file():
        raise InputError("no such file", file=source, field="--in")
    places = {"--in": source, "--out": path} | ({"--transcripts": transcripts} if transcripts is not None else {})
    for name, place in places.items():
        if place.is_dir():
            raise InputError("this is a folder", file=place, field=name, expected="a file")
        same = [other for other, its in places.items() if its.resolve() == place.resolve() and other != name]
        if same:
            raise InputError("two files are the same", file=place, field=name, expected=f"another file than {same[0]}")


def _open(path: Path) -> FileIO:
    """Open for reading and appending, unbuffered: a row has left the process when its write returns."""
    try:
        file = FileIO(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=path, remedy="choose another place") from None
    _lock(file, path)
    return file


def _append(file: FileIO, data: bytes) -> None:
    start, left = file.tell(), memoryview(data)
    try:
        while left:
            left = left[file.write(left) or 0 :]
    except OSError:
        # A full disk must not leave half a row.
        file.truncate(start)
        raise


def _lock(file: FileIO, path: Path) -> None:
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise InputError(
            "another process is writing to this file", file=path, remedy="wait until it ends, or choose another file"
        ) from None


def _digest(path: Path, size: int) -> tuple[int, str]:
    """Length and hash of the first `size` bytes of a file."""
    digest, left = hashlib.sha256(), size
    with path.open("rb") as file:
        while left and (block := file.read(min(left, 1 << 20))):
            digest.update(block)
            left -= len(block)
    return size - left, digest.hexdigest()
