"""Conformal intervals for an export's scores, from the held-out scores that it keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from debate_judge.data.agreement.classification import Measure
from debate_judge.data.agreement.raters import error_and_bias
from debate_judge.data.agreement.results import Agreement
from debate_judge.data.agreement.tables import agreement_table
from debate_judge.data.errors import InputError
from debate_judge.data.inference.conformal import (
    Abstained,
    ConformalIntervals,
    ScoreInterval,
    fit_intervals,
    left_to_people,
)
from debate_judge.data.schema import Aspect
from debate_judge.runs.export.recorded import recorded_in

__all__ = ["ConformalIntervals", "HeldOutIntervals", "ScoreInterval", "fitted_intervals", "held_out_intervals"]


def fitted_intervals(
    manifest: Mapping[str, Any], aspects: Sequence[Aspect], level: float
) -> dict[str, ConformalIntervals]:
    """Aspect -> its intervals.

    Raises:
        InputError: The export keeps no held-out scores on the raters' scale for an aspect.
    """
    recorded = recorded_in(manifest)
    found: dict[str, ConformalIntervals] = {}
    for aspect in aspects:
        groups = () if recorded is None else recorded.mapped.get(aspect.name, ())
        one = fit_intervals(groups, aspect.scale, level)
        if one is None:
            raise InputError(
                f"the export keeps no held-out scores of {aspect.name} on the raters' scale",
                field="interval",
                expected="a judge that was compiled by this version and has a map to the raters' scale",
                remedy="compile the judge again, or leave the intervals out",
            )
        found[aspect.name] = one
    return found


@dataclass(frozen=True)
class HeldOutIntervals:
    """The intervals of one aspect on held-out texts, each by intervals that were fitted on the other sources."""

    measured: Abstained
    everything: Agreement
    """Of all scores with the raters."""
    kept: Agreement
    """Of those that are not left to people."""
    error: Measure | None
    """Mean absolute difference of score and rating; None without a score."""
    error_kept: Measure | None


def held_out_intervals(
    manifest: Mapping[str, Any], aspects: Sequence[Aspect], level: float, widest: float | None = None
) -> dict[str, HeldOutIntervals]:
    """Aspect -> how intervals of this level do, and what leaving those wider than `widest` to people does."""
    recorded = recorded_in(manifest)
    objective: Mapping[str, Any] = manifest["evidence"].get("objective") or {}
    statistic, at = objective.get("statistic", "spearman"), objective.get("level", "summary")
    found: dict[str, HeldOutIntervals] = {}
    for aspect in aspects:
        groups = () if recorded is None else recorded.mapped.get(aspect.name, ())
        measured = left_to_people(groups, aspect.scale, level, math.inf if widest is None else widest)
        if measured is None:
            continue
        every, kept = (
            agreement_table({"x": one}, levels=(at,), resamples=200).aspects["x"][at][statistic]
            for one in (groups, list(measured.kept.values()))
        )
        errors = (error_and_bias(one)[0] for one in (groups, list(measured.kept.values())))
        found[aspect.name] = HeldOutIntervals(measured, every, kept, *errors)
    return found
