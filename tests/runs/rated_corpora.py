"""Small rated corpora and scripted judges for the tests of comparisons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from debate_judge.data.agreement.figures import GroupScores, Statistic
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.runs.comparison.figures import Comparison, EvaluatedJudge
from debate_judge.runs.runner import group_ratings
from tests.fakes import debater, section

COHERENCE = Aspect("coherence", "Do the sentences build on each other?", Scale(1, 5))
FLUENCY = Aspect("fluency", "Is it good English?", Scale(1, 5))
TASK = Task("summarization", "article", "summary", (COHERENCE, FLUENCY))


def corpus(*groups: Sequence[int], name: str = "test") -> Corpus:
    """Groups of candidates whose texts and ratings are these numbers; fluency is rated the other way round."""
    return Corpus(
        TASK,
        tuple(
            RatedGroup(
                f"g{i}",
                f"Source number {i}.",
                tuple(
                    Candidate(f"c{j}", f"{value} {'x' * j}", {"coherence": (value,), "fluency": (6 - value,)})
                    for j, value in enumerate(ratings)
                ),
            )
            for i, ratings in enumerate(groups)
        ),
        Origin(name, "nowhere"),
    )


def setup(*groups: Sequence[int], aspects: Sequence[Aspect] = (COHERENCE,)) -> Comparison:
    """The same to compare on, at summary level, by Spearman and tau-b."""
    statistics: tuple[Statistic, ...] = ("spearman", "kendall")
    return Comparison(corpus=corpus(*groups), aspects=tuple(aspects), level="summary", statistics=statistics)


def evaluated_judge(on: Comparison, **scores: Callable[[float, int], float | None]) -> EvaluatedJudge:
    """Scores as functions of the rating and the number of the group."""
    aspects = {aspect.name: aspect for aspect in on.corpus.task.aspects}

    def scored(name: str, group: GroupScores, number: int) -> GroupScores:
        values = (None if rating is None else scores[name](rating, number) for rating in group.ratings)
        return replace(group, scores=tuple(values))

    return EvaluatedJudge(
        {
            name: [scored(name, group, i) for i, group in enumerate(group_ratings(on.corpus, aspects[name]))]
            for name in scores
        }
    )


def the_number(prompt: str) -> str:
    """What the candidate in a prompt is rated."""
    return section(prompt, "candidate").split()[0]


def arguing(rounds: int) -> Callable[[str], str]:
    """Debates in which the Scorer begins with 3 and moves to the truth in the last round that the Critic objects.

    The Critic objects `rounds` times, the Tie-breaker knows the truth.
    """

    def heard(prompt: str) -> int:
        return section(prompt, "debate").count("Critic, round")

    return debater(
        score=lambda prompt: the_number(prompt) if heard(prompt) >= rounds else "3",
        feedback=lambda prompt: "Too kind." if heard(prompt) < rounds else "NO ISSUE",
        final_score=the_number,
    )
