"""Scorer, Critic and Tie-breaker before a table of scores: what each is told, asked, and understood to say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import dspy

from debate_judge.programs.debate import table_prompts as prompts
from debate_judge.programs.debate import table_replies
from debate_judge.programs.debate.briefing import Briefing
from debate_judge.programs.debate.critic import Critic
from debate_judge.programs.debate.scorer import Scorer
from debate_judge.programs.debate.table_call import Readings
from debate_judge.programs.debate.table_cells import Cell, Part, aspects_in, candidates_in
from debate_judge.programs.debate.table_replies import Objection
from debate_judge.programs.debate.tie_breaker import TieBreaker
from debate_judge.programs.judge import Item
from debate_judge.programs.roles.parsing import NO_ISSUE
from debate_judge.programs.roles.role import NoAnswer, RoleReply, material
from debate_judge.programs.roles.score_modes import ParsedScore, mean_of
from debate_judge.programs.transcript import Failure, Transcript, Turn

T = TypeVar("T")


@dataclass(frozen=True)
class Speakers:
    """Who takes part in a debate in one aspect. In a table of several aspects they differ at most in what they know of
    the raters and in how finely they score."""

    scorer: Scorer
    critic: Critic
    tie_breaker: TieBreaker
    alone: Callable[[Item], Awaitable[Briefing]]
    """What they are told about a candidate that is judged by itself."""


class TableRole(ABC, Generic[T]):
    """What one role does in one turn; T is what it says about a cell.

    Args:
        speakers: Name of an aspect -> who speaks about it.
    """

    speaker: str
    samples = 0
    """Replies whose mean counts; 0 where it is one reply, at the LM's own temperature."""

    def __init__(self, speakers: Mapping[str, Speakers]) -> None:
        self._speakers = speakers
        self.speakers = next(iter(speakers.values()))
        """Of any aspect, for what they have in common."""

    def of(self, item: Item) -> Speakers:
        """Who speaks about an item."""
        return self._speakers[item.aspect.name]

    @abstractmethod
    def inputs(self, told: Briefing, part: Part) -> Mapping[str, str]:
        """Input fields besides the texts.

        Args:
            told: About the aspects of the part.
            part: The cells that are shown.
        """

    @abstractmethod
    def request(self, part: Part, asked: Part, cells: Sequence[Cell]) -> str:
        """The form of the reply.

        Args:
            part: The cells that are shown.
            asked: Those of which the reply counts.
            cells: Those that it is still missing of.
        """

    @abstractmethod
    def read(self, reply: str, cells: Sequence[Cell], items: Mapping[Cell, Item]) -> Readings[T]:
        """What a reply says about some cells; `items` has all cells of the prompt."""

    @abstractmethod
    async def alone(self, item: Item, transcript: Transcript) -> Turn | Failure:
        """The turn about an item that is judged by itself."""

    @abstractmethod
    def spoken(self, transcript: Transcript, said: T, calls: float) -> Turn:
        """The turn that this makes in a cell's transcript."""

    @abstractmethod
    def fields(self, turn: Turn) -> dict[str, str]:
        """The reply that the turn would have been to a prompt about its cell alone."""

    @abstractmethod
    def predict(self, speakers: Speakers) -> Any:
        """The predictor whose instructions the role follows."""

    def traced(
        self, item: Item, transcript: Transcript, turn: Turn, told: Briefing
    ) -> tuple[Any, dict[str, str], dspy.Prediction]:
        """The turn as a call about its cell alone, which DSPy's optimizers can tell from others.

        Args:
            item: What it is about.
            transcript: The debate about it so far.
            turn: What was said.
            told: About its aspect.
        """
        predict = self.predict(self.of(item))
        inputs = {**material(item, str(transcript)), **self.inputs(told, (Cell(1),))}
        known = {name: text for name, text in inputs.items() if name in predict.signature.input_fields}
        return predict, known, dspy.Prediction(**self.fields(turn))

    def mean(self, said: Sequence[RoleReply[T] | NoAnswer]) -> RoleReply[T] | NoAnswer:
        """Several samples as one."""
        raise NotImplementedError(f"the {self.speaker} is not asked for samples")

    def round(self, transcript: Transcript) -> int:
        """The round that the turn belongs to."""
        return transcript.rounds

    def turn(self, transcript: Transcript, said: RoleReply[T] | NoAnswer) -> Turn | Failure:
        """What was said about a cell, or not, as it goes into its transcript."""
        if isinstance(said, NoAnswer):
            return said.at(self.speaker, self.round(transcript))
        return self.spoken(transcript, said.value, said.calls)


class _Scored(TableRole[ParsedScore]):
    speaker = "scorer"

    def __init__(self, speakers: Mapping[str, Speakers]) -> None:
        super().__init__(speakers)
        mode = self.speakers.scorer.mode
        self.samples = mode.samples if mode.name == "sampled" else 0

    def read(self, reply: str, cells: Sequence[Cell], items: Mapping[Cell, Item]) -> Readings[ParsedScore]:
        return table_replies.read_scores(reply, prompts.SCORES, cells, items)

    def spoken(self, transcript: Transcript, said: ParsedScore, calls: float) -> Turn:
        return Turn(self.speaker, transcript.rounds, said.rationale, score=said.score, calls=calls)

    def mean(self, said: Sequence[RoleReply[ParsedScore] | NoAnswer]) -> RoleReply[ParsedScore] | NoAnswer:
        return mean_of(said)

    def predict(self, speakers: Speakers) -> Any:
        return speakers.scorer.predict

    def fields(self, turn: Turn) -> dict[str, str]:
        return {"rationale": turn.text, "score": f"{turn.score:g}"}


class Opening(_Scored):
    """The Scorer's first turn."""

    def inputs(self, told: Briefing, part: Part) -> Mapping[str, str]:
        task = prompts.OPENING
        if len(aspects_in(part)) > 1:
            alone = len(candidates_in(part)) == 1
            task = (prompts.OPENING_ALONE if alone else prompts.OPENING) + prompts.EACH_BY_ITSELF
        return {**told.opening(), "role": task}

    def request(self, part: Part, asked: Part, cells: Sequence[Cell]) -> str:
        return prompts.scoring_request(cells, cells)

    async def alone(self, item: Item, transcript: Transcript) -> Turn | Failure:
        own = self.of(item)
        return await own.scorer.speak(item, transcript, (await own.alone(item)).opening())


class Revision(_Scored):
    """The Scorer's later turns: in each disputed aspect all scores are given again, to stay in proportion; those in
    dispute are read."""

    def inputs(self, told: Briefing, part: Part) -> Mapping[str, str]:
        several = len(aspects_in(part)) > 1
        return {
            **told.revision(),
            "role": prompts.REVISION_JOINT + prompts.EACH_BY_ITSELF if several else prompts.REVISION,
        }

    def request(self, part: Part, asked: Part, cells: Sequence[Cell]) -> str:
        disputed = aspects_in(asked)
        again = [cell for cell in part if cell.aspect in disputed]
        return prompts.scoring_request(cells, again if len(cells) == len(asked) else cells)

    async def alone(self, item: Item, transcript: Transcript) -> Turn | Failure:
        own = self.of(item)
        return await own.scorer.speak(item, transcript, (await own.alone(item)).revision())


class Review(TableRole[Objection]):
    """The Critic's turn."""

    speaker = "critic"

    def inputs(self, told: Briefing, part: Part) -> Mapping[str, str]:
        return told.critic(self.predict(self.speakers).signature.instructions)

    def predict(self, speakers: Speakers) -> Any:
        return speakers.critic.predict

    def fields(self, turn: Turn) -> dict[str, str]:
        return {"review": "", "decision": NO_ISSUE if turn.no_issue else "ISSUE", "feedback": turn.text}

    def request(self, part: Part, asked: Part, cells: Sequence[Cell]) -> str:
        return prompts.reviewing_request(cells)

    def read(self, reply: str, cells: Sequence[Cell], items: Mapping[Cell, Item]) -> Readings[Objection]:
        return table_replies.read_decisions(reply, cells, items)

    async def alone(self, item: Item, transcript: Transcript) -> Turn | Failure:
        own = self.of(item)
        return await own.critic.speak(item, transcript, await own.alone(item))

    def round(self, transcript: Transcript) -> int:
        return transcript.rounds + 1

    def spoken(self, transcript: Transcript, said: Objection, calls: float) -> Turn:
        return Turn(self.speaker, self.round(transcript), said.text, no_issue=said.content, calls=calls)


class Settling(TableRole[ParsedScore]):
    """The Tie-breaker's turn."""

    speaker = "tie-breaker"

    def inputs(self, told: Briefing, part: Part) -> Mapping[str, str]:
        return told.tie_breaker(self.predict(self.speakers).signature.instructions)

    def predict(self, speakers: Speakers) -> Any:
        return speakers.tie_breaker.predict

    def fields(self, turn: Turn) -> dict[str, str]:
        return {"reasoning": turn.text, "side": "", "final_score": f"{turn.score:g}"}

    def request(self, part: Part, asked: Part, cells: Sequence[Cell]) -> str:
        return prompts.settling_request(cells)

    def read(self, reply: str, cells: Sequence[Cell], items: Mapping[Cell, Item]) -> Readings[ParsedScore]:
        return table_replies.read_scores(reply, prompts.FINAL_SCORES, cells, items)

    async def alone(self, item: Item, transcript: Transcript) -> Turn | Failure:
        own = self.of(item)
        return await own.tie_breaker.speak(item, transcript, await own.alone(item))

    def spoken(self, transcript: Transcript, said: ParsedScore, calls: float) -> Turn:
        return Turn(self.speaker, transcript.rounds, said.rationale, score=said.score, calls=calls)
