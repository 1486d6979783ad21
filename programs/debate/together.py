"""One debate about several candidates of one source: a call reads them all, and each has a transcript of its own.

Every role sees the whole table. The Critic is asked about the candidates that are still open, the Scorer revises those
that the Critic disputes, the Tie-breaker decides those that stay open; all others are settled and keep their scores. A
call counts in the transcript of each candidate that it asked about, in equal shares.

A reply that leaves out a candidate, or says two things about it, is asked for once more about these alone. A call that
fails by its texts (the context is too small, the reply too long, one is refused) is repeated with each half of the
table, and so on; a candidate that comes to be alone is judged on by the prompts of a debate about one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import dspy

from debate_judge.programs.debate import table_prompts as prompts
from debate_judge.programs.debate.table_call import TooMuch, ask_table
from debate_judge.programs.debate.table_roles import Opening, Part, Review, Revision, Settling, Speakers, TableRole
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.usage import ROUND
from debate_judge.programs.roles.role import NoAnswer, RoleReply, sample
from debate_judge.programs.transcript import EMPTY, Failure, Transcript, Turn

T = TypeVar("T")

Said = Mapping[int, RoleReply[T] | NoAnswer]


class TableDebate:
    """Such a debate as it stands.

    Args:
        speakers: Who takes part.
        items: The candidates, in the order in which they are shown; they are numbered from 1.
        transcripts: What was said so far; by default nothing.
    """

    def __init__(
        self, speakers: Speakers, items: Sequence[Item], transcripts: Sequence[Transcript] | None = None
    ) -> None:
        self._speakers = speakers
        self._items = dict(enumerate(items, 1))
        self._transcripts = dict(enumerate(transcripts or [EMPTY] * len(items), 1))
        self._parts = _parts_of(transcripts) if transcripts else [tuple(self._items)]
        self._spent = dict.fromkeys(self._items, 0.0)
        """Shares of calls that failed, to be counted with the next turn."""

    @property
    def transcripts(self) -> list[Transcript]:
        """One for each candidate, in their order."""
        size = {number: len(part) for part in self._parts for number in part}
        return [replace(transcript, together=size[number]) for number, transcript in self._transcripts.items()]

    async def hold(self, rounds: int) -> None:
        """Score all, and debate for at most `rounds` rounds what is not settled."""
        ROUND.set(0)
        await self._turn(self._open(), Opening(self._speakers))
        for number in range(1, rounds + 1):
            if not self._open():
                break
            ROUND.set(number)
            await self._turn(self._open(), Review(self._speakers))
            await self._turn(self._open(), Revision(self._speakers))

    async def break_ties(self, *, settled: bool = False) -> None:
        """Have the Tie-breaker decide what is open after a debate; with `settled` also what is not."""
        numbers = [
            n for n, t in self._transcripts.items() if t.failure is None and t.rounds and (settled or not t.settled)
        ]
        if numbers:
            ROUND.set(max(self._transcripts[number].rounds for number in numbers))
            await self._turn(numbers, Settling(self._speakers))

    def _open(self) -> list[int]:
        return [number for number, t in self._transcripts.items() if t.failure is None and not t.settled]

    async def _turn(self, concerned: Collection[int], role: TableRole[Any]) -> None:
        """Have a role speak about some candidates, in one call for each part of the table that they are in."""

        async def one(part: Part) -> list[Part]:
            asked = tuple(number for number in part if number in concerned)
            if not asked:
                return [part]
            if len(part) == 1:
                self._add(part[0], await role.alone(self._items[part[0]], self._transcripts[part[0]]))
                return [part]
            found = await self._ask(role, part, asked)
            if isinstance(found, TooMuch):
                for number in asked:
                    self._spent[number] += found.answer.calls / len(asked)
                half = len(part) // 2
                halves = await asyncio.gather(one(part[:half]), one(part[half:]))
                return [piece for pieces in halves for piece in pieces]
            for number in asked:
                before = self._transcripts[number]
                turn = role.turn(before, found[number])
                if dspy.settings.trace is not None and isinstance(turn, Turn):
                    dspy.settings.trace.append(role.traced(self._items[number], before, turn))
                self._add(number, turn)
            return [part]

        parts = await asyncio.gather(*map(one, self._parts))
        self._parts = [piece for pieces in parts for piece in pieces]

    def _add(self, number: int, spoken: Turn | Failure) -> None:
        if self._spent[number]:
            spoken = replace(spoken, calls=spoken.calls + self._spent[number])
            self._spent[number] = 0.0
        self._transcripts[number] = self._transcripts[number].add(spoken)

    async def _ask(self, role: TableRole[T], part: Part, asked: Part) -> Said[T] | TooMuch:
        inputs = {
            **prompts.table_material({number: self._items[number] for number in part}),
            "debate": prompts.debate_text({number: self._transcripts[number] for number in part}),
            **role.inputs,
        }

        async def once(settings: Mapping[str, Any]) -> Said[T] | TooMuch:
            return await ask_table(
                role.speaker,
                inputs,
                asked,
                lambda numbers: role.request(part, asked, numbers),
                lambda reply, numbers: role.read(reply, numbers, part, self._items[part[0]]),
                settings,
            )

        if not role.samples:
            return await once({})
        runs = await asyncio.gather(*(once(sample(number)) for number in range(role.samples)))
        for run in runs:
            if isinstance(run, TooMuch):
                return TooMuch(replace(run.answer, calls=len(runs)))
        return {number: role.mean([run[number] for run in runs if not isinstance(run, TooMuch)]) for number in asked}


def _parts_of(transcripts: Sequence[Transcript]) -> list[Part]:
    """The parts that a table was cut into: they follow one another, and each transcript tells the size of its own."""
    parts: list[Part] = []
    start = 0
    while start < len(transcripts):
        end = min(start + transcripts[start].together, len(transcripts))
        parts.append(tuple(range(start + 1, end + 1)))
        start = end
    return parts
