"""The debate about a table of scores (DEBATE, Algorithm 1): candidates of one source, in one aspect or several.

Each score is a cell with a transcript of its own; a candidate alone in one aspect is a table of one cell. Every role
sees the whole table. The Critic is asked about the cells that are still open, the Scorer revises those that the Critic
disputes, and the Tie-breaker decides those that stay open; all others are settled and keep their scores. A call counts
in the transcripts of the cells that it asked about, in equal shares.

If a reply leaves out a cell or contradicts itself about one, the LM is asked once more about these cells only. What
stays unreadable, and a call that fails because of its texts (the context is too small, the reply too long, one text is
refused), is asked again about each half of the candidates, for a single candidate about each half of the aspects, and
so on; what an earlier call has said about the others is kept. A cell that is then alone is judged further with the
prompts of a debate about one candidate.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import dspy

from debate_judge.programs.debate import prompts
from debate_judge.programs.debate.prompts import Briefing, Cell, Part, aspects_in, candidates_in, label, listed
from debate_judge.programs.debate.speakers import Answer, BlindCritic, Critic, DebateRole, Opening, Revision, TieBreaker
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.loop import gather
from debate_judge.programs.lm.usage import CallTag
from debate_judge.programs.roles.parsing import Unreadable
from debate_judge.programs.roles.role import SAMPLING, NoAnswer, RoleLastAdapter, RoleReply, call
from debate_judge.programs.roles.score_modes import mean_of
from debate_judge.programs.transcript import EMPTY, Transcript

if TYPE_CHECKING:
    from debate_judge.programs.debate.judge import Debate

TOKENS_PER_SCORE, TOKENS_PER_SCORE_JOINT = 250, 150
"""Tokens of a reply for each score, in calls about one aspect and about several. A lower `max_tokens` is raised to the
sum, which for 16 candidates in five aspects is still below the longest reply of LMs."""


async def debate(table: ScoreTable, rounds: int, *, blind: bool = False, tie_breaker: bool = False) -> list[Transcript]:
    """Hold the debate about a table, or go on with it: Scorer; up to `rounds` times Critic and Scorer, until there is
    NO ISSUE; Tie-breaker for what stays open. A `blind` Critic first scores the table by itself, which settles all
    scores but those that it is too far from.

    A failed turn ends the debate about its cell, and is recorded in the cell's transcript.
    """
    if not table.begun:
        await table.turn(Opening, table.open())
        table.end_round()
        if rounds and blind:
            await table.turn(BlindCritic, table.open())
            if not table.open():
                table.end_round()
        for _ in range(rounds):
            if not table.open():
                break
            await table.turn(Critic, table.open())
            await table.turn(Revision, table.open())
            table.end_round()
    if tie_breaker and table.disputed():
        await table.turn(TieBreaker, table.disputed())
        table.end_round(again=True)
    return table.transcripts


class ScoreTable:
    """The cells of a debate, with what was said about each.

    Args:
        debates: Name of an aspect -> the debate with its roles.
        briefings: Name of an aspect -> its briefing for several candidates; not needed for a single item.
        items: Candidate by candidate, in the order in which they are shown.
        transcripts: The debate so far, one for each item; by default it has not begun.
        whole: Whether a reply that stays unreadable is a failure, and not asked for again about fewer; for smoke tests.
    """

    def __init__(
        self,
        debates: Mapping[str, Debate],
        briefings: Mapping[str, Briefing],
        items: Sequence[Item],
        transcripts: Sequence[Transcript] | None = None,
        *,
        whole: bool = False,
    ) -> None:
        self._debates = debates
        self._briefings = briefings
        self._items = prompts.cells_of(items)
        self._transcripts = dict(zip(self._items, transcripts or [EMPTY] * len(items), strict=True))
        self.begun = transcripts is not None
        self._parts = list(prompts.parts_of(self._transcripts)) if self.begun else [tuple(self._items)]
        self._whole = whole
        self._alone: dict[Cell, Briefing] = {}
        self._spent: dict[Cell, float] = dict.fromkeys(self._items, 0)
        """Shares of failed calls, which are added to the calls of the cell's next turn."""

    @property
    def transcripts(self) -> list[Transcript]:
        """One for each item, in the order of the items."""
        return list(self._transcripts.values())

    def open(self) -> list[Cell]:
        """The cells that are still debated."""
        return [cell for cell, t in self._transcripts.items() if t.failure is None and not t.settled]

    def disputed(self) -> list[Cell]:
        """The cells about which Critic and Scorer still disagree."""
        return [cell for cell in self.open() if self._transcripts[cell].rounds]

    def debated(self) -> list[Cell]:
        """The cells that a Tie-breaker could be asked about, settled ones included."""
        return [cell for cell, t in self._transcripts.items() if t.failure is None and t.rounds]

    def end_round(self, *, again: bool = False) -> None:
        """Record the sizes of the parts after a round, or `again` after the last one."""
        if len(self._items) == 1:
            return
        for part in self._parts:
            size = len(candidates_in(part)), len(aspects_in(part))
            for cell in part:
                before = self._transcripts[cell]
                sizes = before.sizes[:-1] if again else before.sizes
                self._transcripts[cell] = replace(before, sizes=(*sizes, size))

    async def turn(self, role: type[DebateRole], cells: Collection[Cell]) -> None:
        """Have a role speak about some cells, in one call for each part of the table that they are in."""
        if not cells:
            return
        speaker = role(self._debates)

        async def speak(part: Part, cells: Collection[Cell]) -> list[Part]:
            concerned = tuple(cell for cell in part if cell in cells)
            if not concerned:
                return [part]
            answers = await (self._ask(speaker, part, concerned) if len(part) > 1 else self._ask_alone(speaker, *part))
            again = [cell for cell, answer in answers.items() if not self._add(speaker, cell, answer, len(part) > 1)]
            return await each(prompts.halves(part), again) if again else [part]

        async def each(parts: Sequence[Part], cells: Collection[Cell]) -> list[Part]:
            if len(parts) == 1:
                return await speak(parts[0], cells)
            pieces = await gather(speak(part, cells) for part in parts)
            return [piece for some in pieces for piece in some]

        self._parts = await each(self._parts, cells)

    def _add(self, speaker: DebateRole, cell: Cell, answer: Answer, shared: bool) -> bool:
        """Add what was said about a cell to its transcript, unless it has to be asked about among fewer."""
        before, spent = self._transcripts[cell], self._spent[cell]
        if isinstance(answer, RoleReply):
            turn = speaker.turn(before, answer.value, answer.calls + spent, self._items[cell])
            self._transcripts[cell] = before.add(turn)
        elif shared and (answer.divisible or (answer.reason == "unreadable reply" and not self._whole)):
            self._spent[cell] += answer.calls
            return False
        else:
            failure = answer.at(speaker.name, speaker.round(before))
            self._transcripts[cell] = before.add(replace(failure, calls=failure.calls + spent))
        self._spent[cell] = 0
        return True

    async def _ask_alone(self, speaker: DebateRole, cell: Cell) -> dict[Cell, Answer]:
        item = self._items[cell]
        if cell not in self._alone:
            self._alone[cell] = await speaker.of(item).briefed(item)
        return {cell: await speaker.alone(item, self._transcripts[cell], self._alone[cell])}

    async def _ask(self, speaker: DebateRole, part: Part, concerned: Part) -> dict[Cell, Answer]:
        items = {cell: self._items[cell] for cell in part}
        own = prompts.joint_briefing({cell.aspect: self._briefings[item.aspect.name] for cell, item in items.items()})
        inputs = {
            **prompts.table_material(items),
            "debate": prompts.debate_text({cell: speaker.said(self._transcripts[cell]) for cell in part}),
            **speaker.inputs(own, part),
        }
        tag = speaker.tag([self._transcripts[cell] for cell in concerned])
        if not speaker.samples:
            return await self._ask_once(speaker, part, concerned, inputs, tag)
        tags = (replace(tag, sample=number) for number in range(speaker.samples))
        runs = await gather(self._ask_once(speaker, part, concerned, inputs, one) for one in tags)
        return {cell: _mean([run[cell] for run in runs]) for cell in concerned}

    async def _ask_once(
        self, speaker: DebateRole, part: Part, concerned: Part, inputs: Mapping[str, str], tag: CallTag
    ) -> dict[Cell, Answer]:
        """Make one call about the concerned cells, and a second one about what cannot be read from the first reply."""
        items = {cell: self._items[cell] for cell in part}
        answers: dict[Cell, Answer] = {}
        calls = dict.fromkeys(concerned, 0.0)
        wrong: dict[Cell, str] = dict.fromkeys(concerned, "")
        correction = tail = ""
        settings = {**({} if tag.sample is None else SAMPLING), **_reply_limit(concerned)}
        for _ in range(2):
            missing, adapter = tuple(wrong), RoleLastAdapter()
            prompt = {**inputs, "request": speaker.request(part, concerned, missing), "correction": correction}
            reply = await call(
                speaker.predict(), prompt, tag, adapter, settings, signature=prompts.TablePrompt, demos=[]
            )
            for cell in missing:
                calls[cell] += 1 / len(missing)
            if isinstance(reply, NoAnswer):
                return answers | {cell: replace(reply, calls=calls[cell]) for cell in missing}
            wrong = {}
            text = "" if isinstance(reply, Unreadable) else reply["reply"]
            for cell, reading in speaker.read(text, missing, items).items():
                if isinstance(reading, Unreadable):
                    wrong[cell] = reading.why
                else:
                    answers[cell] = RoleReply(reading, calls[cell])
            if not wrong:
                break
            correction, tail = _correction(wrong), adapter.kept()
        unread = {c: NoAnswer("unreadable reply", f"{label(c)}: {why}{tail}", calls[c]) for c, why in wrong.items()}
        return answers | unread


def _mean(samples: Sequence[Answer]) -> Answer:
    """What the samples say about a cell, if none of them failed because of the texts."""
    failed = next((answer for answer in samples if isinstance(answer, NoAnswer) and answer.divisible), None)
    return mean_of(samples) if failed is None else replace(failed, calls=sum(answer.calls for answer in samples))


def _correction(wrong: Mapping[Cell, str]) -> str:
    reasons: dict[str, list[Cell]] = {}
    for cell, why in wrong.items():
        reasons.setdefault(why, []).append(cell)
    problems = "; ".join(f"{listed(cells)}: {why}" for why, cells in reasons.items())
    return f"Of your last reply this could not be used: {problems}. Reply about {listed(wrong)} alone."


def _reply_limit(concerned: Sequence[Cell]) -> dict[str, int]:
    """The setting that gives a reply about these cells enough tokens, where the LM's own limit is lower."""
    lm = dspy.settings.lm
    limit = lm.kwargs.get("max_tokens") if isinstance(lm, JudgeLM) else None
    # A reply that is cut off at the limit would be paid for twice: it has to be asked for again with more tokens.
    needed = len(concerned) * (TOKENS_PER_SCORE_JOINT if concerned[0].aspect else TOKENS_PER_SCORE)
    return {"max_tokens": needed} if limit is not None and limit < needed else {}
