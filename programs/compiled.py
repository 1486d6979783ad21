"""A compiled judge: for each aspect a judge, the granularity of its scores, and its calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from debate_judge.data.calibration import Calibration
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Granularity, Task
from debate_judge.programs.grouping import Grouping, group_into_questions
from debate_judge.programs.judge import Item, Judge, Judgement, round_to_granularity

T = TypeVar("T")

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


@dataclass(frozen=True)
class SharedJudge:
    """A judge with the aspects that share its calls; one aspect unless it is joint."""

    judge: Judge
    aspects: tuple[str, ...]


def shared_judges(judges: Mapping[str, Judge]) -> list[SharedJudge]:
    """Group aspects (name -> judge): those whose judges have the same `joint_key` share LM calls."""
    names_by_key: dict[str, list[str]] = {}
    for name, judge in judges.items():
        key = judge.joint_key()
        # Differs from every joint key, because those are JSON.
        names_by_key.setdefault(f"alone: {name}" if key is None else key, []).append(name)
    shared = []
    for names in names_by_key.values():
        first = judges[names[0]]
        judge = first.joint_judge({name: judges[name] for name in names}) if len(names) > 1 else first
        shared.append(SharedJudge(judge, tuple(names)))
    return shared


@dataclass(frozen=True, slots=True)
class SharedGrouping:
    """The questions to one judge in all aspects that share its calls."""

    judge: Judge
    aspects: tuple[str, ...]
    items: tuple[Item, ...]
    """One aspect after the other."""
    grouping: Grouping

    def by_aspect(self, results: Sequence[Sequence[T]]) -> dict[str, list[T]]:
        """The results of each aspect's items, in their order, from the results of each question's items."""
        results_by_aspect: dict[str, list[T]] = {name: [] for name in self.aspects}
        for item, result in zip(self.items, self.grouping.by_item(results), strict=True):
            results_by_aspect[item.aspect.name].append(result)
        return results_by_aspect


def group_by_aspect(judges: Mapping[str, Judge], items: Mapping[str, Sequence[Item]]) -> list[SharedGrouping]:
    """Group items (name of an aspect -> its items) into the questions to each of `shared_judges`."""
    groupings = []
    for shared in shared_judges({name: judges[name] for name in items}):
        shared_items = tuple(item for name in shared.aspects for item in items[name])
        groupings.append(
            SharedGrouping(shared.judge, shared.aspects, shared_items, group_into_questions(shared.judge, shared_items))
        )
    return groupings


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
