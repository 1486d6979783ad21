"""The effects of manipulations on scores: the mean change with its interval, and the share of candidates moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from debate_judge.data.agreement.classification import Measure
from debate_judge.data.agreement.raters import mean_over_groups
from debate_judge.data.schema import Aspect, Scale
from debate_judge.runs.probing.measuring import Scored, ScoredTwice
from debate_judge.runs.probing.perturbations import PROBES, Direction

ALL = "all aspects"
"""Name of the entry for all aspects together, if these have the same scale."""

HALF = 0.5
"""Upper limit, in points, of the change from which on a score counts as moved (`step_of`)."""

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class ProbeEffect:
    """The effect of one manipulation on one judge's scores, with t intervals over groups."""

    change: Measure | None
    """Mean change of the score in points, after minus before, paired over candidates; None without candidates."""
    moved: Measure | None
    """Share of candidates whose score moves by `step_of` the scale or more, in the direction of the bias; in either
    direction for manipulations without one."""
    items: int
    """Number of candidates with both scores."""
    unscored_before: int
    """Number of candidates without a score before the manipulation."""
    unscored_after: int
    """Number of candidates that have a score before the manipulation only."""
    skipped: int
    """Number of candidates that the manipulation cannot be applied to."""

    @property
    def shown(self) -> bool:
        """Whether a bias is shown: the interval of the change is above 0."""
        return self.change is not None and self.change.low is not None and self.change.low > 0

    def to_json(self) -> dict[str, object]:
        found: dict[str, object] = {
            name: None if (value := getattr(self, name)) is None else value.to_json() for name in ("change", "moved")
        }
        counts = ("items", "unscored_before", "unscored_after", "skipped")
        return found | {name: getattr(self, name) for name in counts}


Effects = Mapping[str, Mapping[str, ProbeEffect]]
"""Manipulation -> aspect, or `ALL` if there are several with the same scale -> effect."""


def effects_of(scored: Scored, aspects: Sequence[Aspect], items: int) -> dict[str, dict[str, ProbeEffect]]:
    """The effects of all manipulations on one judge.

    Args:
        scored: Its scores before and after.
        aspects: The aspects that it scored.
        items: Number of candidates in each aspect.
    """
    scales = {aspect.scale for aspect in aspects}
    found: dict[str, dict[str, ProbeEffect]] = {}
    for name, by_aspect in scored.items():
        direction = PROBES[name].direction
        found[name] = {a.name: _effect(by_aspect[a.name], a.scale, direction, items) for a in aspects}
        if len(aspects) > 1 and len(scales) == 1:
            everything = [one for aspect in aspects for one in by_aspect[aspect.name]]
            found[name][ALL] = _effect(everything, aspects[0].scale, direction, items * len(aspects))
    return found


def step_of(scale: Scale) -> float:
    """The change from which on a score counts as moved: the scale's step, or half a point if that is less."""
    return min(scale.step, HALF)


def _effect(scored: Sequence[ScoredTwice], scale: Scale, direction: Direction, items: int) -> ProbeEffect:
    by_group: dict[str, list[float]] = {}
    lost = missing = 0
    for one in scored:
        if one.before is None:
            missing += 1
        elif one.after is None:
            lost += 1
        else:
            by_group.setdefault(one.group, []).append(one.after - one.before)
    changes = [np.array(values) for values in by_group.values()]
    step = step_of(scale) - _ROUNDING
    moves = [(np.abs(values) if direction == "none" else values) >= step for values in changes]
    count = sum(map(len, changes))
    if not count:
        return ProbeEffect(None, None, 0, missing, lost, items - len(scored))
    moved = mean_over_groups([values.astype(float) for values in moves])
    return ProbeEffect(mean_over_groups(changes), _share(moved), count, missing, lost, items - len(scored))


def _share(found: Measure) -> Measure:
    """The measure with its interval limited to [0, 1]."""
    if found.value is None or found.low is None or found.high is None:
        return found
    return Measure(found.value, max(0.0, found.low), min(1.0, found.high), found.method)


def figures(effects: Effects, judge: str, *, whole: bool) -> dict[str, float | None]:
    """Metric name -> value, for runs: `probe/JUDGE/MANIPULATION/ASPECT/change` and so on.

    Args:
        effects: The effects on one judge.
        judge: Its name.
        whole: Whether to return those of all aspects together (or of the only one), or those of single aspects.
    """
    values: dict[str, float | None] = {}
    for probe, by_aspect in effects.items():
        for aspect, one in by_aspect.items():
            if (aspect == ALL or len(by_aspect) == 1) != whole:
                continue
            prefix = f"probe/{judge.replace('/', '_')}/{probe}/{aspect}"
            for name, figure in (("change", one.change), ("moved", one.moved)):
                if figure is not None:
                    ends = {"": figure.value, "_low": figure.low, "_high": figure.high}
                    values |= {f"{prefix}/{name}{end}": value for end, value in ends.items()}
            values[f"{prefix}/unscored_after"] = float(one.unscored_after)
    return values
