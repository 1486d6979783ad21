"""The comparison of judges on the same sources: agreement, paired differences, decisions, raters, absolute agreement,
and its tables and report.

`debate compare` and the compile compute their figures here; a figure is computed when it is first asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, Literal

from debate_judge.data.agreement.correlations import RaterAgreement, agreement_table, compare, compare_with_raters
from debate_judge.data.agreement.decisions import (
    AbsoluteAgreement,
    DecisionResult,
    DecisionRule,
    absolute_agreement,
    evaluate_decisions,
)
from debate_judge.data.agreement.figures import (
    AVERAGE,
    LEVELS,
    Agreement,
    AgreementTable,
    Difference,
    GroupScores,
    Statistic,
    holm_adjusted,
    statistical_power,
)
from debate_judge.data.schema import Aspect, Corpus, Level
from debate_judge.programs.judge import Judgement, Unscored
from debate_judge.programs.lm.settings import Price
from debate_judge.runs.reports.evidence import (
    absolute_agreement_table,
    decision_tables,
    raters_table,
    several_raters,
    to_json,
)
from debate_judge.runs.reports.page import Chart, Point, Quotation, Report, ReportBlock, Series, debates_of
from debate_judge.runs.reports.tables import (
    DataTable,
    HasInterval,
    correlation_label,
)
from debate_judge.runs.runner import JudgeUsage, calls_per_item
from debate_judge.runs.tracking import versions

Scores = Mapping[str, Sequence[GroupScores]]
"""Aspect -> the scores of one judge."""


@dataclass(frozen=True)
class EvaluatedJudge:
    """One judge on a corpus: its scores, its answers, and the LM usage behind them."""

    scores: Scores
    """Aspect -> scores and ratings by group, in corpus order."""
    judgements: Mapping[str, Sequence[Judgement]] = field(default_factory=dict, repr=False)
    """Aspect -> its answers in the order of `programs.judge.corpus_items`; empty for scores from a file."""
    usage: JudgeUsage | None = None
    """Tokens of its calls; None where they were not counted for this judge."""
    items: int = 0
    """Number of distinct items that `usage` covers."""
    note: str | None = None
    """Printed below the table."""
    on_scale: bool = True
    """Whether the scores lie on the scales of the aspects."""
    together: int = 1
    """Most candidates of a source that share a call."""
    lm: str = ""
    """PROVIDER/MODEL, or offline; empty for scores from a file."""
    price: Price | None = None
    """Of the LM, if it is known."""
    compiled_on: int = 0
    """Number of these groups that the judge was tuned or chosen on: agreement on them is no evidence."""

    @property
    def calls(self) -> float | None:
        """LM calls per item, including replies from the store; None for scores from a file."""
        judgements = list(chain.from_iterable(self.judgements.values()))
        return calls_per_item(judgements) if judgements else None

    @cached_property
    def unscored(self) -> dict[str, int]:
        """Reason -> number of items without a score."""
        answers = chain.from_iterable(self.judgements.values())
        reasons = Counter(str(judgement.reason) for judgement in answers if isinstance(judgement, Unscored))
        if not self.judgements:
            groups = chain.from_iterable(self.scores.values())
            missing = sum(score is None for group in groups for score in group.scores)
            reasons.update({"not in the file": missing} if missing else {})
        return dict(sorted(reasons.items()))

    @property
    def tokens_per_item(self) -> dict[str, float] | None:
        """Input tokens at the full price, those of the provider's prefix cache, and output tokens."""
        if self.usage is None:
            return None
        return {kind: getattr(self.usage, kind) / max(1, self.items) for kind in ("fresh", "cached", "output")}

    @property
    def usd_per_thousand(self) -> float | None:
        """US dollars for a thousand items if this judge ran alone; None where the price is unknown."""
        if self.calls == 0:
            return 0.0
        if self.price is None or self.usage is None or not self.items:
            return None
        return 1000 * self.usage.usd(self.price) / self.items


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
    decision_rules: Mapping[str, DecisionRule] = field(default_factory=dict)
    """Aspect -> the decision that its ratings define, for aspects whose ratings define one."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The aspects, and `AVERAGE` where there are several."""
        names = tuple(a.name for a in self.aspects)
        return names if len(names) == 1 else (*names, AVERAGE)

    def agreement(self, scores: Scores, levels: Sequence[Level] | None = None) -> AgreementTable:
        """Agreement at the given levels, by default at `level`."""
        return agreement_table(scores, seed=self.seed, levels=(self.level,) if levels is None else levels)

    def difference(self, a: Scores, b: Scores, **options: Any) -> Difference:
        """Agreement of `a` minus that of `b`, paired by group; `options` are those of `compare`."""
        return compare(a, b, statistic=self.statistics[0], level=self.level, seed=self.seed, **options)

    def on_scale(self, judge: EvaluatedJudge) -> bool:
        """Whether all scores of a judge are on the raters' scale; scores from a file may not be."""
        return judge.on_scale and all(
            aspect.scale.contains(score)
            for aspect in self.aspects
            for group in judge.scores[aspect.name]
            for score in group.scores
            if score is not None
        )


@dataclass(frozen=True)
class JudgeResult:
    """One judge of a comparison."""

    name: str
    judge: EvaluatedJudge
    setup: EvalSetup

    @cached_property
    def table(self) -> AgreementTable:
        """Agreement at all levels."""
        return self.setup.agreement(self.judge.scores, LEVELS)

    def agreement(self, column: str) -> dict[Statistic, Agreement]:
        """Agreement in an aspect, or on `AVERAGE`, at the level of the comparison."""
        return (self.table.average if column == AVERAGE else self.table.aspects[column])[self.setup.level]

    def to_json(self) -> dict[str, object]:
        judge = self.judge
        return {
            "agreement": self.table.to_json(),
            "lm_calls_per_item": judge.calls,
            "tokens_per_item": judge.tokens_per_item,
            "usd_per_1000_items": judge.usd_per_thousand,
            "lm": judge.lm or None,
            "together": judge.together,
            "unscored": dict(judge.unscored),
            "note": judge.note,
            "compiled_on_groups": judge.compiled_on,
        }


@dataclass(frozen=True)
class Comparison:
    """All judges on one corpus."""

    setup: EvalSetup
    judges: Mapping[str, EvaluatedJudge]
    """Those that were compiled on some of the groups get a row and nothing else."""
    baseline: str
    """The judge that the others are compared with; if it has no scores, there are no differences."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Judge -> why it has no row."""

    @cached_property
    def rows(self) -> tuple[JudgeResult, ...]:
        """All rows of the table; judges that were compiled on some of the groups come last."""
        rows = [JudgeResult(name, judge, self.setup) for name, judge in self.judges.items()]
        return tuple(sorted(rows, key=lambda row: row.judge.compiled_on > 0))

    @property
    def results(self) -> tuple[JudgeResult, ...]:
        """The rows that are evidence: of judges that were compiled on none of the groups."""
        return tuple(row for row in self.rows if not row.judge.compiled_on)

    def difference(self, name: str, other: str, **options: Any) -> Difference:
        """The agreement of a judge minus that of another one, averaged over aspects, in the first statistic."""
        return self.setup.difference(self.judges[name].scores, self.judges[other].scores, **options)

    @cached_property
    def differences(self) -> dict[str, Difference]:
        """Judge -> its difference to the baseline in the first statistic, on average over aspects."""
        names = [result.name for result in self.results]
        if self.baseline not in names:
            return {}
        return {name: self.difference(name, self.baseline) for name in names if name != self.baseline}

    @cached_property
    def corrected_p_values(self) -> dict[str, float | None]:
        """Judge -> p-value of that difference, corrected over judges (Holm); None below six groups."""
        return holm_adjusted({name: difference.p_value for name, difference in self.differences.items()})

    @cached_property
    def best(self) -> dict[str, str | None]:
        """Aspect, or `AVERAGE` -> the judge that differs from every other one (p < 0.05, Holm over all columns).

        The correction is over all columns, because a reader sees all stars of a table at once: corrected within each
        column only, many tables of equally good judges would have a star somewhere.
        """
        columns = {column: self._first_and_p_values(column) for column in self.setup.columns}
        corrected = holm_adjusted(
            {(column, other): p for column, (_, p_values) in columns.items() for other, p in p_values.items()}
        )
        best = {
            column: first
            if p_values and all((p := corrected[column, other]) is not None and p < 0.05 for other in p_values)
            else None
            for column, (first, p_values) in columns.items()
        }
        return best if AVERAGE in best else {**best, AVERAGE: best[self.setup.columns[0]]}

    def _first_and_p_values(self, column: str) -> tuple[str, dict[str, float | None]]:
        """The judge with the best value of a column, and the p-value of its difference to every other one."""
        statistic = self.setup.statistics[0]
        values = {result.name: result.agreement(column)[statistic].value for result in self.results}
        ranked = sorted((name for name, value in values.items() if value is not None), key=lambda n: -(values[n] or 0))

        def scores(name: str) -> Scores:
            by_aspect = self.judges[name].scores
            return by_aspect if column == AVERAGE else {column: by_aspect[column]}

        first = next(iter(ranked), "")
        return first, {other: self.setup.difference(scores(first), scores(other)).p_value for other in ranked[1:]}

    @cached_property
    def absolute_agreement(self) -> dict[str, dict[str, AbsoluteAgreement]]:
        """Judge -> aspect or `AVERAGE` -> absolute agreement, of judges on the raters' scale; changes are from the
        first one, the baseline if that is on the scale."""
        results = sorted(self.results, key=lambda result: result.name != self.baseline)
        scores = {result.name: result.judge.scores for result in results if self.setup.on_scale(result.judge)}
        if not scores or not self.setup.cuts:
            return {}
        same_scale = len({aspect.scale for aspect in self.setup.aspects}) == 1
        return absolute_agreement(scores, self.setup.cuts, same_scale=same_scale, seed=self.setup.seed)

    @cached_property
    def decisions(self) -> dict[str, dict[str, DecisionResult]]:
        """Judge -> aspect -> agreement of decisions, for aspects whose ratings define any."""
        rules, seed = self.setup.decision_rules, self.setup.seed
        decisions = {
            result.name: evaluate_decisions(result.judge.scores, rules, on_scale=result.judge.on_scale, seed=seed)
            for result in self.results
        }
        return {name: by_aspect for name, by_aspect in decisions.items() if by_aspect}

    @cached_property
    def rater_agreement(self) -> dict[str, dict[str, RaterAgreement]]:
        """Judge -> aspect -> comparison with individual raters; empty if there are only mean ratings."""
        setup = self.setup
        if not any(several_raters(result.judge.scores) for result in self.results):
            return {}
        options: Any = {"statistic": setup.statistics[0], "level": setup.level, "seed": setup.seed}
        return {
            result.name: {
                aspect: compare_with_raters(groups, on_scale=result.judge.on_scale, **options)
                for aspect, groups in result.judge.scores.items()
            }
            for result in self.results
        }

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values; kinds of evidence that the ratings do not give are left out."""
        differences = {
            name: {
                **asdict(d),
                "p_corrected": self.corrected_p_values[name],
                "power": None if (power := statistical_power(d)) is None else asdict(power),
            }
            for name, d in self.differences.items()
        }
        kinds: dict[str, Mapping[str, Mapping[str, Any]]] = {
            "absolute_agreement": self.absolute_agreement,
            "decisions": self.decisions,
            "raters": self.rater_agreement,
        }
        return {
            "judges": {result.name: result.to_json() for result in self.rows},
            "level": self.setup.level,
            "statistics": list(self.setup.statistics),
            "baseline": self.baseline,
            "differences": differences,
            "best": dict(self.best),
            "failed": dict(self.failed),
            **{kind: to_json(by_judge) for kind, by_judge in kinds.items() if by_judge},
        }


def group_notes(comparison: Comparison, names: Mapping[str, str]) -> list[str]:
    """How many groups have constant scores (counted as 0) or ratings (left out).

    `names` has the name of each judge in the notes.
    """
    level, statistic = comparison.setup.level, comparison.setup.statistics[0]
    cells = {names[result.name]: result.table.average[level][statistic] for result in comparison.rows}
    constant = ", ".join(f"{name} {cell.constant}" for name, cell in cells.items() if cell.constant)
    undefined = ", ".join(f"{name} {cell.undefined}" for name, cell in cells.items() if cell.undefined)
    return [
        *([f"groups with equal scores from a judge count 0; over all aspects: {constant}"] if constant else []),
        *([f"groups with equal ratings are left out; over all aspects: {undefined}"] if undefined else []),
    ]


def evidence_tables(comparison: Comparison, names: Mapping[str, str] | None = None) -> dict[str, list[DataTable]]:
    """Title -> tables of the figures besides correlations that these data and judges have.

    Args:
        comparison: The judges.
        names: Judge -> its name in tables, for judges that have another one there.
    """

    def named(by_judge: Mapping[str, Any]) -> dict[str, Any]:
        return {(names or {}).get(judge, judge): figures for judge, figures in by_judge.items()}

    tables: dict[str, list[DataTable]] = {}
    if by_judge := comparison.absolute_agreement:
        tables["Absolute agreement"] = [absolute_agreement_table(named(by_judge))]
    if decided := comparison.decisions:
        tables["Decisions"] = decision_tables(named(decided))
    if compared := comparison.rater_agreement:
        setup = comparison.setup
        tables["Judge vs. individual raters"] = [raters_table(named(compared), setup.level, setup.statistics[0])]
    return tables


def build_report(
    comparison: Comparison,
    names: Mapping[str, str],
    *,
    subject: Literal["Compiled judge", "Comparison of judges"],
    name: str,
    title: str,
    verdict: Sequence[ReportBlock],
    sections: Mapping[str, Sequence[ReportBlock]],
    charted: Sequence[str],
    browsed: Sequence[str],
    last_sections: Mapping[str, Sequence[ReportBlock]],
    stand_in: str,
) -> Report:
    """The report.

    Args:
        comparison: The judges on their corpus.
        names: Judge -> its name on the page.
        subject: What the report is about.
        name: Name of the run.
        title: Heading of the page.
        verdict: Findings and table; a chart of agreement follows.
        sections: Sections before those that all reports have.
        charted: Judges of this chart.
        browsed: Judges whose debates are on the page; the first is shown first.
        last_sections: Sections after those that all reports have.
        stand_in: A notice for the figures where the LM was a stand-in, else empty.
    """
    setup, judges = comparison.setup, comparison.judges
    shown: dict[str, EvaluatedJudge] = {names[judge]: judges[judge] for judge in browsed}
    on_scale = {name: setup.on_scale(evaluated) for name, evaluated in shown.items()}
    debates, texts = debates_of(setup.corpus, setup.aspects, shown, on_scale)
    task = setup.corpus.task
    return Report(
        subject,
        name,
        title,
        [*verdict, *_agreement_chart(comparison, {judge: names[judge] for judge in charted})],
        {**sections, **evidence_tables(comparison, names), **last_sections},
        debates,
        texts,
        stand_in,
        {"source": task.source_label, "candidate": task.candidate_label, "context": task.context_label},
    )


def point(x: float, y: HasInterval | None) -> tuple[Point, ...]:
    """A point of a chart with its interval; none where there is no value."""
    if y is None or y.value is None:
        return ()
    return ((x, y.value) if y.low is None or y.high is None else (x, y.value, y.low, y.high),)


def _agreement_chart(comparison: Comparison, names: Mapping[str, str]) -> list[ReportBlock]:
    """Agreement of the judges in each column of the table, with the human ceiling where single raters are known."""
    setup, results = comparison.setup, [row for row in comparison.results if row.name in names]
    if not results:
        return []
    columns, first = setup.columns, setup.statistics[0]
    series = []
    for result in results:
        points = (p for row, column in enumerate(columns) for p in point(row, result.agreement(column)[first]))
        series.append(Series(names[result.name], tuple((y, x, *ends) for x, y, *ends in points)))
    raters = next(iter(comparison.rater_agreement.values()), {})
    ceilings = [raters[column].ceiling if column in raters else None for column in columns]
    ceiling = tuple(None if measure is None else measure.value for measure in ceilings)
    caption = f"{correlation_label(results[-1].agreement(columns[-1])[first])}; 95 % intervals"
    return [Chart("Agreement with the raters", "dots", caption, tuple(series), columns, ceiling)]


def reproduce_blocks(command: str, rows: Mapping[str, str]) -> list[ReportBlock]:
    """How to reproduce a run: its command, and what its result depends on."""
    installed = ", ".join(f"{name} {version}" for name, version in versions().items())
    return [Quotation("Command", command), DataTable(("what", "value"), [*rows.items(), ("versions", installed)])]
