"""A report as plain values: its sections, its debates and, apart from it, their texts; to `report.json` and back.

The texts are apart because a report must be able to go where they may not: without them it quotes none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from debate_judge.data.errors import InputError
from debate_judge.data.files.records import Record, input_error
from debate_judge.runs.reports.html.blocks import Section

AGAIN = "run the compile or comparison again, without report=none (--config); finished calls are not paid for again"
"""What to do where a report is missing or broken."""


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
class Report:
    """One page."""

    subject: Literal["compile", "comparison"]
    name: str
    title: str
    identity: str
    """Equal for reports of the same run; the texts name theirs by it."""
    sections: tuple[Section, ...]
    debates: Debates
    stand_in: str = ""
    """What must stand beside the figures where the LM was a stand-in."""
    format: Literal["debate-judge report"] = "debate-judge report"
    version: Literal[1] = 1
    """Raised when a field is renamed or gets another meaning; reports of other versions are not read."""
    labels: dict[str, str] = field(default_factory=dict)
    """Source, candidate and context -> what the task calls them."""


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
    version: Literal[1] = 1


_REPORT = TypeAdapter(Report)
_TEXTS = TypeAdapter(DebateTexts)

_T = TypeVar("_T")


def to_json(value: Report | DebateTexts) -> dict[str, Any]:
    """The value as plain JSON values."""
    adapter: TypeAdapter[Any] = _REPORT if isinstance(value, Report) else _TEXTS
    record: dict[str, Any] = adapter.dump_python(value, mode="json")
    return record


def report_from(content: str | bytes, place: str) -> Report:
    """The report whose JSON was kept at `place`, which error messages name.

    Raises:
        InputError: It is no report, or one of another version.
    """
    return _read(_REPORT, content, place)


def texts_from(content: str | bytes, place: str, report: Report) -> DebateTexts:
    """The texts of a report, whose JSON was kept at `place`.

    Raises:
        InputError: They are no texts of a report, or of another one.
    """
    texts, items = _read(_TEXTS, content, place), report.debates.items
    turns = [tuple(len(outcome.path) for outcome in item.outcomes) for item in items]
    fits = texts.report == report.identity and turns == [
        tuple(map(len, item_texts.turns)) for item_texts in texts.items
    ]
    known = texts.candidates.keys() & texts.sources.keys()
    if not fits or any(i.group not in known or i.candidate not in texts.candidates[i.group] for i in items):
        problem = "these are the texts of another report"
        raise InputError(problem, file=place, expected=report.identity, found=texts.report, remedy=AGAIN)
    return texts


def _read(adapter: TypeAdapter[_T], content: str | bytes, place: str) -> _T:
    try:
        return adapter.validate_json(content)
    except ValidationError as error:
        problem = "this is not the data of a report, or of one by another version of this project"
        refused = input_error(error, Record({}, place, remedy=AGAIN))
        raise refused.replaced(problem=problem, found=None) from None


def printable(text: str) -> str:
    """`text` as it can be written in UTF-8: halves of surrogate pairs are replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")
