"""Effects of calibration as a table, as JSON and as metrics. Only renders; computes no result."""

from __future__ import annotations

from collections.abc import Mapping

from debate_judge.data.calibration import CalibrationEffect
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.text import interval

_TITLE = (
    "Scores on the raters' scale (--scale raters), on held-out, in points: the judge's own scores, and calibrated by "
    "an increasing function fitted on train and dev; bias is score minus mean rating"
)

Effects = Mapping[str, CalibrationEffect]
"""Aspect -> effect of its calibration."""


def table(effects: Effects) -> DataTable:
    """A row for each aspect."""
    header = ("aspect", "mean abs. error", "calibrated", "change", "RMS error", "bias", "calibrated bias", "fitted on")
    rows = [
        (
            aspect,
            interval(effect.error),
            interval(effect.error_after),
            interval(effect.change),
            " → ".join("–" if value is None else f"{value:.2f}" for value in (effect.rms, effect.rms_after)),
            interval(effect.bias),
            interval(effect.bias_after),
            f"{effect.calibration.candidates:,} texts, {effect.calibration.groups:,} sources",
        )
        for aspect, effect in effects.items()
    ]
    return DataTable(header, rows, _TITLE)


def rank_note(effects: Effects) -> str:
    """Whether calibration keeps the order of scores."""
    changed = [aspect for aspect, effect in effects.items() if not effect.keeps_ranks]
    if changed:
        return f"The order of some scores changes, with the Spearman correlation, in {', '.join(changed)}."
    return "No order changes, so that every Spearman correlation above is that of the calibrated scores, too."


def to_json(effects: Effects) -> dict[str, dict[str, object]]:
    return {aspect: effect.to_json() for aspect, effect in effects.items()}
