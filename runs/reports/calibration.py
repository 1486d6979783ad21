"""What calibration changes, as a table, as JSON and as metrics. Only renders; every number comes in finished."""

from __future__ import annotations

from collections.abc import Mapping

from debate_judge.data.calibration import CalibrationEffect
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.text import interval, with_ends

_TITLE = (
    "Scores on the raters' scale (--scale raters), on held-out, in points: the judge's own beside those mapped by an "
    "increasing function fitted on train and dev; bias is score minus mean rating"
)

Effects = Mapping[str, CalibrationEffect]
"""Aspect -> what its calibration changes."""


def table(found: Effects) -> DataTable:
    """A row for each aspect."""
    header = ("aspect", "mean abs. error", "calibrated", "change", "RMS error", "bias", "calibrated bias", "fitted on")
    rows = [
        (
            aspect,
            interval(one.error),
            interval(one.error_after),
            interval(one.change),
            " → ".join("–" if value is None else f"{value:.2f}" for value in (one.rms, one.rms_after)),
            interval(one.bias),
            interval(one.bias_after),
            f"{one.calibration.candidates:,} texts, {one.calibration.groups:,} sources",
        )
        for aspect, one in found.items()
    ]
    return DataTable(header, rows, _TITLE)


def ranks(found: Effects) -> str:
    """Whether the mapped scores are in the order of the judge's own."""
    changed = [aspect for aspect, one in found.items() if not one.keeps_ranks]
    if changed:
        return f"The order of some scores changes, with the Spearman correlation, in {', '.join(changed)}."
    return "No order changes, so that every Spearman correlation above is that of the mapped scores, too."


def to_json(found: Effects) -> dict[str, dict[str, object]]:
    return {aspect: one.to_json() for aspect, one in found.items()}


def metrics(found: Effects) -> dict[str, float | None]:
    """Metric name -> value, as runs hold them: `calibration/ASPECT/error_after` and so on."""
    values: dict[str, float | None] = {}
    for aspect, one in found.items():
        for name in ("error", "error_after", "change", "bias", "bias_after"):
            values |= with_ends(f"calibration/{aspect}/{name}", getattr(one, name))
        for name in ("rms", "rms_after", "spearman", "spearman_after"):
            values[f"calibration/{aspect}/{name}"] = getattr(one, name)
    return values
