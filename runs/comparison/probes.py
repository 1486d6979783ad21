"""Bias probes as a view of the table: how far scores move when candidates are manipulated, and how many of them do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from debate_judge.data.agreement.classification import Measure
from debate_judge.data.agreement.raters import mean_over_groups
from debate_judge.data.schema import Aspect, Scale
from debate_judge.runs.comparison.results import EvalSetup
from debate_judge.runs.evaluation.perturbations import PROBES, Direction
from debate_judge.runs.evaluation.rows import EvaluatedJudge, JudgementRow
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.text import interval, with_ends
from debate_judge.runs.tracking.values import name_segment

ALL = "all aspects"
"""Name of the entry for all aspects together, if these have the same scale."""

_HALF = 0.5
"""Upper limit, in points, of the change from which on a score counts as moved (`step_of`)."""

_EPSILON = 1e-9

_Pair = tuple[JudgementRow, JudgementRow]
"""A candidate as it is and manipulated; where the order was changed, at its later and at its earlier place."""


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
        measures = {"change": self.change, "moved": self.moved}
        counts = ("items", "unscored_before", "unscored_after", "skipped")
        record: dict[str, object] = {name: None if m is None else m.to_json() for name, m in measures.items()}
        return record | {name: getattr(self, name) for name in counts}


ProbeEffects = Mapping[str, Mapping[str, ProbeEffect]]
"""Manipulation -> aspect, or `ALL` if there are several with the same scale -> effect."""


def effects_of(judge: EvaluatedJudge, aspects: Sequence[Aspect], probes: Sequence[str]) -> ProbeEffects:
    """The effects of the named manipulations on one judge."""
    before = {(row.group, row.candidate, row.aspect): row for row in judge.rows}
    pairs: dict[tuple[str, str], list[_Pair]] = {}
    for row in judge.probed:
        pair = (before[row.group, row.candidate, row.aspect], row)
        if PROBES[row.probe].direction == "earlier" and pair[0].place < row.place:
            pair = pair[::-1]
        pairs.setdefault((row.probe, row.aspect), []).append(pair)
    items = len(judge.rows) // len(aspects)
    by_probe: dict[str, dict[str, ProbeEffect]] = {}
    for probe in probes:
        by_aspect = {a.name: pairs.get((probe, a.name), []) for a in aspects}
        direction = PROBES[probe].direction
        by_probe[probe] = {a.name: _effect(by_aspect[a.name], a.scale, direction, items) for a in aspects}
        if len(aspects) > 1 and len({a.scale for a in aspects}) == 1:
            everything = [pair for each in by_aspect.values() for pair in each]
            by_probe[probe][ALL] = _effect(everything, aspects[0].scale, direction, len(judge.rows))
    return by_probe


def step_of(scale: Scale) -> float:
    """The change from which on a score counts as moved: the scale's step, or half a point if that is less."""
    return min(scale.step, _HALF)


def _effect(pairs: Sequence[_Pair], scale: Scale, direction: Direction, items: int) -> ProbeEffect:
    by_source: dict[str, list[float]] = {}
    lost = missing = 0
    for before, after in pairs:
        if before.score is None:
            missing += 1
        elif after.score is None:
            lost += 1
        else:
            by_source.setdefault(before.source or before.group, []).append(after.score - before.score)
    changes = [np.array(values) for values in by_source.values()]
    step = step_of(scale) - _EPSILON
    moves = [(np.abs(values) if direction == "none" else values) >= step for values in changes]
    count, skipped = sum(map(len, changes)), items - len(pairs)
    if not count:
        return ProbeEffect(None, None, 0, missing, lost, skipped)
    moved = mean_over_groups([values.astype(float) for values in moves])
    return ProbeEffect(mean_over_groups(changes), _share(moved), count, missing, lost, skipped)


def _share(measure: Measure) -> Measure:
    """The measure with its interval limited to [0, 1]."""
    if measure.value is None or measure.low is None or measure.high is None:
        return measure
    return Measure(measure.value, max(0.0, measure.low), min(1.0, measure.high), measure.method)


# --- how it is shown ---


def probes_table(effects_by_judge: Mapping[str, ProbeEffects], setup: EvalSetup, where: str) -> DataTable:
    """A row for each judge and manipulation; `where` says which part of the data was probed."""
    names = [aspect.name for aspect in setup.aspects]
    whole = any(ALL in by_aspect for effects in effects_by_judge.values() for by_aspect in effects.values())
    lost = any(
        aspect_effects.unscored_after
        for by in effects_by_judge.values()
        for effects in by.values()
        for aspect_effects in effects.values()
    )
    columns = [*names, *([ALL] if whole else [])]
    rows = [
        [
            judge,
            probe,
            *(_change(by_aspect[column], column == ALL or not whole) for column in columns),
            *_counts(by_aspect, names, lost),
        ]
        for judge, effects in effects_by_judge.items()
        for probe, by_aspect in effects.items()
    ]
    header = ["judge", "probe", *columns, "moved", "candidates", *(["lost"] if lost else [])]
    return DataTable(header, rows, _legend(effects_by_judge, setup, where, lost), keys=2)


def _change(effect: ProbeEffect, extent: bool) -> str:
    if effect.change is None or effect.change.value is None:
        return "–"
    return (interval(effect.change) if extent else f"{effect.change.value:.2f}") + (" *" if effect.shown else "")


def _counts(by_aspect: Mapping[str, ProbeEffect], names: Sequence[str], lost: bool) -> list[str]:
    moved = by_aspect[ALL if ALL in by_aspect else names[0]].moved if ALL in by_aspect or len(names) == 1 else None
    share = "–" if moved is None or moved.value is None else f"{100 * moved.value:.0f} %"
    items = sum(by_aspect[name].items for name in names)
    return [share, f"{items:,}", *([str(sum(by_aspect[n].unscored_after for n in names))] if lost else [])]


def _legend(effects_by_judge: Mapping[str, ProbeEffects], setup: EvalSetup, where: str, lost: bool) -> str:
    probes = dict.fromkeys(probe for effects in effects_by_judge.values() for probe in effects)
    least = " or ".join(f"{step:g}" for step in sorted({step_of(aspect.scale) for aspect in setup.aspects}))
    lines = [
        "Bias probes: change of the score in points when candidates are manipulated, paired over candidates of "
        f"{len(setup.corpus.groups)} groups ({where}); 95 % intervals: t on the group values",
        "* the interval lies above 0: a bias is shown, unless the manipulation improved the text; intervals are not "
        "corrected "
        "for their number",
        f"moved: share of candidates whose score moves by {least} or more, upwards (order: towards the earlier place; "
        "control: in either direction)",
        *(f"{name}: {PROBES[name].what}" for name in probes),
    ]
    for name in probes:
        if all(effect.items == 0 for effects in effects_by_judge.values() for effect in effects[name].values()):
            why = ", because each candidate is read by itself" if PROBES[name].change is None else ""
            lines.append(f"{name}: not applicable to these texts" + why)
    if lost:
        lines.append("lost: candidates that have no score after the manipulation; they are left out of the change")
    return "\n".join(lines)


def probes_json(effects_by_judge: Mapping[str, ProbeEffects], setup: EvalSetup) -> dict[str, Any]:
    """The effects as plain values; every number finite or null."""
    probes = dict.fromkeys(probe for effects in effects_by_judge.values() for probe in effects)
    return {
        "judges": {
            judge: {probe: {a: effect.to_json() for a, effect in by.items()} for probe, by in effects.items()}
            for judge, effects in effects_by_judge.items()
        },
        "probes": {name: {"what": PROBES[name].what, "bias": PROBES[name].direction} for name in probes},
        "moved_by": {aspect.name: step_of(aspect.scale) for aspect in setup.aspects},
    }


def probe_metrics(effects: ProbeEffects, judge: str, *, whole: bool) -> dict[str, float | None]:
    """Metric name -> value, for runs: `probe/JUDGE/MANIPULATION/ASPECT/change` and so on.

    Args:
        effects: The effects on one judge.
        judge: Its name.
        whole: Whether to return those of all aspects together (or of the only one), or those of single aspects.
    """
    values: dict[str, float | None] = {}
    for probe, by_aspect in effects.items():
        for aspect, effect in by_aspect.items():
            if (aspect == ALL or len(by_aspect) == 1) != whole:
                continue
            prefix = f"probe/{name_segment(judge)}/{probe}/{aspect}"
            values |= with_ends(f"{prefix}/change", effect.change) | with_ends(f"{prefix}/moved", effect.moved)
            values[f"{prefix}/unscored_after"] = float(effect.unscored_after)
    return values
