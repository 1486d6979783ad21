"""Which candidates a judge is asked about at once: one alone, a pair that it compares, or a table of one source.

Who sits at which table, and in which order, depends on the texts and the judge's seed alone: neither on the order in
which the items arrive nor on the process. So a run that was stopped asks the same questions again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from debate_judge.programs.judge import Item, Judge

T = TypeVar("T")

Seat = tuple[int, int]
"""Number of the table, and place at it."""


@dataclass(frozen=True, slots=True)
class CandidateTable:
    """One question to a judge: candidates of one source in one aspect, in the order in which they are shown."""

    items: tuple[Item, ...]

    @property
    def key(self) -> str:
        """Identity of the question, like `Item.key`; another order is another question."""
        return " ".join(item.key for item in self.items)


@dataclass(frozen=True, slots=True)
class Seating:
    """Where each of some items sits."""

    tables: tuple[CandidateTable, ...]
    seats: tuple[Seat, ...]
    """One for each item, in their order; equal items may share one."""

    def by_item(self, results: Sequence[Sequence[T]]) -> list[T]:
        """The results of the tables, one for each place, in the order of the items."""
        return [results[table][place] for table, place in self.seats]

    def by_table(self, values: Sequence[T]) -> list[list[T]]:
        """What is known of each item, laid out as the tables are."""
        known = dict(zip(self.seats, values, strict=True))
        return [[known[number, place] for place in range(len(t.items))] for number, t in enumerate(self.tables)]


def seated(judge: Judge, items: Sequence[Item], *, pairs: bool = True) -> Seating:
    """Seat the items as the judge wants them.

    A judge that compares has one pair per group and aspect, but only where all groups have exactly two candidates:
    outcomes of pairs and scores of single candidates are not on one scale. A judge of tables (`Judge.together`) has as
    few tables of one source and aspect as hold all, of nearly equal size. Any other judge has every item alone.

    Args:
        judge: Who is to be asked.
        items: About what.
        pairs: Whether pairs may be compared; new texts are scored.
    """
    if judge.compares and pairs and (compared := _pairs(items)) is not None:
        return compared
    if judge.together > 1:
        return _of_sources(items, judge.together, judge.order)
    return Seating(tuple(CandidateTable((item,)) for item in items), tuple((number, 0) for number in range(len(items))))


def source_of(item: Item) -> tuple[object, ...]:
    """What the items of one table have in common, the aspect aside."""
    # Texts without a source are no candidates of one.
    return item.task, item.source or (item.group,), item.context


def _pairs(items: Sequence[Item]) -> Seating | None:
    found: dict[tuple[str, str], list[int]] = {}
    for number, item in enumerate(items):
        found.setdefault((item.aspect.name, item.group), []).append(number)
    if not found or any(len(numbers) != 2 for numbers in found.values()):
        return None
    seats = {number: (table, place) for table, pair in enumerate(found.values()) for place, number in enumerate(pair)}
    tables = tuple(CandidateTable((items[first], items[second])) for first, second in found.values())
    return Seating(tables, tuple(seats[number] for number in range(len(items))))


def _of_sources(items: Sequence[Item], most: int, seed: int) -> Seating:
    of_source: dict[tuple[object, ...], dict[str, Item]] = {}
    for item in items:
        of_source.setdefault((item.aspect, *source_of(item)), {}).setdefault(item.key, item)
    tables: list[CandidateTable] = []
    seats: dict[str, Seat] = {}
    for known in of_source.values():
        for table in _split(sorted(known.values(), key=lambda item: _rank(item, seed)), most):
            seats |= {item.key: (len(tables), place) for place, item in enumerate(table)}
            tables.append(CandidateTable(tuple(table)))
    return Seating(tuple(tables), tuple(seats[item.key] for item in items))


def _rank(item: Item, seed: int) -> bytes:
    """The same in every aspect, so that the tables are."""
    text = "\0".join([str(seed), item.source, item.context, item.text])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _split(items: Sequence[Item], most: int) -> list[Sequence[Item]]:
    count = -(-len(items) // most)
    ends = [len(items) * number // count for number in range(count + 1)]
    return [items[start:end] for start, end in pairwise(ends)]
