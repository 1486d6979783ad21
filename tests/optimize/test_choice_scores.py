"""Scores of judges at the points of a search: no debate is held twice, and scores are as the judge gives them."""

from __future__ import annotations

import zlib
from dataclasses import replace

from debate_judge.data.schema import Aspect, Candidate, Corpus, Granularity, Origin, RatedGroup, Scale, Task
from debate_judge.optimize.search import ChoicePart, ChoiceScores, CrossFittedJudge, JudgeVariant, Point, SearchSpace
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.prompts import ADVOCATE, PLAIN
from debate_judge.programs.judge import DebateConfig, Judge, Verdict, corpus_items
from debate_judge.runs.runner import JudgeRunner
from tests.fakes import debater, scripted_lm, section

ASPECTS = tuple(Aspect(name, f"How {name} is it?", Scale(1, 5)) for name in ("clear", "sound"))
TASK = Task("t", "article", "summary", ASPECTS)
CORPUS = Corpus(
    TASK,
    tuple(
        RatedGroup(
            f"g{i}",
            f"Source {i}.",
            tuple(
                Candidate(f"c{j}", f"Text {j} about {i}.", {a.name: (float(1 + (i + j) % 5),) for a in ASPECTS})
                for j in range(4)
            ),
        )
        for i in range(3)
    ),
    Origin("test", "nowhere"),
)


def pseudorandom(prompt: str, sides: int) -> int:
    return zlib.crc32(prompt.encode()) % sides


NOISY = debater(
    score=lambda prompt: str(1 + pseudorandom(prompt, 9) / 2),
    feedback=lambda prompt: (
        "NO ISSUE"
        if pseudorandom(prompt, 3) == 0
        else f"Consider {pseudorandom(prompt, 100)}, {section(prompt, 'role')[:20]}"
    ),
    final_score=lambda prompt: str(1 + pseudorandom(prompt, 5)),
)


def variants() -> dict[str, Judge]:
    return {"strict": Debate(ADVOCATE, DebateConfig(3)), "plain": Debate(PLAIN, DebateConfig(3))}


PARTS: dict[ChoicePart, Corpus] = {
    "dev": replace(CORPUS, groups=CORPUS.groups[:2]),
    "train": replace(CORPUS, groups=CORPUS.groups[2:]),
}


def scores_of(runner: JudgeRunner, aspect: Aspect, fixed: Granularity | None = None) -> ChoiceScores:
    judges = {JudgeVariant("none", name): CrossFittedJudge(judge) for name, judge in variants().items()}
    return ChoiceScores(judges, PARTS, aspect, runner, label="test", fixed_granularity=fixed)


def test_scores_of_a_point_are_those_of_its_judge_and_no_longer_debate_is_asked_again() -> None:
    space, lm = SearchSpace(("none",), ("strict", "plain"), (0, 1, 2), (False, True)), scripted_lm(NOISY)
    with JudgeRunner(lm, progress=False) as runner, JudgeRunner(scripted_lm(NOISY), progress=False) as fresh:
        scores = scores_of(runner, ASPECTS[0])
        for point in space.points():
            groups, calls = scores.scores(point)
            judge = variants()[point.persona].with_debate(rounds=point.rounds, tie_breaker=point.tie_breaker)
            judgements = fresh.judge(judge, corpus_items(CORPUS, ASPECTS[0]))
            assert calls == sum(j.calls for j in judgements) / len(judgements)
            scale = ASPECTS[0].scale
            expected = [scale.rounded(j.score, point.granularity) for j in judgements if isinstance(j, Verdict)]
            assert [s for g in groups for s in g.scores] == expected
    # Each call once, however many points are derived from it.
    assert lm.meter.requested.total() < 1.5 * len(lm.prompts)


def test_a_fixed_granularity_overrides_that_of_the_point() -> None:
    whole, given = (Point("none", "strict", 0, False, granularity) for granularity in ("whole", "given"))
    with JudgeRunner(scripted_lm(NOISY), progress=False) as runner:
        fixed, free = scores_of(runner, ASPECTS[1], "given"), scores_of(runner, ASPECTS[0])
        assert fixed.scores(whole)[0] == fixed.scores(given)[0]
        assert free.scores(whole)[0] != free.scores(given)[0]


def test_groups_that_were_scored_are_not_scored_again_with_the_others() -> None:
    lm, point = scripted_lm(NOISY), Point("none", "strict", 2, True, "given")
    with JudgeRunner(lm, progress=False) as runner:
        scores = scores_of(runner, ASPECTS[0])
        some, _ = scores.scores(point, group_ids=["g1"])
        assert {section(prompt, "source") for prompt in lm.prompts} == {"Source 1."}
        # Nothing is known for all groups, so that nothing may be read off without asking.
        assert scores.agreement_by_rounds("spearman", "summary", 0) == {}
        first = len(lm.prompts)
        everything, _ = scores.scores(point)
        assert {section(prompt, "source") for prompt in lm.prompts[first:]} == {"Source 0.", "Source 2."}
        by_rounds = scores.agreement_by_rounds("spearman", "summary", 0)
        assert {variant: len(values) for variant, values in by_rounds.items()} == {JudgeVariant("none", "strict"): 3}
        assert [g for g in everything if g.group == "g1"] == some
