"""The cells of a table: in a debate about several scores each cell is one candidate in one aspect.

A table has several candidates, several aspects, or both. Candidates are numbered from 1, and aspects have labels made
from their names, so that a cell has a name such as `candidate_2_coherence`; in a table of one aspect, `candidate_2`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from debate_judge.programs.judge import Item
from debate_judge.programs.transcript import Transcript


class Cell(NamedTuple):
    """One score of a table."""

    candidate: int
    aspect: str = ""
    """Label of the aspect; empty where the table has only one."""


Part = tuple[Cell, ...]
"""Cells that are shown together, candidate by candidate."""


def label(cell: Cell) -> str:
    """The name of a cell in prompts and replies."""
    return f"candidate_{cell.candidate}_{cell.aspect}" if cell.aspect else f"candidate_{cell.candidate}"


def listed(cells: Iterable[Cell]) -> str:
    return ", ".join(map(label, cells))


def cells_of(items: Sequence[Item]) -> dict[Cell, Item]:
    """The cells of a table, in the order of its items.

    Args:
        items: One for each candidate and aspect.
    """
    labels = aspect_labels([item.aspect.name for item in items])
    met: dict[tuple[tuple[str, str, str], str], int] = {}
    numbers: dict[tuple[tuple[str, str, str], int], int] = {}
    found: dict[Cell, Item] = {}
    for item in items:
        texts = item.source, item.context, item.text
        # Two candidates may have the same text: a second item with the same text and aspect is another candidate.
        times = met[texts, item.aspect.name] = met.get((texts, item.aspect.name), 0) + 1
        number = numbers.setdefault((texts, times), len(numbers) + 1)
        found[Cell(number, labels[item.aspect.name])] = item
    return found


def aspect_labels(names: Iterable[str]) -> dict[str, str]:
    """Name of an aspect -> its label: lower-case letters, digits and underscores, different for each aspect.

    The label of a single aspect is empty.
    """
    found: dict[str, str] = {}
    distinct = tuple(dict.fromkeys(names))
    for name in distinct:
        own = re.sub(r"[\W_]+", "_", name.lower()).strip("_") or "aspect"
        further = (f"{own}_{number}" for number in count(2))
        found[name] = own if own not in found.values() else next(one for one in further if one not in found.values())
    return found if len(distinct) > 1 else dict.fromkeys(distinct, "")


def candidates_in(part: Iterable[Cell]) -> list[int]:
    """The numbers of the candidates, in order."""
    return list(dict.fromkeys(cell.candidate for cell in part))


def aspects_in(part: Iterable[Cell]) -> list[str]:
    """The labels of the aspects, in order."""
    return list(dict.fromkeys(cell.aspect for cell in part))


def aspect_by_aspect(cells: Iterable[Cell]) -> list[Cell]:
    """The cells ordered by aspect, so that candidates are compared in one aspect after the other."""
    known = list(cells)
    return [cell for aspect in aspects_in(known) for cell in known if cell.aspect == aspect]


def halves(part: Part) -> tuple[Part, Part]:
    """Cut a part in two: between candidates, or, if it has only one, between its aspects."""
    numbers = candidates_in(part)
    if len(numbers) == 1:
        return part[: len(part) // 2], part[len(part) // 2 :]
    first = numbers[: len(numbers) // 2]
    return tuple(c for c in part if c.candidate in first), tuple(c for c in part if c.candidate not in first)


def parts_of(transcripts: Mapping[Cell, Transcript]) -> Iterator[Part]:
    """The consecutive parts that a table was cut into; each transcript holds the size of its part."""
    left = list(transcripts)
    while left:
        one = transcripts[left[0]]
        shown = candidates_in(left)[: one.together]
        own = tuple(cell for cell in left if cell.candidate in shown)
        # Aspects are divided only where a part has a single candidate.
        part = own if one.together > 1 else own[: one.joint]
        yield part
        left = left[len(part) :]
