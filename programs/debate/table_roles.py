"""Scorer, Critic and Tie-breaker before a table of candidates: what each is told, asked, and understood to say."""

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
from debate_judge.programs.debate.table_replies import Objection
from debate_judge.programs.debate.tie_breaker import TieBreaker
from debate_judge.programs.judge import Item
from debate_judge.programs.roles.parsing import NO_ISSUE
from debate_judge.programs.roles.role import NoAnswer, RoleReply, material
from debate_judge.programs.roles.score_modes import ParsedScore, mean_of
from debate_judge.programs.transcript import Failure, Transcript, Turn

T = TypeVar("T")

Part = tuple[int, ...]
"""Numbers of the candidates that are shown together."""


@dataclass(frozen=True)
class Speakers:
    """Who takes part in a debate about a table, and what they are told."""

    scorer: Scorer
    critic: Critic
    tie_breaker: TieBreaker
    told: Briefing
    """About the table."""
    alone: Callable[[Item], Awaitable[Briefing]]
    """About a candidate that is judged by itself."""


class TableRole(ABC, Generic[T]):
    """What one role does in one turn; T is what it says about a candidate."""

    speaker: str
    samples = 0
    """Replies whose mean counts; 0 where it is one reply, at the LM's own temperature."""

    def __init__(self, speakers: Speakers) -> None:
        self.speakers = speakers

    @property
    @abstractmethod
    def inputs(self) -> Mapping[str, str]:
        """Input fields besides the texts."""

    @abstractmethod
    def request(self, part: Part, asked: Part, numbers: Sequence[int]) -> str:
        """The form of the reply.

        Args:
            part: The candidates that are shown.
            asked: Those of which the reply counts.
            numbers: Those that it is still missing of.
        """

    @abstractmethod
    def read(self, reply: str, numbers: Sequence[int], part: Part, item: Item) -> Readings[T]:
        """What a reply says about the candidates `numbers` of `part`; `item` is any of them."""

    @abstractmethod
    async def alone(self, item: Item, transcript: Transcript) -> Turn | Failure:
        """The turn about a candidate that is judged by itself."""

    @abstractmethod
    def spoken(self, transcript: Transcript, said: T, calls: float) -> Turn:
        """The turn that this makes in a candidate's transcript."""

    @abstractmethod
    def fields(self, turn: Turn) -> dict[str, str]:
        """The reply that the turn would have been to a prompt about its candidate alone."""

    @property
    @abstractmethod
    def predict(self) -> Any:
        """The predictor whose instructions the role follows."""

    def traced(self, item: Item, transcript: Transcript, turn: Turn) -> tuple[Any, dict[str, str], dspy.Prediction]:
        """The turn as a call about its candidate alone, which DSPy's optimizers can tell from others."""
        inputs = {**material(item, str(transcript)), **self.inputs}
        known = {name: text for name, text in inputs.items() if name in self.predict.signature.input_fields}
        return self.predict, known, dspy.Prediction(**self.fields(turn))

    def mean(self, said: Sequence[RoleReply[T] | NoAnswer]) -> RoleReply[T] | NoAnswer:
        """Several samples as one."""
        raise NotImplementedError(f"the {self.speaker} is not asked for samples")

    def round(self, transcript: Transcript) -> int:
        """The round that the turn belongs to."""
        return transcript.rounds

    def turn(self, transcript: Transcript, said: RoleReply[T] | NoAnswer) -> Turn | Failure:
        """What was said about a candidate, or not, as it goes into its transcript."""
        if isinstance(said, NoAnswer):
            return said.at(self.speaker, self.round(transcript))
        return self.spoken(transcript, said.value, said.calls)


class _Scored(TableRole[ParsedScore]):
    speaker = "scorer"

    def __init__(self, speakers: Speakers) -> None:
        super().__init__(speakers)
        mode = speakers.scorer.mode
        self.samples = mode.samples if mode.name == "sampled" else 0

    def read(self, reply: str, numbers: Sequence[int], part: Part, item: Item) -> Readings[ParsedScore]:
        aspect = item.aspect
        return table_replies.read_scores(reply, prompts.SCORES, numbers, part, aspect.scale, aspect.name)

    def spoken(self, transcript: Transcript, said: ParsedScore, calls: float) -> Turn:
        return Turn(self.speaker, transcript.rounds, said.rationale, score=said.score, calls=calls)

    def mean(self, said: Sequence[RoleReply[ParsedScore] | NoAnswer]) -> RoleReply[ParsedScore] | NoAnswer:
        return mean_of(said)

    @property
    def predict(self) -> Any:
        return self.speakers.scorer.predict

    def fields(self, turn: Turn) -> dict[str, str]:
        return {"rationale": turn.text, "score": f"{turn.score:g}"}


class Opening(_Scored):
    """The Scorer's first turn."""

    @property
    def inputs(self) -> Mapping[str, str]:
        return {**self.speakers.told.opening(), "role": prompts.OPENING}

    def request(self, part: Part, asked: Part, numbers: Sequence[int]) -> str:
        return prompts.scoring_request(numbers, numbers)

    async def alone(self, item: Item, transcript: Transcript) -> Turn | Failure:
        told = await self.speakers.alone(item)
        return await self.speakers.scorer.speak(item, transcript, told.opening())


class Revision(_Scored):
    """The Scorer's later turns: all scores are given again, to stay in proportion; those in dispute are read."""

    @property
    def inputs(self) -> Mapping[str, str]:
        return {**self.speakers.told.revision(), "role": prompts.REVISION}

    def request(self, part: Part, asked: Part, numbers: Sequence[int]) -> str:
        return prompts.scoring_request(numbers, part if len(numbers) == len(asked) else numbers)

    async def alone(self, item: Item, transcript: Transcript) -> Turn | Failure:
        told = await self.speakers.alone(item)
        return await self.speakers.scorer.speak(item, transcript, told.revision())


class Review(TableRole[Objection]):
    """The Critic's turn."""

    speaker = "critic"

    @property
    def inputs(self) -> Mapping[str, str]:
        return self.speakers.told.critic(self.predict.signature.instructions)

    @property
    def predict(self) -> Any:
        return self.speakers.critic.predict

    def fields(self, turn: Turn) -> dict[str, str]:
        return {"review": "", "decision": NO_ISSUE if turn.no_issue else "ISSUE", "feedback": turn.text}

    def request(self, part: Part, asked: Part, numbers: Sequence[int]) -> str:
        return prompts.reviewing_request(numbers)

    def read(self, reply: str, numbers: Sequence[int], part: Part, item: Item) -> Readings[Objection]:
        return table_replies.read_decisions(reply, numbers, part)

    async def alone(self, item: Item, transcript: Transcript) -> Turn | Failure:
        return await self.speakers.critic.speak(item, transcript, await self.speakers.alone(item))

    def round(self, transcript: Transcript) -> int:
        return transcript.rounds + 1

    def spoken(self, transcript: Transcript, said: Objection, calls: float) -> Turn:
        return Turn(self.speaker, self.round(transcript), said.text, no_issue=said.content, calls=calls)


class Settling(TableRole[ParsedScore]):
    """The Tie-breaker's turn."""

    speaker = "tie-breaker"

    @property
    def inputs(self) -> Mapping[str, str]:
        return self.speakers.told.tie_breaker(self.predict.signature.instructions)

    @property
    def predict(self) -> Any:
        return self.speakers.tie_breaker.predict

    def fields(self, turn: Turn) -> dict[str, str]:
        return {"reasoning": turn.text, "side": "", "final_score": f"{turn.score:g}"}

    def request(self, part: Part, asked: Part, numbers: Sequence[int]) -> str:
        return prompts.settling_request(numbers)

    def read(self, reply: str, numbers: Sequence[int], part: Part, item: Item) -> Readings[ParsedScore]:
        aspect = item.aspect
        return table_replies.read_scores(reply, prompts.FINAL_SCORES, numbers, part, aspect.scale, aspect.name)

    async def alone(self, item: Item, transcript: Transcript) -> Turn | Failure:
        return await self.speakers.tie_breaker.speak(item, transcript, await self.speakers.alone(item))

    def spoken(self, transcript: Transcript, said: ParsedScore, calls: float) -> Turn:
        return Turn(self.speaker, transcript.rounds, said.rationale, score=said.score, calls=calls)
