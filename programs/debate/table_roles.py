"""Scorer, Critic and Tie-breaker in debates about several scores: their prompts, and how their replies are read."""

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
    """The roles of a debate in one aspect. In a table of several aspects they differ at most in their guide to the
    raters, their rated examples and the granularity of scores."""

    scorer: Scorer
    critic: Critic
    tie_breaker: TieBreaker
    alone: Callable[[Item], Awaitable[Briefing]]
    """Makes the briefing about a candidate that is judged alone."""


class TableRole(ABC, Generic[T]):
    """One role's turn about several cells; T is what it says about one of them.

    Args:
        speakers: Name of an aspect -> its roles.
    """

    speaker: str
    samples = 0
    """Number of samples to average; 0 for a single reply at the LM's own temperature."""

    def __init__(self, speakers: Mapping[str, Speakers]) -> None:
        self._speakers = speakers
        self.speakers = next(iter(speakers.values()))
        """The roles of the first aspect, for what all aspects have in common."""

    def of(self, item: Item) -> Speakers:
        """The roles of an item's aspect."""
        return self._speakers[item.aspect.name]

    @abstractmethod
    def inputs(self, told: Briefing, part: Part) -> Mapping[str, str]:
        """Input fields of the prompt other than the texts.

        Args:
            told: The briefing about the aspects of the part.
            part: The cells that are shown.
        """

    @abstractmethod
    def request(self, part: Part, asked: Part, cells: Sequence[Cell]) -> str:
        """The form of the reply.

        Args:
            part: The cells that are shown.
            asked: The cells that are asked about.
            cells: Those among them without a readable reply so far.
        """

    @abstractmethod
    def read(self, reply: str, cells: Sequence[Cell], items: Mapping[Cell, Item]) -> Readings[T]:
        """Parse what a reply says about `cells`; `items` has all cells of the prompt."""

    @abstractmethod
    async def alone(self, item: Item, transcript: Transcript) -> Turn | Failure:
        """The turn about an item that is judged alone."""

    @abstractmethod
    def spoken(self, transcript: Transcript, said: T, calls: float) -> Turn:
        """What was said about a cell as a turn of its transcript."""

    @abstractmethod
    def fields(self, turn: Turn) -> dict[str, str]:
        """The output fields that the turn would have as the reply to a prompt about its cell alone."""

    @abstractmethod
    def predict(self, speakers: Speakers) -> Any:
        """The predictor whose instructions the role follows."""

    def traced(
        self, item: Item, transcript: Transcript, turn: Turn, told: Briefing
    ) -> tuple[Any, dict[str, str], dspy.Prediction]:
        """The turn as a traced call about its cell alone, as DSPy's optimizers expect.

        Args:
            item: The cell's item.
            transcript: The debate about it before the turn.
            turn: The turn.
            told: The briefing about its aspect.
        """
        predict = self.predict(self.of(item))
        inputs = {**material(item, str(transcript)), **self.inputs(told, (Cell(1),))}
        known = {name: text for name, text in inputs.items() if name in predict.signature.input_fields}
        return predict, known, dspy.Prediction(**self.fields(turn))

    def mean(self, said: Sequence[RoleReply[T] | NoAnswer]) -> RoleReply[T] | NoAnswer:
        """The mean of several samples."""
        raise NotImplementedError(f"the {self.speaker} is not asked for samples")

    def round(self, transcript: Transcript) -> int:
        """The round that the turn belongs to."""
        return transcript.rounds

    def turn(self, transcript: Transcript, said: RoleReply[T] | NoAnswer) -> Turn | Failure:
        """The entry in a cell's transcript: a turn, or a failure if there is no answer."""
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
    """The Scorer's later turns. In each disputed aspect the LM gives all scores again, to keep them in proportion, but
    only the disputed ones are read."""

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
