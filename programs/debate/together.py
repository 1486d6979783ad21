"""One debate about several scores: calls are about all of them, and each score has its own transcript.

A table has several candidates, or several aspects of one, or both. Every role sees the whole table. The Critic is asked
about the cells that are still open, the Scorer revises those that the Critic disputes, and the Tie-breaker decides
those that stay open; all others are settled and keep their scores. A call counts in the transcripts of the cells that
it asked about, in equal shares.

If a reply leaves out a cell or contradicts itself about one, the LM is asked once more about these cells only. A call
that fails because of its texts (the context is too small, the reply too long, one text is refused) is repeated with
each half of the candidates, for a single candidate with each half of the aspects, and so on; what an earlier call has
said about the others stands. A cell that is then alone
is judged further with the prompts of a debate about one candidate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import dspy

from debate_judge.programs.debate import table_prompts as prompts
from debate_judge.programs.debate.briefing import Briefing, joint_briefing
from debate_judge.programs.debate.table_call import TooMuch, ask_table
from debate_judge.programs.debate.table_cells import (
    Cell,
    Part,
    aspects_in,
    candidates_in,
    cells_of,
    halves,
    parts_of,
)
from debate_judge.programs.debate.table_roles import Opening, Review, Revision, Settling, Speakers, TableRole
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.usage import ROUND
from debate_judge.programs.roles.role import NoAnswer, RoleReply, sample
from debate_judge.programs.transcript import EMPTY, Failure, Transcript, Turn

T = TypeVar("T")

Said = Mapping[Cell, RoleReply[T] | NoAnswer | TooMuch]


class TableDebate:
    """The state of such a debate.

    Args:
        speakers: Name of an aspect -> its roles.
        told: Name of an aspect -> its briefing for several candidates.
        items: The items to score, candidate by candidate in the order in which they are shown.
        transcripts: The debate so far, one for each item; by default it has not begun.
    """

    def __init__(
        self,
        speakers: Mapping[str, Speakers],
        told: Mapping[str, Briefing],
        items: Sequence[Item],
        transcripts: Sequence[Transcript] | None = None,
    ) -> None:
        self._speakers = speakers
        self._told = told
        self._items = cells_of(items)
        self._transcripts = dict(zip(self._items, transcripts or [EMPTY] * len(items), strict=True))
        self._parts = list(parts_of(self._transcripts)) if transcripts else [tuple(self._items)]
        self._spent = dict.fromkeys(self._items, 0.0)
        """Shares of failed calls, which are added to the calls of the cell's next turn."""

    @property
    def transcripts(self) -> list[Transcript]:
        """One for each item, in the order of the items."""
        return list(self._transcripts.values())

    async def hold(self, rounds: int) -> None:
        """Score all cells, then debate for at most `rounds` rounds those not settled."""
        ROUND.set(0)
        await self._turn(self._open(), Opening(self._speakers))
        self._record_sizes()
        await self.go_on(rounds)

    async def go_on(self, rounds: int) -> None:
        """Debate for at most `rounds` rounds the cells that were scored and are not settled."""
        for number in range(1, rounds + 1):
            if not self._open():
                break
            ROUND.set(number)
            await self._turn(self._open(), Review(self._speakers))
            await self._turn(self._open(), Revision(self._speakers))
            self._record_sizes()

    async def break_ties(self, *, settled: bool = False) -> None:
        """Have the Tie-breaker decide the cells that are open after a debate; with `settled`, the settled ones too."""
        cells = [
            cell
            for cell, t in self._transcripts.items()
            if t.failure is None and t.rounds and (settled or not t.settled)
        ]
        if cells:
            ROUND.set(max(self._transcripts[cell].rounds for cell in cells))
            await self._turn(cells, Settling(self._speakers))
            self._record_sizes(again=True)

    def _record_sizes(self, *, again: bool = False) -> None:
        """Add the sizes of the parts after a round; `again` if the last round has some, from before the Tie-breaker."""
        for part in self._parts:
            size = len(candidates_in(part)), len(aspects_in(part))
            for cell in part:
                before = self._transcripts[cell]
                self._transcripts[cell] = replace(before, sizes=(*before.sizes[: -1 if again else None], size))

    def _open(self) -> list[Cell]:
        return [cell for cell, t in self._transcripts.items() if t.failure is None and not t.settled]

    async def _turn(self, concerned: Collection[Cell], role: TableRole[Any]) -> None:
        """Have a role speak about some cells, in one call for each part of the table that they are in."""

        async def one(part: Part, concerned: Collection[Cell]) -> list[Part]:
            asked = tuple(cell for cell in part if cell in concerned)
            if not asked:
                return [part]
            if len(part) == 1:
                self._add(part[0], await role.alone(self._items[part[0]], self._transcripts[part[0]]))
                return [part]
            found = await self._ask(role, part, asked)
            left = [cell for cell in asked if not self._take(role, cell, found[cell])]
            return await each(halves(part), left) if left else [part]

        async def each(parts: Sequence[Part], concerned: Collection[Cell]) -> list[Part]:
            pieces = await asyncio.gather(*(one(part, concerned) for part in parts))
            return [piece for some in pieces for piece in some]

        self._parts = await each(self._parts, concerned)

    def _take(self, role: TableRole[T], cell: Cell, said: RoleReply[T] | NoAnswer | TooMuch) -> bool:
        """Add what was said about a cell to its transcript, unless it has to be asked about among fewer."""
        if isinstance(said, TooMuch):
            self._spent[cell] += said.calls
            return False
        item, before = self._items[cell], self._transcripts[cell]
        turn = role.turn(before, said)
        if dspy.settings.trace is not None and isinstance(turn, Turn):
            dspy.settings.trace.append(role.traced(item, before, turn, self._told[item.aspect.name]))
        self._add(cell, turn)
        return True

    def _add(self, cell: Cell, spoken: Turn | Failure) -> None:
        if self._spent[cell]:
            spoken = replace(spoken, calls=spoken.calls + self._spent[cell])
            self._spent[cell] = 0.0
        self._transcripts[cell] = self._transcripts[cell].add(spoken)

    async def _ask(self, role: TableRole[T], part: Part, asked: Part) -> Said[T]:
        items = {cell: self._items[cell] for cell in part}
        told = joint_briefing({cell.aspect: self._told[item.aspect.name] for cell, item in items.items()})
        inputs = {
            **prompts.table_material(items),
            "debate": prompts.debate_text({cell: self._transcripts[cell] for cell in part}),
            **role.inputs(told, part),
        }

        async def once(settings: Mapping[str, Any]) -> Said[T]:
            return await ask_table(
                role.speaker,
                inputs,
                asked,
                lambda cells: role.request(part, asked, cells),
                lambda reply, cells: role.read(reply, cells, items),
                settings,
            )

        if not role.samples:
            return await once({})
        runs = await asyncio.gather(*(once(sample(number)) for number in range(role.samples)))
        return {cell: _mean(role, [run[cell] for run in runs]) for cell in asked}


def _mean(
    role: TableRole[T], samples: Sequence[RoleReply[T] | NoAnswer | TooMuch]
) -> RoleReply[T] | NoAnswer | TooMuch:
    """What the samples say about a cell, if none of them was too much."""
    answers = [said for said in samples if not isinstance(said, TooMuch)]
    return role.mean(answers) if len(answers) == len(samples) else TooMuch(sum(said.calls for said in samples))
