"""The metric of a command: a correlation with the raters and its level, as one setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator

from debate_judge.data.agreement.absolute_agreement import MEASURES, AbsoluteMeasure
from debate_judge.data.agreement.correlations import STATISTICS, Statistic
from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.schema import Level
from debate_judge.runs.flags.declaration import setting

AUTO: Literal["auto"] = "auto"
"""The level that suits the data: within sources where they have several candidates."""


@dataclass(frozen=True, slots=True)
class MetricChoice:
    """What judges are compared by."""

    level: Level | Literal["auto"] = AUTO
    correlations: tuple[Statistic, ...] = ()
    """The named ones, in this order."""
    absolute_measure: AbsoluteMeasure | None = None
    """What a compile maximizes in place of a correlation."""

    @classmethod
    def of(
        cls, text: str, levels: Sequence[str], *, allow_several: bool = False, allow_absolute: bool = False
    ) -> MetricChoice:
        """Read `LEVEL/CORRELATION`, or one of the two.

        Args:
            text: The value of `--metric`.
            levels: The allowed levels, besides `auto`.
            allow_several: Whether several correlations, joined by commas, are allowed.
            allow_absolute: Whether a measure of absolute agreement may stand in place of the correlation.

        Raises:
            InputError: The text is no metric.
        """
        choices: dict[str, Sequence[str]] = {
            "level": (AUTO, *levels),
            "measures": (*STATISTICS, *(MEASURES if allow_absolute else ())),
        }
        by_kind: dict[str, tuple[str, ...]] = {}
        for part in text.split("/"):
            names = tuple(dict.fromkeys(part.split(",")))
            unused = (kind for kind in choices if kind not in by_kind)
            kind = next((kind for kind in unused if set(names) <= set(choices[kind])), None)
            if kind is None or (len(names) > 1 and (kind == "level" or not allow_several)):
                raise InputError(
                    "not a metric",
                    expected=f"LEVEL/CORRELATION{',...' * allow_several}: {', '.join(choices['level'])}; "
                    + ", ".join(choices["measures"]),
                    found=text,
                    remedy=did_you_mean(part, [name for names in choices.values() for name in names]),
                )
            by_kind[kind] = names
        (level,), measures = by_kind.get("level", (AUTO,)), by_kind.get("measures", ())
        # In the order in which they were named: intervals are for the first.
        correlations = tuple(name for name in measures if name in STATISTICS)
        return cls(cast(Any, level), cast(Any, correlations), next((m for m in MEASURES if m in measures), None))

    @property
    def correlation(self) -> Statistic:
        """The first named one, or the default."""
        return self.correlations[0] if self.correlations else "spearman"

    def __str__(self) -> str:
        return f"{self.level}/{self.absolute_measure or self.correlation}"


def objective_of(text: str) -> MetricChoice:
    """What a compile maximizes, from the value of `metric`."""
    return MetricChoice.of(text, ("summary", "sample"), allow_absolute=True)


MetricText = Annotated[str, AfterValidator(lambda text: str(objective_of(text)))]
"""The type of a compile's setting `metric`, completed to LEVEL/CORRELATION."""

METRIC = setting(str(MetricChoice()), "what to maximize: LEVEL/CORRELATION, mae, ccc or kappa")

CUT = setting(
    None,
    "threshold of yes/no decisions, which are compared as well: yes is a score of at least X",
    default_text="three quarters up the scale; for two-valued ratings, their midpoint",
    rare=True,
)
