"""Rated examples in prompts: candidates of other sources with their human ratings.

They are stored as demonstrations of the Scorer's predictor, so that they are part of the program's DSPy state and of
its exports. Unlike other demonstrations they have no reply and do not become chat turns: all of them are one text in
the prompt. That text is the same for all items of an aspect, or holds the examples most similar to the item. An item is
never shown examples of its own source: for a train item these would contain its rating. A prompt about several items
shows no example of any of their sources.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

import dspy

from debate_judge.data.errors import InputError
from debate_judge.programs.judge import Item, Judge
from debate_judge.programs.roles.parsing import escape

EXPLAINED = (
    "Candidates of other sources with what the raters gave them in this aspect: scores are to be given as these raters "
    "give them. The examples are not judged themselves. One source a line, as JSON, its candidates from the best rated "
    "to the worst: see why these raters preferred one to the next. rating is the mean over raters, ratings are theirs."
)


@dataclass(frozen=True, slots=True)
class RatedExample:
    """One candidate with its human rating in one aspect."""

    aspect: str
    group: str
    source: str
    context: str
    candidate: str
    rating: float
    """The mean over raters."""
    ratings: tuple[float, ...] = ()
    """The ratings of single raters; empty if there is one rater or only the mean is known."""


def with_examples(judge: Judge, examples: Sequence[RatedExample], nearest: int = 0) -> Judge:
    """A copy of the judge that shows these examples and no others.

    Args:
        judge: The judge; it is not changed.
        examples: Of one or several aspects; an item is shown those of its aspect. An empty list removes all.
        nearest: Number of examples in a prompt, those most similar to the item; 0 shows all of them.

    Raises:
        InputError: The judge's prompts have no place for examples.
    """
    require_shown(judge)
    copy: Judge = judge.deepcopy()
    copy.nearest_examples = nearest if examples else 0
    scorer = dict(copy.named_predictors())["scorer"]
    demos = [demo for demo in scorer.demos if not is_rated(demo)]
    scorer.demos = demos + [dspy.Example(**asdict(e) | {"ratings": list(e.ratings)}) for e in examples]
    return copy


def require_shown(judge: Judge) -> None:
    """Refuse a judge whose prompts cannot show rated examples."""
    if not judge.shows_examples:
        raise InputError(
            f"the judge {judge.kind!r} shows no rated examples",
            field="--examples",
            expected="a debate or its single call",
            remedy="leave the flag out",
        )


def examples_of(judge: Judge) -> tuple[RatedExample, ...]:
    """The rated examples that a judge holds."""
    return tuple(_read(dict(judge.named_predictors())["scorer"].demos)) if judge.shows_examples else ()


def shown(demos: Iterable[Any], aspect: str, items: Sequence[Item], nearest: int) -> dict[str, str]:
    """The input fields of a prompt with the rated examples among `demos` that it shows: `examples`, which are the same
    for all items of an aspect except those of the own sources, or `similar`, which are chosen for the items.

    Args:
        demos: Demonstrations of the Scorer's predictor.
        aspect: Name of the aspect whose examples are wanted.
        items: All items that the prompt is about, also those in other aspects.
        nearest: As in `with_examples`.
    """
    of_aspect = tuple(example for example in _read(demos) if example.aspect == aspect)
    # Without a source, examples with an item's own text are left out.
    own_sources = {_normalized(item.source or item.text) for item in items}
    others = [example for example in of_aspect if _normalized(example.source or example.candidate) not in own_sources]
    if not others:
        return {}
    sources = all(item.aspect.source for item in items if item.aspect.name == aspect)
    if not nearest:
        return {"examples": rendered(tuple(others), sources)}
    likeness = _likeness(of_aspect, items)
    best = sorted(others, key=lambda example: -likeness[example])[:nearest]
    return {"similar": rendered(tuple(best), sources)}


# The same for all items of an aspect.
@lru_cache(maxsize=256)
def rendered(examples: tuple[RatedExample, ...], sources: bool = True) -> str:
    """The examples as one text, each source once with its candidates, the best rated first; with the `sources`' own
    texts, if the aspect is judged with them.

    Texts of a data set may be hostile: as JSON values they cannot pose as a rating or another source, and `escape`
    keeps them from opening a section of the prompt.
    """
    by_source: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for example in sorted(examples, key=lambda example: -example.rating):
        record: dict[str, Any] = {"candidate": escape(example.candidate), "rating": round(example.rating, 2)}
        record |= {"ratings": list(example.ratings)} if len(example.ratings) > 1 else {}
        by_source.setdefault((example.source, example.context), []).append(record)
    lines = []
    for source in dict.fromkeys((example.source, example.context) for example in examples):
        candidates = by_source[source]
        texts = dict(zip(("source", "context"), source, strict=True)) if sources else {}
        known = {name: escape(text) for name, text in texts.items() if text}
        lines.append(json.dumps(known | {"candidates": candidates}, ensure_ascii=False))
    return "\n".join([EXPLAINED, *lines])


def _likeness(examples: tuple[RatedExample, ...], items: Sequence[Item]) -> Mapping[RatedExample, float]:
    """The similarity of each example to the items: cosine of the candidates plus cosine of the sources (TF-IDF), where
    several texts are taken as one."""
    source, text = ("\n".join(dict.fromkeys(texts)) for texts in zip(*((i.source, i.text) for i in items), strict=True))
    of_source = _cosines(tuple(dict.fromkeys(example.source for example in examples)), source)
    of_candidate = _cosines(tuple(dict.fromkeys(example.candidate for example in examples)), text)
    # Rounded, so that equal similarities stay equal whatever the order of summation, and are ranked by their place.
    return {e: round(of_candidate[e.candidate] + of_source[e.source], 9) for e in examples}


@lru_cache(maxsize=1024)
def _cosines(passages: tuple[str, ...], text: str) -> Mapping[str, float]:
    # Sources may all be empty, and a vectorizer needs at least one word to fit.
    if not any(map(str.strip, passages)):
        return dict.fromkeys(passages, 0.0)
    # One thread at a time: the others then find the fitted vectorizer in the cache.
    with _FITTING:
        vectorizer, matrix = fitted(passages)
    return dict(zip(passages, (vectorizer.transform([text]) @ matrix.T).toarray()[0].tolist(), strict=True))


_FITTING = Lock()


@lru_cache(maxsize=256)
def fitted(passages: tuple[str, ...]) -> tuple[Any, Any]:
    """A vectorizer by TF-IDF and the vectors of the passages; kept, because many texts are compared with the same."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # type: ignore[import-untyped]

    # Character n-grams match inflected forms, and work in scripts without blanks between words.
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True)
    return vectorizer, vectorizer.fit_transform(passages)


def is_rated(demo: Any) -> bool:
    """Whether a demonstration is a rated example: it has a rating, which no role's reply has."""
    return "rating" in demo and "candidate" in demo


def _read(demos: Iterable[Any]) -> Iterator[RatedExample]:
    for demo in filter(is_rated, demos):
        texts = {name: str(demo.get(name, "")) for name in ("aspect", "group", "source", "context", "candidate")}
        ratings = tuple(map(float, demo.get("ratings") or ()))
        yield RatedExample(**texts, rating=float(demo["rating"]), ratings=ratings)


@lru_cache(maxsize=4096)
def _normalized(source: str) -> str:
    """The text with single spaces: sources that are equal in this form are the same, as in `RatedGroup.source_key`."""
    return " ".join(source.split())
