"""Groups that share a source made one, for sets whose records do not keep sources apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from debate_judge.data.files.records import Record
from debate_judge.data.schema import Candidate, RatedGroup


def merged(groups: Iterable[tuple[Record, RatedGroup]]) -> tuple[RatedGroup, ...]:
    """Join groups with equal sources (whitespace aside), in order of first appearance.

    A source must not be split into train and held-out. Contexts that differ stand one below the other, candidates
    whose id is taken get a number (right, right-2), and a candidate that is there already is not repeated.

    Args:
        groups: Each with the record that it comes from, to be named in errors.

    Raises:
        InputError: Two sources have the same group id.
    """
    found: dict[str, RatedGroup] = {}
    lines: dict[str, tuple[int, str]] = {}
    for record, group in groups:
        key = " ".join(group.source.split())
        line, owner = lines.setdefault(group.id, (record.line, key))
        if owner != key:
            raise record.error(f"a second source for the group {group.id!r}", found=f"the group of line {line}")
        found[key] = _joined(found[key], group) if key in found else group
    return tuple(found.values())


def _joined(one: RatedGroup, other: RatedGroup) -> RatedGroup:
    contexts = dict.fromkeys(text for text in (one.context, other.context) if text)
    context = one.context if other.context in one.context else "\n".join(contexts)
    candidates = {candidate.id: candidate for candidate in one.candidates}
    known = {(c.text, tuple(sorted(c.ratings.items()))) for c in one.candidates}
    for candidate in other.candidates:
        if (candidate.text, tuple(sorted(candidate.ratings.items()))) not in known:
            name = _free(candidate.id, candidates)
            candidates[name] = replace(candidate, id=name)
    return replace(one, context=context, candidates=tuple(candidates.values()))


def _free(name: str, taken: dict[str, Candidate]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free
