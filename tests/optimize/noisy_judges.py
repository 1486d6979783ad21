"""Aspects whose judges are moody, and their scores at all points."""

from __future__ import annotations

import zlib
from dataclasses import replace

from debate_judge.data.schema import Aspect, Candidate, Corpus, Granularity, Origin, RatedGroup, Scale, Task
from debate_judge.optimize.search.choice_scores import ChoicePart, ChoiceScores, CrossFittedJudge
from debate_judge.optimize.search.points import JudgeVariant
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import ADVOCATE, PLAIN
from debate_judge.programs.judge import DebateConfig, Judge
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import debater, section

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
