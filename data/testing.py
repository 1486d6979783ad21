"""A check that every data set must pass, shipped so that loaders outside this project can use it in their tests."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain

from debate_judge.data.schema import Candidate, Corpus, RatedGroup, Task


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
    _require(corpus.groups, "the corpus has no groups")
    _require_distinct("group id", [group.id for group in corpus.groups])
    for group in corpus.groups:
        _check_group(group, corpus.task)
    _require(corpus.rated_aspects(), "no candidate has a rating")
    candidates = chain.from_iterable(group.candidates for group in corpus.groups)
    most = max(len(values) for candidate in candidates for values in candidate.ratings.values())
    _require(most >= raters, f"no candidate has more than {most} ratings of an aspect, and there are {raters} raters")
    _require(corpus.origin.name and corpus.origin.location, f"the origin is incomplete: {corpus.origin}")
    other = again or replace(corpus)
    _require(corpus.digest == other.digest, "a second load has another digest")
    _require(corpus == other, "a second load differs in task, origin, or the groups and their order")


def _check_group(group: RatedGroup, task: Task) -> None:
    location = f"group {group.id!r}"
    _require_distinct(f"candidate id of {location}", [candidate.id for candidate in group.candidates])
    for text in (group.id, *filter(None, [group.source, group.context]), *group.references):
        _check_text(text, location)
    for candidate in group.candidates:
        _check_candidate(candidate, task, f"{location}, candidate {candidate.id!r}")


def _check_candidate(candidate: Candidate, task: Task, location: str) -> None:
    _check_text(candidate.id, location)
    _check_text(candidate.text, location)
    scales = {aspect.name: aspect.scale for aspect in task.aspects}
    for name, values in candidate.ratings.items():
        _require(name in scales, f"{location}: the task has no aspect {name!r}")
        _require(values, f"{location}: an aspect without ratings should be left out, and {name!r} is there")
        for value in values:
            fits = type(value) is float and scales[name].contains(value)
            _require(fits, f"{location}: {value!r} is not a float on the scale of {name!r}, {scales[name]}")


def _check_text(text: str, location: str) -> None:
    _require(text.strip(), f"{location}: an id or a text is empty")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise AssertionError(f"{location}: a text cannot be written as UTF-8: {error}") from error


def _require_distinct(what: str, values: list[str]) -> None:
    repeated = [value for value, count in Counter(values).items() if count > 1]
    _require(not repeated, f"a {what} occurs twice: {repeated[:1]}")


def _require(condition: object, message: str) -> None:
    if not condition:
        raise AssertionError(message)
