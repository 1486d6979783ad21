"""A report as plain values: sections and debates, as written to `report.json`.

The texts of the data are kept apart, so that a report can be logged and shared without them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from debate_judge.data.errors import InputError
from debate_judge.data.files.records import Record, input_error
from debate_judge.runs.reports.html.blocks import Section

REMEDY = "run the compile or comparison again, without report=none (--config); finished calls are not paid for again"
"""For reports that are missing or broken."""


@dataclass(frozen=True, slots=True)
class PathStep:
    """One turn of a debate without its text."""

    role: str
    round: int
    score: float | None
    no_issue: bool


@dataclass(frozen=True, slots=True)
class JudgeOutcome:
    """The result of one judge on one item."""

    score: float | None
    stop: str
    """Reason why the judge stopped, or why there is no score."""
    rounds: int
    calls: float | None
    """LM calls; None for scores from a file."""
    path: tuple[PathStep, ...] = ()


@dataclass(frozen=True, slots=True)
class RatedDebate:
    """A candidate in one aspect: its ratings and the judges' outcomes."""

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
    """A judge whose debates are on the page."""

    name: str
    on_scale: bool = True
    """Whether its scores are on the aspects' scales, so that they can be compared with ratings."""


@dataclass(frozen=True, slots=True)
class Debates:
    """The debates on the page, without texts."""

    judges: tuple[BrowsedJudge, ...] = ()
    """The page first shows the debates of the first judge."""
    aspects: tuple[AspectScale, ...] = ()
    items: tuple[RatedDebate, ...] = ()
    left_out: int = 0
    """Number of items that are not on the page."""


@dataclass(frozen=True, slots=True)
class Report:
    """A report, from which its page is made."""

    subject: Literal["compile", "comparison"]
    name: str
    title: str
    identity: str
    """Equal for reports of the same run; identifies the report's texts."""
    sections: tuple[Section, ...]
    debates: Debates
    stand_in: str = ""
    """A notice for the figures where the LM was a stand-in, else empty."""
    format: Literal["debate-judge report"] = "debate-judge report"
    version: Literal[1] = 1
    """Increased when a field is renamed or changes its meaning; reports of other versions are not read."""
    labels: dict[str, str] = field(default_factory=dict)
    """`source`, `candidate` and `context` -> the task's label."""


@dataclass(frozen=True, slots=True)
class ItemTexts:
    """The texts of a `RatedDebate`."""

    comments: tuple[str, ...]
    """The raters' comments about the aspect."""
    turns: tuple[tuple[str, ...], ...]
    """For each judge the texts of the turns."""
    details: tuple[str, ...]
    """For each judge why there is no score, else empty."""


@dataclass(frozen=True, slots=True)
class DebateTexts:
    """All texts that a report without texts leaves out, because they are texts of the data or may quote them."""

    report: str
    """The report's `identity`."""
    sources: dict[str, tuple[str, str]]
    """Group -> its source and context."""
    candidates: dict[str, dict[str, str]]
    """Group -> candidate -> its text."""
    items: tuple[ItemTexts, ...]
    """In the order of the report's items."""
    version: Literal[1] = 1


_REPORT = TypeAdapter(Report)
_TEXTS = TypeAdapter(DebateTexts)

_T = TypeVar("_T")


def to_json(value: Report | DebateTexts) -> dict[str, Any]:
    """The value as plain JSON values."""
    adapter: TypeAdapter[Any] = _REPORT if isinstance(value, Report) else _TEXTS
    record: dict[str, Any] = adapter.dump_python(value, mode="json")
    return record


def report_from(content: str | bytes, location: str) -> Report:
    """Parse a report; error messages name its `location`.

    Raises:
        InputError: It is no report, or one of another version.
    """
    return _read(_REPORT, content, location)


def texts_from(content: str | bytes, location: str, report: Report) -> DebateTexts:
    """Parse the texts of a report; error messages name their `location`.

    Raises:
        InputError: They are no texts of a report, or those of another one.
    """
    texts, items = _read(_TEXTS, content, location), report.debates.items
    turns = [tuple(len(outcome.path) for outcome in item.outcomes) for item in items]
    matches = texts.report == report.identity and turns == [
        tuple(map(len, item_texts.turns)) for item_texts in texts.items
    ]
    known = texts.candidates.keys() & texts.sources.keys()
    if not matches or any(i.group not in known or i.candidate not in texts.candidates[i.group] for i in items):
        problem = "these are the texts of another report"
        raise InputError(problem, file=location, expected=report.identity, found=texts.report, remedy=REMEDY)
    return texts


def _read(adapter: TypeAdapter[_T], content: str | bytes, location: str) -> _T:
    try:
        return adapter.validate_json(content)
    except ValidationError as error:
        problem = "this is no report, or a report of another version of this project"
        field_error = input_error(error, Record({}, location, remedy=REMEDY))
        raise field_error.replaced(problem=problem, found=None) from None


def printable(text: str) -> str:
    """`text` with lone surrogates replaced, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")
