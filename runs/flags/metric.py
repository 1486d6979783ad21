"""The metric of a command: a correlation with the raters and the level at which it is taken, as one setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator

from debate_judge.data.agreement.correlations import STATISTICS, Statistic
from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.schema import Level
from debate_judge.runs.flags.declared import setting

AUTO: Literal["auto"] = "auto"
"""The level that suits the data: within sources where they have several candidates."""


@dataclass(frozen=True, slots=True)
class MetricChoice:
    """What judges are compared by."""

    level: Level | Literal["auto"] = AUTO
    correlation: Statistic = "spearman"

    @classmethod
    def of(cls, text: str, levels: Sequence[str] = ("summary", "sample")) -> MetricChoice:
        """Read `LEVEL/CORRELATION`, or one of the two.

        Args:
            text: What the user gave.
            levels: The levels that there are, besides `auto`.

        Raises:
            InputError: It is neither.
        """
        known: dict[str, Sequence[str]] = {"level": (AUTO, *levels), "correlation": STATISTICS}
        found: dict[str, str] = {}
        for part in text.split("/"):
            kind = next((kind for kind, names in known.items() if part in names and kind not in found), None)
            if kind is None:
                raise InputError(
                    "not a metric",
                    expected=f"LEVEL/CORRELATION: {', '.join(known['level'])}; {', '.join(STATISTICS)}",
                    found=text,
                    remedy=did_you_mean(part, [name for names in known.values() for name in names]),
                )
            found[kind] = part
        return cls(**cast(Any, found))

    def __str__(self) -> str:
        return f"{self.level}/{self.correlation}"


MetricText = Annotated[str, AfterValidator(lambda text: str(MetricChoice.of(text)))]
"""What a user gives as `metric` of a compile, in full."""

METRIC = setting(
    str(MetricChoice()),
    "LEVEL/CORRELATION, e.g. summary/spearman",
)
