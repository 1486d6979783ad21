"""A corpus of texts with known ratings, and an LM that writes guides for it."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.optimize.examples import examples
from debate_judge.optimize.tuners import GuideLimits, TunerContext, guide
from debate_judge.programs import JUDGES, build
from debate_judge.programs.judge import Judge
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import ScriptedLM, debater, scripted_lm, section

ASPECT = Aspect("charm", "Whether it charms. 1 not at all, 5 very much.", Scale(1, 5))
TASK = Task("toy", "question", "answer", (ASPECT,))
SOURCES = 6
CANDIDATES = 4


def corpus(sources: int = SOURCES) -> Corpus:
    """Candidates end in their number; raters like large ones, and one rater is always a point more severe."""
    groups = tuple(
        RatedGroup(
            f"g{g}",
            f"source number {g} tells of an old lighthouse keeper and his seven cats in winter",
            tuple(
                Candidate(f"c{c}", f"text of source {g}, candidate {c}", {"charm": (float(c + 1), float(max(1, c)))})
                for c in range(CANDIDATES)
            ),
        )
        for g in range(sources)
    )
    return Corpus(TASK, groups, Origin("toy", "toy.jsonl"))


class Author:
    """Writes guides and plays all roles; scores go up with the number if the guide says `large`, else down."""

    def __init__(self, *guides: str) -> None:
        self.guides = list(guides)
        self.guide_prompts: list[str] = []
        """The prompts for guides, with rated texts."""

    def __call__(self, prompt: str) -> str:
        if "[[ ## rated ## ]]" in prompt:
            self.guide_prompts.append(prompt)
            guide = self.guides.pop(0) if len(self.guides) > 1 else self.guides[0]
            return f"[[ ## analysis ## ]]\nThey like size.\n\n[[ ## guide ## ]]\n{guide}\n\n[[ ## completed ## ]]"
        if "[[ ## drafts ## ]]" in prompt:
            return f"[[ ## guide ## ]]\n{self.guides[0]} merged\n\n[[ ## completed ## ]]"
        number = int(section(prompt, "candidate").split()[-1])
        return debater(score=str(number + 1 if "large" in prompt else CANDIDATES - number))(prompt)


def tuned(
    author: Author,
    *,
    sources: int = SOURCES,
    proposals: int = 2,
    rounds: int = 0,
    data: Corpus | None = None,
    grouped: bool = True,
    **limits: int,
) -> tuple[Judge, ScriptedLM]:
    lm = scripted_lm(author)
    data = data or corpus(sources)
    judge = build("debate", {**JUDGES["debate"].config, "rounds": rounds})
    with JudgeRunner(lm, progress=False) as runner:
        tuning = TunerContext(
            statistic="spearman",
            runner=runner,
            reflection=lm,
            guide=replace(GuideLimits(), **limits),
            proposals=proposals,
            trials=4,
            seed=0,
            label="charm",
        )
        with patch.object(guide, "MIN_PROPOSALS", 1):
            optimizer = guide.GuideOptimizer(tuning)
        found = optimizer.compile(judge, trainset=examples(data, (ASPECT,), grouped=grouped, seed=0))
    return found, lm
