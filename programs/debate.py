"""DEBATE: Scorer, Critic and Tie-breaker composed into one program (DEBATE, section 2, Algorithm 1).

Presets, not subclasses: no rounds make it the single scorer, a plain persona the MultiAgent of the paper, a
devil's advocate DEBATE; each with or without Tie-breaker. No prompt depends on the number of rounds n, so
one debate of n_max rounds holds the debate of every smaller n as its prefix, at no further LM call.
"""

from __future__ import annotations

from dataclasses import dataclass

import dspy

from programs.critic import Critic
from programs.judge import Item, Judgement, Unscored, Verdict
from programs.personas import STRICT, Persona
from programs.role import ADAPTER, NoAnswer
from programs.scorer import Scorer
from programs.tiebreaker import TieBreaker
from programs.transcript import Failure, Role, Transcript, Turn


@dataclass(frozen=True, slots=True)
class Rules:
    """How long a debate goes on and who settles it."""

    rounds: int = 3
    """n, the maximum number of Critic replies; 0 is a single call of the Scorer."""
    tie_breaker: bool = False


class Debate(dspy.Module):
    """A judge by debate.

    Args:
        persona: The Critic's persona, which becomes its instructions.
        rules: Rounds and Tie-breaker, used by `judge`; `converse` takes its own number of rounds.
    """

    def __init__(self, persona: Persona = STRICT, rules: Rules | None = None) -> None:
        super().__init__()
        self.scorer = Scorer()
        self.critic = Critic(persona)
        self.tie_breaker = TieBreaker()
        self.rules = rules or Rules()

    async def converse(self, item: Item, rounds: int) -> Transcript:
        """Hold the debate for at most `rounds` rounds. A failed turn ends it and is recorded, never raised."""
        with dspy.context(adapter=ADAPTER):
            transcript = _extend(Transcript(), "scorer", 0, await self.scorer.speak(item, Transcript()))
            for number in range(1, rounds + 1):
                if transcript.failure is not None or transcript.settled:
                    break
                transcript = _extend(transcript, "critic", number, await self.critic.speak(item, transcript))
                if transcript.failure is None and not transcript.settled:
                    transcript = _extend(transcript, "scorer", number, await self.scorer.speak(item, transcript))
        return transcript

    async def settle(self, item: Item, transcript: Transcript) -> Transcript:
        """Let the Tie-breaker decide a debate that is still open; any other comes back as it is."""
        if transcript.failure is not None or not is_open(transcript):
            return transcript
        with dspy.context(adapter=ADAPTER):
            return _extend(transcript, "tie-breaker", transcript.rounds, await self.tie_breaker.speak(item, transcript))

    async def judge(self, item: Item) -> Judgement:
        """Judge one item by this debate's own rules."""
        transcript = await self.converse(item, self.rules.rounds)
        if self.rules.tie_breaker:
            transcript = await self.settle(item, transcript)
        return verdict(transcript, self.rules.rounds)

    async def aforward(self, item: Item) -> dspy.Prediction:
        return dspy.Prediction(judgement=await self.judge(item))


def is_open(transcript: Transcript) -> bool:
    """Whether Critic and Scorer still disagree, so that a Tie-breaker has something to decide."""
    return transcript.rounds > 0 and not transcript.settled


def verdict(transcript: Transcript, rounds: int) -> Judgement:
    """Read the judgement off a debate that was stopped after `rounds` rounds (and perhaps settled)."""
    if transcript.failure is not None:
        failure = transcript.failure
        detail = f"{failure.role}, round {failure.round}: {failure.detail}"
        return Unscored(failure.reason, detail, transcript.calls, transcript)
    last = transcript.turns[-1]
    if last.role == "tie-breaker" and last.score is not None:
        return Verdict(last.score, transcript.rounds, "tie-breaker", transcript.calls, transcript)
    score = transcript.score
    if score is None:
        raise ValueError("a debate without a Scorer turn and without a failure cannot exist")
    reason = "single call" if rounds == 0 else "no issue" if transcript.settled else "rounds over"
    return Verdict(score, transcript.rounds, reason, transcript.calls, transcript)


def _extend(transcript: Transcript, role: Role, number: int, spoken: Turn | NoAnswer) -> Transcript:
    if isinstance(spoken, NoAnswer):
        return transcript.fail(Failure(role, number, spoken.reason, spoken.detail, spoken.calls))
    return transcript.add(spoken)
