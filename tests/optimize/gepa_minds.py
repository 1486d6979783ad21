"""A corpus that one instruction solves, and an LM that finds it."""

from __future__ import annotations

from typing import Any

from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.optimize.examples import examples
from debate_judge.optimize.tuners import TUNERS, Effort, Tuning, as_tuned
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import STRICT
from debate_judge.programs.judge import DebateConfig, Judge
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import ScriptedLM, debater, section

ASPECT = Aspect("charm", "Whether it charms. 1 not at all, 5 very much.", Scale(1, 5))
GUIDE = "Raters have habits."
STORY = "of an old lighthouse keeper and his seven cats in winter"


def corpus(sources: int = 9) -> Corpus:
    """Candidates end in a number from 0 to 3; raters give one more."""
    groups = tuple(
        RatedGroup(
            f"g{g}",
            f"source number {g} tells {STORY}",
            tuple(Candidate(f"c{c}", f"text {g} {c}", {"charm": (float(c + 1),)}) for c in range(4)),
        )
        for g in range(sources)
    )
    return Corpus(Task("toy", "question", "answer", (ASPECT,)), groups, Origin("toy", "toy.jsonl"))


def asks_for_instructions(prompt: str) -> bool:
    return "[[ ## examples_with_feedback ## ]]" in prompt


class Mind:
    """Writes a guide and instructions, and plays all roles.

    The Scorer gives 2 to all, but where its task says `large` what the raters give. The Critic moves the score of
    candidates 0 and 3 to 1 in the first round, and of all others to 3 in the second.
    """

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.shown: list[str] = []
        """The requests for instructions."""

    def __call__(self, prompt: str) -> str:
        if asks_for_instructions(prompt):
            self.shown.append(prompt)
            text = self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]
            return f"[[ ## new_instruction ## ]]\n{text}\n\n[[ ## completed ## ]]"
        if "[[ ## rated ## ]]" in prompt:
            return f"[[ ## analysis ## ]]\nNothing.\n\n[[ ## guide ## ]]\n{GUIDE}\n\n[[ ## completed ## ]]"
        number = int(section(prompt, "candidate").split()[-1])
        spoken = section(prompt, "debate").count("Critic, round")
        if "large" in section(prompt, "standard"):
            return debater(score=str(number + 1), decision="NO ISSUE")(prompt)
        score = (2, 1 if number in (0, 3) else 2, 1 if number in (0, 3) else 3)[spoken]
        return debater(score=str(score), decision="ISSUE")(prompt)


def start(rounds: int = 2) -> Debate:
    return Debate(STRICT, DebateConfig(rounds))


def tuned(lm: ScriptedLM, judge: Judge | None = None, *, sources: int = 9, trials: int = 6, **values: Any) -> Judge:
    with JudgeRunner(lm, progress=False) as runner:
        found = TUNERS["gepa"](
            Tuning(
                judge=judge or start(),
                examples=examples(corpus(sources), [ASPECT], grouped=True, seed=0),
                statistic="spearman",
                feedback=None,
                runner=runner,
                reflection=lm,
                personas={},
                effort=Effort(1, trials),
                label="charm",
                **{"seed": 0, **values},
            )
        )
    return as_tuned(found).judge
