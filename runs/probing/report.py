"""Renders the results of a probe: the table, its legend, and JSON. Computes no figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.comparison.legend import Setting
from debate_judge.runs.comparison.results import EvalSetup
from debate_judge.runs.probing.effects import ALL, Effects, ProbeEffect, step_of
from debate_judge.runs.probing.perturbations import PROBES
from debate_judge.runs.reports.decisions import cell
from debate_judge.runs.reports.terminal import Printed, TerminalTable

Found = Mapping[str, Effects]
"""Judge -> effects of all manipulations."""


def render(
    found: Found, setup: EvalSetup, setting: Setting, notes: Mapping[str, str], *, all_intervals: bool = False
) -> list[Printed]:
    """The table, with a row for each judge and manipulation, and its legend.

    Args:
        found: The effects.
        setup: The probed data.
        setting: Part of the data, split and LM.
        notes: Judge -> a remark.
        all_intervals: Whether to show the interval in each column, and not only in that of all aspects.
    """
    names = [aspect.name for aspect in setup.aspects]
    together = any(ALL in by_aspect for effects in found.values() for by_aspect in effects.values())
    columns = [*names, *([ALL] if together else [])]
    shown = set(columns if all_intervals or not together else (ALL,))
    header = ["judge", "probe", *columns, "moved", "candidates", *(["lost"] if _any_lost(found) else [])]
    rows = [
        [
            judge if number == 0 else "",
            probe,
            *(_change(by_aspect.get(c), c in shown) for c in columns),
            *_counts(by_aspect, names, _any_lost(found)),
        ]
        for judge, effects in found.items()
        for number, (probe, by_aspect) in enumerate(effects.items())
    ]
    return [TerminalTable(header, rows), "", _legend(found, setup, setting, notes)]


def _change(one: ProbeEffect | None, extent: bool) -> str:
    if one is None or one.change is None or one.change.value is None:
        return "–"
    return (cell(one.change) if extent else f"{one.change.value:.2f}") + (" *" if one.shown else "")


def _counts(by_aspect: Mapping[str, ProbeEffect], names: Sequence[str], lost: bool) -> list[str]:
    whole = by_aspect.get(ALL)
    one = whole or by_aspect[names[0]]
    items = sum(by_aspect[name].items for name in names)
    moved = one.moved if whole or len(names) == 1 else None
    share = "–" if moved is None or moved.value is None else f"{100 * moved.value:.0f} %"
    return [share, f"{items:,}", *([str(sum(by_aspect[n].unscored_after for n in names))] if lost else [])]


def _any_lost(found: Found) -> bool:
    return any(one.unscored_after for by in found.values() for effects in by.values() for one in effects.values())


def _legend(found: Found, setup: EvalSetup, setting: Setting, notes: Mapping[str, str]) -> str:
    groups = len(setup.corpus.groups)
    probes = dict.fromkeys(probe for effects in found.values() for probe in effects)
    steps = sorted({step_of(aspect.scale) for aspect in setup.aspects})
    least = " or ".join(f"{step:g}" for step in steps)
    missing = {j: sum(o.unscored_before for n, o in _plainest(e).items() if n != ALL) for j, e in found.items()}
    apart = [p for p in probes if all(o.items == 0 for e in found.values() for o in e.get(p, {}).values())]
    lines = [
        f"change of the score in points, paired over candidates of {groups} groups ({setting.where}); 95 % intervals: "
        "t on the group values",
        "* the interval lies above 0: a bias is shown, unless the text got better by it; intervals are not corrected "
        "for their number",
        f"moved: share of candidates whose score moves by {least} or more, upwards (order: towards the earlier place; "
        "control: in either direction)",
        *(f"{name}: {PROBES[name].what}" for name in probes),
        *(f"{name}: nothing to be manipulated here" + _why(name) for name in apart),
        *(["lost: candidates without a score once they are manipulated; they count for no change"] * _any_lost(found)),
        *(f"{judge}: {count} candidates have no score as they are" for judge, count in missing.items() if count),
        *(f"{judge}: {note}" for judge, note in notes.items()),
        *([setting.note] if setting.lm == OFFLINE else []),
    ]
    return "\n".join(lines)


def _plainest(effects: Effects) -> Mapping[str, ProbeEffect]:
    """The effects of the manipulation that could be applied to most candidates."""
    return max(effects.values(), key=lambda by: sum(one.items + one.unscored_before for one in by.values()), default={})


def _why(probe: str) -> str:
    return ", for each candidate is read by itself" if PROBES[probe].change is None else ""


def document(found: Found, setup: EvalSetup, setting: Setting, notes: Mapping[str, str]) -> dict[str, Any]:
    """The JSON of `--json`; every number finite or null."""
    about = {name: value for name, value in setting.about(setup).items() if name != "resamples"}
    probes = dict.fromkeys(probe for effects in found.values() for probe in effects)
    return {
        "judges": {
            judge: {probe: {a: one.to_json() for a, one in by.items()} for probe, by in effects.items()}
            for judge, effects in found.items()
        },
        "probes": {name: {"what": PROBES[name].what, "bias": PROBES[name].direction} for name in probes},
        "moved_by": {aspect.name: step_of(aspect.scale) for aspect in setup.aspects},
        "notes": dict(notes),
        **about,
    }
