"""How much one judge varies, as a view of the table: over samples of the LM, or over orders of the candidates.

Entrants that differ in `sample` or in `order` alone are runs of one judge, e.g. `debate[sample=1|2|3]`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.comparison.results import Comparison
from debate_judge.runs.comparison.table import SYMBOLS, number
from debate_judge.runs.evaluation.entrants import Entrant
from debate_judge.runs.reports.tables import DataTable

RunKind = Literal["sample", "order"]

_KINDS: tuple[RunKind, ...] = ("sample", "order")


@dataclass(frozen=True)
class RunVariability:
    """What several runs of one judge did."""

    judge: str
    """As it is named without what differs."""
    kind: RunKind
    """What differs between the runs."""
    agreement: Mapping[str, tuple[float | None, ...]]
    """Aspect, or average -> agreement of each run."""
    items: int
    """Items with a score in at least two runs."""
    score_deviation: float | None
    """Standard deviation of an item's score over the runs, mean over these items, in points of the scale."""
    changed: float | None
    """Share of these items whose scores are not all equal."""

    def mean(self, column: str) -> float | None:
        """Mean agreement over the runs; None if it is undefined in one."""
        values = [v for v in self.agreement[column] if v is not None]
        return statistics.fmean(values) if len(values) == len(self.agreement[column]) else None

    def deviation(self, column: str) -> float | None:
        """Standard deviation (n - 1) of the agreement over the runs."""
        return None if self.mean(column) is None else statistics.stdev(v or 0.0 for v in self.agreement[column])

    def to_json(self) -> dict[str, Any]:
        return {
            "judge": self.judge,
            "over": self.kind,
            "agreement": {
                column: {"runs": list(runs), "mean": self.mean(column), "sd": self.deviation(column)}
                for column, runs in self.agreement.items()
            },
            "items": self.items,
            "mean_sd_of_an_items_score": self.score_deviation,
            "share_of_items_changed": self.changed,
        }


def run_variability(comparison: Comparison, entrants: Sequence[Entrant]) -> list[RunVariability]:
    """How the runs of each judge differ; empty where no two entrants are runs of one judge."""
    scored = {result.name for result in comparison.results}
    variability: list[RunVariability] = []
    for kind in _KINDS:
        runs: dict[str, list[str]] = {}
        for entrant in entrants:
            if kind in entrant.settings and entrant.name in scored:
                runs.setdefault(entrant.without(kind), []).append(entrant.name)
        variability += [
            _of(comparison, name, kind, names_of_runs) for name, names_of_runs in runs.items() if len(names_of_runs) > 1
        ]
    return variability


def _of(comparison: Comparison, judge: str, kind: RunKind, names: Sequence[str]) -> RunVariability:
    setup, statistic = comparison.setup, comparison.setup.statistics[0]
    results = [result for result in comparison.results if result.name in names]
    agreement = {c: tuple(result.at(setup, c)[statistic].value for result in results) for c in setup.columns}
    per_item = zip(*([row.score for row in result.entry.rows] for result in results), strict=True)
    several = [known for values in per_item if len(known := [v for v in values if v is not None]) > 1]
    return RunVariability(
        judge,
        kind,
        agreement,
        len(several),
        statistics.fmean(map(statistics.stdev, several)) if several else None,
        sum(len(set(values)) > 1 for values in several) / len(several) if several else None,
    )


def variability_table(variability: Sequence[RunVariability], comparison: Comparison, lm: str) -> DataTable:
    """A row for each judge that took part several times."""
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
            entry.judge,
            f"{entry.kind}s",
            str(len(entry.agreement[columns[0]])),
            *(f"{number(entry.mean(c))} ± {number(entry.deviation(c))}" for c in columns),
            number(entry.score_deviation),
            "–" if entry.changed is None else f"{100 * entry.changed:.1f} %",
        ]
        for entry in variability
    ]
    caption = "Runs of one judge: mean ± standard deviation of agreement, n - 1"
    if lm == OFFLINE:
        caption += "\nthe offline LM is deterministic and measures each candidate by itself: its runs cannot differ"
    return DataTable(header, rows, caption, keys=2)
