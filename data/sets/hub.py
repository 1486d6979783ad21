"""Records of public sets, from a local copy or downloaded.

Downloads go through `datasets`, which caches them. In sets with one record per candidate, or with repeated sources,
groups that share a source are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path

from debate_judge.data.errors import InputError
from debate_judge.data.files import reading
from debate_judge.data.files.records import Record
from debate_judge.data.schema import Origin, RatedGroup


@dataclass(frozen=True, slots=True)
class RemoteSet:
    """The location of a public set, pinned to a revision."""

    address: str
    """A data set of the Hugging Face hub, or the URL of a JSON file."""
    revision: str
    """Commit; that of a URL is part of the URL, too."""
    columns: tuple[str, ...]
    """Columns that the loader needs; checked, because the set can change upstream."""
    split: str = "train"


def github(repository: str, commit: str, file: str, *columns: str) -> RemoteSet:
    """A JSON file of a GitHub repository at a commit."""
    address = f"https://raw.githubusercontent.com/{repository}/{commit}/{file}"
    return RemoteSet(address, commit, columns)


def read(
    name: str, path: str | Path | None, remote: RemoteSet, *, other_layouts: bool = False
) -> tuple[list[Record], Origin]:
    """All records of a set and where they come from.

    Args:
        name: Its name in `LOADERS`.
        path: A local copy, JSON lines or a JSON array; None to download it.
        remote: Its location.
        other_layouts: Whether the records of a copy may lack the columns of the remote set.

    Raises:
        InputError: The copy cannot be read or is empty, the download failed, or the set has changed upstream.
    """
    if path is None:
        return fetch(name, remote), Origin(name, remote.address, remote.revision)
    file = Path(path)
    records = list(reading.json_records(file))
    if not records:
        expected = "records with " + ", ".join(remote.columns)
        raise InputError("no records in the file", file=path, expected=expected)
    for record in records if not other_layouts else ():
        record.require(*remote.columns)
    return records, Origin(name, str(path))


def fetch(name: str, remote: RemoteSet) -> list[Record]:
    """Download all rows of a set; a record's line is its row number from 1. Errors as in `read`."""
    import datasets

    with fetch_errors(name, remote.address):
        if remote.address.startswith("https://"):
            rows = datasets.load_dataset("json", data_files=remote.address, split=remote.split)
        else:
            rows = datasets.load_dataset(remote.address, split=remote.split, revision=remote.revision)
    if missing := [column for column in remote.columns if column not in rows.column_names]:
        raise InputError(
            f"the data set {name} has changed upstream: it lacks " + ", ".join(missing),
            file=remote.address,
            found="columns " + ", ".join(rows.column_names),
            remedy=f"provide a copy in the earlier layout with --data {name}=PATH",
        )
    return [Record(row, remote.address, number) for number, row in enumerate(rows, start=1)]


@contextmanager
def fetch_errors(name: str, address: str) -> Iterator[None]:
    """Convert every error of `datasets` in the block to an `InputError` with the flag for a local copy."""
    try:
        yield
    except Exception as error:  # The library has no common base class: OSError, httpx and its own errors all occur.
        raise InputError(
            f"the data set {name} cannot be fetched ({type(error).__name__})",
            file=address,
            remedy=f"check the network, or give a local copy with --data {name}=PATH",
        ) from error


def merge_groups(groups: Iterable[tuple[Record, RatedGroup]]) -> tuple[RatedGroup, ...]:
    """Merge groups with equal sources (whitespace aside), in order of first appearance.

    Otherwise a source could be both trained on and tested on. Different contexts are joined by line breaks, candidates
    whose id already exists get a number (right, right-2), and equal candidates are not repeated.

    Args:
        groups: Each with its record, for errors.

    Raises:
        InputError: Two sources have the same group id.
    """
    groups_by_source: dict[str, RatedGroup] = {}
    lines: dict[str, tuple[int, str]] = {}
    for record, group in groups:
        key = group.source_key
        line, owner = lines.setdefault(group.id, (record.line, key))
        if owner != key:
            raise record.error(f"a second source for the group {group.id!r}", found=f"the group of line {line}")
        groups_by_source[key] = _merge(groups_by_source[key], group) if key in groups_by_source else group
    return tuple(groups_by_source.values())


def _merge(first: RatedGroup, second: RatedGroup) -> RatedGroup:
    contexts = dict.fromkeys(text for text in (first.context, second.context) if text)
    context = first.context if second.context in first.context else "\n".join(contexts)
    candidates = {candidate.id: candidate for candidate in first.candidates}
    rated_texts = {(c.text, tuple(sorted(c.ratings.items()))) for c in first.candidates}
    for candidate in second.candidates:
        if (candidate.text, tuple(sorted(candidate.ratings.items()))) not in rated_texts:
            numbered = (f"{candidate.id}-{number}" for number in count(2))
            name = next(name for name in chain([candidate.id], numbered) if name not in candidates)
            candidates[name] = replace(candidate, id=name)
    return replace(first, context=context, candidates=tuple(candidates.values()))
