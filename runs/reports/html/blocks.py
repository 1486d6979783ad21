"""The blocks of a report's sections as plain values: paragraphs, tables, texts, and charts as their numbers.

The page shows whatever `Section`s a report has. Charts are drawn when the page is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from debate_judge.data.agreement.results import Agreement, Difference
from debate_judge.runs.reports.tables import DataTable as DataTable


@dataclass(frozen=True, slots=True)
class IntervalValue:
    """A value of a chart with its 95 % interval; None where undefined."""

    value: float | None
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, figure: Agreement | Difference) -> IntervalValue:
        return cls(figure.value, figure.low, figure.high)


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Lines of prose."""

    text: str
    lead: str = ""
    """Printed before it in bold, e.g. a question."""
    look: Literal["plain", "warning", "small"] = "plain"
    kind: Literal["paragraph"] = "paragraph"


@dataclass(frozen=True, slots=True)
class Quotation:
    """A longer text quoted in full, e.g. a guide to the raters."""

    title: str
    text: str
    kind: Literal["quotation"] = "quotation"


@dataclass(frozen=True, slots=True)
class TextChange:
    """A text before and after, shown as a word diff."""

    title: str
    before: str
    after: str
    kind: Literal["change"] = "change"


@dataclass(frozen=True, slots=True)
class LineSeries:
    """One series of a chart: a value for each step or row."""

    name: str
    values: tuple[IntervalValue, ...]


@dataclass(frozen=True, slots=True)
class LineChart:
    """Agreement by the number of rounds n, from 0 on."""

    title: str
    measure: str
    series: tuple[LineSeries, ...]
    chosen: tuple[str, int] | None = None
    """(series, n) of the chosen judge."""
    kind: Literal["rounds"] = "rounds"


@dataclass(frozen=True, slots=True)
class CostPoint:
    """A judge that was tried, as a point of a chart."""

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
    """The Pareto front of `tried`, by calls."""
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
    ceiling: tuple[float | None, ...] = ()
    """The human ceiling of each row; empty without individual ratings."""
    kind: Literal["judges"] = "judges"


@dataclass(frozen=True, slots=True)
class ScatterChart:
    """Scores against mean ratings."""

    title: str
    low: float
    high: float
    points: tuple[tuple[float, float], ...]
    """(mean rating, score) of items, a sample if there are many."""
    total: int
    """Number of all items."""
    on_scale: bool = True
    """Whether the scores lie on the scale of the ratings."""
    kind: Literal["scatter"] = "scatter"


@dataclass(frozen=True, slots=True)
class DistributionChart:
    """How ratings and scores are spread over the scale."""

    title: str
    edges: tuple[float, ...]
    """Ends of the bins; one more than there are shares."""
    ratings: tuple[float, ...]
    scores: tuple[float, ...]
    kind: Literal["shares"] = "shares"


@dataclass(frozen=True, slots=True)
class ConfusionMatrix:
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
    | LineChart
    | CostChart
    | JudgesChart
    | ScatterChart
    | DistributionChart
    | ConfusionMatrix,
    Field(discriminator="kind"),
]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page."""

    title: str
    blocks: tuple[ReportBlock, ...]
    figures: bool = True
    """Whether its figures depend on the LM, so that the page marks those of a stand-in."""
