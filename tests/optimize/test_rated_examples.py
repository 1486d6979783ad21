"""Which rated candidates become examples: they span the scale, of few sources, and never those that are left out."""

from __future__ import annotations

import pytest

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.optimize.settings import Settings, WantedExamples
from debate_judge.optimize.tuners.rated_examples import (
    PER_SOURCE,
    choose_examples,
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


def test_each_aspect_has_its_own_ratings_with_the_single_ones_where_there_are_several() -> None:
    tone, helped = (choose_examples(WIDE, aspect, 4, seed=0) for aspect in (TONE, HELP))
    assert {e.ratings for e in tone} == {()}
    assert {(e.aspect, e.rating) for e in helped} == {("help", 3.0)}
    assert all(sum(e.ratings) / 2 == 3.0 for e in helped)


def test_sources_with_one_candidate_each_are_chosen_to_span_the_scale() -> None:
    singles = corpus(*((rating,) for rating in (3, 3, 3, 1, 3, 3, 5, 3, 2, 4, 3)))
    assert [e.rating for e in choose_examples(singles, TONE, 5, seed=1)] == [5, 4, 3, 2, 1]
    assert len({e.group for e in choose_examples(singles, TONE, 5, seed=1)}) == 5
    assert [e.rating for e in choose_examples(singles, TONE, 1, seed=1)] == [5]


def test_groups_that_are_left_out_are_not_shown() -> None:
    for seed in range(5):
        groups = {e.group for e in choose_examples(WIDE, TONE, 20, seed=seed, without=frozenset({"2"}))}
        assert groups == {"1", "3"}
    assert {e.group for e in rated_candidates(WIDE, TONE, without=frozenset({"1", "3"}))} == {"2"}


def test_the_choice_is_the_seeds_and_no_more_than_there_is() -> None:
    equals = corpus(*((1, 5) for _ in range(10)))
    chosen = [tuple(e.group for e in choose_examples(equals, TONE, 4, seed=seed)) for seed in range(8)]
    assert chosen == [tuple(e.group for e in choose_examples(equals, TONE, 4, seed=seed)) for seed in range(8)]
    assert len(set(chosen)) > 1
    assert len(choose_examples(equals, TONE, 100, seed=0)) == 20
    assert max(chosen[0].count(group) for group in chosen[0]) <= PER_SOURCE


def test_a_judge_of_several_aspects_gets_examples_of_each() -> None:
    judge = with_rated_examples(Debate(), WIDE, (TONE, HELP), WantedExamples(3, nearest=False), seed=0)
    assert [e.aspect for e in examples_of(judge)] == ["tone"] * 3 + ["help"] * 3
    assert judge.nearest_examples == 0


def test_the_nearest_are_chosen_from_all_that_is_rated() -> None:
    judge = with_rated_examples(
        Debate(), WIDE, (TONE,), WantedExamples(3, nearest=True), seed=0, without=frozenset("1")
    )
    assert judge.nearest_examples == 3
    assert examples_of(judge) == tuple(rated_candidates(WIDE, TONE, without=frozenset("1")))
    assert len(examples_of(judge)) == 11


def test_wanted_examples_are_read_from_the_flag() -> None:
    assert Settings().wanted_examples is None
    assert Settings(examples="8").wanted_examples == WantedExamples(8, nearest=False)
    assert Settings(examples="nearest:4").wanted_examples == WantedExamples(4, nearest=True)
    assert Settings(examples="8").identity() != Settings().identity()


@pytest.mark.parametrize("text", ["0", "-1", "nearest", "nearest:0", "near:3", ":3", "3.5", "many"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="N or nearest:N") as error:
        Settings(examples=text)
    assert error.value.field == "--examples"
