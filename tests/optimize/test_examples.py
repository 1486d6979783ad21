"""From rated groups to examples, and the metric whose mean is the published correlation."""

from __future__ import annotations

import dspy
import pytest
from scipy.stats import spearmanr

from debate_judge.data.agreement.tables import GroupScores, agreement_table
from debate_judge.data.inference.absolute_agreement import AbsoluteScale, Objective
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.optimize.examples import MIN_BATCH_ITEMS, examples, group_metric

COHERENCE = Aspect("coherence", "Do the sentences build on each other?", Scale(1, 5))
FLUENCY = Aspect("fluency", "Is it good English?", Scale(1, 5))
TASK = Task("summarization", "article", "summary", (COHERENCE, FLUENCY))


def group(name: str, *rated: tuple[float | None, float | None]) -> RatedGroup:
    """A group whose candidates have these ratings for coherence and fluency."""

    def ratings(coherence: float | None, fluency: float | None) -> dict[str, tuple[float, ...]]:
        given = {"coherence": coherence, "fluency": fluency}
        return {aspect: (value,) for aspect, value in given.items() if value is not None}

    return RatedGroup(
        name,
        f"Source of {name}.",
        tuple(Candidate(f"c{i}", f"Text {i} of {name}.", ratings(*pair)) for i, pair in enumerate(rated)),
    )


def corpus(*groups: RatedGroup) -> Corpus:
    return Corpus(TASK, groups, Origin("test", "nowhere"))


GROUPED = corpus(
    group("g1", (1, 4), (2, 4), (3, 4)),
    group("g2", (5, 1), (4, None), (None, 2)),
    group("g3", (2, None), (None, None), (2, 3)),
)


def names(found: list[dspy.Example]) -> list[tuple[str, str]]:
    return [(example.questions[0].group, example.questions[0].aspect.name) for example in found]


def test_an_example_is_a_group_and_an_aspect() -> None:
    found = examples(GROUPED, [COHERENCE, FLUENCY], grouped=True, seed=0)
    # Groups whose raters say the same of every candidate, or of one only, rank nothing: g1 and g3 in fluency, g3
    # in coherence.
    assert names(found) == [("g1", "coherence"), ("g2", "coherence"), ("g2", "fluency")]
    assert [example.ratings for example in found] == [[1, 2, 3], [5, 4, None], [1, None, 2]]
    assert [q.candidate for q in found[1].questions] == ["c0", "c1", "c2"]
    assert {q.text for q in found[1].questions} == {"Text 0 of g2.", "Text 1 of g2.", "Text 2 of g2."}


SINGLES = corpus(
    *(group(f"g{i}", (1 + i % 5, None)) for i in range(2 * MIN_BATCH_ITEMS + 3)), group("unrated", (None, 3))
)


def test_without_groups_an_example_is_a_batch_of_rated_items() -> None:
    found = examples(SINGLES, [COHERENCE], grouped=False, seed=0)
    assert [len(example.questions) for example in found] == [MIN_BATCH_ITEMS, MIN_BATCH_ITEMS, 3]
    pairs = [(q.group, r) for example in found for q, r in zip(example.questions, example.ratings, strict=True)]
    # Every rated item once, with its own rating, in an order of its own.
    assert sorted(pairs) == sorted((f"g{i}", 1 + i % 5) for i in range(2 * MIN_BATCH_ITEMS + 3))
    assert pairs != sorted(pairs)


def test_a_source_is_in_one_batch_only_and_a_batch_has_several_sources() -> None:
    several = corpus(*(group(f"g{i}", *((1 + (i + j) % 5, None) for j in range(7))) for i in range(9)))
    found = examples(several, [COHERENCE], grouped=False, seed=0)
    assert [len(example.questions) for example in found] == [28, 28, 7]
    for example in found[:-1]:
        assert len({question.group for question in example.questions}) == 4
    batches = [question for example in found for question in {q.group for q in example.questions}]
    assert sorted(batches) == [f"g{i}" for i in range(9)]


@pytest.mark.parametrize(
    ("ratings", "scores", "expected"),
    [
        ([1, 2, 3], [2, 3, 4], 1.0),
        ([1, 2, 3], [4, 3, 2], 0.0),
        # Ranks 1 2 3 against 1 3 2: rho = 1 - 6 * 2 / 24 = 0.5.
        ([1, 2, 3], [1, 3, 2], 0.75),
        # Who does not rank is worth as much as who ranks at random.
        ([1, 2, 3], [3, 3, 3], 0.5),
        ([1, 2, 3], [2, None, 3], 1.0),
        ([1, None, 3], [2, 5, 3], 1.0),
        ([1, 2, 3], [None, 4, None], 0.5),
        ([1, 2, 3], [None, None, None], 0.0),
    ],
)
def test_the_metric_of_a_group(ratings: list[float | None], scores: list[float | None], expected: float) -> None:
    value = group_metric(ratings, scores, "spearman")
    assert type(value) is float
    assert value == pytest.approx(expected)


# Errors 1, 0, 2 of a scale of 4; two of three decisions; covariance 1/3, variances 2/3, means 3 and 2.
@pytest.mark.parametrize(
    ("objective", "expected"), [("mae", 1 - 3 / 3 / 4), ("kappa", 2 / 3), ("ccc", (2 / 3 / (4 / 3 + 1) + 1) / 2)]
)
def test_the_metric_of_a_group_may_be_absolute(objective: Objective, expected: float) -> None:
    value = group_metric([2, 3, 4, None], [1, 3, 2, 5], objective, AbsoluteScale(4.0, 4.0))
    assert value == pytest.approx(expected)
    assert group_metric([2, 3], [None, None], objective, AbsoluteScale(4.0, 4.0)) == 0


def test_the_mean_of_the_metric_is_the_summary_level_correlation() -> None:
    ratings = [[1.0, 2, 3, 4], [2.0, 1, 4, 3], [5.0, 1, 3, 3]]
    scores = [[2.0, 1, 3, 3], [1.0, 2, 3, 4], [4.0, 2, 2, 5]]
    mean = sum(group_metric(r, s, "spearman") for r, s in zip(ratings, scores, strict=True)) / 3
    by_scipy = [spearmanr(r, s).statistic for r, s in zip(ratings, scores, strict=True)]
    assert 2 * mean - 1 == pytest.approx(sum(by_scipy) / 3)
    groups = [
        GroupScores(str(i), ("a", "b", "c", "d"), tuple(r), tuple(s))
        for i, (r, s) in enumerate(zip(ratings, scores, strict=True))
    ]
    table = agreement_table({"coherence": groups}, resamples=0, seed=0)
    assert 2 * mean - 1 == pytest.approx(table.aspects["coherence"]["summary"]["spearman"].value)
