"""Chooses the rated candidates of train that a judge has as examples in its prompts."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import combinations
from types import MappingProxyType

from debate_judge.data.schema import Aspect, Candidate, Corpus, RatedGroup
from debate_judge.optimize.settings import ExamplesOption
from debate_judge.programs.judge import Judge
from debate_judge.programs.roles.examples import RatedExample, with_examples, with_precedents

ScoresByItem = Mapping[tuple[str, str, str], float]
"""Aspect name, group id and candidate id -> a judge's score."""

_Pair = tuple[Candidate, Candidate]

MAX_PER_SOURCE = 4
"""Most candidates of one source. Several, because a source takes more tokens than its candidates, and ratings of the
same source show how raters use the scale."""


def with_rated_examples(
    judge: Judge,
    corpus: Corpus,
    aspects: Sequence[Aspect],
    option: ExamplesOption,
    *,
    seed: int,
    scores: ScoresByItem = MappingProxyType({}),
) -> Judge:
    """A copy of the judge with rated candidates of `corpus`, the train part, as examples for each of its aspects.

    Pairs are chosen by the `scores` of the judge.

    Raises:
        InputError: The judge takes no examples.
    """
    examples: list[RatedExample] = []
    for aspect in aspects:
        if option.nearest:
            examples += rated_candidates(corpus, aspect)
        elif option.pairs:
            examples += choose_pairs(corpus, aspect, option.count, scores, seed=seed)
        else:
            examples += choose_examples(corpus, aspect, option.count, seed=seed)
    if option.nearest:
        return with_precedents(judge, examples, option.count)
    return with_examples(judge, examples)


def choose_examples(corpus: Corpus, aspect: Aspect, count: int, *, seed: int) -> list[RatedExample]:
    """Choose rated candidates that span the scale, from as few sources as `MAX_PER_SOURCE` allows.

    Sources with the largest range of ratings come first, and of each the candidates whose ratings are spread most
    evenly. If sources have one candidate each, candidates with evenly spread ratings are chosen from all of them.

    Returns:
        At most `count` examples, those of one source together, from the best rated to the worst. The seed breaks ties.
    """
    groups = _rated(corpus, aspect)
    random.Random(seed).shuffle(groups)
    if all(len(candidates) == 1 for _, candidates in groups):
        chosen = _spread([(group, candidates[0]) for group, candidates in groups], aspect, count)
        return [_example(group, candidate, aspect) for group, candidate in chosen]
    examples: list[RatedExample] = []
    for group, candidates in sorted(groups, key=lambda entry: -_range(entry[1], aspect)):
        chosen = _spread([(group, c) for c in candidates], aspect, min(MAX_PER_SOURCE, count - len(examples)))
        examples += [_example(group, candidate, aspect) for _, candidate in chosen]
    return examples


def choose_pairs(
    corpus: Corpus,
    aspect: Aspect,
    count: int,
    scores: ScoresByItem,
    *,
    seed: int,
) -> list[RatedExample]:
    """Choose pairs of candidates of one source with different ratings: first those that the judge does not order as the
    raters do, spread over the sources, the largest differences first. No candidate is in two pairs. A pair without both
    scores counts as ordered like the raters.

    Returns:
        The examples of at most `count` pairs, those of one source together, the better one first.
    """
    groups = _rated(corpus, aspect)
    random.Random(seed).shuffle(groups)
    ordered: list[tuple[tuple[bool, int, float], int, _Pair]] = []
    for index, (group, candidates) in enumerate(groups):
        best_first = sorted(candidates, key=lambda candidate: -_rating(candidate, aspect))
        ranked = [(_pair_priority(group, pair, aspect, scores), pair) for pair in combinations(best_first, 2)]
        used: set[str] = set()
        for (same_order, distance), pair in sorted(ranked, key=lambda entry: entry[0]):
            if _rating(pair[0], aspect) > _rating(pair[1], aspect) and used.isdisjoint(c.id for c in pair):
                ordered.append(((same_order, len(used), distance), index, pair))
                used |= {candidate.id for candidate in pair}
    chosen = sorted(sorted(ordered, key=lambda entry: entry[0])[:count], key=lambda entry: entry[1])
    return [_example(groups[index][0], candidate, aspect) for _, index, pair in chosen for candidate in pair]


def _pair_priority(group: RatedGroup, pair: _Pair, aspect: Aspect, scores: ScoresByItem) -> tuple[bool, float]:
    """Sort key of a pair: whether the judge orders it as the raters do; then its lead less theirs, or, if the order is
    the same, the raters' lead, negative."""
    better, worse = (scores.get((aspect.name, group.id, candidate.id)) for candidate in pair)
    distance = _rating(pair[0], aspect) - _rating(pair[1], aspect)
    lead = None if better is None or worse is None else better - worse
    return (True, -distance) if lead is None or lead > 0 else (False, lead - distance)


def rated_candidates(corpus: Corpus, aspect: Aspect) -> list[RatedExample]:
    """Every rated candidate, in the order of the corpus."""
    return [
        _example(group, candidate, aspect) for group, candidates in _rated(corpus, aspect) for candidate in candidates
    ]


def _rated(corpus: Corpus, aspect: Aspect) -> list[tuple[RatedGroup, list[Candidate]]]:
    rated = [
        (group, [candidate for candidate in group.candidates if candidate.rating(aspect.name) is not None])
        for group in corpus.groups
    ]
    return [(group, candidates) for group, candidates in rated if candidates]


def _spread(
    candidates: Sequence[tuple[RatedGroup, Candidate]], aspect: Aspect, count: int
) -> list[tuple[RatedGroup, Candidate]]:
    """Up to `count` candidates with ratings nearest to evenly spaced ones, from the best to the worst."""
    remaining = sorted(candidates, key=lambda entry: -_rating(entry[1], aspect))
    if count >= len(remaining):
        return remaining
    if count < 1:
        return []
    high, low = _rating(remaining[0][1], aspect), _rating(remaining[-1][1], aspect)
    chosen: list[tuple[RatedGroup, Candidate]] = []
    for number in range(count):
        target = high - (high - low) * number / max(1, count - 1)
        chosen.append(min(remaining, key=lambda entry: abs(_rating(entry[1], aspect) - target)))
        remaining.remove(chosen[-1])
    return sorted(chosen, key=lambda entry: -_rating(entry[1], aspect))


def _range(candidates: Sequence[Candidate], aspect: Aspect) -> float:
    ratings = [_rating(candidate, aspect) for candidate in candidates]
    return max(ratings) - min(ratings)


def _rating(candidate: Candidate, aspect: Aspect) -> float:
    rating = candidate.rating(aspect.name)
    if rating is None:
        raise ValueError(f"candidate {candidate.id!r} has no rating of {aspect.name!r}")
    return rating


def _example(group: RatedGroup, candidate: Candidate, aspect: Aspect) -> RatedExample:
    ratings = candidate.ratings[aspect.name]
    return RatedExample(
        aspect=aspect.name,
        group=group.id,
        source=group.source,
        context=group.context,
        candidate=candidate.text,
        rating=_rating(candidate, aspect),
        ratings=tuple(ratings) if len(ratings) > 1 else (),
    )
