"""The values that agreement is reported in; they are computed in `data/agreement/tables.py`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from debate_judge.data.agreement.correlations import Statistic
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Level

LEVELS: tuple[Level, ...] = ("summary", "sample", "system")
NAMES: dict[Statistic, str] = {"pearson": "Pearson", "spearman": "Spearman", "kendall": "Kendall tau-b"}


@dataclass(frozen=True, slots=True)
class GroupScores:
    """One aspect of one group: what the raters gave its candidates and what a judge gave them."""

    group: str
    candidates: tuple[str, ...]
    ratings: tuple[float | None, ...]
    """Mean over raters, or None without a rating."""
    scores: tuple[float | None, ...]
    """None where the judge left a candidate unscored."""

    def __post_init__(self) -> None:
        if not len(self.candidates) == len(self.ratings) == len(self.scores):
            raise ValueError(f"group {self.group!r} needs one rating and one score, or None, per candidate")
        if len(set(self.candidates)) < len(self.candidates):
            raise InputError(f"group {self.group!r} has two candidates with the same id", field="candidate")
        for field, values in (("rating", self.ratings), ("score", self.scores)):
            for value in values:
                # Twice the value, because differences of two values have to be finite, too.
                if value is not None and not math.isfinite(2 * value):
                    raise InputError(f"group {self.group!r} has a {field} that is not finite", field=field, found=value)


@dataclass(frozen=True, slots=True)
class Agreement:
    """One correlation at one level, with what it rests on."""

    statistic: Statistic
    level: Level
    value: float | None
    """None where undefined."""
    low: float | None
    """Ends of the 95 % percentile interval; None without a value, without resamples or with fewer than two groups."""
    high: float | None
    groups: int
    """Groups that the value rests on."""
    undefined: int
    """Groups with ratings that the value does not rest on. In an average over aspects: their sum."""
    unscored: int
    """Candidates with a rating and no score. In an average over aspects: their sum."""
    value_undefined_as_zero: float | None
    """At summary level the mean with undefined groups counted as 0; at the other levels `value`."""

    def to_json(self) -> dict[str, float | int | None]:
        names = ("value", "low", "high", "groups", "undefined", "unscored", "value_undefined_as_zero")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        what = f"{self.level}-level {NAMES[self.statistic]} over {self.groups} groups"
        return f"{_with_interval(self)} {what} ({self.undefined} undefined, {self.unscored} unscored)"


Table = dict[Level, dict[Statistic, Agreement]]


@dataclass(frozen=True, slots=True)
class AgreementTable:
    """Every statistic at every level."""

    aspects: dict[str, Table]
    average: Table
    """Over aspects; undefined as soon as one aspect is, as a mean over fewer aspects would be another quantity."""

    def to_json(self) -> dict[str, object]:
        """Plain values: {"aspects": {aspect: {level: {statistic: {...}}}}, "average": {level: {statistic: {...}}}}."""
        return {
            "aspects": {name: _table_json(table) for name, table in self.aspects.items()},
            "average": _table_json(self.average),
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """Agreement of one judge minus that of another, averaged over aspects."""

    value: float | None
    """None where there is nothing to agree with."""
    low: float | None
    high: float | None
    p_value: float
    """Two-sided, for no difference. Trust it from about ten groups on; with fewer it comes out too small."""
    groups: int

    def __str__(self) -> str:
        return f"{_with_interval(self)}, p = {self.p_value:.3f} over {self.groups} groups"


def _with_interval(found: Agreement | Difference) -> str:
    if found.value is None:
        return "undefined"
    interval = "" if found.low is None or found.high is None else f" [{found.low:.2f}, {found.high:.2f}]"
    return f"{found.value:.2f}{interval}"


def _table_json(table: Table) -> dict[str, object]:
    return {level: {name: found.to_json() for name, found in row.items()} for level, row in table.items()}
