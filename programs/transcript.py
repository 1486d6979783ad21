"""The collective memory of a debate: an append-only list of turns.

The Commander of the paper is not an LM here but the program that keeps this memory and decides what each
role may see of it (DEBATE, section 2 and Algorithm 1). Nothing in this file calls an LM.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

Role = str
"""Who spoke: scorer, critic or tie-breaker in a debate; other judges name their own roles."""

UnscoredReason = Literal[
    "unreadable reply",
    "refused",
    "truncated",
    "too long",
    "no log-probabilities",
    "lm error",
    "metric error",
    "no text",
]


@dataclass(frozen=True, slots=True)
class Turn:
    """One reply, as read. `round` 0 is the Scorer's opening; round i is the i-th Critic reply and its answer."""

    role: Role
    round: int
    text: str
    score: float | None = None
    no_issue: bool = False
    calls: float = 1
    """LM calls this turn took: 2 where the first reply could not be read, and its share of a call that was about
    several candidates."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What ended a debate before its time, and where."""

    role: Role
    round: int
    reason: UnscoredReason
    detail: str
    calls: float


@dataclass(frozen=True, slots=True)
class Transcript:
    """Turns in order. A debate of n_max rounds holds every shorter debate as a prefix."""

    turns: tuple[Turn, ...] = ()
    failure: Failure | None = field(default=None)
    together: int = 1
    """Candidates that were judged side by side, this one included; 1 where it was judged alone."""
    joint: int = 1
    """Aspects that were judged in the same calls, this one included."""

    def add(self, spoken: Turn | Failure) -> Transcript:
        """The transcript with one more turn, or with the failure that ended it in place of one."""
        if isinstance(spoken, Failure):
            return replace(self, failure=spoken)
        return replace(self, turns=(*self.turns, spoken))

    def until(self, rounds: int) -> Transcript:
        """The same debate, had it been stopped after `rounds` rounds."""
        turns = tuple(t for t in self.turns if t.round <= rounds)
        failure = self.failure if self.failure is not None and self.failure.round <= rounds else None
        return replace(self, turns=turns, failure=failure)

    @property
    def score(self) -> float | None:
        """The latest score that the Scorer stands by."""
        return next((t.score for t in reversed(self.turns) if t.role == "scorer"), None)

    @property
    def settled(self) -> bool:
        """Whether the Critic has said that there is no issue."""
        return any(t.no_issue for t in self.turns)

    @property
    def rounds(self) -> int:
        """Critic replies heard so far."""
        return sum(t.role == "critic" for t in self.turns)

    @property
    def calls(self) -> float:
        return sum(t.calls for t in self.turns) + (self.failure.calls if self.failure else 0)

    def __str__(self) -> str:
        """The debate as the roles read it: one paragraph a turn, oldest first, so that it only ever grows."""
        return "\n\n".join(_line(turn) for turn in self.turns)


EMPTY = Transcript()


def _line(turn: Turn) -> str:
    # On one line, so that no turn's text can pass itself off as another speaker's turn.
    text = " ".join(turn.text.split())
    speaker = turn.role.capitalize()
    if turn.score is None:
        return f"{speaker}, round {turn.round}: {text}"
    return f"{speaker}, round {turn.round}, score {turn.score:g}: {text}"
