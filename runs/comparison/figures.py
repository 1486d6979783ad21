"""The comparison of judges on the same sources: agreement, paired differences, decisions, raters, absolute agreement,
and the sections of a report about it.

`debate compare` and the compile compute their figures here; a figure is computed when it is first asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Any

from debate_judge.data.agreement.correlations import (
    AgreementTable,
    RaterAgreement,
    agreement_table,
    compare,
    compare_with_raters,
    several_raters,
)
from debate_judge.data.agreement.decisions import (
    AbsoluteAgreement,
    DecisionResult,
    DecisionRule,
    absolute_agreement,
    evaluate_decisions,
)
from debate_judge.data.agreement.figures import AVERAGE, Figure, ScoresByAspect, Statistic, holm_adjusted, plain
from debate_judge.data.schema import Aspect, Corpus, Level
from debate_judge.programs.judge import Judgement, Unscored
from debate_judge.programs.lm.settings import Price
from debate_judge.runs.export import versions
from debate_judge.runs.reports.evidence import absolute_agreement_table, decision_tables, raters_table
from debate_judge.runs.reports.page import Chart, Point, Quotation, ReportBlock
from debate_judge.runs.reports.tables import DataTable, OutputBlock, correlation_label
from debate_judge.runs.runner import JudgeUsage, calls_per_item


@dataclass(frozen=True)
class EvaluatedJudge:
    """One judge on a corpus: its scores, its answers, and the LM usage behind them."""

    scores: ScoresByAspect
    """Aspect -> scores and ratings by group, in corpus order."""
    judgements: Mapping[str, Sequence[Judgement]] = field(default_factory=dict, repr=False)
    """Aspect -> its answers in the order of `programs.grouping.corpus_items`; empty for scores from a file."""
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


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All judges on one corpus, the aspects in which they are compared, and by which statistics."""

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
    judges: Mapping[str, EvaluatedJudge] = field(default_factory=dict)
    """Those that were compiled on some of the groups get a row and nothing else."""
    baseline: str = ""
    """The judge that the others are compared with; if it has no scores, there are no differences."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Judge -> why it has no row."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The aspects, and `AVERAGE` where there are several."""
        names = tuple(a.name for a in self.aspects)
        return names if len(names) == 1 else (*names, AVERAGE)

    @property
    def rows(self) -> dict[str, EvaluatedJudge]:
        """All rows of the table; judges that were compiled on some of the groups come last."""
        return dict(sorted(self.judges.items(), key=lambda row: row[1].compiled_on > 0))

    @property
    def compared(self) -> dict[str, EvaluatedJudge]:
        """The judges that were compiled on none of the groups, so that their figures are evidence."""
        return {name: judge for name, judge in self.judges.items() if not judge.compiled_on}

    @cached_property
    def tables(self) -> dict[str, AgreementTable]:
        """Judge -> agreement at all levels."""
        return {name: agreement_table(judge.scores, seed=self.seed) for name, judge in self.judges.items()}

    def agreement(self, judge: str, column: str = AVERAGE, statistic: Statistic | None = None) -> Figure:
        """Agreement of a judge in an aspect, or on `AVERAGE`, at the level and in the first statistic."""
        table = self.tables[judge]
        by_level = table.average if column == AVERAGE else table.aspects[column]
        return by_level[self.level][statistic or self.statistics[0]]

    def difference(self, name: str, other: str, column: str = AVERAGE, *, family_size: int = 1) -> Figure:
        """The agreement of a judge minus that of another one, paired by group; arguments as of `compare`."""
        a, b = (
            scores if column == AVERAGE else {column: scores[column]}
            for scores in (self.judges[name].scores, self.judges[other].scores)
        )
        options: Any = {"statistic": self.statistics[0], "level": self.level, "seed": self.seed}
        return compare(a, b, family_size=family_size, **options)

    @cached_property
    def differences(self) -> dict[str, Figure]:
        """Judge -> its difference to the baseline in the first statistic, on average over aspects."""
        if self.baseline not in self.compared:
            return {}
        return {name: self.difference(name, self.baseline) for name in self.compared if name != self.baseline}

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
        firsts: dict[str, str] = {}
        p_values: dict[tuple[str, str], float | None] = {}
        for column in self.columns:
            values = {name: self.agreement(name, column).value for name in self.compared}
            ranked = sorted((n for n, value in values.items() if value is not None), key=lambda n: -(values[n] or 0))
            for other in ranked[1:]:
                firsts[column] = ranked[0]
                p_values[column, other] = self.difference(ranked[0], other, column).p_value
        for (column, _), p in holm_adjusted(p_values).items():
            if p is None or p >= 0.05:
                firsts.pop(column, None)
        best = {column: firsts.get(column) for column in self.columns}
        return {**best, AVERAGE: best[self.columns[-1]]}

    def on_scale(self, judge: EvaluatedJudge) -> bool:
        """Whether all scores of a judge are on the raters' scale; scores from a file may not be."""
        return judge.on_scale and all(
            aspect.scale.contains(score)
            for aspect in self.aspects
            for group in judge.scores[aspect.name]
            for score in group.scores
            if score is not None
        )

    @cached_property
    def absolute_agreement(self) -> dict[str, dict[str, AbsoluteAgreement]]:
        """Judge -> aspect or `AVERAGE` -> absolute agreement, of judges on the raters' scale; changes are from the
        first one, the baseline if that is on the scale."""
        names = sorted(self.compared, key=lambda name: name != self.baseline)
        scores = {name: self.judges[name].scores for name in names if self.on_scale(self.judges[name])}
        if not scores or not self.cuts:
            return {}
        same_scale = len({aspect.scale for aspect in self.aspects}) == 1
        return absolute_agreement(scores, self.cuts, same_scale=same_scale, seed=self.seed)

    @cached_property
    def decisions(self) -> dict[str, dict[str, DecisionResult]]:
        """Judge -> aspect -> agreement of decisions, for aspects whose ratings define any."""
        decisions = {
            name: evaluate_decisions(judge.scores, self.decision_rules, on_scale=judge.on_scale, seed=self.seed)
            for name, judge in self.compared.items()
        }
        return {name: by_aspect for name, by_aspect in decisions.items() if by_aspect}

    @cached_property
    def rater_agreement(self) -> dict[str, dict[str, RaterAgreement]]:
        """Judge -> aspect -> comparison with individual raters; empty if there are only mean ratings."""
        if not any(several_raters(judge.scores) for judge in self.compared.values()):
            return {}
        options: Any = {"statistic": self.statistics[0], "level": self.level, "seed": self.seed}
        return {
            name: {
                aspect: compare_with_raters(groups, on_scale=judge.on_scale, **options)
                for aspect, groups in judge.scores.items()
            }
            for name, judge in self.compared.items()
        }

    def evidence_to_json(self) -> dict[str, Any]:
        """Kind of evidence -> judge -> aspect -> figures; kinds that the ratings do not give are left out."""
        kinds: dict[str, Mapping[str, Mapping[str, Any]]] = {
            "absolute_agreement": self.absolute_agreement,
            "decisions": self.decisions,
            "raters": self.rater_agreement,
        }
        return {
            kind: {judge: {a: plain(figures) for a, figures in of.items()} for judge, of in by_judge.items()}
            for kind, by_judge in kinds.items()
            if by_judge
        }

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        judges = {
            name: {
                "agreement": plain(self.tables[name]),
                "lm_calls_per_item": judge.calls,
                "tokens_per_item": judge.tokens_per_item,
                "usd_per_1000_items": judge.usd_per_thousand,
                "lm": judge.lm or None,
                "together": judge.together,
                "unscored": judge.unscored,
                "note": judge.note,
                "compiled_on_groups": judge.compiled_on,
            }
            for name, judge in self.rows.items()
        }
        differences = {
            name: {**plain(difference), "p_corrected": self.corrected_p_values[name], "power": difference.power}
            for name, difference in self.differences.items()
        }
        return {
            "judges": judges,
            "level": self.level,
            "statistics": list(self.statistics),
            "baseline": self.baseline,
            "differences": differences,
            "best": self.best,
            "failed": dict(self.failed),
            **self.evidence_to_json(),
        }


# --- parts of reports; `names` are those of judges in tables, where they have others there ---


def group_notes(comparison: Comparison, names: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """How many groups have constant scores (counted as 0) or ratings (left out)."""
    figures = {names.get(name, name): comparison.agreement(name) for name in comparison.rows}
    constant = ", ".join(f"{name} {figure.constant}" for name, figure in figures.items() if figure.constant)
    undefined = ", ".join(f"{name} {figure.undefined}" for name, figure in figures.items() if figure.undefined)
    return [
        *([f"groups with equal scores from a judge count 0; over all aspects: {constant}"] if constant else []),
        *([f"groups with equal ratings are left out; over all aspects: {undefined}"] if undefined else []),
    ]


def evidence_tables(
    comparison: Comparison, names: Mapping[str, str] = MappingProxyType({})
) -> dict[str, list[OutputBlock]]:
    """Title -> tables of the figures besides correlations that these data and judges have."""

    def named(by_judge: Mapping[str, Any]) -> dict[str, Any]:
        return {names.get(judge, judge): figures for judge, figures in by_judge.items()}

    tables: dict[str, list[OutputBlock]] = {}
    if by_judge := comparison.absolute_agreement:
        tables["Absolute agreement"] = [absolute_agreement_table(named(by_judge))]
    if decided := comparison.decisions:
        tables["Decisions"] = [*decision_tables(named(decided))]
    if compared := comparison.rater_agreement:
        table = raters_table(named(compared), comparison.level, comparison.statistics[0])
        tables["Judge vs. individual raters"] = [table]
    return tables


def point(x: float, y: Figure) -> tuple[Point, ...]:
    """A point of a chart with its interval; none where there is no value."""
    if y.value is None:
        return ()
    return ((x, y.value) if y.low is None or y.high is None else (x, y.value, y.low, y.high),)


def agreement_chart(comparison: Comparison, names: Mapping[str, str]) -> list[Chart]:
    """Agreement of the judges that are evidence, of these `names`, in each column of the table, with the human ceiling
    where single raters are known."""
    names = {judge: name for judge, name in names.items() if judge in comparison.compared}
    if not names:
        return []
    columns = comparison.columns
    series = {}
    for judge, name in names.items():
        points = (p for row, column in enumerate(columns) for p in point(row, comparison.agreement(judge, column)))
        series[name] = [(y, x, *ends) for x, y, *ends in points]
    raters = next(iter(comparison.rater_agreement.values()), {})
    ceiling = [raters[column].ceiling.value if column in raters else None for column in columns]
    last = comparison.agreement([*names][-1], columns[-1])
    label = correlation_label(comparison.level, comparison.statistics[0], last)
    return [Chart("Agreement with the raters", "dots", f"{label}; 95 % intervals", series, columns, ceiling)]


def reproduce_blocks(command: str, rows: Mapping[str, str]) -> list[ReportBlock]:
    """How to reproduce a run: its command, and what its result depends on."""
    installed = ", ".join(f"{name} {version}" for name, version in versions().items())
    return [Quotation("Command", command), DataTable(("what", "value"), [*rows.items(), ("versions", installed)])]
