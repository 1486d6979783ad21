"""Scores of a judge beside ratings, and the figures of their agreement (`data/agreement/tables.py` computes them)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from debate_judge.data.agreement.correlations import Statistic
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Level

LEVELS: tuple[Level, ...] = ("summary", "sample", "system")
STATISTIC_NAMES: dict[Statistic, str] = {"pearson": "Pearson", "spearman": "Spearman", "kendall": "Kendall tau-b"}

MIN_GROUPS_FOR_P_VALUE = 6
"""Least number for a p-value: five groups have 2^5 = 32 sign assignments, so no p-value could be below 2/32."""

WHY_NO_P_VALUE = f"with fewer than {MIN_GROUPS_FOR_P_VALUE} groups none can be below 0.05"


@dataclass(frozen=True, slots=True)
class GroupScores:
    """Ratings of the raters and scores of a judge for the candidates of a group, in one aspect."""

    group: str
    candidates: tuple[str, ...]
    ratings: tuple[float | None, ...]
    """Mean over raters, or None without a rating."""
    scores: tuple[float | None, ...]
    """None where the judge left a candidate unscored."""
    raters: tuple[tuple[float, ...], ...] = ()
    """For each candidate the ratings of the single raters, in the file's order; empty where only means are known."""
    source: str = ""
    """Id of the source where several groups share one, as pairs of texts do; else empty. A hash, because stored scores
    must not contain texts."""

    def __post_init__(self) -> None:
        lengths = {len(self.candidates), len(self.ratings), len(self.scores), len(self.raters or self.candidates)}
        if len(lengths) > 1:
            raise ValueError(f"group {self.group!r} needs one rating and one score, or None, per candidate")
        if len(set(self.candidates)) < len(self.candidates):
            raise InputError(f"group {self.group!r} has two candidates with the same id", field="candidate")
        for field, values in (("rating", self.ratings), ("score", self.scores)):
            for value in values:
                # Twice the value, because differences of two values have to be finite, too.
                if value is not None and not math.isfinite(2 * value):
                    raise InputError(f"group {self.group!r} has a {field} that is not finite", field=field, found=value)

    @property
    def source_id(self) -> str:
        """Id of the source, the unit of resampling: `source`, or else the group's own id."""
        return self.source or self.group


ScoresByAspect = Mapping[str, Sequence[GroupScores]]
"""Aspect -> groups, of one judge."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A statistic with its 95 % interval."""

    value: float | None
    """None where undefined, e.g. the precision of a judge that never decides for positive."""
    low: float | None = None
    """Ends of the interval; None without a value, at system level, with fewer than two sources, or where nothing
    varies."""
    high: float | None = None

    def to_json(self) -> dict[str, float | int | str | None]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement(Figure):
    """One correlation at one level, with its interval and the counts of what was left out.

    Its value is None where all ratings are equal. Where only the judge's scores are constant it is 0, at summary level
    in each such group; the same holds for differences of judges.
    """

    statistic: Statistic
    level: Level
    groups: int
    """Number of groups that the value is computed from."""
    constant: int
    """Number of `groups` in which the judge's scores are constant. In an average over aspects, this and the next counts
    are sums."""
    undefined: int
    """Number of rated groups that are left out because the ratings of their scored candidates are all equal."""
    unscored: int
    """Number of candidates with a rating and no score."""


AgreementByLevel = dict[Level, dict[Statistic, Agreement]]


@dataclass(frozen=True, slots=True)
class AgreementTable:
    """Correlations of every aspect at every level, and their averages."""

    aspects: dict[str, AgreementByLevel]
    average: AgreementByLevel
    """Mean over aspects; undefined where one aspect is, because a mean over fewer aspects would be another quantity."""

    def to_json(self) -> dict[str, object]:
        """Plain values: {"aspects": {aspect: {level: {statistic: {...}}}}, "average": {level: {statistic: {...}}}}."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Figure):
    """Agreement of one judge minus that of another, averaged over aspects; None where all ratings are equal."""

    p_value: float | None = None
    """Two-sided, for the hypothesis of no difference, by sign flips; None below `MIN_GROUPS_FOR_P_VALUE` groups."""
    groups: int
    """Number of sources that it is computed from."""
    deviation: float | None = None
    """Standard deviation of the group differences: the standard error times the root of the number of sources."""
