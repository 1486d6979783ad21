"""Comparison of judges on the same items: agreement, paired differences and corrected p-values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from debate_judge.data.agreement.absolute_agreement import AbsoluteAgreement, absolute_agreement
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
from debate_judge.data.schema import Aspect, Corpus
from debate_judge.runs.comparison.judged import EvaluatedJudge, Scores

AVERAGE = "average"
"""Name of the column with averages over aspects."""


@dataclass(frozen=True)
class EvalSetup:
    """The groups and aspects that all judges score, and the statistics they are compared by."""

    corpus: Corpus
    aspects: tuple[Aspect, ...]
    level: Level
    statistics: tuple[Statistic, ...]
    """In the order of the table; intervals, differences and stars refer to the first."""
    seed: int = 0
    """Seed of the resampling."""
    cuts: Mapping[str, float] = field(default_factory=dict)
    """Aspect -> the cut of yes/no decisions, for absolute agreement; without cuts that is not computed."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The aspects, and `AVERAGE` where there are several."""
        names = tuple(a.name for a in self.aspects)
        return names if len(names) == 1 else (*names, AVERAGE)

    def agreement(self, scores: Scores, levels: Sequence[Level] | None = None) -> AgreementTable:
        """Agreement at the given levels, by default at `level`."""
        levels = (self.level,) if levels is None else levels
        return agreement_table(scores, seed=self.seed, levels=levels)

    def difference(self, a: Scores, b: Scores) -> Difference:
        """Agreement of `a` minus that of `b`, paired by group."""
        options: Any = {"level": self.level, "seed": self.seed}
        return compare(a, b, statistic=self.statistics[0], **options)

    def compare_with_raters(self, scores: Scores, *, on_scale: bool) -> dict[str, RaterAgreement]:
        """Aspect -> a judge's agreement compared with that of individual raters, in the first statistic."""
        options: Any = {"level": self.level, "seed": self.seed}
        return {
            name: compare_with_raters(groups, statistic=self.statistics[0], on_scale=on_scale, **options)
            for name, groups in scores.items()
        }

    def on_scale(self, judge: EvaluatedJudge) -> bool:
        """Whether all scores of a judge are on the raters' scale; scores from a file may not be."""
        return judge.on_scale and all(
            aspect.scale.contains(score)
            for aspect in self.aspects
            for group in judge.scores[aspect.name]
            for score in group.scores
            if score is not None
        )

    def absolute_agreement(self, judges: Mapping[str, EvaluatedJudge]) -> dict[str, dict[str, AbsoluteAgreement]]:
        """Absolute agreement of the judges that score on the raters' scale, and their changes from the first one."""
        scores = {name: judge.scores for name, judge in judges.items() if self.on_scale(judge)}
        if not scores or not self.cuts:
            return {}
        same_scale = len({aspect.scale for aspect in self.aspects}) == 1
        return absolute_agreement(scores, self.cuts, same_scale=same_scale, seed=self.seed)


@dataclass(frozen=True)
class JudgeResult:
    """One row of the table."""

    name: str
    judge: EvaluatedJudge
    table: AgreementTable

    def agreement(self, setup: EvalSetup, column: str) -> dict[Statistic, Agreement]:
        """Agreement in an aspect, or on `AVERAGE`, at the level of the comparison."""
        return (self.table.average if column == AVERAGE else self.table.aspects[column])[setup.level]

    def to_json(self) -> dict[str, object]:
        judge = self.judge
        usage, items = judge.usage, max(1, judge.items)
        tokens = (
            None if usage is None else {kind: getattr(usage, kind) / items for kind in ("fresh", "cached", "output")}
        )
        return {
            "agreement": self.table.to_json(),
            "lm_calls_per_item": judge.calls,
            "tokens_per_item": tokens,
            "lm_seconds_per_item": judge.seconds_per_item,
            "usd_per_1000_items": judge.usd_per_thousand,
            "lm": judge.lm or None,
            "together": judge.together,
            "unscored": dict(judge.unscored),
            "note": judge.note,
            "compiled_on_groups": judge.compiled_on,
        }


@dataclass(frozen=True)
class Comparison:
    """All entrants on one corpus."""

    setup: EvalSetup
    results: tuple[JudgeResult, ...]
    in_sample: tuple[JudgeResult, ...]
    """Judges that were compiled on some of these groups: no evidence, and compared with no other judge."""
    baseline: str
    differences: Mapping[str, Difference]
    """Entrant -> its difference to the baseline in the first statistic, on average over aspects."""
    corrected_p_values: Mapping[str, float | None]
    """Entrant -> p-value of that difference, corrected over entrants (Holm); None below six groups."""
    absolute_agreement: Mapping[str, Mapping[str, AbsoluteAgreement]]
    """Entrant -> aspect or `AVERAGE` -> absolute agreement; the baseline first, if it is on the raters' scale."""
    best: Mapping[str, str | None]
    """Aspect, or `AVERAGE` -> the entrant that differs from every other one, or None; corrected over all columns."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Entrant -> why it has no row."""

    @property
    def rows(self) -> tuple[JudgeResult, ...]:
        """All rows of the table."""
        return (*self.results, *self.in_sample)

    def to_json(self) -> dict[str, object]:
        differences = {
            name: {
                **asdict(d),
                "p_corrected": self.corrected_p_values[name],
                "power": None if (power := statistical_power(d)) is None else asdict(power),
            }
            for name, d in self.differences.items()
        }
        return {
            "judges": {result.name: result.to_json() for result in self.rows},
            "level": self.setup.level,
            "statistics": list(self.setup.statistics),
            "baseline": self.baseline,
            "differences": differences,
            "best": dict(self.best),
            "failed": dict(self.failed),
        }


def compare_all(
    setup: EvalSetup,
    judges: Mapping[str, EvaluatedJudge],
    *,
    baseline: str,
    failed: Mapping[str, str] | None = None,
) -> Comparison:
    """Agreement of each entrant, its paired difference to the baseline with corrected p-values, and the best.

    Args:
        setup: The groups, aspects and statistics.
        judges: Entrant -> its scores; those that were compiled on some of the groups get a row and nothing else.
        baseline: The entrant that the others are compared with; if it has no scores, there are no differences.
        failed: Entrant -> why it has no scores.
    """
    columns = setup.columns
    rows = [JudgeResult(name, judge, setup.agreement(judge.scores, LEVELS)) for name, judge in judges.items()]
    results = tuple(row for row in rows if not row.judge.compiled_on)
    judges = {row.name: row.judge for row in results}
    base = judges.get(baseline)
    others = [name for name in judges if base is not None and name != baseline]
    differences = {name: setup.difference(judges[name].scores, base.scores) for name in others if base}
    comparisons = {column: _column_comparison(setup, results, column) for column in columns}
    corrected = holm_adjusted_by_name({name: d.p_value for name, d in differences.items()})
    best = _best(comparisons)
    best.setdefault(AVERAGE, best[columns[0]])
    # The baseline comes first, because changes are from the first judge.
    absolute = setup.absolute_agreement({**({} if base is None else {baseline: base}), **judges})
    in_sample = tuple(row for row in rows if row.judge.compiled_on)
    return Comparison(setup, results, in_sample, baseline, differences, corrected, absolute, best, dict(failed or {}))


ColumnComparison = tuple[str, Mapping[str, float | None]]
"""The entrant with the best value of a column, and the p-value of its difference to every other one."""


def _column_comparison(setup: EvalSetup, results: Sequence[JudgeResult], column: str) -> ColumnComparison | None:
    statistic = setup.statistics[0]

    def value(result: JudgeResult) -> float | None:
        return result.agreement(setup, column)[statistic].value

    def scores(result: JudgeResult) -> Scores:
        return result.judge.scores if column == AVERAGE else {column: result.judge.scores[column]}

    ranked = sorted((r for r in results if value(r) is not None), key=lambda r: -(value(r) or 0.0))
    if len(ranked) < 2:
        return None
    first, others = ranked[0], ranked[1:]
    return first.name, {other.name: setup.difference(scores(first), scores(other)).p_value for other in others}


def _best(comparisons: Mapping[str, ColumnComparison | None]) -> dict[str, str | None]:
    """Column -> the entrant that differs from every other one (p < 0.05, Holm over all columns), or None.

    The correction is over all columns, because a reader sees all stars of a table at once: corrected within each column
    only, many tables of equally good judges would have a star somewhere.
    """
    p_values = {
        (column, other): p for column, result in comparisons.items() if result for other, p in result[1].items()
    }
    corrected = holm_adjusted_by_name(p_values)

    def is_best(column: str, comparison: ColumnComparison) -> bool:
        return all((p := corrected[column, other]) is not None and p < 0.05 for other in comparison[1])

    return {column: result[0] if result and is_best(column, result) else None for column, result in comparisons.items()}
