"""The debates of a report, as plain values: what can be looked through without texts, and the texts by themselves.

They are apart because a report must be able to go where the texts may not: without them it quotes none.
"""

from __future__ import annotations

from dataclasses import dataclass

VERSION = 1
"""Raised when a field of a report is renamed or gets another meaning; reports of other versions are not read."""


@dataclass(frozen=True, slots=True)
class PathStep:
    """One turn of a debate without its text."""

    role: str
    round: int
    score: float | None
    no_issue: bool


@dataclass(frozen=True, slots=True)
class JudgeOutcome:
    """What one judge made of one item."""

    score: float | None
    """None where there is none."""
    stop: str
    """Why the judge stopped, or why there is no score."""
    rounds: int
    calls: float | None
    """LM calls; None for scores from a file."""
    together: int = 1
    """Candidates that were judged in one conversation."""
    joint: int = 1
    """Aspects that were judged in one conversation."""
    path: tuple[PathStep, ...] = ()


@dataclass(frozen=True, slots=True)
class RatedDebate:
    """A candidate in one aspect: its ratings and what the judges made of it."""

    group: str
    candidate: str
    aspect: str
    ratings: tuple[float, ...]
    """One for each rater, or the mean where only that is known."""
    outcomes: tuple[JudgeOutcome, ...]
    """In the order of the judges."""


@dataclass(frozen=True, slots=True)
class AspectScale:
    """An aspect that was judged."""

    name: str
    definition: str
    low: float
    high: float
    step: float


@dataclass(frozen=True, slots=True)
class BrowsedJudge:
    """A judge whose outcomes can be looked through."""

    name: str
    on_scale: bool = True
    """Whether its scores lie on the aspects' scales, so that they can be set beside ratings."""


@dataclass(frozen=True, slots=True)
class Debates:
    """What can be looked through."""

    judges: tuple[BrowsedJudge, ...] = ()
    """The first is the one that the page begins with."""
    aspects: tuple[AspectScale, ...] = ()
    items: tuple[RatedDebate, ...] = ()
    left_out: int = 0
    """Items beyond those that are kept."""


@dataclass(frozen=True, slots=True)
class ItemTexts:
    """The texts of a `RatedDebate`."""

    comments: tuple[str, ...]
    """Of the raters, about the aspect."""
    turns: tuple[tuple[str, ...], ...]
    """Judge by judge the texts of the turns."""
    details: tuple[str, ...]
    """Judge by judge why there is no score."""


@dataclass(frozen=True, slots=True)
class DebateTexts:
    """What a report without texts leaves out: everything that is, or could quote, a text of the data."""

    report: str
    """The report's `identity`."""
    sources: dict[str, tuple[str, str]]
    """Group -> its source and context."""
    candidates: dict[str, dict[str, str]]
    """Group -> candidate -> its text."""
    items: tuple[ItemTexts, ...]
    """In the order of the report's."""
    version: int = VERSION


def printable(text: str) -> str:
    """`text` as it can be written in UTF-8: halves of surrogate pairs are replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")
