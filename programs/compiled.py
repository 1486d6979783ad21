"""A compiled judge: for each aspect a judge, the granularity of its scores, and its calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from debate_judge.data.calibration import Calibration
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Granularity, Task
from debate_judge.programs.judge import Judge, Judgement, round_to_granularity

ScoreScale = Literal["judge", "raters"]
"""Whether scores are the judge's own or are mapped to the raters' scale (`Calibration`)."""


@dataclass(frozen=True)
class AspectJudge:
    """The judge of one aspect, and how its scores are reported."""

    judge: Judge
    granularity: Granularity = "given"
    """The steps that its scores are rounded to; `given` leaves them as they are."""
    calibration: Calibration | None = None
    """Map from reported scores to the raters' scale; None if none was fitted."""

    def __post_init__(self) -> None:
        if not self.judge.on_scale and self.granularity != "given":
            raise InputError(
                f"a score of {self.judge.kind!r} is not on the aspect's scale and cannot be rounded to its steps",
                field="granularity",
                expected="given",
                found=self.granularity,
            )

    def reported_score(self, judgement: Judgement, aspect: Aspect) -> float | None:
        """The score, rounded to the granularity; None if there is none."""
        return round_to_granularity(judgement, aspect, self.granularity)


def default_granularity(judge: Judge, aspect: Aspect) -> Granularity:
    """The granularity of scores if none is chosen: `whole` where they must be steps of the scale."""
    whole = aspect.scale.on_steps and judge.on_scale and not judge.compares_pairs
    return "whole" if whole else "given"


@dataclass(frozen=True)
class CompiledJudge:
    """The judges of a task's aspects, exported and used as one."""

    task: Task
    aspects: Mapping[str, AspectJudge]
    """Aspect name -> its judge, in the task's order."""

    def require_calibrated(self, aspects: Sequence[Aspect], scale: str) -> None:
        """Refuse an unknown `ScoreScale`, and the raters' scale for aspects without a calibration."""
        scales = get_args(ScoreScale)
        if scale not in scales:
            raise InputError("unknown scale of scores", field="scale", expected=" or ".join(scales), found=scale)
        uncalibrated = [aspect.name for aspect in aspects if self.aspects[aspect.name].calibration is None]
        if scale == "raters" and uncalibrated:
            raise InputError(
                f"the judge has no map to the raters' scale for {', '.join(uncalibrated)}",
                field="scale",
                expected="a calibrated judge: a compile calibrates all judges except those that compare pairs",
                remedy="leave the scale out for the judge's own scores, or compile the judge again",
            )
