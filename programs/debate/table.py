"""The debate about the scores of one source's candidates in one aspect: one candidate, or several that share calls.

Each candidate has a transcript of its own. Several open ones are asked about in one call, whose reply has the role's
fields for each; the call counts in their transcripts in equal shares. A candidate whose part of the reply cannot be
read, and every candidate of a call that fails because of its texts, is asked about alone from then on, with the prompts
of a debate about one candidate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import dspy

from debate_judge.programs.debate import prompts
from debate_judge.programs.debate.feedback import Feedback
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.loop import gather
from debate_judge.programs.lm.usage import CallTag
from debate_judge.programs.roles.examples import example_inputs, precedents_for
from debate_judge.programs.roles.parsing import Unreadable
from debate_judge.programs.roles.role import ReplyFailure, RoleLastAdapter, RoleReply, ask, call, item_inputs
from debate_judge.programs.roles.score_modes import ParsedScore, ScoreMode, ask_score
from debate_judge.programs.transcript import EMPTY, Transcript, Turn

if TYPE_CHECKING:
    from debate_judge.programs.debate.judge import Debate

TOKENS_PER_SCORE = 250
"""Tokens that a reply may take for each of several scores; a lower `max_tokens` is raised to the sum."""


class Parse(Protocol):
    def __call__(self, fields: Mapping[str, str], item: Item) -> ParsedScore | Feedback | Unreadable: ...


@dataclass(frozen=True)
class Speaker:
    """A role in one turn."""

    name: str
    """In transcripts and in the table of costs."""
    predictor: dspy.Predict
    text: str
    """The role's part of the prompt."""
    table_text: str
    """The same in a prompt about several candidates."""
    parse: Parse
    """Parses the fields of a reply about one candidate."""
    mode: ScoreMode | None = None
    """How the Scorer's replies become scores; None for other roles."""
    sees_precedents: bool = False


class Table:
    """The candidates of a debate, with the transcript of each.

    Args:
        judge: The debate's roles and options.
        items: Of one source and one aspect, in the order of the prompt.
        transcripts: The debate so far, one for each item; by default it has not begun.
    """

    def __init__(self, judge: Debate, items: Sequence[Item], transcripts: Sequence[Transcript] | None = None) -> None:
        self._judge = judge
        self._items = items
        self.transcripts = list(transcripts or [EMPTY] * len(items))
        """One for each item."""
        self._alone = [False] * len(items)
        self._failed_calls = [0.0] * len(items)
        """Shares of calls about several candidates whose replies were of no use, until the candidate's next turn."""

    def open(self) -> list[int]:
        """The candidates that are still debated."""
        return [n for n, t in enumerate(self.transcripts) if t.failure is None and not t.settled]

    async def turn(self, speaker: Speaker, candidates: Sequence[int], round: int) -> None:
        """Let a role speak about these candidates."""
        table = [number for number in candidates if not self._alone[number]]
        if len(table) > 1:
            await self._ask_about_all(speaker, table, round)
            candidates = [n for n in candidates if n not in table or self._alone[n]]
        await gather(self._ask_about(speaker, number, round) for number in candidates)

    def _record(self, speaker: Speaker, number: int, round: int, reply: RoleReply[Any] | ReplyFailure) -> None:
        calls, self._failed_calls[number] = reply.calls + self._failed_calls[number], 0.0
        transcript = self.transcripts[number]
        if isinstance(reply, ReplyFailure):
            failure = replace(reply.as_failure(speaker.name, round), calls=calls)
            self.transcripts[number] = transcript.add(failure)
        elif isinstance(reply.value, Feedback):
            turn = Turn(speaker.name, round, reply.value.text, no_issue=reply.value.no_issue, calls=calls)
            self.transcripts[number] = transcript.add(turn)
        else:
            turn = Turn(speaker.name, round, reply.value.rationale, score=reply.value.score, calls=calls)
            self.transcripts[number] = transcript.add(turn)

    async def _ask_about(self, speaker: Speaker, number: int, round: int) -> None:
        item, tag = self._items[number], CallTag(speaker.name, round)
        prompt: dict[str, Any] = {
            "debate": str(self.transcripts[number]),
            "inputs": await self._inputs(speaker, [item]),
        }
        reply: RoleReply[Any] | ReplyFailure
        if speaker.mode is None:
            reply = await ask(speaker.predictor, item, lambda fields: speaker.parse(fields, item), tag, **prompt)
        else:
            reply = await ask_score(speaker.predictor, speaker.mode, item, tag, **prompt)
        self._record(speaker, number, round, reply)

    async def _ask_about_all(self, speaker: Speaker, candidates: Sequence[int], round: int) -> None:
        items = [self._items[number] for number in candidates]
        signature = prompts.table_signature(speaker.predictor.signature, len(items))
        inputs = {
            **item_inputs(items[0], ""),
            **await self._inputs(speaker, items),
            "role": speaker.table_text,
            **prompts.table_inputs(items, [str(self.transcripts[number]) for number in candidates]),
        }
        reply = await call(
            speaker.predictor, inputs, CallTag(speaker.name, round), RoleLastAdapter(), _reply_limit(len(items)),
            signature=signature, demos=[],
        )  # fmt: skip
        share = 1 / len(items)
        for index, number in enumerate(candidates, 1):
            if isinstance(reply, ReplyFailure) and not reply.splittable:
                self._record(speaker, number, round, replace(reply, calls=share))
                continue
            parsed: ParsedScore | Feedback | Unreadable | ReplyFailure = reply  # type: ignore[assignment]
            if not isinstance(reply, Unreadable | ReplyFailure):
                names = speaker.predictor.signature.output_fields
                parsed = speaker.parse({name: reply[f"{name}_{index}"] for name in names}, self._items[number])
            if isinstance(parsed, Unreadable | ReplyFailure):
                self._alone[number] = True
                self._failed_calls[number] += share
            else:
                self._record(speaker, number, round, RoleReply(parsed, share))

    async def _inputs(self, speaker: Speaker, items: Sequence[Item]) -> dict[str, str]:
        judge, aspect = self._judge, items[0].aspect
        scorer, whole_points = judge.scorer, judge.mode.name == "expected"
        inputs = {**prompts.common_inputs(aspect, scorer.signature.instructions, whole_points), "role": speaker.text}
        if scorer.demos:
            inputs |= example_inputs(scorer.demos, aspect.name, items)
        if speaker.sees_precedents and judge.precedents:
            # In a thread, because a search of texts would block all other debates.
            inputs["precedents"] = await asyncio.to_thread(self._precedents, items)
        return inputs

    def _precedents(self, items: Sequence[Item]) -> str:
        demos, count = self._judge.critic.demos, self._judge.precedents
        texts = [precedents_for(item, demos, items, count) for item in items]
        if len(texts) == 1:
            return texts[0]
        return "\n".join(f"For candidate_{number}. {text}" for number, text in enumerate(texts, 1))


def _reply_limit(count: int) -> dict[str, int]:
    """`max_tokens` for a reply about `count` candidates, if the LM's own limit is lower than it needs."""
    lm = dspy.settings.lm
    limit = lm.kwargs.get("max_tokens") if isinstance(lm, JudgeLM) else None
    needed = count * TOKENS_PER_SCORE
    # A reply that is cut off would be paid for without a use.
    return {"max_tokens": needed} if limit is not None and limit < needed else {}
