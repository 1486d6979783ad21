"""A compiled judge: for each aspect its own judge and the granularity of its final score, exported and used as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from debate_judge.data.calibration import Calibration
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Granularity, Task
from debate_judge.programs.grouping import Grouping, grouped
from debate_judge.programs.judge import Item, Judge, Judgement, round_to_granularity

T = TypeVar("T")

ScoreScale = Literal["judge", "raters"]
"""Whether scores are reported as the judge gives them or mapped to the raters' scale (`Calibration`)."""


@dataclass(frozen=True)
class AspectJudge:
    """The judge of one aspect."""

    judge: Judge
    granularity: Granularity = "given"
    calibration: Calibration | None = None
    """Map from reported scores to the raters' scale; None if none was fitted."""

    def __post_init__(self) -> None:
        if not self.judge.on_scale and self.granularity != "given":
            raise InputError(
                f"a score of {self.judge.kind!r} is not on the aspect's scale and has no place on its steps",
                field="granularity",
                expected="given",
                found=self.granularity,
            )

    def reported(self, judgement: Judgement, aspect: Aspect) -> float | None:
        """The score as this judge reports it, or None where there is none."""
        return round_to_granularity(judgement, aspect, self.granularity)


@dataclass(frozen=True)
class SharedJudge:
    """A judge with the aspects that it is asked about: several in one call if it reads them jointly."""

    judge: Judge
    aspects: tuple[str, ...]


def shared_judges(judges: Mapping[str, Judge]) -> list[SharedJudge]:
    """Group aspects (name -> judge) so that those share LM calls whose judges have the same `joint_key`."""
    groups: dict[str, list[str]] = {}
    for name, judge in judges.items():
        key = judge.joint_key()
        # Differs from every joint key, because those are JSON.
        groups.setdefault(f"alone: {name}" if key is None else key, []).append(name)
    shared = []
    for names in groups.values():
        first, several = judges[names[0]], len(names) > 1
        judge = first.jointly({name: judges[name] for name in names}) if several else first
        shared.append(SharedJudge(judge, tuple(names)))
    return shared


@dataclass(frozen=True, slots=True)
class SharedGrouping:
    """What one judge is asked about a corpus, in all aspects that share its calls."""

    judge: Judge
    aspects: tuple[str, ...]
    items: tuple[Item, ...]
    """Of the aspects, one aspect after the other."""
    grouping: Grouping

    def by_aspect(self, results: Sequence[Sequence[T]]) -> dict[str, list[T]]:
        """The results of the tables, one for each place, in the order of the items of each aspect."""
        results_by_aspect: dict[str, list[T]] = {name: [] for name in self.aspects}
        for item, result in zip(self.items, self.grouping.by_item(results), strict=True):
            results_by_aspect[item.aspect.name].append(result)
        return results_by_aspect


def grouped_by_aspect(judges: Mapping[str, Judge], items: Mapping[str, Sequence[Item]]) -> list[SharedGrouping]:
    """Group the items of several aspects, each by its name, as `shared_judges` groups their judges."""
    groupings = []
    for shared in shared_judges({name: judges[name] for name in items}):
        shared_items = tuple(item for name in shared.aspects for item in items[name])
        groupings.append(
            SharedGrouping(shared.judge, shared.aspects, shared_items, grouped(shared.judge, shared_items))
        )
    return groupings


def default_granularity(judge: Judge, aspect: Aspect) -> Granularity:
    """The granularity of final scores if none is chosen: `whole` where the scale demands whole steps."""
    whole = aspect.scale.on_steps and judge.on_scale and not judge.compares
    return "whole" if whole else "given"


@dataclass(frozen=True)
class CompiledJudge:
    """One judge for a task."""

    task: Task
    aspects: Mapping[str, AspectJudge]
    """Aspect name -> its judge, in the task's order."""

    def require_calibrated(self, aspects: Sequence[Aspect], scale: str) -> None:
        """Refuse to report scores on a scale that the judge has no map to."""
        known = get_args(ScoreScale)
        if scale not in known:
            raise InputError("unknown scale of scores", field="scale", expected=" or ".join(known), found=scale)
        without = [aspect.name for aspect in aspects if self.aspects[aspect.name].calibration is None]
        if scale == "raters" and without:
            raise InputError(
                f"the judge has no map to the raters' scale for {', '.join(without)}",
                field="scale",
                expected="a judge that was calibrated when it was compiled, which one of pairs is not",
                remedy="leave the scale out for the judge's own scores, or compile the judge again",
            )
