"""What a judge is asked about at once: one candidate, a pair that it compares, or a table of one source.

Who sits at which table depends on the texts alone, and in which order on these and the judge's seed: neither on the
order in which the items arrive nor on the process. So a run that was stopped asks the same questions again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, TypeVar

from debate_judge.data.schema import Corpus
from debate_judge.programs.compiled import shared_judges
from debate_judge.programs.debate.batches import rank
from debate_judge.programs.judge import Item, Judge

T = TypeVar("T")

Seat = tuple[int, int]
"""Number of the table, and place at it."""


@dataclass(frozen=True, slots=True)
class CandidateTable:
    """One question to a judge: candidates of one source, in the order in which they are shown.

    They are asked about in one aspect; a joint judge is asked about several, and then each candidate has an item for
    each of them.
    """

    items: tuple[Item, ...]

    @property
    def key(self) -> str:
        """Identity of the question, like `Item.key`; another order is another question."""
        return " ".join(item.key for item in self.items)

    @property
    def texts(self) -> list[str]:
        """The candidates, each once however many aspects it is asked about in."""
        return list(dict.fromkeys(item.text for item in self.items))


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
    few tables of one source and aspect as hold all, of nearly equal size; a judge that reads aspects jointly
    (`Judge.joint`) has tables of one source with all aspects of each candidate. A judge of batches
    (`Judge.batch_rounds`) has pools of candidates of different sources, which it divides itself; if it is joint, a pool
    has all aspects of each. Any other judge has every item alone.

    Args:
        judge: Who is to be asked.
        items: About what.
        pairs: Whether pairs may be compared; new texts are scored.
    """
    if judge.compares and pairs and (compared := _pairs(items)) is not None:
        return compared
    if judge.together > 1 and judge.batch_rounds:
        return _tables(items, pool_of(judge), judge, lambda item: (item.task,))
    if judge.together > 1 or judge.joint:
        return _tables(items, max(1, judge.together), judge, source_of)
    return Seating(tuple(CandidateTable((item,)) for item in items), tuple((number, 0) for number in range(len(items))))


@dataclass(frozen=True, slots=True)
class SharedSeating:
    """What one judge is asked about a corpus, in all aspects that share its calls."""

    judge: Judge
    aspects: tuple[str, ...]
    seating: Seating
    """Of the items of the aspects, one aspect after the other."""
    sizes: tuple[int, ...]
    """Number of items of each aspect."""

    def by_aspect(self, results: Sequence[Sequence[T]]) -> dict[str, list[T]]:
        """The results of the tables, one for each place, in the order of the items of each aspect."""
        found = iter(self.seating.by_item(results))
        return {name: list(islice(found, size)) for name, size in zip(self.aspects, self.sizes, strict=True)}


def seated_by_aspect(judges: Mapping[str, Judge], items: Mapping[str, Sequence[Item]]) -> list[SharedSeating]:
    """Seat the items of several aspects, so that aspects share calls where their judges can.

    Args:
        judges: Name of an aspect -> its judge.
        items: Name of an aspect -> its items.
    """
    found = []
    for one in shared_judges({name: judges[name] for name in items}):
        everything = [item for name in one.aspects for item in items[name]]
        sizes = tuple(len(items[name]) for name in one.aspects)
        found.append(SharedSeating(one.judge, one.aspects, seated(one.judge, everything), sizes))
    return found


def source_of(item: Item) -> tuple[object, ...]:
    """What the items of one table have in common, the aspect aside."""
    # Texts without a source are no candidates of one.
    return item.task, item.source or (item.group,), item.context


POOL = 8
"""Batches whose items may change places (`programs.debate.batches`): enough that each spans the range of scores, few
enough that a stream waits for no more."""


def pool_of(judge: Judge) -> int:
    """Most candidates of a pool from which a judge of batches makes them; 0 for other judges."""
    return POOL * judge.together if judge.together > 1 and judge.batch_rounds else 0


BATCH_ROUNDS = 2
"""How often items are scored in batches where the user does not say: once at random, once mixed by the first scores."""


def batches_for(options: Mapping[str, Any], corpus: Corpus) -> dict[str, int]:
    """The option of a judge that is to read K candidates together where no source of the corpus has several; empty
    where some has, or the user has said how often items are scored in batches."""
    wanted = int(options.get("together", 0)) > 1 and "batch_rounds" not in options
    return {"batch_rounds": BATCH_ROUNDS} if wanted and not several_of_a_source(corpus) else {}


def several_of_a_source(corpus: Corpus) -> bool:
    """Whether any source of a corpus has candidates to be read side by side."""
    return any(len(group.candidates) > 1 for group in corpus.groups)


def _pairs(items: Sequence[Item]) -> Seating | None:
    found: dict[tuple[str, str], list[int]] = {}
    for number, item in enumerate(items):
        found.setdefault((item.aspect.name, item.group), []).append(number)
    if not found or any(len(numbers) != 2 for numbers in found.values()):
        return None
    seats = {number: (table, place) for table, pair in enumerate(found.values()) for place, number in enumerate(pair)}
    tables = tuple(CandidateTable((items[first], items[second])) for first, second in found.values())
    return Seating(tables, tuple(seats[number] for number in range(len(items))))


def _tables(items: Sequence[Item], most: int, judge: Judge, shared: Callable[[Item], tuple[object, ...]]) -> Seating:
    """Tables of at most so many candidates each; those of one table have `shared` in common."""
    alike: dict[int, dict[tuple[str, ...], dict[str, Item]]] = {}
    numbers: dict[tuple[object, ...], int] = {}
    shares = [numbers.setdefault((None if judge.joint else i.aspect, *shared(i)), len(numbers)) for i in items]
    for number, item in zip(shares, items, strict=True):
        candidates = alike.setdefault(number, {})
        candidates.setdefault((item.source, item.context, item.text), {}).setdefault(item.key, item)
    tables: list[CandidateTable] = []
    # Not by the item alone: without a source, an equal one of another group has a place at a table of that group.
    seats: dict[tuple[int, str], Seat] = {}
    for number, known in alike.items():
        for some in _split(_in_order(known.values(), 0), most):
            # A judge of batches orders those of a pool itself.
            shown = _in_order(some, judge.order) if judge.order and not pool_of(judge) else some
            table = [item for own in shown for item in sorted(own.values(), key=_place_of_aspect)]
            seats |= {(number, item.key): (len(tables), place) for place, item in enumerate(table)}
            tables.append(CandidateTable(tuple(table)))
    return Seating(tuple(tables), tuple(seats[number, item.key] for number, item in zip(shares, items, strict=True)))


def _in_order(candidates: Iterable[dict[str, Item]], seed: int) -> list[dict[str, Item]]:
    """The items of each candidate, in a seeded order of the candidates."""
    return sorted(candidates, key=lambda own: rank(next(iter(own.values())), seed))


def _place_of_aspect(item: Item) -> tuple[int, str]:
    """The task's order, whatever the order in which items come."""
    names = [aspect.name for aspect in item.task.aspects]
    return (names.index(item.aspect.name) if item.aspect.name in names else len(names)), item.aspect.name


def _split(items: Sequence[T], most: int) -> list[Sequence[T]]:
    count = -(-len(items) // most)
    ends = [len(items) * number // count for number in range(count + 1)]
    return [items[start:end] for start, end in pairwise(ends)]
