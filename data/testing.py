"""A check that every data set must pass, shipped so that loaders outside this project can use it in their tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from debate_judge.data.schema import Candidate, Corpus, Task


def check_corpus(corpus: Corpus, again: Corpus | None = None, *, raters: int = 1) -> None:
    """Assert what splitting, judging and agreement rely on:

    1. There are groups with unique ids, and the ids of candidates are unique in their group.
    2. Every text has a visible character and can be written as UTF-8; only source and context may be empty.
    3. Every rating belongs to an aspect of the task, is a finite float and lies on the aspect's scale; some
       candidate is rated, and the values of several raters are all kept.
    4. The origin has a name and a location, and a second load gives the same groups in the same order with the
       same digest.

    Args:
        corpus: What the loader returned.
        again: What the loader returned for the same input a second time; None to compute the digest twice only.
        raters: The largest number of ratings of a candidate in the records.

    Raises:
        AssertionError: Naming the group, the candidate and what is wrong.
    """
    for problem in _problems(corpus, again or replace(corpus), raters):
        raise AssertionError(problem)


def _problems(corpus: Corpus, again: Corpus, raters: int) -> Iterator[str]:
    if not corpus.groups:
        yield "the corpus has no groups"
    yield from _repeated("group id", [group.id for group in corpus.groups])
    for group in corpus.groups:
        where = f"group {group.id!r}"
        yield from _repeated(f"candidate id of {where}", [candidate.id for candidate in group.candidates])
        yield from _wrong_texts([group.id, *filter(None, [group.source, group.context]), *group.references], where)
        for candidate in group.candidates:
            yield from _wrong_texts([candidate.id, candidate.text], f"{where}, candidate {candidate.id!r}")
            yield from _wrong_ratings(candidate, corpus.task, f"{where}, candidate {candidate.id!r}")
    if not corpus.rated_aspects():
        yield "no candidate has a rating"
    most = max(len(values) for group in corpus.groups for c in group.candidates for values in c.ratings.values())
    if most < raters:
        yield f"no candidate has more than {most} ratings of an aspect, and there are {raters} raters"
    if not (corpus.origin.name and corpus.origin.location):
        yield f"the origin is incomplete: {corpus.origin}"
    if corpus.digest != again.digest:
        yield "a second load has another digest"
    if corpus != again:
        yield "a second load differs in task, origin, or the groups and their order"


def _wrong_texts(texts: Iterable[str], where: str) -> Iterator[str]:
    for text in texts:
        if not text.strip():
            yield f"{where}: an id or a text is empty"
        try:
            text.encode()
        except UnicodeEncodeError as error:
            yield f"{where}: a text cannot be written as UTF-8: {error}"


def _wrong_ratings(candidate: Candidate, task: Task, where: str) -> Iterator[str]:
    scales = {aspect.name: aspect.scale for aspect in task.aspects}
    for name, values in candidate.ratings.items():
        if name not in scales:
            yield f"{where}: the task has no aspect {name!r}"
        if not values:
            yield f"{where}: an aspect without ratings should be left out, and {name!r} is there"
        for value in values:
            if type(value) is not float or not scales[name].contains(value):
                yield f"{where}: {value!r} is not a float on the scale of {name!r}, {scales[name]}"


def _repeated(what: str, values: Iterable[str]) -> Iterator[str]:
    yield from (f"a {what} occurs twice: {value!r}" for value, count in Counter(values).items() if count > 1)
