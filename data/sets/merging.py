"""Merging of groups that share a source, for sets with one record per candidate or with repeated sources."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from debate_judge.data.files.records import Record
from debate_judge.data.schema import Candidate, RatedGroup


def merged(groups: Iterable[tuple[Record, RatedGroup]]) -> tuple[RatedGroup, ...]:
    """Join groups with equal sources (whitespace aside), in order of first appearance.

    Otherwise a source could be both trained on and tested on. Different contexts are joined by line breaks, candidates
    whose id is taken get a number (right, right-2), and an equal candidate is not repeated.

    Args:
        groups: Each with its record, for the place in errors.

    Raises:
        InputError: Two sources have the same group id.
    """
    found: dict[str, RatedGroup] = {}
    lines: dict[str, tuple[int, str]] = {}
    for record, group in groups:
        key = group.source_key
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
