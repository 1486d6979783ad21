"""What the page of a comparison says. A further section is a further entry in `comparison_report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from debate_judge.data.agreement.decisions import Decided
from debate_judge.data.agreement.results import Agreement
from debate_judge.data.schema import fingerprint
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.comparison.ablations.plan import Findings
from debate_judge.runs.comparison.ablations.studies import Study
from debate_judge.runs.comparison.flags import CompareFlags
from debate_judge.runs.comparison.legend import document, legend
from debate_judge.runs.comparison.results import AVERAGE, Comparison, EntrantScores, EvalSetup
from debate_judge.runs.comparison.setup import Work
from debate_judge.runs.comparison.table import cells
from debate_judge.runs.flags.parser import as_command
from debate_judge.runs.reports import costs
from debate_judge.runs.reports import decisions as decision_tables
from debate_judge.runs.reports import raters as rater_tables
from debate_judge.runs.reports.html.blocks import (
    CostChart,
    CostPoint,
    DataTable,
    JudgesChart,
    LineSeries,
    Paragraph,
    Quotation,
    ReportBlock,
    RoundsChart,
    Section,
    Span,
    rows_of,
)
from debate_judge.runs.reports.html.debates import DebateTexts
from debate_judge.runs.reports.html.document import Report
from debate_judge.runs.reports.html.items import JudgedScores, beside_ratings, debates_of, labels_of
from debate_judge.runs.reports.raters import BesideRaters
from debate_judge.runs.reports.text import basis, interval, p_text
from debate_judge.runs.tracking.values import versions

_MOST_DRAWN = 6
"""Judges whose scores are drawn beside the ratings; all can be looked through."""


@dataclass(frozen=True)
class ComparedJudges:
    """A comparison with what its data call for besides."""

    comparison: Comparison
    decided: Mapping[str, Mapping[str, Decided]]
    """Judge -> aspect -> decisions; empty where the ratings are no categories."""
    beside: BesideRaters
    """Judge -> aspect -> how it stands beside single raters; empty where only means are known."""
    priced: bool


def comparison_report(
    arguments: CompareFlags, work: Work, found: ComparedJudges, findings: Findings | None, lm: JudgeLM
) -> tuple[Report, DebateTexts]:
    """What the page shows, without the texts of the data, and these.

    Args:
        arguments: Of the command.
        work: What they asked for.
        found: The finished comparison.
        findings: The ablations, if they were done.
        lm: What was asked, for the bill.
    """
    comparison, setup = found.comparison, work.setup
    identity = fingerprint(["comparison", document(comparison, work.setting)])
    judged = {result.name: _judged(setup, result.entry) for result in comparison.results}
    debates, texts = debates_of(setup.corpus, setup.aspects, judged, identity)
    sections: dict[str, Sequence[ReportBlock]] = {
        "Result": _result(comparison),
        "Agreement": _agreement(found, work),
        "Agreement against cost": _cost(comparison),
        "Decisions": _decisions(found),
        "Judge vs. individual raters": _raters(found, setup),
        **{f"Ablation: {study.name}": _study(study, setup) for study in (findings.studies if findings else ())},
        "Human against judge": _beside(setup, judged),
        "Cost": _costs(comparison, lm),
        "Reproduce": _reproduce(arguments, work),
    }
    name = setup.corpus.origin.name
    report = Report(
        "comparison",
        f"compare-{name}-{identity[:8]}",
        f"{name}: {len(judged)} judges, {arguments.lm}",
        identity,
        tuple(Section(t, tuple(blocks), t != "Reproduce") for t, blocks in sections.items() if blocks),
        debates,
        stand_in=work.setting.note if arguments.lm == OFFLINE else "",
        labels=labels_of(setup.corpus.task),
    )
    return report, texts


def _judged(setup: EvalSetup, entry: EntrantScores) -> JudgedScores:
    # Scores from a file may lie on any scale.
    fits = all(
        aspect.scale.contains(score)
        for aspect in setup.aspects
        for group in entry.scores[aspect.name]
        for score in group.scores
        if score is not None
    )
    return JudgedScores(entry.scores, entry.judgements, entry.on_scale and fits)


def _result(comparison: Comparison) -> list[ReportBlock]:
    best = comparison.best[AVERAGE]
    marked = (
        f"{best}, on average: it differs from every other judge (p < 0.05, Holm over all columns)."
        if best
        else "These sources cannot tell: no judge differs from every other one on average (p < 0.05, Holm over all "
        "columns)."
    )
    blocks: list[ReportBlock] = [Paragraph(marked, "Which judge is the best?")]
    lines = [
        f"{name}: {interval(difference)}, {p_text(comparison.corrected[name])}"
        for name, difference in comparison.differences.items()
    ]
    if lines:
        blocks.append(Paragraph("\n".join(lines), f"How do they differ from {comparison.baseline}?"))
    blocks += [Paragraph(f"{name}: {why}", look="warning") for name, why in comparison.failed.items()]
    return blocks


def _agreement(found: ComparedJudges, work: Work) -> list[ReportBlock]:
    comparison, setup = found.comparison, work.setup
    header, rows = cells(comparison, all_intervals=True)
    note = legend(comparison, work.setting, priced=found.priced)
    columns = {
        result.name: [
            (result.table.average if column == AVERAGE else result.table.aspects[column])[setup.level]
            for column in setup.columns
        ]
        for result in comparison.results
    }
    first = setup.statistics[0]
    series = tuple(
        LineSeries(name, tuple(Span.of(table[first]) for table in tables)) for name, tables in columns.items()
    )
    label = _label(next(iter(columns.values()))[-1][first])
    blocks: list[ReportBlock] = [
        DataTable(tuple(header), rows_of(rows), note),
        JudgesChart("Agreement with the raters", label, setup.columns, series),
    ]
    if comparison.differences:
        spans = tuple(map(Span.of, comparison.differences.values()))
        versus = LineSeries(f"judge minus {comparison.baseline}", spans)
        title = f"Difference to {comparison.baseline}"
        blocks.append(JudgesChart(title, f"{label}, averaged, paired", tuple(comparison.differences), (versus,)))
    return blocks


def _label(one: Agreement) -> str:
    """Which correlation the figures are, and what they rest on."""
    flat = f"{one.undefined} left out for equal ratings" if one.undefined else "none undefined"
    unscored = f", {one.unscored} items unscored" if one.unscored else ""
    return f"{basis(one)} with the mean human rating, {one.groups} groups, {flat}{unscored}"


def _cost(comparison: Comparison) -> list[ReportBlock]:
    level, first = comparison.setup.level, comparison.setup.statistics[0]
    points = []
    for result in comparison.results:
        value = result.table.average[level][first].value
        if value is not None and result.entry.calls is not None:
            points.append(CostPoint(result.entry.calls, value, result.name))
    front: list[CostPoint] = []
    for point in sorted(points, key=lambda p: (p.calls, -p.agreement)):
        if not front or point.agreement > front[-1].agreement:
            front.append(point)
    if len(points) < 2:
        return []
    label = _label(comparison.results[0].table.average[level][first])
    return [CostChart("Average agreement", label, tuple(points), tuple(front))]


def _decisions(found: ComparedJudges) -> list[ReportBlock]:
    return [DataTable(block.header, block.rows, block.title) for block in decision_tables.blocks(found.decided)]


def _raters(found: ComparedJudges, setup: EvalSetup) -> list[ReportBlock]:
    if not found.beside:
        return []
    title = rater_tables.title(setup.level, setup.statistics[0])
    return [DataTable(rater_tables.HEADER, rows_of(rater_tables.rows(found.beside)), title)]


def _study(study: Study, setup: EvalSetup) -> list[ReportBlock]:
    level, first = setup.level, setup.statistics[0]
    tables = [variant.table for variant in study.variants.values()]
    by_column = {
        column: [(t.average if column == AVERAGE else t.aspects[column])[level][first] for t in tables]
        for column in setup.columns
    }
    label = _label(next(reversed(by_column.values()))[-1])
    if study.name == "rounds":
        series = tuple(LineSeries(column, tuple(map(Span.of, row))) for column, row in by_column.items())
        return [RoundsChart(study.title, label, series)]
    series = tuple(
        LineSeries(name, tuple(Span.of(row[i]) for row in by_column.values())) for i, name in enumerate(study.variants)
    )
    return [JudgesChart(study.title, label, setup.columns, series)]


def _beside(setup: EvalSetup, judged: Mapping[str, JudgedScores]) -> list[ReportBlock]:
    blocks: list[ReportBlock] = []
    for name in list(judged)[:_MOST_DRAWN]:
        blocks += [Paragraph("", name), *beside_ratings(setup.aspects, judged[name])]
    return blocks


def _costs(comparison: Comparison, lm: JudgeLM) -> list[ReportBlock]:
    rows = []
    for result in comparison.results:
        entry = result.entry
        used = [getattr(entry.usage, name) for name in ("fresh", "cached", "output")] if entry.usage else []
        per_item = [f"{count / max(1, entry.items):,.0f}" for count in used] or ["–"] * 3
        usd = "–" if result.usd is None else f"{result.usd:.4g}"
        rows.append([result.name, "–" if entry.calls is None else f"{entry.calls:.2f}", *per_item, usd])
    header = ("judge", "LM calls per item", "input fresh", "input cached", "output", "$ per 1,000 items")
    note = "Per item, tokens that each judge would use alone; a call that several need is made once."
    bill = costs.cost_rows(lm.meter, lm.price)
    names, body = costs.cells(bill)
    return [
        DataTable(header, rows_of(rows), note),
        DataTable(names, rows_of(body), "\n".join(costs.notes(bill)), total=True),
    ]


def _reproduce(arguments: CompareFlags, work: Work) -> list[ReportBlock]:
    corpus, setting = work.setup.corpus, work.setting
    part = f"{len(corpus.groups)} groups, {setting.where}, fingerprint {corpus.digest}"
    rows: Sequence[tuple[str, str]] = [
        ("seed", str(arguments.seed)),
        ("LM", arguments.lm + (f" ({setting.note})" if arguments.lm == OFFLINE else "")),
        ("data", f"{corpus.origin.name}, {part}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions().items())),
    ]
    return [Quotation("Command", as_command("compare", arguments)), DataTable(("what", "value"), rows_of(rows))]
