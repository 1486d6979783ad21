"""One call about several scores, and a second call about those that cannot be read from the first reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import dspy

from debate_judge.programs.debate.table_cells import Cell, label, listed
from debate_judge.programs.debate.table_prompts import TablePrompt
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.limits.budget import TOKENS_PER_BYTE
from debate_judge.programs.lm.reply import Messages
from debate_judge.programs.roles.adapter import UNUSABLE, UnusableError
from debate_judge.programs.roles.parsing import Unreadable, excerpt
from debate_judge.programs.roles.role import ADAPTER, NoAnswer, RoleReply, failed_call

T = TypeVar("T")

ROOM, ROOM_JOINT = 250, 150
"""Tokens of a reply for each score, in calls about one aspect and about several. A lower `max_tokens` is raised to the
sum, which for 16 candidates in five aspects is still below the longest reply of LMs."""

Readings = dict[Cell, T | Unreadable]
"""Cell -> what a reply says about it, or why that cannot be read."""


@dataclass(frozen=True, slots=True)
class TooMuch:
    """A call failed because of its texts, e.g. their length, so that calls about fewer of them may succeed."""

    calls: float
    """LM calls made, or a cell's share of them; a prompt that is known to be too long is not sent."""


async def ask_table(
    speaker: str,
    inputs: Mapping[str, str],
    asked: Sequence[Cell],
    request: Callable[[Sequence[Cell]], str],
    read: Callable[[str, Sequence[Cell]], Readings[T]],
    settings: Mapping[str, Any],
) -> dict[Cell, RoleReply[T] | NoAnswer | TooMuch]:
    """Ask about some cells.

    Args:
        speaker: Name of the role in transcripts and the table of costs.
        inputs: Input fields of the prompt, except request and correction.
        asked: The cells.
        request: (cells) -> the form of a reply about them.
        read: (reply, cells) -> what the reply says about each cell.
        settings: For these calls only, as `JudgeLM.ask` takes them.

    Returns:
        Cell -> what was said about it, with its share of the calls, or why nothing could be read, or that it has to be
        asked about among fewer.

    Raises:
        dspy.LMError: The LM cannot be used at all.
    """
    found: dict[Cell, RoleReply[T] | NoAnswer | TooMuch] = {}
    calls = dict.fromkeys(asked, 0.0)
    wrong: dict[Cell, str] = dict.fromkeys(asked, "")
    correction = tail = ""
    settings = {**settings, **_room(asked)}
    for _ in range(2):
        missing = tuple(wrong)
        prompt = {**inputs, "request": request(missing), "correction": correction}
        reply = await _reply(speaker, prompt, settings)
        for cell in missing:
            calls[cell] += (1 if isinstance(reply, str) else reply.calls) / len(missing)
        if not isinstance(reply, str):
            return found | {cell: replace(reply, calls=calls[cell]) for cell in missing}
        wrong = {}
        for cell, said in read(reply, missing).items():
            if isinstance(said, Unreadable):
                wrong[cell] = said.why
            else:
                found[cell] = RoleReply(said, calls[cell])
        if not wrong:
            break
        correction, tail = _correction(wrong), _kept(prompt, settings)
    unread = {c: NoAnswer("unreadable reply", f"{label(c)}: {why}{tail}", calls[c]) for c, why in wrong.items()}
    return found | unread


def _correction(wrong: Mapping[Cell, str]) -> str:
    reasons: dict[str, list[Cell]] = {}
    for cell, why in wrong.items():
        reasons.setdefault(why, []).append(cell)
    told = "; ".join(f"{listed(cells)}: {why}" for why, cells in reasons.items())
    return f"Of your last reply this could not be used: {told}. Reply about {listed(wrong)} alone."


def _room(asked: Sequence[Cell]) -> dict[str, int]:
    lm = dspy.settings.lm
    limit = lm.kwargs.get("max_tokens") if isinstance(lm, JudgeLM) else None
    # A reply that is cut off at the limit would be paid for twice: it has to be asked for again with more tokens.
    room = len(asked) * (ROOM_JOINT if asked[0].aspect else ROOM)
    return {"max_tokens": room} if limit is not None and limit < room else {}


async def _reply(speaker: str, inputs: Mapping[str, str], settings: Mapping[str, Any]) -> str | NoAnswer | TooMuch:
    lm = dspy.settings.lm
    try:
        if not isinstance(lm, JudgeLM):
            with dspy.context(adapter=ADAPTER):
                return str((await dspy.Predict(TablePrompt).acall(**inputs)).reply or "")
        messages = _messages(inputs)
        if _exceeds(lm, messages):
            return TooMuch(0)
        reply = await lm.ask(messages, speaker, **settings)
        if reply.finish in UNUSABLE:
            raise UnusableError(UNUSABLE[reply.finish])
    except (dspy.LMError, UnusableError) as error:
        answer = failed_call(error, 1)
        # A failure of the server does not divide the table: a later run would ask about it as a whole, and the scores
        # would differ.
        about_texts = not isinstance(error, dspy.LMError) or isinstance(error, dspy.LMInvalidRequestError)
        return TooMuch(answer.calls) if about_texts else answer
    return reply.text


def _messages(inputs: Mapping[str, str]) -> Messages:
    return ADAPTER.format(TablePrompt, [], dict(inputs))


def _exceeds(lm: JudgeLM, messages: Messages) -> bool:
    """Whether a prompt is longer than the LM's context, if that is known."""
    size = sum(len(message["content"].encode("utf-8", "surrogatepass")) for message in messages)
    return lm.context is not None and size * TOKENS_PER_BYTE > lm.context


def _kept(inputs: Mapping[str, str], settings: Mapping[str, Any]) -> str:
    """For messages: the beginning of a reply, and its key in the store of replies."""
    lm = dspy.settings.lm
    found = lm.kept(_messages(inputs), **settings) if isinstance(lm, JudgeLM) else None
    if found is None:
        return ""
    key, reply = found
    text = excerpt(reply.text)
    return (f"; the reply was: {text}" if text else "") + f" [kept as {key}]"
