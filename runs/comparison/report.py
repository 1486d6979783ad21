"""The report of judges on the same corpus, for a compile and for `compare`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.runs.comparison.plan import ComparisonPlan
from debate_judge.runs.comparison.results import Comparison, EvaluatedJudge
from debate_judge.runs.comparison.table import judges_table, notes, verdict
from debate_judge.runs.flags import as_command
from debate_judge.runs.reports.charts import Chart, Point, Series
from debate_judge.runs.reports.costs import cost_table
from debate_judge.runs.reports.debates import debates_of
from debate_judge.runs.reports.evidence import absolute_agreement_table, decision_tables, raters_table
from debate_judge.runs.reports.page import Paragraph, Quotation, Report, ReportBlock
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.text import HasInterval, correlation_label
from debate_judge.runs.tracking.values import versions


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


def comparison_report(comparison: Comparison, plan: ComparisonPlan, lms: Iterable[JudgeLM]) -> Report:
    """The report of `compare`."""
    corpus = plan.setup.corpus
    names = {result.name: result.name for result in comparison.rows}
    reproduced = {
        "seed": str(plan.flags.seed),
        "LM": plan.lm,
        "data": f"{corpus.origin.name}, {plan.groups}, fingerprint {corpus.digest}",
    }
    sentences: list[ReportBlock] = [Paragraph(sentence) for sentence in verdict(comparison)]
    return build_report(
        comparison,
        names,
        subject="Comparison of judges",
        name=plan.name,
        title=f"{corpus.origin.name}: {len(names)} judges, {plan.lm}",
        verdict=[*sentences, judges_table(comparison, all_intervals=True)],
        sections={"Statistics": [Paragraph(note) for note in notes(comparison, plan)]},
        charted=list(names),
        browsed=list(names),
        last_sections={
            "Cost": [_cost_by_judge(comparison), *(cost_table(lm.meter, lm.price) for lm in lms)],
            "Reproduce": reproduce_blocks(as_command("compare", plan.flags), reproduced),
        },
        stand_in=plan.stand_in,
    )


def _cost_by_judge(comparison: Comparison) -> DataTable:
    rows = []
    for result in comparison.rows:
        judge = result.judge
        tokens = judge.tokens_per_item
        per_item = ["–"] * 3 if tokens is None else [f"{count:,.0f}" for count in tokens.values()]
        usd = "–" if judge.usd_per_thousand is None else f"{judge.usd_per_thousand:.4g}"
        rows.append([result.name, "–" if judge.calls is None else f"{judge.calls:.2f}", *per_item, usd])
    header = ("judge", "LM calls per item", "input", "cached input", "output", "$ per 1,000 items")
    note = "Tokens per item that each judge would use alone; a call that several judges need is made once."
    return DataTable(header, rows, note)
