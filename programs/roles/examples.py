"""Rated examples in prompts: candidates of other sources with their human ratings.

They are stored as demonstrations of the Scorer's predictor, so that they are part of the program's DSPy state and of
its exports. Unlike other demonstrations they have no reply and do not become chat turns: together they are one text in
the prompt. That text is the same for all items of an aspect, or has the examples most similar to the item. A prompt
never shows examples of a source that it is about: for a train item these would contain its rating.
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

EXPLANATION = (
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
        InputError: The judge's prompts cannot show examples.
    """
    require_shows_examples(judge)
    copy: Judge = judge.deepcopy()
    copy.nearest_examples = nearest if examples else 0
    scorer = dict(copy.named_predictors())["scorer"]
    demos = [demo for demo in scorer.demos if not is_rated_example(demo)]
    scorer.demos = demos + [dspy.Example(**asdict(e) | {"ratings": list(e.ratings)}) for e in examples]
    return copy


def require_shows_examples(judge: Judge) -> None:
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
    return tuple(_rated_examples(dict(judge.named_predictors())["scorer"].demos)) if judge.shows_examples else ()


def example_inputs(demos: Iterable[Any], aspect: str, items: Sequence[Item], nearest: int) -> dict[str, str]:
    """The input field of a prompt with its rated examples: `examples`, all those of the aspect, or `similar`, those
    nearest to the items; without examples of the items' own sources.

    Args:
        demos: Demonstrations of the Scorer's predictor.
        aspect: Name of the aspect whose examples are wanted.
        items: All items that the prompt is about, also those in other aspects.
        nearest: As in `with_examples`.
    """
    of_aspect = tuple(example for example in _rated_examples(demos) if example.aspect == aspect)
    # Where there is no source, the text takes its place.
    own_sources = {_normalized(item.source or item.text) for item in items}
    others = [example for example in of_aspect if _normalized(example.source or example.candidate) not in own_sources]
    if not others:
        return {}
    show_sources = all(item.aspect.source for item in items if item.aspect.name == aspect)
    if not nearest:
        return {"examples": render_examples(tuple(others), show_sources)}
    similarities = _similarities(of_aspect, items)
    best = sorted(others, key=lambda example: -similarities[example])[:nearest]
    return {"similar": render_examples(tuple(best), show_sources)}


# Cached, because most items of an aspect have the same examples.
@lru_cache(maxsize=256)
def render_examples(examples: tuple[RatedExample, ...], show_sources: bool = True) -> str:
    """The examples as one text: each source once, with its text if `show_sources`, and its candidates, best rated
    first.

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
        texts = dict(zip(("source", "context"), source, strict=True)) if show_sources else {}
        source_texts = {name: escape(text) for name, text in texts.items() if text}
        lines.append(json.dumps(source_texts | {"candidates": candidates}, ensure_ascii=False))
    return "\n".join([EXPLANATION, *lines])


def _similarities(examples: tuple[RatedExample, ...], items: Sequence[Item]) -> Mapping[RatedExample, float]:
    """The similarity of each example to the items: cosine of the candidates plus cosine of the sources (TF-IDF). The
    candidates of several items are joined to one text, and so are their sources."""
    source, text = ("\n".join(dict.fromkeys(texts)) for texts in zip(*((i.source, i.text) for i in items), strict=True))
    of_source = _cosines(tuple(dict.fromkeys(example.source for example in examples)), source)
    of_candidate = _cosines(tuple(dict.fromkeys(example.candidate for example in examples)), text)
    # Rounded, so that equal similarities stay equal whatever the order of summation; ties keep the order of examples.
    return {e: round(of_candidate[e.candidate] + of_source[e.source], 9) for e in examples}


@lru_cache(maxsize=1024)
def _cosines(passages: tuple[str, ...], text: str) -> Mapping[str, float]:
    # All sources may be empty, but a vectorizer cannot be fitted without a word.
    if not any(map(str.strip, passages)):
        return dict.fromkeys(passages, 0.0)
    # One thread at a time, so that the others find the fitted vectorizer in the cache.
    with _FIT_LOCK:
        vectorizer, matrix = fit_tfidf(passages)
    return dict(zip(passages, (vectorizer.transform([text]) @ matrix.T).toarray()[0].tolist(), strict=True))


_FIT_LOCK = Lock()


@lru_cache(maxsize=256)
def fit_tfidf(passages: tuple[str, ...]) -> tuple[Any, Any]:
    """A TF-IDF vectorizer and the passages' vectors; cached, because many texts are compared with the same passages."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # type: ignore[import-untyped]

    # Character n-grams match inflected forms, and work in scripts without spaces between words.
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True)
    return vectorizer, vectorizer.fit_transform(passages)


def is_rated_example(demo: Any) -> bool:
    """Whether a demonstration is a rated example: it has a rating, which no role's reply has."""
    return "rating" in demo and "candidate" in demo


def _rated_examples(demos: Iterable[Any]) -> Iterator[RatedExample]:
    for demo in filter(is_rated_example, demos):
        texts = {name: str(demo.get(name, "")) for name in ("aspect", "group", "source", "context", "candidate")}
        ratings = tuple(map(float, demo.get("ratings") or ()))
        yield RatedExample(**texts, rating=float(demo["rating"]), ratings=ratings)


@lru_cache(maxsize=4096)
def _normalized(source: str) -> str:
    """The text with single spaces; sources that are then equal count as the same, as in `RatedGroup.source_key`."""
    return " ".join(source.split())
