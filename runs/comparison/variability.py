"""The run-to-run variability of a judge, over samples of the LM or over orders of the candidates.

Entrants that differ in `sample` or in `order` alone are runs of one judge, e.g. `debate[sample=1|2|3]`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.comparison.results import Comparison
from debate_judge.runs.comparison.table import SYMBOLS, format_value
from debate_judge.runs.evaluation.entrants import Entrant
from debate_judge.runs.reports.tables import DataTable

VariedSetting = Literal["sample", "order"]

_VARIED_SETTINGS: tuple[VariedSetting, ...] = ("sample", "order")


@dataclass(frozen=True)
class RunVariability:
    """How several runs of one judge differ."""

    judge: str
    """Its name without the varied setting."""
    varied: VariedSetting
    agreement: Mapping[str, tuple[float | None, ...]]
    """Aspect, or `AVERAGE` -> agreement of each run."""
    items: int
    """Items with a score in at least two runs."""
    score_sd: float | None
    """Standard deviation of an item's score over the runs, mean over these items, in points of the scale."""
    share_changed: float | None
    """Share of these items whose scores are not all equal."""

    def mean_agreement(self, column: str) -> float | None:
        """Mean agreement over the runs; None if it is undefined in one."""
        values = [v for v in self.agreement[column] if v is not None]
        return statistics.fmean(values) if len(values) == len(self.agreement[column]) else None

    def agreement_sd(self, column: str) -> float | None:
        """Standard deviation (n - 1) of the agreement over the runs."""
        return (
            None if self.mean_agreement(column) is None else statistics.stdev(v or 0.0 for v in self.agreement[column])
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "judge": self.judge,
            "over": self.varied,
            "agreement": {
                column: {"runs": list(runs), "mean": self.mean_agreement(column), "sd": self.agreement_sd(column)}
                for column, runs in self.agreement.items()
            },
            "items": self.items,
            "mean_sd_of_an_items_score": self.score_sd,
            "share_of_items_changed": self.share_changed,
        }


def run_variability(comparison: Comparison, entrants: Sequence[Entrant]) -> list[RunVariability]:
    """How the runs of each judge differ; empty where no two entrants are runs of one judge."""
    scored = {result.name for result in comparison.results}
    variability: list[RunVariability] = []
    for varied in _VARIED_SETTINGS:
        runs: dict[str, list[str]] = {}
        for entrant in entrants:
            if varied in entrant.settings and entrant.name in scored:
                runs.setdefault(entrant.name_without(varied), []).append(entrant.name)
        variability += [
            _judge_variability(comparison, name, varied, run_names)
            for name, run_names in runs.items()
            if len(run_names) > 1
        ]
    return variability


def _judge_variability(
    comparison: Comparison, judge: str, varied: VariedSetting, names: Sequence[str]
) -> RunVariability:
    setup, statistic = comparison.setup, comparison.setup.statistics[0]
    results = [result for result in comparison.results if result.name in names]
    agreement = {c: tuple(result.agreement(setup, c)[statistic].value for result in results) for c in setup.columns}
    per_item = zip(*([row.score for row in result.judge.rows] for result in results), strict=True)
    repeated_scores = [scores for values in per_item if len(scores := [v for v in values if v is not None]) > 1]
    return RunVariability(
        judge,
        varied,
        agreement,
        len(repeated_scores),
        statistics.fmean(map(statistics.stdev, repeated_scores)) if repeated_scores else None,
        sum(len(set(values)) > 1 for values in repeated_scores) / len(repeated_scores) if repeated_scores else None,
    )


def variability_table(variability: Sequence[RunVariability], comparison: Comparison, lm: str) -> DataTable:
    """A row for each judge with several runs."""
    columns, symbol = comparison.setup.columns, SYMBOLS[comparison.setup.statistics[0]]
    header = [
        "judge",
        "over",
        "runs",
        *(f"{column} {symbol}" for column in columns),
        "SD of an item's score",
        "items changed",
    ]
    rows = [
        [
            entry.judge,
            f"{entry.varied}s",
            str(len(entry.agreement[columns[0]])),
            *(f"{format_value(entry.mean_agreement(c))} ± {format_value(entry.agreement_sd(c))}" for c in columns),
            format_value(entry.score_sd),
            "–" if entry.share_changed is None else f"{100 * entry.share_changed:.1f} %",
        ]
        for entry in variability
    ]
    caption = "Runs of one judge: mean ± standard deviation of agreement, n - 1"
    if lm == OFFLINE:
        caption += "\nthe offline LM is deterministic and measures each candidate by itself: its runs cannot differ"
    return DataTable(header, rows, caption, keys=2)
