"""New texts for a judge: the groups of a file, one at a time, all of them of the judge's task."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError, Tell, tolerated
from debate_judge.data.files.columns import Columns, ReadingNotes
from debate_judge.data.files.formats import RecordFile
from debate_judge.data.files.groups import iter_groups
from debate_judge.data.files.rated_rows import GroupRecord
from debate_judge.data.files.task_file import find_task
from debate_judge.data.schema import RatedGroup, Task
from debate_judge.data.sources import SourceChoice


def new_groups(path: str | Path | RecordFile, task: Task, *how: Any, **more: Any) -> Iterator[RatedGroup]:
    """As `new_entries`, without the records."""
    return (entry.group for entry in new_entries(path, task, *how, **more))


def new_entries(
    path: str | Path | RecordFile,
    task: Task,
    only: str | None = None,
    columns: Iterable[str] = (),
    sources: str | None = None,
    *,
    keep: bool = False,
    notes: ReadingNotes | None = None,
    tell: Tell | None = None,
) -> Iterator[GroupRecord]:
    """Stream the groups of a file, each with the record that it begins with; ratings are not needed.

    Each candidate is remembered by a hash, about 100 bytes, so that one that comes twice is noticed in a file of any
    length.

    Args:
        path: A file or set as `data.files.groups` describes it; rows of a group have to be adjacent.
        task: The judge's task.
        only: Name or file of that task; groups of other tasks are then left out and are no error.
        columns: `NAME=COLUMN` for each column that has another name than ours.
        sources: Which sources, as `data.sources.SourceChoice` reads it; None for all.
        keep: As for `data.files.groups.iter_groups`.
        notes: Likewise.
        tell: Takes the errors of groups that cannot be used and are on a line of their own, which are then left out.

    Raises:
        InputError: a group of another task, a candidate that comes twice, or anything that cannot be read.
    """
    if only is not None and only != task.name and find_task(only).name != task.name:
        raise InputError("the judge is for another task", field="task", expected=task.name, found=only)
    found: Iterator[GroupRecord] = iter_groups(
        path, task, Columns.of(columns), refuse_others=only is None, keep=keep, notes=notes, tell=tell
    )
    if sources is not None:
        found = SourceChoice.of(sources).stream(found, lambda: sum(1 for _ in _silently(path, task, columns)))
    lines: dict[bytes, int] = {}
    for entry in found:
        with tolerated(tell):
            keys = _new_keys(entry, lines)
            lines.update(dict.fromkeys(keys, entry.record.line))
            yield entry


def _new_keys(entry: GroupRecord, lines: Mapping[bytes, int]) -> list[bytes]:
    """The hashes of a group's candidates, of which none may be known."""
    keys = [_key(entry.group.id, candidate.id) for candidate in entry.group.candidates]
    for candidate, key in zip(entry.group.candidates, keys, strict=True):
        if key in lines:
            raise entry.record.error(
                f"group {entry.group.id!r} has the candidate {candidate.id!r} a second time",
                found=f"it is {entry.record.line - lines[key]} {entry.record.unit}s above, too",
                remedy="give each candidate of a group an id of its own",
            )
    return keys


def count_candidates(path: str | Path, task: Task, columns: Iterable[str], sources: str | None) -> int:
    """How many candidates `new_groups` yields; nothing is said about the file."""
    found = _silently(path, task, columns)
    if sources is not None:
        found = SourceChoice.of(sources).stream(found, lambda: sum(1 for _ in _silently(path, task, columns)))
    return sum(len(entry.group.candidates) for entry in found)


def _silently(path: str | Path | RecordFile, task: Task, columns: Iterable[str]) -> Iterator[GroupRecord]:
    return iter_groups(path, task, Columns.of(columns), notes=ReadingNotes(""))


def _key(group: str, candidate: str) -> bytes:
    return hashlib.blake2b(f"{len(group)} {group}{candidate}".encode(), digest_size=16).digest()
