"""What a report shows, as plain values: sections of blocks, and the debates. Kept as `report.json`.

A section is a title over paragraphs, tables, differences of texts and charts; the page shows whatever sections there
are, so that a further one is a further `Section`. Charts are kept as their numbers and drawn when the page is made.

The texts of the data are in a value of their own, `DebateTexts`, because a report must be able to go where they may
not: without them it quotes none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from debate_judge.data.agreement.results import Agreement, Difference
from debate_judge.data.errors import InputError

FORMAT = "debate-judge report"
VERSION = 1
"""Raised when a field of a report is renamed or gets another meaning; reports of other versions are not read."""


@dataclass(frozen=True, slots=True)
class Span:
    """A value with its 95 % interval; None where there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, found: Agreement | Difference) -> Span:
        return cls(found.value, found.low, found.high)


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Lines of prose."""

    text: str
    lead: str = ""
    """What stands before it in bold, e.g. a question."""
    look: Literal["plain", "warning", "small"] = "plain"
    kind: Literal["paragraph"] = "paragraph"


@dataclass(frozen=True, slots=True)
class DataTable:
    """A table; a column of numbers is aligned to the right by itself."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    total: bool = False
    """Whether the last row sums up or averages the others."""
    kind: Literal["table"] = "table"


@dataclass(frozen=True, slots=True)
class Quotation:
    """A longer text as it stands, e.g. a guide to the raters."""

    title: str
    text: str
    kind: Literal["quotation"] = "quotation"


@dataclass(frozen=True, slots=True)
class TextChange:
    """A text before and after, shown as a difference word by word."""

    title: str
    before: str
    after: str
    kind: Literal["change"] = "change"


@dataclass(frozen=True, slots=True)
class LineSeries:
    """One line of a chart: a value for each n from 0 on."""

    name: str
    values: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class RoundsChart:
    """Agreement by the number of rounds."""

    title: str
    measure: str
    series: tuple[LineSeries, ...]
    chosen: tuple[str, int] | None = None
    """Series and n of the choice."""
    kind: Literal["rounds"] = "rounds"


@dataclass(frozen=True, slots=True)
class CostPoint:
    """Something that was tried."""

    calls: float
    agreement: float
    name: str


@dataclass(frozen=True, slots=True)
class CostChart:
    """Agreement against LM calls per item."""

    title: str
    measure: str
    tried: tuple[CostPoint, ...]
    front: tuple[CostPoint, ...]
    """Of these, the points that no other beats in both, by calls."""
    chosen: CostPoint | None = None
    kind: Literal["cost"] = "cost"


@dataclass(frozen=True, slots=True)
class JudgesChart:
    """Agreement of several judges, row by row, with intervals."""

    title: str
    measure: str
    rows: tuple[str, ...]
    series: tuple[LineSeries, ...]
    """Judge -> a value for each row."""
    kind: Literal["judges"] = "judges"


@dataclass(frozen=True, slots=True)
class ScatterChart:
    """Scores against mean ratings."""

    title: str
    low: float
    high: float
    points: tuple[tuple[float, float], ...]
    """Mean rating and score, at most so many as can be told apart."""
    total: int
    """Items that the points are drawn from."""
    on_scale: bool = True
    """Whether the scores lie on the scale of the ratings."""
    kind: Literal["scatter"] = "scatter"


@dataclass(frozen=True, slots=True)
class SharesChart:
    """How ratings and scores are spread over the scale."""

    title: str
    edges: tuple[float, ...]
    """Ends of the bins; one more than there are shares."""
    ratings: tuple[float, ...]
    scores: tuple[float, ...]
    kind: Literal["shares"] = "shares"


@dataclass(frozen=True, slots=True)
class Confusion:
    """Counts of items by rating and score, both in whole points."""

    title: str
    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    """A row for each rating."""
    kind: Literal["confusion"] = "confusion"


ReportBlock = Annotated[
    Paragraph
    | DataTable
    | Quotation
    | TextChange
    | RoundsChart
    | CostChart
    | JudgesChart
    | ScatterChart
    | SharesChart
    | Confusion,
    Field(discriminator="kind"),
]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page."""

    title: str
    blocks: tuple[ReportBlock, ...]
    figures: bool = True
    """Whether it shows figures that an LM has a part in; where that is a stand-in, the section says so."""


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
    version: int = VERSION
    labels: dict[str, str] = field(default_factory=dict)
    """Source, candidate and context -> what the task calls them."""


_REPORT = TypeAdapter(Report)
_TEXTS = TypeAdapter(DebateTexts)


def to_json(value: Report | DebateTexts) -> dict[str, Any]:
    """The value as plain JSON values."""
    adapter: TypeAdapter[Any] = _REPORT if isinstance(value, Report) else _TEXTS
    found: dict[str, Any] = adapter.dump_python(value, mode="json")
    return found


def report_from(values: Any, place: str) -> Report:
    """The report that was kept at `place`, which error messages name.

    Raises:
        InputError: It is no report, or one of another version.
    """
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise InputError("this is not the data of a report", file=place, field="format", expected=repr(FORMAT))
    _require_version(values, place)
    try:
        return _REPORT.validate_python(values)
    except ValidationError as error:
        raise _broken(error, place) from None


def texts_from(values: Any, place: str) -> DebateTexts:
    """The texts that were kept at `place`.

    Raises:
        InputError: They are no texts of a report, or of one of another version.
    """
    if not isinstance(values, dict):
        raise InputError("these are not the texts of a report", file=place)
    _require_version(values, place)
    try:
        return _TEXTS.validate_python(values)
    except ValidationError as error:
        raise _broken(error, place) from None


def _require_version(values: dict[str, Any], place: str) -> None:
    if values.get("version") != VERSION:
        raise InputError(
            "the report was made by another version of this project",
            file=place,
            field="version",
            expected=str(VERSION),
            found=values.get("version"),
            remedy="run the command that made it again; answered calls are not paid again",
        )


def _broken(error: ValidationError, place: str) -> InputError:
    first = error.errors(include_url=False, include_input=False)[0]
    return InputError(
        "the data of the report cannot be used",
        file=place,
        field=".".join(map(str, first["loc"])),
        expected=str(first["msg"]),
        remedy="run the command that made it again; answered calls are not paid again",
    )


def printable(text: str) -> str:
    """`text` as it can be written in UTF-8: halves of surrogate pairs are replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")


def rows_of(rows: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """The rows of a table as a `DataTable` keeps them."""
    return tuple(tuple(row) for row in rows)
