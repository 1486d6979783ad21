"""Rated examples in prompts: candidates of other sources with their human ratings.

Examples are shown to all roles, the same ones for all items of an aspect. Precedents are shown to the Critic alone:
those of many rated texts that are most like the candidate. Both are stored as demonstrations of a predictor, the
Scorer's or the Critic's, so that they are part of the program's DSPy state and of its exports. Unlike other
demonstrations they have no reply and do not become chat turns: together they are one text in the prompt. A prompt never
shows rated texts of a source that it is about: for a train item these would contain its rating.
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
from debate_judge.programs.parsing import escape

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


def with_examples(judge: Judge, examples: Sequence[RatedExample]) -> Judge:
    """A copy of the judge that shows these examples, and no others, to all roles.

    Args:
        judge: The judge; it is not changed.
        examples: Of one or several aspects; an item is shown those of its aspect. An empty list removes all.

    Raises:
        InputError: The judge's prompts cannot show examples.
    """
    require_shows_examples(judge)
    return _with_demos(judge, "scorer", examples)


def with_precedents(judge: Judge, examples: Sequence[RatedExample], count: int) -> Judge:
    """A copy of the judge whose Critic, and no other role, is shown rated texts that are like the candidate.

    Args:
        judge: A debate with rounds; it is not changed.
        examples: The rated texts to choose from, of one or several aspects.
        count: Number of texts in a prompt, those most like the candidate.

    Raises:
        InputError: The judge has no Critic that can be shown them. Without any rated text, calls of the copy raise one.
    """
    _require(judge.shows_precedents, judge, "precedents", "precedents", "a debate, whose Critic is shown them")
    copy = _with_demos(judge, "critic", examples if count else ())
    copy.precedents = count
    return copy


def _with_demos(judge: Judge, predictor_name: str, examples: Sequence[RatedExample]) -> Judge:
    copy: Judge = judge.deepcopy()
    predictor = dict(copy.named_predictors())[predictor_name]
    demos = [demo for demo in predictor.demos if not is_rated_example(demo)]
    predictor.demos = demos + [dspy.Example(**asdict(e) | {"ratings": list(e.ratings)}) for e in examples]
    return copy


def require_shows_examples(judge: Judge) -> None:
    """Refuse a judge whose prompts cannot show rated examples."""
    _require(judge.shows_examples, judge, "--examples", "rated examples", "a debate or its single call")


def _require(shows: bool, judge: Judge, field: str, what: str, expected: str) -> None:
    if not shows:
        problem = f"the judge {judge.kind!r} shows no {what}"
        raise InputError(problem, field=field, expected=expected, remedy="leave them out")


def examples_of(judge: Judge) -> tuple[RatedExample, ...]:
    """The rated texts that a judge holds, as examples and as precedents."""
    predictors = dict(judge.named_predictors())
    holders = [predictors["scorer"]] if judge.shows_examples else []
    holders += [predictors["critic"]] if judge.shows_precedents else []
    return tuple(dict.fromkeys(example for holder in holders for example in _rated_examples(holder.demos)))


def example_inputs(demos: Iterable[Any], aspect: str, items: Sequence[Item]) -> dict[str, str]:
    """The input field with all rated examples of the aspect, without those of the items' own sources.

    Args:
        demos: Demonstrations of the Scorer's predictor.
        aspect: Name of the aspect whose examples are wanted.
        items: All items that the prompt is about.
    """
    others = _of_other_sources(demos, aspect, items)
    show_sources = all(item.aspect.source for item in items)
    return {"examples": render_examples(others, EXPLANATION, show_sources)} if others else {}


PRECEDENTS = (
    "Texts of other sources, with what these raters gave them in this aspect: those most like the candidate. Argue "
    "from what the raters did there, as far as the candidate is alike. One source a line, as JSON; rating is the mean "
    "over raters, ratings are theirs."
)
NO_PRECEDENT = "No text that these raters have rated is like the candidate."
MIN_SIMILARITY = 0.2
"""The least cosine of two texts that are alike (TF-IDF of character 2- to 4-grams). 95 % of the pairs of summaries of
different sources stay below .17 on SummEval and .16 on DialSummEval."""


def precedents_for(item: Item, demos: Sequence[Any], items: Sequence[Item], count: int) -> str:
    """The `count` rated texts that are most like the item's text, as a text for the prompt; if none is, it says so.

    Args:
        item: Texts are compared with its text by the cosine of their TF-IDF vectors.
        demos: Demonstrations of the Critic's predictor.
        items: All items that the prompt is about; texts of their sources are never shown.
        count: Maximum number of texts.

    Raises:
        InputError: There are no rated texts at all.
    """
    if not any(map(is_rated_example, demos)):
        raise InputError(
            "there are no rated texts to show the Critic",
            field="precedents",
            expected="at least one text with a rating",
            found="none",
            remedy="give some by debate_judge.programs.examples.with_precedents, or leave the precedents out",
        )
    others = _of_other_sources(demos, item.aspect.name, items)
    cosines = _cosines(tuple(dict.fromkeys(example.candidate for example in others)), item.text) if others else {}
    alike = [example for example in others if cosines[example.candidate] >= MIN_SIMILARITY]
    # Sorting is stable: of equally similar texts the first ones in the data are shown.
    nearest = tuple(sorted(alike, key=lambda example: -cosines[example.candidate])[:count])
    return render_examples(nearest, PRECEDENTS, item.aspect.source) if nearest else NO_PRECEDENT


def _of_other_sources(demos: Iterable[Any], aspect: str, items: Sequence[Item]) -> tuple[RatedExample, ...]:
    # Where there is no source, the text takes its place.
    own_sources = {_normalized(item.source or item.text) for item in items}
    return tuple(
        example
        for example in _rated_examples(demo for demo in demos if demo.get("aspect") == aspect)
        if _normalized(example.source or example.candidate) not in own_sources
    )


# Cached, because most items of an aspect have the same examples.
@lru_cache(maxsize=256)
def render_examples(
    examples: tuple[RatedExample, ...], explanation: str = EXPLANATION, show_sources: bool = True
) -> str:
    """The examples as one text after an `explanation`: each source once, with its text if `show_sources`, and its
    candidates, best rated first.

    Texts of a data set may be hostile: as JSON values they cannot pose as a rating or another source, and `escape`
    keeps them from opening a section of the prompt.
    """
    by_source: dict[tuple[str, str], list[dict[str, Any]]] = {(e.source, e.context): [] for e in examples}
    for example in sorted(examples, key=lambda example: -example.rating):
        record: dict[str, Any] = {"candidate": escape(example.candidate), "rating": round(example.rating, 2)}
        record |= {"ratings": list(example.ratings)} if len(example.ratings) > 1 else {}
        by_source[example.source, example.context].append(record)
    lines = []
    for (source, context), candidates in by_source.items():
        texts = {"source": escape(source), "context": escape(context)} if show_sources else {}
        shown = {name: text for name, text in texts.items() if text}
        lines.append(json.dumps({**shown, "candidates": candidates}, ensure_ascii=False))
    return "\n".join([explanation, *lines])


@lru_cache(maxsize=1024)
def _cosines(passages: tuple[str, ...], text: str) -> Mapping[str, float]:
    # All sources may be empty, but a vectorizer cannot be fitted without a word.
    if not any(map(str.strip, passages)):
        return dict.fromkeys(passages, 0.0)
    # One thread at a time, so that the others find the fitted vectorizer in the cache.
    with _FIT_LOCK:
        vectorizer, matrix = fit_tfidf(passages)
    cosines = (vectorizer.transform([text]) @ matrix.T).toarray()[0].tolist()
    # Rounded, so that equal similarities stay equal whatever the order of summation.
    return {passage: round(cosine, 9) for passage, cosine in zip(passages, cosines, strict=True)}


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
