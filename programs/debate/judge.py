"""DEBATE: Scorer, Critic and Tie-breaker composed into one program (DEBATE, section 2, Algorithm 1).

Presets, not subclasses: no rounds make it the single scorer, a plain persona the MultiAgent of the paper, a
devil's advocate DEBATE; each with or without Tie-breaker. No prompt depends on the number of rounds n, so
one debate of n_max rounds holds the debate of every smaller n as its prefix, at no further LM call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from debate_judge.programs.debate.briefing import Asked, Briefing, asked, briefing
from debate_judge.programs.debate.critic import Critic
from debate_judge.programs.debate.personas import PERSONAS, STRICT, Persona
from debate_judge.programs.debate.scorer import Scorer
from debate_judge.programs.debate.tie_breaker import TieBreaker
from debate_judge.programs.judge import DebateConfig, Item, Judge, StopReason, Verdict
from debate_judge.programs.lm.usage import ROUND
from debate_judge.programs.roles.examples import shown
from debate_judge.programs.roles.score_modes import Mode
from debate_judge.programs.transcript import EMPTY, Transcript


class Debate(Judge):
    """A judge by debate.

    Args:
        persona: The Critic's persona, which becomes its instructions.
        debate_config: Rounds and Tie-breaker, used by `judge`; `converse` takes its own number of rounds.
        score_mode: How the Scorer's replies become scores: `text`, `sampled:k` or `expected`
            (`programs.roles.score_modes`). The Tie-breaker's is always the number that it writes.
        granularity: How finely the prompts ask for scores: `free` (any number), `half` or `whole` points of the
            scale. Score mode `expected` always asks for whole ones, whose tokens have a probability each.
        nearest_examples: Of the rated examples among the Scorer's demonstrations, how many an item is shown.

    Raises:
        InputError: The score mode or the granularity is unknown.
    """

    kind = "debate"
    shows_examples = True
    settable = ("score_mode", "granularity")

    def __init__(
        self,
        persona: Persona = STRICT,
        debate_config: DebateConfig | None = None,
        score_mode: str = "text",
        granularity: str = "free",
        nearest_examples: int = 0,
    ) -> None:
        super().__init__(debate_config or DebateConfig(rounds=3))
        self.scorer = Scorer(Mode.of(score_mode))
        self.critic = Critic(persona)
        self.tie_breaker = TieBreaker()
        self.persona = persona
        self.nearest_examples = nearest_examples
        self.granularity: Asked = "whole" if self.scorer.mode.name == "expected" else asked(granularity)

    async def converse(self, item: Item, rounds: int) -> Transcript:
        """Hold the debate for at most `rounds` rounds. A failed turn ends it and is recorded, never raised."""
        ROUND.set(0)
        told = await self._briefed(item)
        transcript = EMPTY.add(await self.scorer.speak(item, EMPTY, told.opening()))
        for number in range(1, rounds + 1):
            if transcript.failure is not None or transcript.settled:
                break
            ROUND.set(number)
            transcript = transcript.add(await self.critic.speak(item, transcript, told))
            if transcript.failure is None and not transcript.settled:
                transcript = transcript.add(await self.scorer.speak(item, transcript, told.revision()))
        return transcript

    async def break_tie(self, item: Item, transcript: Transcript) -> Transcript:
        """Let the Tie-breaker decide a debate that is still open; any other comes back as it is."""
        if transcript.failure is not None or not is_open(transcript):
            return transcript
        ROUND.set(transcript.rounds)
        return transcript.add(await self.tie_breaker.speak(item, transcript, await self._briefed(item)))

    async def smoke_test(self, item: Item) -> Transcript:
        transcript = await super().smoke_test(item)
        if not (self.debate_config.tie_breaker and self.debate_config.rounds) or transcript.failure is not None:
            return transcript
        # Whether the debate is open or not: a Tie-breaker that cannot be played would show up late.
        return transcript.add(await self.tie_breaker.speak(item, transcript, await self._briefed(item)))

    def brief(self, item: Item) -> Briefing:
        """What the roles are told about an item besides the texts."""
        scorer = self.scorer.predict
        told = briefing(item.aspect, self.granularity, scorer.signature, self.critic.predict.signature)
        return replace(told, examples=shown(scorer.demos, item, self.nearest_examples)) if scorer.demos else told

    async def _briefed(self, item: Item) -> Briefing:
        # In a thread: to fit the retrieval of the nearest, or to import it first, would hold up every other debate.
        return await asyncio.to_thread(self.brief, item) if self.nearest_examples else self.brief(item)

    def read_verdict(self, transcript: Transcript, rounds: int) -> Verdict:
        last, score = transcript.turns[-1], transcript.score
        if last.role == "tie-breaker" and last.score is not None:
            return Verdict(last.score, transcript.rounds, "tie-breaker", transcript.calls, transcript)
        if score is None:
            raise ValueError("a debate without a Scorer turn and without a failure cannot exist")
        reason: StopReason = "single call" if rounds == 0 else "no issue" if transcript.settled else "rounds over"
        return Verdict(score, transcript.rounds, reason, transcript.calls, transcript)

    def variants(self, personas: Mapping[str, str]) -> dict[str, Judge]:
        if self.debate_config.rounds == 0:
            return {self.persona.name: self}
        ways = str(self.scorer.mode), self.granularity
        return {name: type(self)(Persona(name, text), self.debate_config, *ways) for name, text in personas.items()}

    def seeds(self, personas: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        return {"critic.predict": tuple(personas.values())}

    def tunable(self) -> tuple[str, ...]:
        # The Tie-breaker is heard only after the search has chosen n, too late for a tuner to learn from it.
        return ("scorer.predict",) if self.debate_config.rounds == 0 else ("scorer.predict", "critic.predict")

    def config(self) -> dict[str, Any]:
        text = self.critic.predict.signature.instructions
        return {
            "persona": self.persona.name if text == self.persona.text else "tuned",
            "persona_text": text,
            "rounds": self.debate_config.rounds,
            "tie_breaker": self.debate_config.tie_breaker,
            "score_mode": str(self.scorer.mode),
            "granularity": self.granularity,
            "nearest_examples": self.nearest_examples,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Debate:
        """Rebuild a debate. A persona without a text is one of the built-in five."""
        name = str(config["persona"])
        persona = Persona(name, str(config["persona_text"])) if "persona_text" in config else PERSONAS[name]
        debate_config = DebateConfig(int(config["rounds"]), bool(config["tie_breaker"]))
        ways = str(config.get("score_mode", "text")), str(config.get("granularity", "free"))
        return cls(persona, debate_config, *ways, int(config.get("nearest_examples", 0)))


def is_open(transcript: Transcript) -> bool:
    """Whether Critic and Scorer still disagree, so that a Tie-breaker has something to decide."""
    return transcript.rounds > 0 and not transcript.settled
