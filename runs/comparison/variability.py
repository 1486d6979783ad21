"""Run-to-run variability of a judge as a view of the table: over samples of the LM, or over orders of the candidates.

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
            _variability_of(comparison, name, varied, names_of_runs)
            for name, names_of_runs in runs.items()
            if len(names_of_runs) > 1
        ]
    return variability


def _variability_of(comparison: Comparison, judge: str, varied: VariedSetting, names: Sequence[str]) -> RunVariability:
    setup, statistic = comparison.setup, comparison.setup.statistics[0]
    results = [result for result in comparison.results if result.name in names]
    agreement = {c: tuple(result.agreement(setup, c)[statistic].value for result in results) for c in setup.columns}
    per_item = zip(*([row.score for row in result.judge.rows] for result in results), strict=True)
    several = [scores for values in per_item if len(scores := [v for v in values if v is not None]) > 1]
    return RunVariability(
        judge,
        varied,
        agreement,
        len(several),
        statistics.fmean(map(statistics.stdev, several)) if several else None,
        sum(len(set(values)) > 1 for values in several) / len(several) if several else None,
    )


def variability_table(variability: Sequence[RunVariability], comparison: Comparison, lm: str) -> DataTable:
    """A row for each judge with several runs."""
    columns, mark = comparison.setup.columns, SYMBOLS[comparison.setup.statistics[0]]
    header = [
        "judge",
        "over",
        "runs",
        *(f"{column} {mark}" for column in columns),
        "SD of an item's score",
        "items changed",
    ]
    rows = [
        [
            judge_runs.judge,
            f"{judge_runs.varied}s",
            str(len(judge_runs.agreement[columns[0]])),
            *(
                f"{format_value(judge_runs.mean_agreement(c))} ± {format_value(judge_runs.agreement_sd(c))}"
                for c in columns
            ),
            format_value(judge_runs.score_sd),
            "–" if judge_runs.share_changed is None else f"{100 * judge_runs.share_changed:.1f} %",
        ]
        for judge_runs in variability
    ]
    caption = "Runs of one judge: mean ± standard deviation of agreement, n - 1"
    if lm == OFFLINE:
        caption += "\nthe offline LM is deterministic and measures each candidate by itself: its runs cannot differ"
    return DataTable(header, rows, caption, keys=2)
