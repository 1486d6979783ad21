"""DEBATE: Scorer, Critic and Tie-breaker composed into one program (DEBATE, section 2, Algorithm 1).

The paper's systems are presets and not subclasses: without rounds it is the single scorer, with a plain persona
MultiAgent, with a devil's advocate DEBATE; each with or without Tie-breaker. No prompt depends on the number of rounds
n, so a debate of n_max rounds begins with the debate of every smaller n, which then needs no further LM call.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.programs.debate.batches import BatchPool, break_ties, first_batch
from debate_judge.programs.debate.briefing import Asked, Briefing, asked, briefing
from debate_judge.programs.debate.critic import Critic
from debate_judge.programs.debate.personas import PERSONAS, STRICT, Persona
from debate_judge.programs.debate.scorer import Scorer
from debate_judge.programs.debate.table_roles import Speakers
from debate_judge.programs.debate.tie_breaker import TieBreaker
from debate_judge.programs.debate.together import TableDebate
from debate_judge.programs.judge import MOST_ROUNDS, DebateConfig, Item, Judge, StopReason, Verdict
from debate_judge.programs.lm.usage import ROUND
from debate_judge.programs.option_values import whole_number, yes_or_no
from debate_judge.programs.roles.examples import shown
from debate_judge.programs.roles.guide import with_guide
from debate_judge.programs.roles.score_modes import Mode
from debate_judge.programs.transcript import EMPTY, Transcript

_READING = ("together", "joint", "batch_rounds", "order")
"""Arguments that say which candidates and aspects share a call."""


@dataclass(frozen=True)
class _Members:
    """The debates of single aspects that a joint debate stands for. In a class, to hide them from DSPy."""

    by_aspect: Mapping[str, Debate] = field(default_factory=dict)
    """Name of an aspect -> its debate, with the guide and examples of this aspect."""


class Debate(Judge):
    """A judge by debate.

    Args:
        persona: The Critic's persona, which becomes its instructions.
        debate_config: Rounds and Tie-breaker, used by `judge`; `converse` takes its own number of rounds.
        score_mode: How the Scorer's replies become scores: `text`, `sampled:k` or `expected`
            (`programs.roles.score_modes`). The Tie-breaker's score is always the number that it writes.
        granularity: The granularity that prompts ask for: `free` (any number), `half` or `whole` points of the scale.
            Score mode `expected` always asks for whole points, because each needs a token of its own.
        nearest_examples: Number of rated examples in a prompt, those most similar to the item; 0 shows all.
        together: K, most candidates of one source that share a call (`programs.debate.together`); 0 judges each alone.
        joint: Whether all aspects that a candidate is judged in share the call as well.
        batch_rounds: How often every item is scored in batches of K different items (`programs.debate.batches`); with 0
            only candidates of one source share calls.
        order: Seed of the order in which candidates are shown.

    Raises:
        InputError: An option has a value that it cannot have, or the score mode cannot be combined with `together` or
            `joint`.
    """

    kind = "debate"
    shows_examples = True
    settable = ("score_mode", "granularity", "together", "joint", "batch_rounds", "order")
    _members = _Members()
    """The debates that this one stands for (`jointly`)."""

    def __init__(
        self,
        persona: Persona = STRICT,
        debate_config: DebateConfig | None = None,
        score_mode: str = "text",
        granularity: str = "free",
        nearest_examples: int = 0,
        *,
        together: int = 0,
        joint: bool = False,
        batch_rounds: int = 0,
        order: int = 0,
    ) -> None:
        super().__init__(debate_config or DebateConfig(rounds=3))
        self.scorer = Scorer(Mode.of(score_mode))
        self.critic = Critic(persona)
        self.tie_breaker = TieBreaker()
        self.persona = persona
        self.nearest_examples = nearest_examples
        self.granularity: Asked = "whole" if self.scorer.mode.name == "expected" else asked(granularity)
        self.together, self.joint, self.order = together, joint, order
        self.batch_rounds = batch_rounds
        _check_reading(self)

    async def converse(self, item: Item, rounds: int) -> Transcript:
        """Hold the debate for at most `rounds` rounds. A failed turn ends it and is recorded in the transcript."""
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

    async def converse_table(self, items: Sequence[Item], rounds: int) -> list[Transcript]:
        """Hold one debate about all items if candidates or aspects are judged together; else one about each."""
        if not self._shares_calls(items):
            return await super().converse_table(items, rounds)
        if self.batch_rounds:
            return await BatchPool(items, self.together, self.batch_rounds, self.order, self._table).hold(rounds)
        debate = await self._table(items)
        await debate.hold(rounds)
        return debate.transcripts

    async def break_ties(self, items: Sequence[Item], transcripts: Sequence[Transcript]) -> list[Transcript]:
        if not self._shares_calls(items):
            return await super().break_ties(items, transcripts)
        if self.batch_rounds:
            return await break_ties(items, transcripts, self.together, self.order, self._table)
        debate = await self._table(items, transcripts)
        await debate.break_ties()
        return debate.transcripts

    def _shares_calls(self, items: Sequence[Item]) -> bool:
        return len(items) > 1 and (self.together > 1 or self.joint)

    async def _table(self, items: Sequence[Item], transcripts: Sequence[Transcript] | None = None) -> TableDebate:
        first: dict[str, Item] = {}
        for item in items:
            first.setdefault(item.aspect.name, item)
        own = {name: self._members.by_aspect.get(name, self) for name in first}
        speakers = {n: Speakers(one.scorer, one.critic, one.tie_breaker, one._briefed) for n, one in own.items()}
        # Rated examples are chosen once, for the whole table.
        told = await asyncio.gather(*(own[name]._briefed(item, items) for name, item in first.items()))
        return TableDebate(speakers, dict(zip(first, told, strict=True)), items, transcripts)

    async def break_tie(self, item: Item, transcript: Transcript) -> Transcript:
        """Let the Tie-breaker decide a debate that is still open; any other is returned unchanged."""
        if transcript.failure is not None or not is_open(transcript):
            return transcript
        ROUND.set(transcript.rounds)
        return transcript.add(await self.tie_breaker.speak(item, transcript, await self._briefed(item)))

    async def smoke_test(self, item: Item) -> Transcript:
        transcript = await super().smoke_test(item)
        if not (self.debate_config.tie_breaker and self.debate_config.rounds) or transcript.failure is not None:
            return transcript
        # Also if the debate is settled: a Tie-breaker that the LM cannot play would otherwise be found late.
        return transcript.add(await self.tie_breaker.speak(item, transcript, await self._briefed(item)))

    async def smoke_test_table(self, items: Sequence[Item]) -> Transcript:
        if not self._shares_calls(items):
            return await super().smoke_test_table(items)
        # A pool is never asked about in one call.
        debate = await self._table(first_batch(items, self.together) if self.batch_rounds else items)
        await debate.hold(min(self.debate_config.rounds, 1))
        if self.debate_config.tie_breaker:
            await debate.break_ties(settled=True)
        # A failure of one candidate is its own; only if all failed is it the LM's.
        return min(debate.transcripts, key=lambda transcript: transcript.failure is not None)

    def brief(self, item: Item, table: Sequence[Item] = ()) -> Briefing:
        """The briefing of the roles about an item, or about all items of a `table` in the aspect of this one."""
        scorer = self.scorer.predict
        signatures = scorer.signature, self.critic.predict.signature
        told = briefing(item.aspect, self.granularity, *signatures, together=bool(table))
        if not scorer.demos:
            return told
        examples = shown(scorer.demos, item.aspect.name, table or (item,), self.nearest_examples)
        return replace(told, examples=examples)

    async def _briefed(self, item: Item, table: Sequence[Item] = ()) -> Briefing:
        # In a thread, because fitting the retrieval, or importing its library, would block all other debates.
        ask = self.nearest_examples > 0
        return await asyncio.to_thread(self.brief, item, table) if ask else self.brief(item, table)

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
        read: dict[str, Any] = {name: getattr(self, name) for name in _READING}
        return {
            name: type(self)(Persona(name, text), self.debate_config, *ways, **read) for name, text in personas.items()
        }

    def joint_key(self) -> str | None:
        if not self.joint:
            return None
        own = [with_guide(self.scorer.predict.signature.instructions, ""), str(self.scorer.mode)]
        if self.debate_config.rounds:
            own.append(self.critic.predict.signature.instructions)
        if self.debate_config.rounds and self.debate_config.tie_breaker:
            own.append(self.tie_breaker.predict.signature.instructions)
        return json.dumps([self.debate_config.rounds, self.together, self.batch_rounds, self.order, *own])

    def jointly(self, judges: Mapping[str, Judge]) -> Judge:
        one = copy(self)
        # In `_Members`, where DSPy does not look for predictors: it sees those of the first judge only.
        one._members = _Members({name: own for name, own in judges.items() if isinstance(own, Debate)})
        return one

    def members(self) -> Mapping[str, Judge]:
        return self._members.by_aspect

    def seeds(self, personas: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        return {"critic.predict": tuple(personas.values())}

    def tunable(self) -> tuple[str, ...]:
        # The Tie-breaker is first asked after the search has chosen n, too late for a tuner.
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
            "together": self.together,
            "joint": self.joint,
            "batch_rounds": self.batch_rounds,
            "order": self.order,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Debate:
        """Rebuild a debate. A persona without a text is one of the built-in five."""
        name = str(config["persona"])
        persona = Persona(name, str(config["persona_text"])) if "persona_text" in config else PERSONAS[name]
        debate_config = DebateConfig(config["rounds"], config["tie_breaker"])
        ways = str(config.get("score_mode", "text")), str(config.get("granularity", "free"))
        read = {name: config[name] for name in _READING if name in config}
        return cls(persona, debate_config, *ways, config.get("nearest_examples", 0), **read)


def _check_reading(judge: Debate) -> None:
    for name in ("together", "order", "nearest_examples"):
        whole_number(name, getattr(judge, name))
    whole_number("batch_rounds", judge.batch_rounds, most=MOST_ROUNDS)
    yes_or_no("joint", judge.joint)
    if (judge.together > 1 or judge.joint) and judge.scorer.mode.name == "expected":
        raise InputError(
            "probabilities are those of a reply with one score",
            field="together" if judge.together > 1 else "joint",
            expected="score mode text or sampled:k where candidates or aspects share a call",
            found=str(judge.scorer.mode),
        )
    if judge.batch_rounds and judge.together < 2:
        raise InputError(
            "batches of different items have several of them",
            field="batch_rounds",
            expected="together of 2 or more",
            found=f"together {judge.together}",
        )


def is_open(transcript: Transcript) -> bool:
    """Whether Critic and Scorer still disagree, so that a Tie-breaker has something to decide."""
    return transcript.rounds > 0 and not transcript.settled
