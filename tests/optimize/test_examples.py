"""From rated groups to examples: what a tuner learns from, its metric, and which rated texts a judge is shown."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from debate_judge.data.agreement.decisions import AbsoluteScale, Objective
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.optimize.tuners.rated import MIN_BATCH_ITEMS, examples, group_metric
from debate_judge.optimize.tuning import (
    choose_examples,
    examples_knowledge,
    rated_candidates,
)  # fmt: skip
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.examples import examples_of

TONE, HELP = Aspect("tone", "Is it kind?", Scale(1, 5)), Aspect("help", "Does it help?", Scale(1, 5))
Ratings = Sequence[float | None]


def corpus(*tones: Ratings, helps: Sequence[Ratings] = ()) -> Corpus:
    """Groups `1`, `2`, … whose candidates `c0`, `c1`, … have these ratings for tone, and for help if there are any."""

    def group(number: int, ratings: Ratings) -> RatedGroup:
        others = helps[number - 1] if helps else [None] * len(ratings)
        rated = [{"tone": tone, "help": helpful} for tone, helpful in zip(ratings, others, strict=True)]
        candidates = [
            Candidate(f"c{i}", f"Text {number}.{i}.", {name: (value,) for name, value in values.items() if value})
            for i, values in enumerate(rated)
        ]
        return RatedGroup(str(number), f"Source {number}.", tuple(candidates), f"Context {number}.")

    groups = tuple(group(number, ratings) for number, ratings in enumerate(tones, 1))
    return Corpus(Task("support", "message", "reply", (TONE, HELP)), groups, Origin("made", "up"))


# --- what is learnt from ---


def test_an_example_is_a_group_whose_ratings_of_an_aspect_rank_something() -> None:
    rated = corpus((1, 2, 3), (5, 4, None), (2, None, 2), helps=((4, 4, 4), (1, None, 2), (None, None, 3)))
    ranked = examples(rated, [TONE, HELP], grouped=True, seed=0)
    assert [(e.questions[0].group, e.questions[0].aspect.name, e.ratings) for e in ranked] == [
        ("1", "tone", [1, 2, 3]), ("2", "tone", [5, 4, None]), ("2", "help", [1, None, 2])
    ]  # fmt: skip
    assert [(q.candidate, q.text) for q in ranked[1].questions] == [(f"c{i}", f"Text 2.{i}.") for i in range(3)]


def test_without_groups_an_example_is_a_batch_of_rated_items_of_several_sources() -> None:
    singles = corpus(*((1 + i % 5,) for i in range(2 * MIN_BATCH_ITEMS + 3)), (None,))
    batched = examples(singles, [TONE], grouped=False, seed=0)
    assert [len(example.questions) for example in batched] == [MIN_BATCH_ITEMS, MIN_BATCH_ITEMS, 3]
    pairs = [(int(q.group), r) for example in batched for q, r in zip(example.questions, example.ratings, strict=True)]
    # Every rated item once, with its own rating, in an order of its own.
    assert sorted(pairs) == [(i + 1, 1 + i % 5) for i in range(2 * MIN_BATCH_ITEMS + 3)]
    assert pairs != sorted(pairs)
    several = corpus(*([1 + (i + j) % 5 for j in range(7)] for i in range(9)))
    batches = [[q.group for q in example.questions] for example in examples(several, [TONE], grouped=False, seed=0)]
    assert [(len(batch), len(set(batch))) for batch in batches] == [(28, 4), (28, 4), (7, 1)]
    assert sorted(group for batch in batches for group in set(batch)) == [str(i) for i in range(1, 10)]


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([2, 3, 4], 1.0),
        ([4, 3, 2], 0.0),
        # Ranks 1 2 3 against 1 3 2: rho = 1 - 6 * 2 / 24 = 0.5.
        ([1, 3, 2], 0.75),
        # Who does not rank is worth as much as who ranks at random.
        ([3, 3, 3], 0.5),
        ([2, None, 3], 1.0),
        ([None, 4, None], 0.5),
        ([None, None, None], 0.0),
    ],
)
def test_the_metric_of_a_group_is_its_correlation(scores: Ratings, expected: float) -> None:
    value = group_metric([1, 2, 3], scores, "spearman")
    assert (type(value), value) == (float, pytest.approx(expected))


# Errors 1, 0, 2 of a scale of 4; two of three decisions; covariance 1/3, variances 2/3, means 3 and 2.
@pytest.mark.parametrize(
    ("objective", "expected"), [("mae", 1 - 3 / 3 / 4), ("kappa", 2 / 3), ("ccc", (2 / 3 / (4 / 3 + 1) + 1) / 2)]
)
def test_the_metric_of_a_group_may_be_absolute(objective: Objective, expected: float) -> None:
    scale = AbsoluteScale(4.0, 4.0)
    assert group_metric([2, 3, 4, None], [1, 3, 2, 5], objective, scale) == pytest.approx(expected)
    assert group_metric([2, 3], [None, None], objective, scale) == 0


# --- what is shown ---


def test_examples_of_a_source_span_its_ratings_and_stand_together() -> None:
    wide = corpus((3, 3, 3, 3, 3), (1, 2, 2.1, 3, 4.9, 5), (2, 3, 4, 4.1, 4.2))
    shown = choose_examples(wide, TONE, 6, seed=0)
    # Four of the source that spans the scale, and the rest of the one that spans most of what is left.
    chosen = [(e.group, e.rating) for e in shown]
    assert chosen == [("2", 5), ("2", 3), ("2", 2.1), ("2", 1), ("3", 4.2), ("3", 2)]
    assert (shown[0].source, shown[0].context, shown[0].candidate) == ("Source 2.", "Context 2.", "Text 2.5.")
    judge = examples_knowledge(Debate(), wide, TONE, 3, 0)[1].apply(Debate())
    assert judge.precedents == 3
    assert examples_of(judge) == tuple(example for group in rated_candidates(wide, TONE) for example in group)
    assert len(examples_of(judge)) == 16
