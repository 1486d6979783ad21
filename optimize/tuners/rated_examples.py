"""Chooses the rated candidates of train that a judge has in its prompts, as examples or as precedents."""

from __future__ import annotations

import random
from collections.abc import Sequence

from debate_judge.data.schema import Aspect, Candidate, Corpus, RatedGroup
from debate_judge.programs.examples import RatedExample, with_examples, with_precedents
from debate_judge.programs.judge import Judge

MAX_PER_SOURCE = 4
"""Most candidates of one source. Several, because a source takes more tokens than its candidates, and ratings of the
same source show how raters use the scale."""


def show_examples(judge: Judge, corpus: Corpus, aspects: Sequence[Aspect], count: int, *, seed: int) -> Judge:
    """A copy of the judge that shows `count` rated candidates of `corpus`, the train part, in each aspect.

    Raises:
        InputError: The judge takes no examples.
    """
    return with_examples(judge, [e for aspect in aspects for e in choose_examples(corpus, aspect, count, seed=seed)])


def show_precedents(judge: Judge, corpus: Corpus, aspects: Sequence[Aspect], count: int) -> Judge:
    """A copy of the judge whose Critic is shown the `count` candidates of `corpus`, the train part, most like the one
    that is judged.

    Raises:
        InputError: The judge has no Critic.
    """
    return with_precedents(judge, [e for aspect in aspects for e in rated_candidates(corpus, aspect)], count)


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
