"""Bias probes as a view of the table: how far scores move when candidates are perturbed, and how many of them do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from debate_judge.data.agreement.intervals import Measure
from debate_judge.data.agreement.raters import mean_over_groups
from debate_judge.data.schema import Aspect, Scale
from debate_judge.runs.comparison.results import EvalSetup
from debate_judge.runs.evaluation.perturbations import PERTURBATIONS, Direction
from debate_judge.runs.evaluation.rows import EvaluatedJudge, JudgementRow
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.text import interval, interval_metrics
from debate_judge.runs.tracking.values import name_segment

ALL_ASPECTS = "all aspects"
"""Key of the effect on all aspects together, where all have the same scale."""

_MAX_THRESHOLD = 0.5
"""Largest `moved_threshold`, in points."""

_EPSILON = 1e-9

_Pair = tuple[JudgementRow, JudgementRow]
"""The rows of a candidate before and after the perturbation; for `order`, at its later and its earlier position."""


@dataclass(frozen=True, slots=True)
class ProbeEffect:
    """The effect of one perturbation on one judge's scores, with t intervals over groups."""

    change: Measure | None
    """Mean change of the score in points, after minus before, paired over candidates; None without candidates."""
    moved: Measure | None
    """Share of candidates whose score moves by `moved_threshold` or more, in the direction of the bias; in either
    direction for perturbations without one."""
    items: int
    """Number of candidates with both scores."""
    unscored_before: int
    """Number of candidates without a score before the perturbation."""
    unscored_after: int
    """Number of candidates that have a score before the perturbation only."""
    skipped: int
    """Number of candidates that the perturbation does not apply to."""

    @property
    def shows_bias(self) -> bool:
        """Whether the interval of the change lies above 0."""
        return self.change is not None and self.change.low is not None and self.change.low > 0

    def to_json(self) -> dict[str, object]:
        measures = {"change": self.change, "moved": self.moved}
        counts = ("items", "unscored_before", "unscored_after", "skipped")
        record: dict[str, object] = {name: None if m is None else m.to_json() for name, m in measures.items()}
        return record | {name: getattr(self, name) for name in counts}


ProbeEffects = Mapping[str, Mapping[str, ProbeEffect]]
"""Name of a perturbation -> aspect, or `ALL_ASPECTS` if there are several with the same scale -> effect."""


def probe_effects(judge: EvaluatedJudge, aspects: Sequence[Aspect], probes: Sequence[str]) -> ProbeEffects:
    """The effects of the named perturbations on one judge."""
    before = {(row.group, row.candidate, row.aspect): row for row in judge.rows}
    pairs: dict[tuple[str, str], list[_Pair]] = {}
    for row in judge.perturbed:
        pair = (before[row.group, row.candidate, row.aspect], row)
        if PERTURBATIONS[row.perturbation].direction == "earlier" and pair[0].position < row.position:
            pair = pair[::-1]
        pairs.setdefault((row.perturbation, row.aspect), []).append(pair)
    items = len(judge.rows) // len(aspects)
    by_probe: dict[str, dict[str, ProbeEffect]] = {}
    for probe in probes:
        by_aspect = {a.name: pairs.get((probe, a.name), []) for a in aspects}
        direction = PERTURBATIONS[probe].direction
        by_probe[probe] = {a.name: _effect(by_aspect[a.name], a.scale, direction, items) for a in aspects}
        if len(aspects) > 1 and len({a.scale for a in aspects}) == 1:
            all_pairs = [pair for aspect_pairs in by_aspect.values() for pair in aspect_pairs]
            by_probe[probe][ALL_ASPECTS] = _effect(all_pairs, aspects[0].scale, direction, len(judge.rows))
    return by_probe


def moved_threshold(scale: Scale) -> float:
    """The change from which on a score counts as moved: the scale's step, or half a point if that is less."""
    return min(scale.step, _MAX_THRESHOLD)


def _effect(pairs: Sequence[_Pair], scale: Scale, direction: Direction, items: int) -> ProbeEffect:
    by_source: dict[str, list[float]] = {}
    unscored_after = unscored_before = 0
    for before, after in pairs:
        if before.score is None:
            unscored_before += 1
        elif after.score is None:
            unscored_after += 1
        else:
            by_source.setdefault(before.source or before.group, []).append(after.score - before.score)
    changes = [np.array(values) for values in by_source.values()]
    threshold = moved_threshold(scale) - _EPSILON
    moves = [(np.abs(values) if direction == "none" else values) >= threshold for values in changes]
    count, skipped = sum(map(len, changes)), items - len(pairs)
    if not count:
        return ProbeEffect(None, None, 0, unscored_before, unscored_after, skipped)
    moved = _clip(mean_over_groups([values.astype(float) for values in moves]))
    return ProbeEffect(mean_over_groups(changes), moved, count, unscored_before, unscored_after, skipped)


def _clip(measure: Measure) -> Measure:
    """The measure with its interval limited to [0, 1]."""
    if measure.value is None or measure.low is None or measure.high is None:
        return measure
    return Measure(measure.value, max(0.0, measure.low), min(1.0, measure.high), measure.method)


# --- the views: table, JSON, metrics ---


def probes_table(effects_by_judge: Mapping[str, ProbeEffects], setup: EvalSetup, part: str) -> DataTable:
    """A row for each judge and perturbation; `part` says which part of the data the candidates are from."""
    names = [aspect.name for aspect in setup.aspects]
    by_aspects = [by_aspect for effects in effects_by_judge.values() for by_aspect in effects.values()]
    pooled = any(ALL_ASPECTS in by_aspect for by_aspect in by_aspects)
    any_unscored = any(effect.unscored_after for by_aspect in by_aspects for effect in by_aspect.values())
    columns = [*names, *([ALL_ASPECTS] if pooled else [])]
    rows = [
        [
            judge,
            probe,
            *(_change(by_aspect[column], with_interval=column == ALL_ASPECTS or not pooled) for column in columns),
            *_counts(by_aspect, names, any_unscored),
        ]
        for judge, effects in effects_by_judge.items()
        for probe, by_aspect in effects.items()
    ]
    header = ["judge", "probe", *columns, "moved", "candidates", *(["unscored"] if any_unscored else [])]
    return DataTable(header, rows, _legend(effects_by_judge, setup, part, any_unscored), keys=2)


def _change(effect: ProbeEffect, *, with_interval: bool) -> str:
    if effect.change is None or effect.change.value is None:
        return "–"
    value = interval(effect.change) if with_interval else f"{effect.change.value:.2f}"
    return value + (" *" if effect.shows_bias else "")


def _counts(by_aspect: Mapping[str, ProbeEffect], names: Sequence[str], any_unscored: bool) -> list[str]:
    pooled = by_aspect[names[0]] if len(names) == 1 else by_aspect.get(ALL_ASPECTS)
    moved = None if pooled is None else pooled.moved
    share = "–" if moved is None or moved.value is None else f"{100 * moved.value:.0f} %"
    items = sum(by_aspect[name].items for name in names)
    return [share, f"{items:,}", *([str(sum(by_aspect[n].unscored_after for n in names))] if any_unscored else [])]


def _legend(effects_by_judge: Mapping[str, ProbeEffects], setup: EvalSetup, part: str, any_unscored: bool) -> str:
    probes = dict.fromkeys(probe for effects in effects_by_judge.values() for probe in effects)
    thresholds = sorted({moved_threshold(aspect.scale) for aspect in setup.aspects})
    lines = [
        "Bias probes: change of the score in points when candidates are perturbed, paired over candidates of "
        f"{len(setup.corpus.groups)} groups ({part}); 95 % intervals: t on the group values",
        "* the interval lies above 0: a bias is shown, unless the perturbation improved the text; intervals are not "
        "corrected for their number",
        f"moved: share of candidates whose score moves by {' or '.join(f'{t:g}' for t in thresholds)} or more, upwards "
        "(order: towards the earlier position; control: in either direction)",
        *(f"{probe}: {PERTURBATIONS[probe].description}" for probe in probes),
    ]
    for probe in probes:
        if all(effect.items == 0 for effects in effects_by_judge.values() for effect in effects[probe].values()):
            reason = ", because each candidate is read by itself" if PERTURBATIONS[probe].edit is None else ""
            lines.append(f"{probe}: not applicable to these texts" + reason)
    if any_unscored:
        lines.append("unscored: candidates without a score after the perturbation; they are left out of the change")
    return "\n".join(lines)


def probes_json(effects_by_judge: Mapping[str, ProbeEffects], setup: EvalSetup) -> dict[str, Any]:
    """The effects as plain values; every number finite or null."""
    probes = dict.fromkeys(probe for effects in effects_by_judge.values() for probe in effects)
    return {
        "judges": {
            judge: {
                probe: {aspect: effect.to_json() for aspect, effect in by_aspect.items()}
                for probe, by_aspect in effects.items()
            }
            for judge, effects in effects_by_judge.items()
        },
        "probes": {p: {"what": PERTURBATIONS[p].description, "bias": PERTURBATIONS[p].direction} for p in probes},
        "moved_by": {aspect.name: moved_threshold(aspect.scale) for aspect in setup.aspects},
    }


def probe_metrics(effects: ProbeEffects, judge: str, *, pooled: bool) -> dict[str, float | None]:
    """Metric name -> value, for MLflow: `probe/JUDGE/PROBE/ASPECT/change` and so on.

    Args:
        effects: The effects on one judge.
        judge: The judge's name.
        pooled: Whether to return the metrics of all aspects together (or of the only one), or those of single aspects.
    """
    values: dict[str, float | None] = {}
    for probe, by_aspect in effects.items():
        for aspect, effect in by_aspect.items():
            if (aspect == ALL_ASPECTS or len(by_aspect) == 1) != pooled:
                continue
            prefix = f"probe/{name_segment(judge)}/{probe}/{aspect}"
            values |= interval_metrics(f"{prefix}/change", effect.change) | interval_metrics(
                f"{prefix}/moved", effect.moved
            )
            values[f"{prefix}/unscored_after"] = float(effect.unscored_after)
    return values
