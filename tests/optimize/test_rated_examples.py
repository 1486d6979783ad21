"""Which rated candidates become examples: they span the scale, of few sources, and never those that are left out."""

from __future__ import annotations

from typing import Any

from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.optimize.settings import ExamplesOption, Settings
from debate_judge.optimize.tuners.rated_examples import (
    choose_examples,
    choose_pairs,
    rated_candidates,
    with_rated_examples,
)
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.roles.examples import examples_of

TONE = Aspect("tone", "Is it kind?", Scale(1, 5))
HELP = Aspect("help", "Does it help?", Scale(1, 5))
TASK = Task("support", "message", "reply", (TONE, HELP))


def corpus(*groups: tuple[float, ...]) -> Corpus:
    """Groups `1`, `2`, … whose candidates have these ratings; `help` is rated the other way round."""
    made = [
        RatedGroup(
            str(number),
            f"Source {number}.",
            tuple(
                Candidate(f"c{i}", f"Text {number}.{i}.", {"tone": (rating,), "help": (rating - 1, 7 - rating)})
                for i, rating in enumerate(ratings)
            ),
            f"Context {number}.",
        )
        for number, ratings in enumerate(groups, 1)
    ]
    return Corpus(TASK, tuple(made), Origin("made", "up"))


WIDE = corpus((3, 3, 3, 3, 3), (1, 2, 2.1, 3, 4.9, 5), (2, 3, 4, 4.1, 4.2))


def test_examples_of_a_source_span_its_ratings_and_stand_together() -> None:
    found = choose_examples(WIDE, TONE, 6, seed=0)
    # Four of the source that spans the scale, and the rest of the one that spans most of what is left.
    chosen = [(e.group, e.rating) for e in found]
    assert chosen == [("2", 5), ("2", 3), ("2", 2.1), ("2", 1), ("3", 4.2), ("3", 2)]
    assert (found[0].source, found[0].context, found[0].candidate) == ("Source 2.", "Context 2.", "Text 2.5.")


def test_sources_with_one_candidate_each_are_chosen_to_span_the_scale() -> None:
    singles = corpus(*((rating,) for rating in (3, 3, 3, 1, 3, 3, 5, 3, 2, 4, 3)))
    assert [e.rating for e in choose_examples(singles, TONE, 5, seed=1)] == [5, 4, 3, 2, 1]
    assert len({e.group for e in choose_examples(singles, TONE, 5, seed=1)}) == 5
    assert [e.rating for e in choose_examples(singles, TONE, 1, seed=1)] == [5]


def test_the_nearest_are_chosen_from_all_that_is_rated() -> None:
    judge = with_rated_examples(Debate(), WIDE, (TONE,), ExamplesOption(3, nearest=True), seed=0)
    assert judge.nearest_examples == 3
    assert examples_of(judge) == tuple(rated_candidates(WIDE, TONE))
    assert len(examples_of(judge)) == 16


def scores(**given: tuple[float, ...]) -> dict[tuple[str, str, str], float]:
    """`tone` of the candidates of groups `g1`, `g2`, …"""
    return {("tone", group[1:], f"c{i}"): score for group, own in given.items() for i, score in enumerate(own)}


def pairs(made: Corpus, count: int, given: dict[tuple[str, str, str], float], **other: Any) -> list[tuple[str, ...]]:
    found = choose_pairs(made, TONE, count, given, seed=0, **other)
    texts = [e.candidate[5:-1] for e in found]
    return sorted(zip(texts[::2], texts[1::2], strict=True))


def test_pairs_are_first_those_that_the_judge_orders_the_other_way_round() -> None:
    made = corpus((1, 5), (2, 3), (1, 4))
    # It orders 1 as the raters do, gives both of 2 the same, and orders 3 the other way round.
    given = scores(g1=(1, 5), g2=(3, 3), g3=(5, 2))
    assert pairs(made, 1, given) == [("3.1", "3.0")]
    assert pairs(made, 2, given) == [("2.1", "2.0"), ("3.1", "3.0")]
    assert pairs(made, 9, given) == [("1.1", "1.0"), ("2.1", "2.0"), ("3.1", "3.0")]


def test_texts_that_the_raters_do_not_tell_apart_are_no_pair_and_unscored_ones_are_ordered_rightly() -> None:
    made = corpus((3, 3), (1, 5), (2, 4))
    assert pairs(made, 9, scores(g1=(1, 5))) == [("2.1", "2.0"), ("3.1", "3.0")]
    assert pairs(made, 1, scores(g3=(4, 4))) == [("3.1", "3.0")]
    judge = with_rated_examples(
        Debate(), made, (TONE,), ExamplesOption(1, pairs=True), seed=0, scores=scores(g2=(5, 1))
    )
    assert [e.rating for e in examples_of(judge)] == [5, 1]


def test_the_examples_option_is_parsed() -> None:
    assert Settings().examples_option is None
    assert Settings(examples="8").examples_option == ExamplesOption(8, nearest=False)
    assert Settings(examples="nearest:4").examples_option == ExamplesOption(4, nearest=True)
    assert Settings(examples="pairs:4").examples_option == ExamplesOption(4, pairs=True)
    assert Settings(examples="8").identity() != Settings().identity()
