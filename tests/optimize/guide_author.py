"""A corpus whose raters like large numbers, and an LM that writes guides about it and obeys them."""

from __future__ import annotations

import re
from typing import Any
from unittest.mock import patch

import dspy

from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.optimize.tuners import GUIDE_WORDS, TunerContext, guide
from debate_judge.optimize.tuners.rated import examples
from debate_judge.programs import JUDGES, build
from debate_judge.programs.judge import Judge
from debate_judge.runs.runner import JudgeRunner
from tests.fakes import ScriptedLM, debater, scripted_lm, section

ASPECT = Aspect("charm", "Whether it charms. 1 not at all, 5 very much.", Scale(1, 5))
TASK = Task("toy", "question", "answer", (ASPECT,))
SOURCES = 6
CANDIDATES = 4


def corpus(sources: int = SOURCES, candidates: int = CANDIDATES) -> Corpus:
    """Candidates end in their number; raters like large ones, and one rater is always a point more severe."""

    def group(g: int) -> RatedGroup:
        numbers = range(CANDIDATES) if candidates > 1 else (g % CANDIDATES,)
        rated = [
            Candidate(f"c{c}", f"text of source {g}, candidate {c}", {"charm": (c + 1.0, max(1.0, c))}) for c in numbers
        ]
        return RatedGroup(f"g{g}", f"source number {g} tells of an old lighthouse keeper and his cats", tuple(rated))

    return Corpus(TASK, tuple(map(group, range(sources))), Origin("toy", "toy.jsonl"))


def sources_in(prompt: str) -> set[int]:
    return {int(number) for number in re.findall(r"source number (\d+)", prompt)}


class Author:
    """Writes guides and plays all roles; scores go up with the number if the guide says `large`, else down."""

    def __init__(self, *guides: str) -> None:
        self.guides = list(guides)
        self.guide_prompts: list[str] = []
        """The prompts for guides, with rated texts."""

    def __call__(self, prompt: str) -> str:
        if "[[ ## rated ## ]]" in prompt:
            self.guide_prompts.append(prompt)
            text = self.guides.pop(0) if len(self.guides) > 1 else self.guides[0]
            return f"[[ ## analysis ## ]]\nThey like size.\n\n[[ ## guide ## ]]\n{text}\n\n[[ ## completed ## ]]"
        number = int(section(prompt, "candidate").split()[-1])
        return debater(score=str(number + 1 if "large" in prompt else CANDIDATES - number))(prompt)


def tuned(
    author: Author,
    data: Corpus | None = None,
    *,
    trainset: list[dspy.Example] | None = None,
    proposals: int = 2,
    rounds: int = 0,
    words: int = GUIDE_WORDS,
) -> tuple[Judge, ScriptedLM]:
    """What the guide tuner makes of a debate on these data, and the LM."""
    lm, data = scripted_lm(author), data or corpus()
    grouped = len(data.groups[0].candidates) > 1
    with JudgeRunner(lm, progress=False) as runner:
        arguments: dict[str, Any] = {"statistic": "spearman", "runner": runner, "reflection_lm": lm, "label": "charm"}
        tuning = TunerContext(**arguments, guide_words=words, proposals=proposals, trials=4, seed=0)
        with patch.object(guide, "MIN_PROPOSALS", 1):
            optimizer = guide.GuideOptimizer(tuning)
        judge = build("debate", {**JUDGES["debate"].config, "rounds": rounds})
        trainset = trainset or examples(data, (ASPECT,), grouped=grouped, seed=0)
        return optimizer.compile(judge, trainset=trainset), lm
