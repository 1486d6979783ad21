"""DEBATE: Scorer, Critic and Tie-breaker composed into one program (DEBATE, section 2, Algorithm 1).

The paper's systems are presets and not subclasses: without rounds it is the single scorer, with a plain persona
MultiAgent, with a devil's advocate DEBATE; each with or without a Tie-breaker. No prompt depends on the number of
rounds n, so a debate of n_max rounds begins with the debate of every smaller n, which needs no further LM call.

The paper's Commander is an LM agent that passes messages on; here it is this program, because what it passes on is
decided by Algorithm 1 and an LM could only add calls and change the messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import dspy

from debate_judge.data.errors import InputError
from debate_judge.programs.debate import prompts
from debate_judge.programs.debate.feedback import Feedback, parse_briefs, parse_feedback
from debate_judge.programs.debate.personas import ADVOCATE, Persona, find_persona
from debate_judge.programs.debate.prompts import Criticism, Scoring, TieBreaking, TwoBriefs
from debate_judge.programs.debate.table import Speaker, Table
from debate_judge.programs.judge import DebateConfig, Item, Judge, StopReason, Verdict, first_success, whole_number
from debate_judge.programs.lm.loop import gather
from debate_judge.programs.roles import parsing
from debate_judge.programs.roles.parsing import Unreadable
from debate_judge.programs.roles.score_modes import ParsedScore, ScoreMode
from debate_judge.programs.transcript import Transcript


class Debate(Judge):
    """A judge by debate.

    Args:
        persona: The Critic's persona, which becomes its instructions; a name is one of `PERSONAS`.
        debate_config: Replaces `rounds` and `tie_breaker`.
        score_mode: How the Scorer's replies become scores: `text`, `sampled:k` or `expected`
            (`programs.roles.score_modes`). `expected` asks for whole points, because each needs a token of its own. The
            Tie-breaker's score is always the number that it writes.
        rounds: n, the maximum number of rounds of Critic and Scorer; 0 is a single call of the Scorer.
        tie_breaker: Whether a Tie-breaker decides debates that end without agreement.
        together: K, the maximum number of candidates of a source that share a call (`programs.debate.table`); 0 judges
            each alone.
        precedents: Number of rated texts most like the candidate that the Critic is shown
            (`programs.roles.examples.with_precedents`); 0 shows none.
    """

    kind = "debate"
    shows_examples = True
    shows_precedents = True
    settable = ("score_mode", "together")

    def __init__(
        self,
        persona: Persona | str = ADVOCATE,
        debate_config: DebateConfig | None = None,
        score_mode: str = "text",
        *,
        rounds: int = 3,
        tie_breaker: bool = False,
        together: int = 0,
        precedents: int = 0,
    ) -> None:
        super().__init__(debate_config or DebateConfig(rounds, tie_breaker))
        persona = find_persona(persona) if isinstance(persona, str) else persona
        self.scorer = dspy.Predict(Scoring)
        criticism = TwoBriefs if persona.two_briefs else Criticism
        self.critic = dspy.Predict(criticism.with_instructions(persona.text))
        self.tie_breaker = dspy.Predict(TieBreaking)
        self.mode = ScoreMode.parse(score_mode)
        self.persona = persona
        self.together, self.precedents = together, precedents
        for name in ("together", "precedents"):
            whole_number(name, getattr(self, name))
        if together > 1 and self.mode.name != "text":
            raise InputError(
                "samples and probabilities are those of a reply with one score",
                field="together",
                expected="score mode text where candidates share a call",
                found=str(self.mode),
            )

    # --- the roles' turns ---

    def _scorer(self, task: str, table_task: str) -> Speaker:
        own = self.scorer.signature.instructions
        texts = prompts.scorer_text(own, task), prompts.scorer_text(own, table_task)
        return Speaker("scorer", self.scorer, *texts, parse_score, self.mode)

    def _critic(self, round: int) -> Speaker:
        later = self.persona.later if round > 1 else ""
        text = prompts.critic_text(self.critic.signature.instructions, later)
        return Speaker("critic", self.critic, text, text, parse_criticism, sees_precedents=True)

    def _tie_breaker(self) -> Speaker:
        text = prompts.tie_breaker_text(self.tie_breaker.signature.instructions, self.scorer.signature.instructions)
        return Speaker("tie-breaker", self.tie_breaker, text, text, parse_final_score)

    async def _debate(self, items: Sequence[Item], rounds: int) -> list[Transcript]:
        """Algorithm 1: the Scorer; then up to `rounds` times the Critic, until NO ISSUE, and the Scorer again."""
        table = Table(self, items)
        await table.turn(self._scorer(prompts.OPENING, prompts.OPENING_TABLE), table.open(), 0)
        for round in range(1, rounds + 1):
            await table.turn(self._critic(round), table.open(), round)
            await table.turn(self._scorer(prompts.REVISION, prompts.REVISION_TABLE), table.open(), round)
        return table.transcripts

    async def _break_ties(self, items: Sequence[Item], transcripts: Sequence[Transcript]) -> list[Transcript]:
        table = Table(self, items, transcripts)
        disputed = [number for number in table.open() if transcripts[number].rounds]
        if disputed:
            await table.turn(self._tie_breaker(), disputed, transcripts[disputed[0]].rounds)
        return table.transcripts

    async def converse(self, items: Sequence[Item], rounds: int) -> list[Transcript]:
        if self.together > 1:
            return await self._debate(items, rounds)
        return [one for (one,) in await gather(self._debate([item], rounds) for item in items)]

    async def break_ties(self, items: Sequence[Item], transcripts: Sequence[Transcript]) -> list[Transcript]:
        if self.together > 1:
            return await self._break_ties(items, transcripts)
        pairs = zip(items, transcripts, strict=True)
        return [one for (one,) in await gather(self._break_ties([item], [t]) for item, t in pairs)]

    async def smoke_test(self, items: Sequence[Item]) -> Transcript:
        """Ask every role once, also those without an open debate, so that one that the LM cannot play is noticed."""
        transcripts = await self.converse(items, min(self.debate_config.rounds, 1))
        transcript = first_success(transcripts)
        if transcript.failure is not None or not self.debate_config.rounds or not self.debate_config.tie_breaker:
            return transcript
        table = Table(self, items[:1], [transcript])
        await table.turn(self._tie_breaker(), [0], transcript.rounds)
        return table.transcripts[0]

    # --- the judge contract ---

    def verdict(self, transcript: Transcript, rounds: int) -> Verdict:
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
        options = {"score_mode": str(self.mode), "together": self.together, "precedents": self.precedents}
        return {
            name: type(self)(find_persona(name, text), self.debate_config, **options)  # type: ignore[arg-type]
            for name, text in personas.items()
        }

    def tunable(self) -> tuple[str, ...]:
        # A Tie-breaker is asked only after the search has chosen n, too late for a tuner.
        return ("scorer",) if self.debate_config.rounds == 0 else ("scorer", "critic")

    def config(self) -> dict[str, Any]:
        text, persona = self.critic.signature.instructions, self.persona
        return {
            "persona": persona.name if text == persona.text else "tuned",
            "persona_text": text,
            "persona_later": persona.later,
            "two_briefs": persona.two_briefs,
            "rounds": self.debate_config.rounds,
            "tie_breaker": self.debate_config.tie_breaker,
            "score_mode": str(self.mode),
            "together": self.together,
            "precedents": self.precedents,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Debate:
        persona = find_persona(str(config["persona"]), config.get("persona_text"))
        if "two_briefs" in config:
            persona = replace(persona, later=str(config["persona_later"]), two_briefs=bool(config["two_briefs"]))
        options = {name: config[name] for name in ("score_mode", "together", "precedents") if name in config}
        return cls(persona, DebateConfig(config["rounds"], config["tie_breaker"]), **options)


def parse_score(fields: Mapping[str, str], item: Item) -> ParsedScore | Unreadable:
    """Parse a Scorer's reply about one candidate."""
    value = parsing.parse_score(fields["score"], item.aspect.scale, item.aspect.name)
    return value if isinstance(value, Unreadable) else ParsedScore(value, fields["rationale"])


def parse_criticism(fields: Mapping[str, str], item: Item) -> Feedback | Unreadable:
    """Parse a Critic's reply about one candidate, of either form."""
    return parse_feedback(fields["feedback"]) if "feedback" in fields else parse_briefs(fields)


def parse_final_score(fields: Mapping[str, str], item: Item) -> ParsedScore | Unreadable:
    """Parse a Tie-breaker's reply about one candidate."""
    value = parsing.parse_score(fields["final_score"], item.aspect.scale, item.aspect.name)
    if isinstance(value, Unreadable):
        return value
    side, reasoning = fields["side"].strip(), fields["reasoning"]
    return ParsedScore(value, f"({side}) {reasoning}" if side else reasoning)
