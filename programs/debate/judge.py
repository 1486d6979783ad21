"""DEBATE: Scorer, Critic and Tie-breaker composed into one program (DEBATE, section 2, Algorithm 1).

The paper's systems are presets and not subclasses: without rounds it is the single scorer, with a plain persona
MultiAgent, with a devil's advocate DEBATE; each with or without a Tie-breaker. The Critic may also score blind
(`programs.debate.personas`). No prompt depends on the number of rounds n, so a debate of n_max rounds begins with the
debate of every smaller n, which needs no further LM call.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import dspy

from debate_judge.data.errors import InputError
from debate_judge.programs.debate.personas import ADVOCATE, Persona, builtin_persona, custom_persona
from debate_judge.programs.debate.prompts import PromptParts, prompt_parts
from debate_judge.programs.debate.table import (
    BlindCritic,
    BlindCriticism,
    Critic,
    Criticism,
    Opening,
    Revision,
    ScoreTable,
    Scoring,
    TieBreaker,
    TieBreaking,
)
from debate_judge.programs.judge import DebateConfig, Item, Judge, StopReason, Verdict, first_success
from debate_judge.programs.lm.loop import gather
from debate_judge.programs.option_values import whole_number, yes_or_no
from debate_judge.programs.roles.examples import example_inputs
from debate_judge.programs.roles.guide import with_guide
from debate_judge.programs.roles.score_modes import ScoreMode
from debate_judge.programs.transcript import BLIND_CRITIC, Transcript

_CALL_SHARING = ("together", "joint", "order")
"""Arguments that determine which candidates and aspects share a call."""


@dataclass(frozen=True)
class _AspectDebates:
    """The debates of single aspects, by name, in a joint debate; in a class, to hide them from DSPy."""

    by_aspect: Mapping[str, Debate] = field(default_factory=dict)


class Debate(Judge):
    """A judge by debate.

    Args:
        persona: The Critic's persona, which becomes its instructions; a name is one of `PERSONAS` or `BLIND`.
        debate_config: Replaces `rounds` and `tie_breaker`.
        score_mode: How the Scorer's replies become scores: `text`, `sampled:k` or `expected`
            (`programs.roles.score_modes`). `expected` asks for whole points, because each needs a token of its own. The
            Tie-breaker's score is always the number that it writes.
        nearest_examples: Number of rated examples in a prompt, those most similar to the item; 0 shows all.
        rounds: n, the maximum number of rounds of Critic and Scorer; 0 is a single call of the Scorer.
        tie_breaker: Whether a Tie-breaker decides debates that end without agreement.
        together: K, the maximum number of candidates of a source that share a call (`programs.debate.table`); 0 judges
            each alone.
        joint: Whether all aspects that a candidate is judged in share the call as well.
        order: Seed of the order in which candidates are shown.
    """

    kind = "debate"
    shows_examples = True
    settable = ("score_mode", "together", "joint", "order")
    _debates = _AspectDebates()

    def __init__(
        self,
        persona: Persona | str = ADVOCATE,
        debate_config: DebateConfig | None = None,
        score_mode: str = "text",
        nearest_examples: int = 0,
        *,
        rounds: int = 3,
        tie_breaker: bool = False,
        together: int = 0,
        joint: bool = False,
        order: int = 0,
    ) -> None:
        super().__init__(debate_config or DebateConfig(rounds, tie_breaker))
        persona = builtin_persona(persona) if isinstance(persona, str) else persona
        self.scorer = dspy.Predict(Scoring)
        criticism = Criticism if persona.gap is None else BlindCriticism
        self.critic = dspy.Predict(criticism.with_instructions(persona.text))
        self.tie_breaker = dspy.Predict(TieBreaking)
        self.mode = ScoreMode.parse(score_mode)
        self.persona = persona
        self.nearest_examples = nearest_examples
        self.together, self.joint, self.order = together, joint, order
        _check_call_sharing(self)

    async def converse(self, items: Sequence[Item], rounds: int) -> list[Transcript]:
        return await self._hold_debates(items, None, rounds)

    async def break_ties(self, items: Sequence[Item], transcripts: Sequence[Transcript]) -> list[Transcript]:
        return await self._hold_debates(items, transcripts, 0, tie_breaker=True)

    async def _hold_debates(
        self, items: Sequence[Item], transcripts: Sequence[Transcript] | None, rounds: int, tie_breaker: bool = False
    ) -> list[Transcript]:
        tables = await self._tables(items, transcripts)
        blind = self.persona.gap is not None
        by_table = await gather(debate(table, rounds, blind=blind, tie_breaker=tie_breaker) for table in tables)
        return [transcript for table_transcripts in by_table for transcript in table_transcripts]

    async def smoke_test(self, items: Sequence[Item]) -> Transcript:
        tables = await self._tables(items, no_split=True)
        for table in tables:
            # Roles without an open cell, too, so that a role that the LM cannot play is noticed now.
            blind = self.persona.gap is not None
            await debate(table, min(self.debate_config.rounds, 1), blind=blind)
            if self.debate_config.rounds and blind:
                await table.turn(Critic, table.debated_cells())
            if self.debate_config.tie_breaker:
                await table.turn(TieBreaker, table.debated_cells())
        return first_success([transcript for table in tables for transcript in table.transcripts])

    async def _tables(
        self, items: Sequence[Item], transcripts: Sequence[Transcript] | None = None, *, no_split: bool = False
    ) -> list[ScoreTable]:
        """One table of all items if candidates or aspects share calls, else one for each item."""
        share_calls = len(items) > 1 and (self.together > 1 or self.joint)
        slices = [slice(None)] if share_calls else [slice(number, number + 1) for number in range(len(items))]
        return [await self._table(items[s], None if transcripts is None else transcripts[s], no_split) for s in slices]

    async def _table(
        self, items: Sequence[Item], transcripts: Sequence[Transcript] | None, no_split: bool
    ) -> ScoreTable:
        first_items: dict[str, Item] = {}
        for item in items:
            first_items.setdefault(item.aspect.name, item)
        debates = {name: self._debates.by_aspect.get(name, self) for name in first_items}
        parts: dict[str, PromptParts] = {}
        if len(items) > 1:
            # Rated examples are chosen once, for the whole table.
            parts = {name: await debates[name].aprompt_parts(item, items) for name, item in first_items.items()}
        return ScoreTable(debates, parts, items, transcripts, no_split=no_split)

    def prompt_parts(self, item: Item, table: Sequence[Item] = ()) -> PromptParts:
        """The common parts of the prompts about an item, or about all items of a `table` in this item's aspect."""
        whole_points, signatures = self.mode.name == "expected", (self.scorer.signature, self.critic.signature)
        parts = prompt_parts(item.aspect, whole_points, *signatures, bool(table), self.persona.gap)
        if not self.scorer.demos:
            return parts
        examples = example_inputs(self.scorer.demos, item.aspect.name, table or (item,), self.nearest_examples)
        return replace(parts, examples=examples)

    async def aprompt_parts(self, item: Item, table: Sequence[Item] = ()) -> PromptParts:
        """`prompt_parts`, in a thread if examples are retrieved, which would block all other debates."""
        if self.nearest_examples:
            return await asyncio.to_thread(self.prompt_parts, item, table)
        return self.prompt_parts(item, table)

    def verdict(self, transcript: Transcript, rounds: int) -> Verdict:
        last, score = transcript.turns[-1], transcript.score
        if last.role == "tie-breaker" and last.score is not None:
            return Verdict(last.score, transcript.rounds, "tie-breaker", transcript.calls, transcript)
        if score is None:
            raise ValueError("a debate without a Scorer turn and without a failure cannot exist")
        reason: StopReason = "single call" if rounds == 0 else "no issue" if transcript.settled else "rounds over"
        if last.role == BLIND_CRITIC and last.score is not None and self.persona.gap == inf:
            score = (score + last.score) / 2
        return Verdict(score, transcript.rounds, reason, transcript.calls, transcript)

    def variants(self, personas: Mapping[str, str]) -> dict[str, Judge]:
        if self.debate_config.rounds == 0:
            return {self.persona.name: self}
        call_sharing: dict[str, Any] = {name: getattr(self, name) for name in _CALL_SHARING}
        return {
            name: type(self)(custom_persona(name, text), self.debate_config, str(self.mode), **call_sharing)
            for name, text in personas.items()
        }

    def joint_key(self) -> str | None:
        if not self.joint:
            return None
        parts = [with_guide(self.scorer.signature.instructions, ""), str(self.mode)]
        if self.debate_config.rounds:
            parts += [
                self.critic.signature.instructions,
                *([] if self.persona.gap is None else [str(self.persona.gap)]),
            ]
        if self.debate_config.rounds and self.debate_config.tie_breaker:
            parts.append(self.tie_breaker.signature.instructions)
        return json.dumps([self.debate_config.rounds, self.together, self.order, *parts])

    def joint_judge(self, judges: Mapping[str, Judge]) -> Judge:
        joint = copy(self)
        # DSPy finds the predictors of the first judge only.
        joint._debates = _AspectDebates({name: j for name, j in judges.items() if isinstance(j, Debate)})
        return joint

    def judges_by_aspect(self) -> Mapping[str, Judge]:
        return self._debates.by_aspect

    def tunable(self) -> tuple[str, ...]:
        # A Tie-breaker is asked only after the search has chosen n, too late for a tuner.
        return ("scorer",) if self.debate_config.rounds == 0 else ("scorer", "critic")

    def config(self) -> dict[str, Any]:
        text = self.critic.signature.instructions
        return {
            "persona": self.persona.name if text == self.persona.text else "tuned",
            "persona_text": text,
            **({} if self.persona.gap is None else {"gap": str(self.persona.gap)}),
            "rounds": self.debate_config.rounds,
            "tie_breaker": self.debate_config.tie_breaker,
            "score_mode": str(self.mode),
            "nearest_examples": self.nearest_examples,
            **{name: getattr(self, name) for name in _CALL_SHARING},
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Debate:
        name, text = str(config["persona"]), config.get("persona_text")
        persona = builtin_persona(name) if text is None else custom_persona(name, str(text))
        if "gap" in config:
            persona = replace(persona, gap=float(config["gap"]))
        _refuse_removed_options(config)
        options = {name: config[name] for name in ("score_mode", "nearest_examples", *_CALL_SHARING) if name in config}
        return cls(persona, DebateConfig(config["rounds"], config["tie_breaker"]), **options)


async def debate(table: ScoreTable, rounds: int, *, blind: bool = False, tie_breaker: bool = False) -> list[Transcript]:
    """Debate the scores of a table: Scorer; up to `rounds` times Critic and Scorer, until NO ISSUE; Tie-breaker for the
    cells that stay open. In a `resumed` table, whose rounds are over, only the Tie-breaker takes its turn. A `blind`
    Critic first scores the table by itself, which settles all scores that are near enough to its own.

    A failed turn ends the debate about its cell, and is recorded in the cell's transcript.
    """
    if not table.resumed:
        await table.turn(Opening, table.open_cells())
        table.record_sizes()
        if rounds and blind:
            await table.turn(BlindCritic, table.open_cells())
            if not table.open_cells():
                table.record_sizes()
        for _ in range(rounds):
            if not table.open_cells():
                break
            await table.turn(Critic, table.open_cells())
            await table.turn(Revision, table.open_cells())
            table.record_sizes()
    if tie_breaker and table.disputed_cells():
        await table.turn(TieBreaker, table.disputed_cells())
        table.record_sizes(overwrite=True)
    return table.transcripts


def _check_call_sharing(judge: Debate) -> None:
    for name in ("together", "order", "nearest_examples"):
        whole_number(name, getattr(judge, name))
    yes_or_no("joint", judge.joint)
    if (judge.together > 1 or judge.joint) and judge.mode.name == "expected":
        raise InputError(
            "probabilities are those of a reply with one score",
            field="together" if judge.together > 1 else "joint",
            expected="score mode text or sampled:k where candidates or aspects share a call",
            found=str(judge.mode),
        )


def _refuse_removed_options(config: Mapping[str, Any]) -> None:
    """Refuse an older export whose prompts ask for half or whole points, or cover candidates of several sources."""
    granularity = "whole" if str(config.get("score_mode", "text")) == "expected" else "free"
    for name, default in (("granularity", granularity), ("batch_rounds", 0)):
        if config.get(name, default) != default:
            raise InputError(
                "an option of an earlier version, which judges no longer have",
                field=name,
                expected=f"{default}, or no such entry",
                found=str(config[name]),
                remedy="compile the judge again",
            )
