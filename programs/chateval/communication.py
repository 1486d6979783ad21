"""ChatEval's communication strategies (appendix C, Algorithms 1 to 3): which agent reads what, one function each.

A strategy lets agents speak in some order and determines what each of them has read by then. It calls no LM itself, and
what an agent reads does not depend on the number of turns, so a discussion of T turns begins with every shorter one.

The printed algorithms have four problems, which are solved here according to the paper's text:

- `for t <- 0 to T` is T iterations, not T + 1: two agents and two turns cost 4.2 single calls (Table 6).
- Algorithm 1 as printed adds h_n, what agent n says, to the history H_m of agent m for m >= n and m > 1 only. So the
  first agent never hears any other, and its second turn repeats the first word for word; the second never hears the
  third. The text around it (what "previous other agents have said") and the authors' published program let every
  agent hear everything that was said before. That is `one-by-one`; the printed form is `one-by-one-printed`.
- In Algorithm 2 the buffer is never emptied; each message is meant to be heard once.
- In Algorithm 3 the summary is added to the histories; by the text it replaces them, and it sums up all that was
  said so far. The summary after the last turn would not be read and is not made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from debate_judge.programs.lm.usage import ROUND
from debate_judge.programs.roles.role import NoAnswer
from debate_judge.programs.transcript import Failure

SUMMARIZER = "summarizer"


@dataclass(frozen=True, slots=True)
class Utterance:
    """One message."""

    speaker: str
    turn: int
    """From 0."""
    text: str
    scores: tuple[float, ...] = ()
    calls: float = 1

    def __str__(self) -> str:
        """The message as others read it, on one line, so that it cannot pose as another speaker's message."""
        text = " ".join(self.text.split())
        if self.speaker == SUMMARIZER:
            return f"Summary of the discussion so far: {text}"
        scores = " and ".join(f"{score:g}" for score in self.scores)
        label = f"score {scores}" if len(self.scores) == 1 else f"scores {scores}"
        return f"{self.speaker}, turn {self.turn + 1}, {label}: {text}"


@dataclass(frozen=True, slots=True)
class Speaker:
    """A participant of a discussion."""

    name: str
    speak: Callable[[int, str], Awaitable[Utterance | NoAnswer]]
    """(turn, the messages that it has read) -> its message."""


@dataclass
class DiscussionLog:
    """All messages in order, and the failure that ended the discussion, if any."""

    said: list[Utterance] = field(default_factory=list)
    failure: Failure | None = None

    def take(
        self, turn: int, speakers: Sequence[Speaker], answers: Sequence[Utterance | NoAnswer]
    ) -> list[Utterance] | None:
        """Record what `speakers` said; None if one of them has no usable reply, which ends the discussion."""
        spoken = [answer for answer in answers if isinstance(answer, Utterance)]
        self.said += spoken
        failed = [(a.name, answer) for a, answer in zip(speakers, answers, strict=True) if isinstance(answer, NoAnswer)]
        if not failed:
            return spoken
        name, first = failed[0]
        self.failure = replace(first, calls=sum(answer.calls for _, answer in failed)).at(name, turn)
        return None


Strategy = Callable[[Sequence[Speaker], Speaker | None, int], Awaitable[DiscussionLog]]
"""(agents, summarizer, number of turns T) -> the log of the discussion."""


async def one_by_one(speakers: Sequence[Speaker], summarizer: Speaker | None, turns: int) -> DiscussionLog:
    """In order, and every message reaches every agent: Algorithm 1 as the authors' published program has it."""
    return await _in_order(speakers, turns, lambda n, m: True)


async def one_by_one_printed(speakers: Sequence[Speaker], summarizer: Speaker | None, turns: int) -> DiscussionLog:
    """Algorithm 1 to the letter: a message reaches its speaker and those after it in the order, the first agent never.

    In the paper's numbering, from 1: h_n goes to H_m for m >= n, m > 1.
    """
    return await _in_order(speakers, turns, lambda n, m: m >= n and m > 0)


async def _in_order(speakers: Sequence[Speaker], turns: int, reaches: Callable[[int, int], bool]) -> DiscussionLog:
    log = DiscussionLog()
    heard: list[list[Utterance]] = [[] for _ in speakers]
    for turn in range(turns):
        ROUND.set(turn)
        for n, speaker in enumerate(speakers):
            message = log.take(turn, [speaker], [await speaker.speak(turn, _text(heard[n]))])
            if message is None:
                return log
            for m in range(len(speakers)):
                if reaches(n, m):
                    heard[m] += message
    return log


async def simultaneous(speakers: Sequence[Speaker], summarizer: Speaker | None, turns: int) -> DiscussionLog:
    """Algorithm 2: all speak at once, then each reads what all said in that turn."""
    log = DiscussionLog()
    heard: list[Utterance] = []
    for turn in range(turns):
        ROUND.set(turn)
        buffer = log.take(turn, speakers, await _at_once(speakers, turn, _text(heard)))
        if buffer is None:
            break
        heard += buffer
    return log


async def simultaneous_with_summarizer(
    speakers: Sequence[Speaker], summarizer: Speaker | None, turns: int
) -> DiscussionLog:
    """Algorithm 3: as Algorithm 2, but each reads only a summary of everything said so far."""
    if summarizer is None:
        raise ValueError("this strategy needs a summarizer")
    log = DiscussionLog()
    buffer: list[Utterance] = []
    heard: list[Utterance] = []
    for turn in range(turns):
        ROUND.set(turn)
        if turn > 0:
            summary = log.take(turn, [summarizer], [await summarizer.speak(turn, _text(buffer))])
            if summary is None:
                break
            heard = summary
        spoken = log.take(turn, speakers, await _at_once(speakers, turn, _text(heard)))
        if spoken is None:
            break
        buffer += spoken
    return log


async def no_talk(speakers: Sequence[Speaker], summarizer: Speaker | None, turns: int) -> DiscussionLog:
    """The ensemble (section 3.2): each speaks once and reads nothing of the others."""
    log = DiscussionLog()
    ROUND.set(0)
    log.take(0, speakers, await _at_once(speakers, 0, ""))
    return log


STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {
        "one-by-one": one_by_one,
        "one-by-one-printed": one_by_one_printed,
        "simultaneous": simultaneous,
        "summarizer": simultaneous_with_summarizer,
        "none": no_talk,
    }
)
"""Name in a configuration -> strategy."""


async def _at_once(speakers: Sequence[Speaker], turn: int, heard: str) -> list[Utterance | NoAnswer]:
    return await asyncio.gather(*(speaker.speak(turn, heard) for speaker in speakers))


def _text(messages: Sequence[Utterance]) -> str:
    return "\n\n".join(map(str, messages))
