"""Items, the arguments of a call from Python, and the grouping of items into questions: one candidate, a pair to
compare, or several candidates of one source.

Which candidates share a question, and in which order, depends on the texts alone and not on the order in which items
arrive or on the process. So a resumed run asks the same questions again.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.schema import Aspect, Corpus, RatedGroup, Task, fingerprint, is_visible
from debate_judge.data.tasks import TASKS, find_task

if TYPE_CHECKING:
    import dspy

    from debate_judge.programs.judge import Judge

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Item:
    """What gets one score: a candidate in one aspect of a task."""

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
        """Hash of texts and aspect: equal for items that differ in the ids of group and candidate only."""
        if not self._key:
            # Kept: a search needs it thousands of times, and hashing a long source takes as long as parsing a reply.
            texts = [self.task.name, self.aspect.name, self.aspect.definition, self.source, self.context, self.text]
            object.__setattr__(self, "_key", fingerprint([*texts, *self.references]))
        return self._key


def items_of(task: Task, group: RatedGroup, aspect: Aspect) -> list[Item]:
    """One item per candidate of the group, in candidate order."""
    return [
        Item(group.id, c.id, task, aspect, group.source, c.text, group.context, group.references)
        for c in group.candidates
    ]


def corpus_items(corpus: Corpus, aspect: Aspect) -> list[Item]:
    """All items of one aspect, in corpus order."""
    return [item for group in corpus.groups for item in items_of(corpus.task, group, aspect)]


# --- questions ---


@dataclass(frozen=True, slots=True)
class Question:
    """The items of one conversation with a judge: candidates of one source, in the order of the prompt."""

    items: tuple[Item, ...]

    @property
    def key(self) -> str:
        """Identity of the question, like `Item.key`; another order is another question."""
        return " ".join(item.key for item in self.items)


@dataclass(frozen=True, slots=True)
class Grouping:
    """The questions that cover some items, and the position of each item in them."""

    questions: tuple[Question, ...]
    positions: tuple[tuple[int, int], ...]
    """Index of the question, and index in it, of each item; items with the same key may share one."""

    def by_item(self, results: Sequence[Sequence[T]]) -> list[T]:
        """The result of each item, in their order, from the results of each question's items."""
        return [results[question][index] for question, index in self.positions]

    def by_question(self, values: Sequence[T]) -> list[list[T]]:
        """The values of each question's items, from the value of each item; the inverse of `by_item`."""
        by_position = dict(zip(self.positions, values, strict=True))
        sizes = [len(question.items) for question in self.questions]
        return [[by_position[number, index] for index in range(size)] for number, size in enumerate(sizes)]


def group_into_questions(judge: Judge, items: Sequence[Item], *, compare_pairs: bool = True) -> Grouping:
    """Group items into the questions that the judge takes: single items, pairs, or several candidates of one source
    (`Judge.together`).

    Pairs are compared only where all groups have exactly two candidates: outcomes of pairs and scores of single
    candidates are not on one scale.

    Args:
        judge: Whose questions they are.
        items: In any order.
        compare_pairs: Whether a judge that compares pairs may do so; new texts are scored one by one.
    """
    by_group: dict[tuple[str, str], list[list[int]]] = {}
    for number, item in enumerate(items):
        by_group.setdefault((item.aspect.name, item.group), []).append([number])
    if judge.compares_pairs and compare_pairs and by_group and all(len(pair) == 2 for pair in by_group.values()):
        questions = list(by_group.values())
    elif judge.together > 1:
        by_source: dict[tuple[object, ...], dict[str, list[int]]] = {}
        for number, item in enumerate(items):
            by_source.setdefault((item.aspect, *source_key(item)), {}).setdefault(item.key, []).append(number)
        # As few questions as hold all candidates of each source, of nearly equal size.
        questions = []
        for candidates in by_source.values():
            ordered = sorted(candidates.values(), key=lambda numbers: _rank(items[numbers[0]]))
            count = -(-len(ordered) // judge.together)
            ends = [len(ordered) * end // count for end in range(count + 1)]
            questions += [ordered[start:end] for start, end in pairwise(ends)]
    else:
        questions = [[[number]] for number in range(len(items))]
    positions = {n: (q, index) for q, members in enumerate(questions) for index, ns in enumerate(members) for n in ns}
    return Grouping(
        tuple(Question(tuple(items[numbers[0]] for numbers in members)) for members in questions),
        tuple(positions[number] for number in range(len(items))),
    )


def source_key(item: Item) -> tuple[object, ...]:
    """Equal for items that may share a question, if they are of one aspect."""
    # Without a source, only the group says which texts belong together.
    return item.task, item.source or (item.group,), item.context


def _rank(item: Item) -> bytes:
    """Sort key: the order of candidates depends on their texts alone, and is the same in every aspect."""
    text = "\0".join([item.source, item.context, item.text])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


# --- the arguments of a call from Python ---


def judge_call(
    *,
    source: str,
    text: str | None = None,
    texts: Sequence[str] | None = None,
    aspect: Aspect | str | None = None,
    task: Task | str | None = None,
    context: str = "",
    references: Sequence[str] = (),
) -> dspy.Prediction:
    """How a judge is called: for the signatures of judges, whose methods check the arguments themselves."""
    raise NotImplementedError


def signed_as(model: Callable[..., object]) -> Callable[[T], T]:
    """A decorator for methods: `inspect.signature`, `help` and editors show the arguments of `model`."""
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    signature = inspect.signature(model)

    def signed(method: T) -> T:
        method.__signature__ = signature.replace(parameters=[itself, *signature.parameters.values()])  # type: ignore[attr-defined]
        return method

    return signed


CALL_KEYWORDS = tuple(inspect.signature(judge_call).parameters)
_EXAMPLE_CALL = 'judge(source="...", text="...", aspect="coherence")'


@dataclass(frozen=True, slots=True)
class CallTexts:
    """The texts among the arguments of a call."""

    source: str
    """Required, but empty where texts are judged by themselves."""
    candidates: tuple[str, ...]
    as_lists: bool
    """Whether the caller gave `texts`, so that the result has lists."""
    context: str = ""
    references: tuple[str, ...] = ()

    def items(self, task: Task, aspects: Sequence[Aspect]) -> list[Item]:
        """Every candidate in each aspect; a candidate's id is its number."""
        rest = self.context, self.references
        numbered = list(enumerate(self.candidates, start=1))
        return [Item("", str(n), task, aspect, self.source, text, *rest) for aspect in aspects for n, text in numbered]

    @classmethod
    def from_arguments(cls, positional: Sequence[object], keywords: Mapping[str, Any]) -> CallTexts:
        """Check the arguments of a call; an `InputError` for those that cannot be used."""
        if positional:
            raise InputError(
                "a judge takes keywords only, so that source and text are not confused",
                field="source",
                expected=_EXAMPLE_CALL,
                found=", ".join(map(repr, positional)),
            )
        for name in keywords:
            if name not in CALL_KEYWORDS:
                expected = f"some of {', '.join(CALL_KEYWORDS)}"
                remedy = did_you_mean(name, CALL_KEYWORDS)
                raise InputError("unknown argument", field=name, expected=expected, found=name, remedy=remedy)
        as_lists = keywords.get("texts") is not None
        if as_lists == (keywords.get("text") is not None):
            raise InputError(
                "both text and texts" if as_lists else "no text to judge",
                field="text",
                expected="text for one candidate of the source, or texts for a list of them",
                remedy=_EXAMPLE_CALL,
            )
        if keywords.get("source") is None:
            remedy = 'source="" where texts are judged by themselves'
            raise InputError("the source is missing", field="source", expected="a text", remedy=remedy)
        texts = checked_list("texts", keywords["texts"]) if as_lists else (keywords["text"],)
        if not texts:
            raise InputError("no text to judge", field="texts", expected="at least one text", found="an empty list")
        names = [f"texts[{number}]" for number in range(len(texts))] if as_lists else ["text"]
        return cls(
            checked_text("source", keywords["source"]),
            tuple(checked_text(name, text, nonempty=True) for name, text in zip(names, texts, strict=True)),
            as_lists,
            checked_text("context", keywords.get("context") or ""),
            checked_references(keywords.get("references")),
        )


def checked_text(field: str, value: object, *, nonempty: bool = False, where: str = "") -> str:
    """`value`, if it is a text that can be sent to an LM; a `nonempty` one must have more than white space.

    Raises:
        InputError: It is not; the message begins with `where`, e.g. `row 3: `.
    """
    if not isinstance(value, str):
        raise InputError(f"{where}not a text", field=field, expected="a text (str)", found=value)
    if nonempty and not is_visible(value):
        remedy = "leave it out: an empty text cannot be scored"
        raise InputError(f"{where}an empty text", field=field, expected="a text", found=repr(value), remedy=remedy)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        # Half of a surrogate pair, which can be neither hashed nor sent.
        problem = f"{where}half a character (a lone surrogate) at position {error.start + 1}"
        raise InputError(problem, field=field, remedy="write the text again from its original") from None
    return value


def checked_references(value: object, where: str = "") -> tuple[str, ...]:
    """The references of a source; None is an empty list."""
    texts = () if value is None else checked_list("references", value, where)
    return tuple(checked_text(f"references[{i}]", text, where=where) for i, text in enumerate(texts))


def checked_list(field: str, value: object, where: str = "") -> tuple[object, ...]:
    """The members of a list; a single text is refused, because its members would be its characters."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InputError(f"{where}not a list", field=field, expected="a list of texts", found=value)
    return tuple(value)


def find_aspect(aspect: object, task: Task | str | None = None) -> tuple[Task, Aspect]:
    """The aspect that a call names, with its task.

    Args:
        aspect: An aspect, or the name of one of `task`. Without a task, an aspect of the built-in tasks: where several
            tasks have one of this name, that of the first task (`coherence` is that of summaries); TASK.ASPECT names
            another (`dialogue.coherence`).
        task: The task, the name of a built-in one, or the path of a task file.

    Raises:
        InputError: There is no such task, or it has no such aspect.
    """
    given_task = find_task(task) if isinstance(task, str) else task
    if isinstance(aspect, Aspect):
        built_in = next((known for known in TASKS.values() if aspect in known.aspects), None)
        return given_task or built_in or Task("evaluation", "source", "text", (aspect,)), aspect
    tasks = TASKS.values() if given_task is None else (given_task,)
    by_name = {a.name: (t, a) for t in reversed(tuple(tasks)) for a in t.aspects}
    qualified = {f"{t.name}.{a.name}": (t, a) for t in tasks for a in t.aspects}
    if isinstance(aspect, str) and (match := by_name.get(aspect) or qualified.get(aspect)):
        return match
    names = sorted(by_name) if given_task is None else list(by_name)
    raise InputError(
        "the aspect is missing" if aspect is None else "unknown aspect",
        field="aspect",
        expected=f"one of {', '.join(names)}, or an Aspect with a definition and a scale of your own",
        found=aspect,
        remedy=did_you_mean(aspect, {**by_name, **qualified}, cutoff=0.6) if isinstance(aspect, str) else None,
    )
