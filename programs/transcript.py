"""The transcript of a debate: an append-only list of turns.

It is what the paper's Commander keeps (DEBATE, section 2). Nothing in this file calls an LM.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

RoleName = str
"""Name of a role: scorer, critic or tie-breaker in a debate; other judges have their own."""

UnscoredReason = Literal[
    "unreadable reply",
    "refused",
    "truncated",
    "too long",
    "no log-probabilities",
    "lm error",
    "search error",
    "metric error",
    "no text",
]


@dataclass(frozen=True, slots=True)
class Turn:
    """One parsed reply. Round 0 is the Scorer's first turn; round i is the Critic's i-th reply and the revision."""

    role: RoleName
    round: int
    text: str
    score: float | None = None
    no_issue: bool = False
    calls: float = 1
    """LM calls that this turn took: 2 if the first reply was unreadable; of a call about several items, its share."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a debate ended early, and where."""

    role: RoleName
    round: int
    reason: UnscoredReason
    detail: str
    calls: float


@dataclass(frozen=True, slots=True)
class Transcript:
    """Turns in order. The transcript of n rounds begins with that of every smaller number of rounds."""

    turns: tuple[Turn, ...] = ()
    failure: Failure | None = field(default=None)

    def add(self, addition: Turn | Failure) -> Transcript:
        """The transcript with one more turn, or with the failure that ended it."""
        if isinstance(addition, Failure):
            return replace(self, failure=addition)
        return replace(self, turns=(*self.turns, addition))

    def until(self, rounds: int) -> Transcript:
        """The transcript as it was after `rounds` rounds."""
        last_round = max((entry.round for entry in (*self.turns, self.failure) if entry is not None), default=0)
        if last_round <= rounds:
            return self
        turns = tuple(t for t in self.turns if t.round <= rounds)
        failure = self.failure if self.failure is not None and self.failure.round <= rounds else None
        return replace(self, turns=turns, failure=failure)

    @property
    def score(self) -> float | None:
        """The Scorer's latest score."""
        return next((t.score for t in reversed(self.turns) if t.role == "scorer"), None)

    @property
    def settled(self) -> bool:
        """Whether the Critic has found no issue."""
        return any(t.no_issue for t in self.turns)

    @property
    def rounds(self) -> int:
        """Rounds in which the Critic has replied."""
        return max((t.round for t in self.turns if t.role == "critic"), default=0)

    @property
    def calls(self) -> float:
        return sum(t.calls for t in self.turns) + (self.failure.calls if self.failure else 0)

    def __str__(self) -> str:
        """The debate as prompts show it: a paragraph for each turn, oldest first, so that the text only grows."""
        return "\n\n".join(_line(turn) for turn in self.turns)


EMPTY = Transcript()


def _line(turn: Turn) -> str:
    # On one line, so that no text can pose as another speaker's turn.
    text = " ".join(turn.text.split())
    name = turn.role.capitalize()
    if turn.score is None:
        return f"{name}, round {turn.round}: {text}"
    return f"{name}, round {turn.round}, score {turn.score:g}: {text}"
