"""Grouping of items into questions to a judge: one candidate, a pair to compare, or candidates of one source.

Which candidates share a table depends on the texts alone, and in which order on these and the judge's seed: neither on
the order in which the items arrive nor on the process. So a run that was stopped asks the same questions again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol, TypeVar

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files.task_file import find_task
from debate_judge.data.schema import Aspect, Corpus, RatedGroup, Task, fingerprint
from debate_judge.data.tasks import TASKS

T = TypeVar("T")

TablePlace = tuple[int, int]
"""Number of the table, and place at it."""


@dataclass(frozen=True, slots=True)
class Item:
    """One question to a judge: how good is this candidate in this aspect?"""

    group: str
    candidate: str
    task: Task
    aspect: Aspect
    source: str
    text: str
    context: str = ""
    references: tuple[str, ...] = ()
    """Human-written candidates, for reference-based metrics only; no debate reads them."""
    _key: str = field(default="", init=False, repr=False, compare=False)

    @property
    def key(self) -> str:
        """Hash of the question: equal for items with the same texts and aspect, whatever their group and candidate."""
        if not self._key:
            # A search asks for it thousands of times, and hashing a long source takes as long as reading a reply.
            texts = [self.task.name, self.aspect.name, self.aspect.definition, self.source, self.context, self.text]
            object.__setattr__(self, "_key", fingerprint([*texts, *self.references]))
        return self._key


def items_of(corpus_task: Task, group: RatedGroup, aspect: Aspect) -> list[Item]:
    """One item per candidate of the group, in candidate order."""
    return [
        Item(group.id, c.id, corpus_task, aspect, group.source, c.text, group.context, group.references)
        for c in group.candidates
    ]


def corpus_items(corpus: Corpus, aspect: Aspect) -> list[Item]:
    """All items of one aspect, in corpus order."""
    return [item for group in corpus.groups for item in items_of(corpus.task, group, aspect)]


# --- groups of items ---


@dataclass(frozen=True, slots=True)
class Question:
    """One question to a judge: candidates of one source, in the order in which they are shown."""

    items: tuple[Item, ...]
    """For a joint judge each candidate has one for each aspect."""

    @property
    def key(self) -> str:
        """Identity of the question, like `Item.key`; another order is another question."""
        return " ".join(item.key for item in self.items)

    @property
    def texts(self) -> list[str]:
        """The candidates, each once however many aspects it is asked about in."""
        return list(dict.fromkeys(item.text for item in self.items))


@dataclass(frozen=True, slots=True)
class Grouping:
    """The tables that some items are asked about at, and the place of each item."""

    tables: tuple[Question, ...]
    places: tuple[TablePlace, ...]
    """One for each item, in their order; equal items may share one."""

    def by_item(self, results: Sequence[Sequence[T]]) -> list[T]:
        """The results of the tables, one for each place, in the order of the items."""
        return [results[table][place] for table, place in self.places]

    def by_table(self, values: Sequence[T]) -> list[list[T]]:
        """What is known of each item, laid out as the tables are."""
        known = dict(zip(self.places, values, strict=True))
        return [[known[number, place] for place in range(len(t.items))] for number, t in enumerate(self.tables)]


class GroupingOptions(Protocol):
    """What of a judge decides how items are grouped; see `programs.judge.Judge`."""

    compares: bool
    together: int
    joint: bool
    order: int


def grouped(judge: GroupingOptions, items: Sequence[Item], *, pairs: bool = True) -> Grouping:
    """Group the items as the judge wants them: in pairs, in tables of one source (`Judge.together`, `Judge.joint`), or
    each alone.

    Pairs are compared only where all groups have exactly two candidates: outcomes of pairs and scores of single
    candidates are not on one scale.

    Args:
        judge: Who is to be asked.
        items: About what.
        pairs: Whether pairs may be compared; new texts are scored.
    """
    if judge.compares and pairs and (compared := _pairs(items)) is not None:
        return compared
    if judge.together > 1 or judge.joint:
        return _tables(items, judge)
    return Grouping(tuple(Question((item,)) for item in items), tuple((number, 0) for number in range(len(items))))


def source_of(item: Item) -> tuple[object, ...]:
    """What the items of one table have in common, the aspect aside."""
    # Texts without a source are no candidates of one.
    return item.task, item.source or (item.group,), item.context


def _pairs(items: Sequence[Item]) -> Grouping | None:
    pairs: dict[tuple[str, str], list[int]] = {}
    for number, item in enumerate(items):
        pairs.setdefault((item.aspect.name, item.group), []).append(number)
    if not pairs or any(len(numbers) != 2 for numbers in pairs.values()):
        return None
    places = {number: (table, place) for table, pair in enumerate(pairs.values()) for place, number in enumerate(pair)}
    tables = tuple(Question((items[first], items[second])) for first, second in pairs.values())
    return Grouping(tables, tuple(places[number] for number in range(len(items))))


def _tables(items: Sequence[Item], judge: GroupingOptions) -> Grouping:
    """As few tables of one source as hold all candidates, of nearly equal size."""
    by_source: dict[int, dict[tuple[str, ...], dict[str, Item]]] = {}
    numbers: dict[tuple[object, ...], int] = {}
    shares = [numbers.setdefault((None if judge.joint else i.aspect, *source_of(i)), len(numbers)) for i in items]
    for number, item in zip(shares, items, strict=True):
        candidates = by_source.setdefault(number, {})
        candidates.setdefault((item.source, item.context, item.text), {}).setdefault(item.key, item)
    tables: list[Question] = []
    # Not by the item alone: without a source, an equal one of another group has a place at a table of that group.
    places: dict[tuple[int, str], TablePlace] = {}
    for number, known in by_source.items():
        candidates_in_order = _in_order(known.values(), 0)
        count = -(-len(known) // max(1, judge.together))
        ends = [len(known) * end // count for end in range(count + 1)]
        for some in (candidates_in_order[start:end] for start, end in pairwise(ends)):
            shown = _in_order(some, judge.order) if judge.order else some
            table = [item for by_aspect in shown for item in sorted(by_aspect.values(), key=_place_of_aspect)]
            places |= {(number, item.key): (len(tables), place) for place, item in enumerate(table)}
            tables.append(Question(tuple(table)))
    return Grouping(tuple(tables), tuple(places[number, item.key] for number, item in zip(shares, items, strict=True)))


def _in_order(candidates: Iterable[dict[str, Item]], seed: int) -> list[dict[str, Item]]:
    """The items of each candidate, in a seeded order of the candidates, which is the same in every aspect."""

    def rank(by_aspect: dict[str, Item]) -> bytes:
        item = next(iter(by_aspect.values()))
        text = "\0".join([str(seed), item.source, item.context, item.text])
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()

    return sorted(candidates, key=rank)


def _place_of_aspect(item: Item) -> tuple[int, str]:
    """The task's order, whatever the order in which items come."""
    names = [aspect.name for aspect in item.task.aspects]
    return (names.index(item.aspect.name) if item.aspect.name in names else len(names)), item.aspect.name


# --- the arguments of a call from Python ---

KEYWORDS = ("source", "text", "texts", "aspect", "task", "context", "references")
_CALL = 'judge(source="...", text="...", aspect="coherence")'


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of a call."""

    source: str
    """Empty where texts are judged by themselves; it must be given all the same."""
    candidates: tuple[str, ...]
    several: bool
    """Whether the caller gave `texts`, and so is answered in lists."""
    context: str = ""
    references: tuple[str, ...] = ()

    def items(self, task: Task, aspects: Sequence[Aspect]) -> list[Item]:
        """The questions of a call: every candidate in each aspect."""
        known = self.context, self.references
        numbered = list(enumerate(self.candidates, start=1))
        return [Item("", str(n), task, aspect, self.source, text, *known) for aspect in aspects for n, text in numbered]

    @classmethod
    def of(cls, positional: Sequence[object], keywords: Mapping[str, Any]) -> Texts:
        """The texts among the arguments of a call; an `InputError` for arguments that cannot be used."""
        if positional:
            raise InputError(
                "a judge takes keywords only, so that source and text are not confused",
                field="source",
                expected=_CALL,
                found=", ".join(map(repr, positional)),
            )
        for name in keywords:
            if name not in KEYWORDS:
                expected = f"some of {', '.join(KEYWORDS)}"
                remedy = did_you_mean(name, KEYWORDS)
                raise InputError("unknown argument", field=name, expected=expected, found=name, remedy=remedy)
        several = keywords.get("texts") is not None
        if several == (keywords.get("text") is not None):
            raise InputError(
                "both text and texts" if several else "no text to judge",
                field="text",
                expected="text for one candidate of the source, or texts for a list of them",
                remedy=_CALL,
            )
        if keywords.get("source") is None:
            remedy = 'source="" where texts are judged by themselves'
            raise InputError("the source is missing", field="source", expected="a text", remedy=remedy)
        given = sequence("texts", keywords["texts"]) if several else (keywords["text"],)
        if not given:
            raise InputError("no text to judge", field="texts", expected="at least one text", found="an empty list")
        names = [f"texts[{number}]" for number in range(len(given))] if several else ["text"]
        return cls(
            checked_text("source", keywords["source"]),
            tuple(checked_text(name, text, filled=True) for name, text in zip(names, given, strict=True)),
            several,
            checked_text("context", keywords.get("context") or ""),
            checked_references(keywords.get("references")),
        )


def checked_text(field: str, value: object, *, filled: bool = False, where: str = "") -> str:
    """`value`, if it is a text that can be sent, and one with more than white space if it must be `filled`.

    Raises:
        InputError: It is not; the message begins with `where`, e.g. `row 3: `.
    """
    if not isinstance(value, str):
        raise InputError(f"{where}not a text", field=field, expected="a text (str)", found=value)
    if filled and not value.strip():
        remedy = "leave it out: an empty text cannot be scored"
        raise InputError(f"{where}an empty text", field=field, expected="a text", found=repr(value), remedy=remedy)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        # Half of a surrogate pair, which no hash and no request can hold.
        problem = f"{where}half a character (a lone surrogate) at position {error.start + 1}"
        raise InputError(problem, field=field, remedy="write the text again from its original") from None
    return value


def checked_references(value: object, where: str = "") -> tuple[str, ...]:
    """The references of a source; none for None."""
    given = () if value is None else sequence("references", value, where)
    return tuple(checked_text(f"references[{i}]", text, where=where) for i, text in enumerate(given))


def sequence(field: str, value: object, where: str = "") -> tuple[object, ...]:
    """The members of a list; a single text is refused, for as a sequence it would be its characters."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InputError(f"{where}not a list", field=field, expected="a list of texts", found=value)
    return tuple(value)


def find_aspect(aspect: object, task: Task | str | None = None) -> tuple[Task, Aspect]:
    """The aspect that a call names, with its task.

    Args:
        aspect: An aspect, or the name of one of `task`. Without a task, one of the built-in tasks' aspects; of a name
            that several of them have the first is meant (`coherence` is that of summaries), and TASK.ASPECT names
            another (`dialogue.coherence`).
        task: The task, the name of a built-in one, or the path of a task file.

    Raises:
        InputError: There is no such task, or it has no such aspect.
    """
    chosen = find_task(task) if isinstance(task, str) else task
    if isinstance(aspect, Aspect):
        task_of_aspect = next((known for known in TASKS.values() if aspect in known.aspects), None)
        return chosen or task_of_aspect or Task("evaluation", "source", "text", (aspect,)), aspect
    tasks = TASKS.values() if chosen is None else (chosen,)
    known = {a.name: (t, a) for t in reversed(tuple(tasks)) for a in t.aspects}
    qualified = {f"{t.name}.{a.name}": (t, a) for t in tasks for a in t.aspects}
    if isinstance(aspect, str) and (named := known.get(aspect) or qualified.get(aspect)):
        return named
    names = sorted(known) if chosen is None else list(known)
    raise InputError(
        "the aspect is missing" if aspect is None else "unknown aspect",
        field="aspect",
        expected=f"one of {', '.join(names)}, or an Aspect with a definition and a scale of your own",
        found=aspect,
        remedy=did_you_mean(aspect, {**known, **qualified}, cutoff=0.6) if isinstance(aspect, str) else None,
    )
