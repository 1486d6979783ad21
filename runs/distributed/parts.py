"""Parts: groups that are read, scored and written together."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import ReadingNotes
from debate_judge.data.schema import RatedGroup
from debate_judge.runs.distributed.inputs import InputSlice
from debate_judge.runs.distributed.out_folder import OutFolder
from debate_judge.runs.distributed.slice_reading import SliceReading, read_slice
from debate_judge.runs.scoring.output import RowTotals
from debate_judge.runs.scoring.rows import PROVIDER_FAILED, JsonLines

if TYPE_CHECKING:
    # Tasks that read need no judge, and so not the libraries behind it.
    from debate_judge.programs.judge import Item
    from debate_judge.runs.runner.streaming import Score

_PART_BYTES = 8 * 1024 * 1024
"""Bytes of text from which a part is full, however few groups it has: it is sent from process to process whole."""
_TOLD = 20
"""Errors of one slice that are told one by one."""


@dataclass(frozen=True)
class PartShape:
    """Where parts end, and what they hold."""

    groups: int
    """From which a part is full."""
    aspects: int
    """Rows of each candidate."""
    gathered: int
    """Candidates of one source after which a judge begins another table, see `runs.runner.streaming.GATHERED`; 1 for
    one that reads each text alone."""


@dataclass
class ScoringPart:
    """Groups to be scored together, or news of a slice that has none."""

    slice: str
    name: str = ""
    groups: bytes = b""
    """Pickled by the reading task, or empty."""
    size: int = 0
    """Bytes of text."""
    standing: RowTotals | None = None
    """Of a part that was written by an earlier run."""
    errors: list[str] = field(default_factory=list)
    """Where the slice could not be read; beyond the first ones, only in numbers."""
    unread: int = 0
    """Places of the slice that could not be read."""
    notes: list[str] = field(default_factory=list)
    """What a user has to know of the reading."""
    parts: int | None = None
    """On the last of a slice: how many parts it has."""


def parts_of(
    piece: InputSlice, reading: SliceReading, shape: PartShape, folder: OutFolder, there: set[str]
) -> Iterator[ScoringPart]:
    """Read a slice as parts, and one at the end that says how many there were.

    Args:
        piece: What to read.
        reading: How.
        shape: Of the parts.
        folder: Of the results.
        there: Names of its finished parts.
    """
    notes, errors = ReadingNotes(piece.file.name), list[str]()
    count = unread = damaged = 0

    def tell(error: InputError) -> None:
        nonlocal unread
        unread += 1
        if unread <= _TOLD:
            errors.append(str(error))

    for groups, length in _cut(read_slice(piece, reading, notes, tell), shape):
        name = f"{piece.name}-{count:06d}"
        count += 1
        standing = folder.read_part(name) if name in there else None
        whole = standing is not None and standing.rows == shape.aspects * sum(len(one.candidates) for one in groups)
        damaged += name in there and not whole
        if standing is not None and whole and not PROVIDER_FAILED & standing.unscored.keys():
            yield ScoringPart(piece.name, name, size=length, standing=standing)
        else:
            yield ScoringPart(piece.name, name, pickle.dumps(groups), length)
    if unread > _TOLD:
        errors.append(f"{piece.file.name}: {unread - _TOLD:,} further lines that cannot be read")
    messages = [notes.line()] if notes.line() else []
    if damaged:
        messages.append(f"{piece.file.name}: {damaged:,} of its parts were damaged, and are scored again")
    yield ScoringPart(piece.name, errors=errors, unread=unread, notes=messages, parts=count)


def _cut(found: Iterable[RatedGroup], shape: PartShape) -> Iterator[tuple[list[RatedGroup], int]]:
    """The groups of each part, and the length of their texts.

    A part is full from so many groups or bytes on, and ends where the judge begins another table: candidates of groups
    that follow one another with the same source may share calls.
    """
    groups: list[RatedGroup] = []
    length = alike = 0
    for one in found:
        if not groups or not _share(groups[-1], one):
            alike = 0
        if (len(groups) >= shape.groups or length >= _PART_BYTES) and alike % shape.gathered == 0:
            yield groups, length
            groups, length = [], 0
        groups.append(one)
        alike += len(one.candidates)
        length += len(one.source) + sum(len(candidate.text) for candidate in one.candidates)
    if groups:
        yield groups, length


def _share(one: RatedGroup, other: RatedGroup) -> bool:
    """Whether candidates of two groups may be read side by side, see `programs.grouping.source_of`."""
    return (one.source or one.id, one.context) == (other.source or other.id, other.context)


class PartRows:
    """The rows of one part, as `score.py` has them.

    Args:
        suffix: `.parquet` or `.jsonl`.
        extra: As for `runs.scoring.rows.JsonLines`.
    """

    def __init__(self, suffix: str, extra: tuple[str, ...] = ()) -> None:
        self._suffix = suffix
        self._form = JsonLines(extra)
        self._lines: list[bytes] = []
        self._values: list[list[Any]] = []
        self.tally = RowTotals()

    def add(self, item: Item, score: Score) -> None:
        if self._suffix == ".parquet":
            self._values.append(self._form.values(item, score))
        else:
            self._lines.append(self._form.encode(item, score))
        self.tally.count(score, kept=False)

    def encoded(self) -> bytes:
        """The content of the part's file."""
        if self._suffix != ".parquet":
            return b"".join(self._lines)
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds = {name: pa.float64() for name in ("score", "judge_score")}
        kinds |= {name: pa.int64() for name in ("rounds", "together", "joint")}
        schema = pa.schema([(name, kinds.get(name, pa.string())) for name in self._form.fields()])
        columns = zip(*self._values, strict=True) if self._values else [()] * len(schema)
        file = io.BytesIO()
        arrays = [pa.array(values, kind.type) for values, kind in zip(columns, schema, strict=True)]
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), file)
        return file.getvalue()
