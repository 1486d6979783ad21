"""Comparison of judges on the same items: agreement, paired differences, and their significance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from debate_judge.data.agreement.differences import holm_adjusted_by_name, statistical_power
from debate_judge.data.agreement.raters import RaterAgreement, compare_with_raters
from debate_judge.data.agreement.tables import (
    LEVELS,
    Agreement,
    AgreementTable,
    Difference,
    Level,
    Statistic,
    agreement_table,
    compare,
)
from debate_judge.data.inference.absolute_agreement import AbsoluteAgreement, absolute_agreement
from debate_judge.data.schema import Aspect, Corpus
from debate_judge.programs.lm.prices import Price
from debate_judge.runs.evaluation.rows import EvaluatedJudge, Scores
from debate_judge.runs.runner.progress import RunProgress

T = TypeVar("T")

AVERAGE = "average"
"""The column beside the aspects."""


@dataclass(frozen=True)
class EvalSetup:
    """The groups and aspects that all judges score, and the statistics they are compared by."""

    corpus: Corpus
    aspects: tuple[Aspect, ...]
    level: Level
    statistics: tuple[Statistic, ...]
    """Shown in this order; intervals, differences and marks refer to the first."""
    resamples: int = 10_000
    seed: int = 0
    """Of the resampling."""
    cuts: Mapping[str, float] = field(default_factory=dict)
    """Aspect -> the least value that is a yes where decisions are compared; empty: none are."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The aspects, and `AVERAGE` where there are several: one aspect is its own."""
        names = tuple(a.name for a in self.aspects)
        return names if len(names) == 1 else (*names, AVERAGE)

    def agreement(self, scores: Scores, levels: Sequence[Level] | None = None) -> AgreementTable:
        """Agreement at the given levels, by default at the one that is shown."""
        levels = (self.level,) if levels is None else levels
        return agreement_table(scores, resamples=self.resamples, seed=self.seed, levels=levels)

    def difference(self, a: Scores, b: Scores) -> Difference:
        """Agreement of `a` minus that of `b`, paired."""
        how: Any = {"level": self.level, "resamples": self.resamples, "seed": self.seed}
        return compare(a, b, statistic=self.statistics[0], **how)

    def compare_with_raters(self, scores: Scores, *, on_scale: bool) -> dict[str, RaterAgreement]:
        """Aspect -> how a judge stands beside single raters, in the first statistic."""
        how: Any = {"level": self.level, "resamples": self.resamples, "seed": self.seed}
        return {
            name: compare_with_raters(groups, statistic=self.statistics[0], on_scale=on_scale, **how)
            for name, groups in scores.items()
        }

    def on_scale(self, entry: EvaluatedJudge) -> bool:
        """Whether a judge's scores are on the raters' scale; those from a file may lie on any."""
        return entry.on_scale and all(
            aspect.scale.contains(score)
            for aspect in self.aspects
            for group in entry.scores[aspect.name]
            for score in group.scores
            if score is not None
        )

    def absolute_agreement(self, entries: Mapping[str, EvaluatedJudge]) -> dict[str, dict[str, AbsoluteAgreement]]:
        """Level and decisions of the judges that score on the raters' scale; changes are from the first of them."""
        judges = {name: entry.scores for name, entry in entries.items() if self.on_scale(entry)}
        if not judges or not self.cuts:
            return {}
        one_scale = len({aspect.scale for aspect in self.aspects}) == 1
        return absolute_agreement(judges, self.cuts, same_scale=one_scale, seed=self.seed)


@dataclass(frozen=True)
class JudgeResult:
    """One row of the table."""

    name: str
    entry: EvaluatedJudge
    table: AgreementTable
    usd: float | None
    """US dollars for a thousand items."""

    def at(self, setup: EvalSetup, column: str) -> dict[Statistic, Agreement]:
        """Agreement in an aspect, or `AVERAGE`, at the level that is compared at."""
        return (self.table.average if column == AVERAGE else self.table.aspects[column])[setup.level]

    def to_json(self) -> dict[str, object]:
        entry = self.entry
        usage, items = entry.usage, max(1, entry.items)
        tokens = None if usage is None else {k: getattr(usage, k) / items for k in ("fresh", "cached", "output")}
        return {
            "agreement": self.table.to_json(),
            "lm_calls_per_item": entry.calls,
            "tokens_per_item": tokens,
            "usd_per_1000_items": self.usd,
            "together": entry.together,
            "joint": entry.joint,
            "unscored": dict(entry.unscored),
            "note": entry.note,
        }


@dataclass(frozen=True)
class Comparison:
    """All entrants on one corpus."""

    setup: EvalSetup
    results: tuple[JudgeResult, ...]
    baseline: str
    differences: Mapping[str, Difference]
    """Entrant -> its difference to the baseline in the first statistic, averaged over aspects."""
    corrected: Mapping[str, float | None]
    """Entrant -> p-value of that difference, corrected for the number of entrants (Holm); None below six groups."""
    absolute_agreement: Mapping[str, Mapping[str, AbsoluteAgreement]]
    """Entrant -> aspect or `AVERAGE` -> level and decisions; the baseline first, if it is on the raters' scale."""
    best: Mapping[str, str | None]
    """Aspect, or `AVERAGE` -> the entrant that differs from every other one, or None. One family of comparisons."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Entrant -> why it has no row."""

    def to_json(self) -> dict[str, object]:
        differences = {
            name: {
                **asdict(d),
                "p_corrected": self.corrected[name],
                "power": None if (power := statistical_power(d)) is None else asdict(power),
            }
            for name, d in self.differences.items()
        }
        return {
            "judges": {s.name: s.to_json() for s in self.results},
            "level": self.setup.level,
            "statistics": list(self.setup.statistics),
            "baseline": self.baseline,
            "differences": differences,
            "best": dict(self.best),
            "failed": dict(self.failed),
        }


def compare_all(
    setup: EvalSetup,
    entries: Mapping[str, EvaluatedJudge],
    *,
    baseline: str,
    price: Price | None = None,
    failed: Mapping[str, str] | None = None,
    progress: RunProgress | None = None,
) -> Comparison:
    """Agreement of each entrant, its paired difference to the baseline with corrected p-values, and the best.

    Args:
        setup: What was compared on.
        entries: Entrant -> its scores.
        baseline: The entrant that the others are compared with; without an entry there are no differences.
        price: Of the LM, where it is known.
        failed: Entrant -> why it has no entry.
        progress: Shows how far it is.
    """
    columns = setup.columns
    base = entries.get(baseline)
    others = [name for name in entries if base is not None and name != baseline]
    steps = len(entries) + len(others) + len(columns)
    with progress.over("intervals", steps) if progress else nullcontext() as shown:

        def step(value: T) -> T:
            if shown:
                shown.advance()
            return value

        results = tuple(
            JudgeResult(name, entry, step(setup.agreement(entry.scores, LEVELS)), entry.usd_per_thousand(price))
            for name, entry in entries.items()
        )
        differences = {name: step(setup.difference(entries[name].scores, base.scores)) for name in others if base}
        comparisons = {column: step(_column_comparison(setup, results, column)) for column in columns}
    corrected = holm_adjusted_by_name({name: d.p_value for name, d in differences.items()})
    best = _best(comparisons)
    best.setdefault(AVERAGE, best[columns[0]])
    first = {baseline: base} if base is not None else {}
    close = setup.absolute_agreement({**first, **entries})
    return Comparison(setup, results, baseline, differences, corrected, close, best, dict(failed or {}))


ColumnComparison = tuple[str, Mapping[str, float | None]]
"""The entrant with the best value of a column, and the p-value of its difference to every other one."""


def _column_comparison(setup: EvalSetup, results: Sequence[JudgeResult], column: str) -> ColumnComparison | None:
    statistic = setup.statistics[0]

    def value(result: JudgeResult) -> float | None:
        return result.at(setup, column)[statistic].value

    def scores(result: JudgeResult) -> Scores:
        return result.entry.scores if column == AVERAGE else {column: result.entry.scores[column]}

    ranked = sorted((s for s in results if value(s) is not None), key=lambda s: -(value(s) or 0.0))
    if len(ranked) < 2:
        return None
    first, others = ranked[0], ranked[1:]
    return first.name, {other.name: setup.difference(scores(first), scores(other)).p_value for other in others}


def _best(comparisons: Mapping[str, ColumnComparison | None]) -> dict[str, str | None]:
    """Column -> the entrant that differs from every other one (p < 0.05, Holm over all columns), or None.

    All marks of a table are read at once. Corrected within each column only, many tables of equally good judges would
    have a mark somewhere.
    """
    family = {
        (column, other): p for column, compared in comparisons.items() if compared for other, p in compared[1].items()
    }
    corrected = holm_adjusted_by_name(family)

    def marked(column: str, comparison: ColumnComparison) -> bool:
        p_values = [corrected[column, other] for other in comparison[1]]
        return all(p is not None and p < 0.05 for p in p_values)

    return {
        column: compared[0] if compared and marked(column, compared) else None
        for column, compared in comparisons.items()
    }
