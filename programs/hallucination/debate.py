"""Verification of one claim by a debate that is a Markov chain (Sun et al. 2024, section 3.3, appendix A.1).

The initial agent's opinion is the state S0. In each later state three agents speak: S1 is Trust, Skeptic, Leader and S2
is Skeptic, Trust, Leader. Which of the two comes next depends only on the judgement of the previous state's last
speaker. The chain ends, once the minimum of rounds is reached, with a state whose speakers agree, or at the maximum. S0
has one speaker and so agrees: with a minimum of 0, the initial opinion is final.

No prompt depends on the number of rounds, so a chain begins with every shorter one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import dspy

from debate_judge.data.schema import Scale
from debate_judge.programs.hallucination.claims import Claim
from debate_judge.programs.hallucination.evidence import SEARCHED, Evidence
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.usage import ROUND
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.role import Fields, NoAnswer, Role, RoleReply
from debate_judge.programs.transcript import Failure, Turn

S1 = ("trust", "skeptic", "leader")
S2 = ("skeptic", "trust", "leader")

State = tuple[str, ...]

TRANSITIONS: Mapping[str, Mapping[bool, State]] = MappingProxyType(
    {
        "true-skeptic": {True: S2, False: S1},
        "true-trust": {True: S1, False: S2},
        "always-skeptic": {True: S2, False: S2},
        "always-trust": {True: S1, False: S1},
    }
)
"""Policy -> whether the previous state found the claim factual -> the next state (equations 1 and 2; table 4)."""

Scoring = Literal["verdict", "severity", "verdict+severity"]

SCORINGS: tuple[Scoring, ...] = ("verdict", "severity", "verdict+severity")

SEVEREST = 5
_GRADES = (
    "0 no error; 1 a slip that leaves the statement as good as right, such as a misspelt name or a rounded figure; 2 "
    "a wrong or unsupported detail beside the point of the statement, such as a wrong term, or a year or number that "
    "it mentions in passing; 3 an error that misleads about something essential while the core holds, such as a gross"
    " exaggeration or a context that was twisted; 4 the core is contradicted: what it is checked against speaks of "
    "the same matter and says otherwise, as where someone else did it, or where the year or number is what the "
    "statement is about; 5 the core is invented: what it is checked against says nothing of the matter"
)
_GIVEN = (
    "The evidence is all that counts, with what a careful reader concludes from it; whether the claim is true in the "
    "world does not."
)
_SEARCHED = "The evidence was found on the web and may be beside the point or in error."
_NONE = "No evidence could be had: judge by what you know for certain."
_FACTUAL = (
    "The claim is factual if all of it is borne out, slips of severity 1 apart; it is not if any part is contradicted "
    "or finds no support."
)
"""The standard for all agents."""

OPINION = "your analysis and your view of whether the claim is factual, with the evidence that it rests on"
FACTUALITY = "True or False and nothing else"
SEVERITY = f"one whole number from 0 to 5, below 4 with True and above 0 with False, and nothing else: {_GRADES}"


class Verifying(dspy.Signature):
    """The agent stands here."""

    task: str = dspy.InputField()
    evidence: str = dspy.InputField(default="")
    claim: str = dspy.InputField()
    debate: str = dspy.InputField(default="")
    correction: str = dspy.InputField(default="")
    opinion: str = dspy.OutputField(desc=OPINION)
    factuality: str = dspy.OutputField(desc=FACTUALITY)
    severity: str = dspy.OutputField(desc=SEVERITY)


_TOGETHER = (
    " Agreement is worth as much as an objection: where you have nothing to add, say in one sentence that you agree "
    "and on what evidence. An objection counts only if it would turn the verdict or move the severity by a whole "
    "grade; name the words of claim and evidence that it rests on. Then say whether the claim is factual and how "
    "severe its error is."
)

AGENTS: Mapping[str, str] = MappingProxyType(
    {
        "initial": "You check a claim against evidence. Compare the two point by point: who, what, where, when, how "
        "many, and how they relate. Say whether the claim is factual and how severe its error is.",
        "trust": "You are the Trust agent in a debate about a claim. The opinion of the agent before you stands under "
        "debate. Believe it as far as the evidence allows: look for what in the evidence supports it, and carry "
        "those points further. Where the evidence is against it, so are you." + _TOGETHER,
        "skeptic": "You are the Skeptic agent in a debate about a claim. The opinion of the agent before you stands "
        "under debate. Put it to the test: hold each of its statements against the claim and the evidence, and look "
        "for what it overlooked, took for granted or misread. An opinion that stands the test is confirmed, and to "
        "confirm it is as good a result as to refute it." + _TOGETHER,
        "leader": "You are the Leader of a debate about a claim. The opinions of two agents stand under debate: Trust "
        "tends to believe the opinion before it, Skeptic to doubt it. Allow for both habits, weigh what is sound and "
        "what is not in either opinion against the evidence, and come to the conclusion that you hold for true."
        + _TOGETHER,
    }
)
"""Name -> instructions of the agent's own predictor, so that a tuner can rewrite each."""


@dataclass(frozen=True, slots=True)
class View:
    """An agent's opinion of a claim."""

    text: str
    factual: bool
    severity: int
    """From 0, no error, to 5, invented."""


@dataclass(frozen=True, slots=True)
class ClaimTurn(Turn):
    """A turn about a claim; its score is the claim's on the aspect's scale."""

    claim: int = 1
    """Number of the claim, from 1."""
    factual: bool = True
    severity: int = 0


def read_view(fields: Fields) -> View | replies.Unreadable:
    """Parse opinion, factuality and severity.

    Contradictions are refused: a false claim without an error, and a factual one with an error of grade 4 or 5.
    """
    factual = replies.score(fields["factuality"], Scale(0, 1))
    if isinstance(factual, replies.Unreadable) or factual not in (0, 1):
        return replies.Unreadable("the factuality must be True or False and nothing else")
    severity = replies.score(fields["severity"], Scale(0, SEVEREST))
    if isinstance(severity, replies.Unreadable) or severity != int(severity):
        return replies.Unreadable(f"the severity must be one whole number from 0 to {SEVEREST} and nothing else")
    if factual and severity >= SEVEREST - 1:
        return replies.Unreadable(f"a factual claim cannot have an error of severity {severity:g}")
    if not factual and severity == 0:
        return replies.Unreadable("a claim that is not factual has an error: its severity cannot be 0")
    return View(fields["opinion"], factual == 1, int(severity))


class ChainAgent(Role):
    """One agent; predictor name e.g. `skeptic.predict`.

    Args:
        name: A key of `AGENTS`.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, Verifying, AGENTS[name])

    async def assess(
        self, item: Item, claim: Claim, evidence: Evidence, heard: Sequence[ClaimTurn]
    ) -> RoleReply[View] | NoAnswer:
        """Judge `claim` by `evidence` and the opinions in `heard`."""
        ground = _NONE if not evidence.text else _SEARCHED if evidence.how == SEARCHED else _GIVEN
        inputs = {
            "task": f"{claim.told} {ground} {_FACTUAL}".lstrip(),
            "evidence": replies.escape(evidence.text),
            "claim": replies.escape(claim.text),
        }
        return await self.ask(item, read_view, debate="\n\n".join(map(_line, heard)), inputs=inputs)


def _line(opinion: ClaimTurn) -> str:
    # On one line, so that no text can pose as another agent's opinion.
    text = " ".join(opinion.text.split())
    return f"{opinion.role.capitalize()}, factuality {opinion.factual}, severity {opinion.severity}: {text}"


def claim_score(view: View, scale: Scale, scoring: Scoring) -> float:
    """The score of a claim on an aspect's scale: high is factual, low is hallucinated.

    - `verdict`: one of the two ends of the scale.
    - `severity`: from the high end for no error to the low end for grade 5, whatever the verdict.
    - `verdict+severity`: graded by severity, too, but factual claims on the upper half of the scale and hallucinated
      ones on the lower, so that the middle of the scale separates the verdicts.
    """
    span = scale.high - scale.low
    if scoring == "verdict":
        return scale.high if view.factual else scale.low
    if scoring == "severity":
        return scale.high - span * view.severity / SEVEREST
    if view.factual:
        return scale.high - span / 2 * view.severity / SEVEREST
    return scale.low + span / 2 * (SEVEREST - view.severity) / SEVEREST


@dataclass(frozen=True)
class Chain:
    """The rules of one verification."""

    transition: Mapping[bool, State]
    minimum: int
    """Number of rounds before which agreement does not end the chain."""
    maximum: int
    scoring: Scoring

    async def verify(
        self, item: Item, number: int, claim: Claim, evidence: Evidence, agents: Mapping[str, ChainAgent]
    ) -> tuple[tuple[ClaimTurn, ...], Failure | None]:
        """Hold the debate about claim `number`; a failure ends it."""
        said: list[ClaimTurn] = []
        state: list[ClaimTurn] = []
        names: State = ("initial",)
        for turn in range(self.maximum + 1):
            ROUND.set(turn)
            if turn:
                if turn > self.minimum and agreed(state):
                    break
                names = self.transition[state[-1].factual]
            before, state = state, []
            for name in names:
                # The Leader reads the two others of its state; each of them reads the agent that spoke just before.
                heard = state if name == "leader" else (state or before)[-1:]
                answer = await agents[name].assess(item, claim, evidence, heard)
                if isinstance(answer, NoAnswer):
                    return tuple(said), replace(answer, detail=f"claim {number}: {answer.detail}").at(name, turn)
                view = answer.value
                score = claim_score(view, item.aspect.scale, self.scoring)
                state.append(
                    ClaimTurn(name, turn, view.text, score, False, answer.calls, number, view.factual, view.severity)
                )
                said.append(state[-1])
        return tuple(said), None


def agreed(state: Sequence[ClaimTurn]) -> bool:
    """Whether all speakers of a state have the same verdict, factual or not."""
    return len({opinion.factual for opinion in state}) == 1
