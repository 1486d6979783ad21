"""The sections of a compile's report. A new section is one more entry in `compile_report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from debate_judge.optimize.evaluation.comparison import HeldOutComparison
from debate_judge.optimize.evaluation.held_out import COMPARED
from debate_judge.optimize.plan import CompilePlan
from debate_judge.optimize.reporting.formatting import describe_point, guides, variant_name
from debate_judge.optimize.reporting.verdict import (
    NOT_ABOVE_CHANCE,
    agreement_rows,
    evidence_tables,
    headings,
    held_out_note,
    table_notes,
    verdict,
)
from debate_judge.optimize.result import Result
from debate_judge.optimize.search.study import Outcome, SearchResult
from debate_judge.programs.compiled import CompiledJudge
from debate_judge.runs.flags.parser import as_command
from debate_judge.runs.reports.costs import calls_text, cost_table
from debate_judge.runs.reports.html.blocks import (
    CostChart,
    CostPoint,
    DataTable,
    IntervalValue,
    JudgesChart,
    LineChart,
    LineSeries,
    Paragraph,
    Quotation,
    ReportBlock,
    Section,
    TextChange,
)
from debate_judge.runs.reports.html.common import (
    JudgedScores,
    debates_of,
    reproduce_blocks,
    score_charts,
    text_labels,
)
from debate_judge.runs.reports.html.document import DebateTexts, Report
from debate_judge.runs.reports.text import correlation_label

_BROWSED = ("compiled", "single")
"""The judges whose debates can be browsed on the page."""


def compile_report(result: Result) -> tuple[Report, DebateTexts]:
    """The report of a compile without the texts of the data, and these texts."""
    plan, judge, searches, held_out = result.plan, result.compiled, result.searches, result.held_out
    names = headings(result)
    judged = {name: _judged_scores(plan, held_out, name) for name in _BROWSED}
    by_name = {names[name]: scores for name, scores in judged.items()}
    debates, texts = debates_of(plan.data.evaluation_corpus, plan.data.aspects, by_name, plan.identity)
    blocks_by_title: dict[str, Sequence[ReportBlock]] = {
        "Verdict": _verdict(result),
        "Agreement on held-out sources": _agreement(result),
        **{
            title: [Paragraph(part, look="small") if isinstance(part, str) else part for part in parts]
            for title, parts in evidence_tables(result).items()
        },
        "What was learnt about the raters": _learnt_about_raters(plan, judge),
        "Agreement by rounds and persona": _agreement_by_rounds(plan, searches),
        "Agreement against cost": _agreement_against_cost(plan, searches),
        "Scores against ratings": tuple(score_charts(plan.data.aspects, judged["compiled"])),
        "Cost": _costs(result),
        "Reproduce": _reproduce(plan),
    }
    sections = tuple(
        Section(title, tuple(blocks), title not in _NO_FIGURES) for title, blocks in blocks_by_title.items() if blocks
    )
    report = Report(
        "compile",
        plan.name,
        f"{plan.corpus_name}: {result.judge_kind}, {plan.settings.lm}",
        plan.identity,
        sections,
        debates,
        stand_in=plan.note or "",
        labels=text_labels(plan.data.corpus.task),
    )
    return report, texts


_NO_FIGURES = ("What was learnt about the raters", "Reproduce")


def _judged_scores(plan: CompilePlan, held_out: HeldOutComparison, name: str) -> JudgedScores:
    on_scale = plan.single.on_scale if name == "single" else plan.judge.on_scale
    return JudgedScores(held_out.scores[name], held_out.judgements[name], on_scale)


def _verdict(result: Result) -> list[ReportBlock]:
    blocks: list[ReportBlock] = []
    for question, answer in verdict(result):
        blocks.append(Paragraph(answer[:1].upper() + answer[1:], question))
    if not result.beats_chance:
        blocks.append(Paragraph(NOT_ABOVE_CHANCE, look="warning"))
    return blocks


def _agreement(result: Result) -> list[ReportBlock]:
    names, aspects = headings(result), list(result.searches)
    several_aspects = len(aspects) > 1
    rows = agreement_rows(result, " / ")[: None if several_aspects else -1]
    by_judge = {judge: [result.agreement(judge, aspect) for aspect in aspects] for judge in COMPARED}
    if several_aspects:
        for judge, column in by_judge.items():
            column.append(result.agreement(judge))
    label = correlation_label(by_judge["compiled"][-1])
    note = f"{label}; 95 % intervals. {held_out_note(result)}. LM calls per item in the order of the columns."
    series = tuple(LineSeries(names[judge], tuple(map(IntervalValue.of, by_judge[judge]))) for judge in COMPARED)
    raters = result.held_out.rater_agreement.get("compiled", {})
    ceilings = [raters[aspect].ceiling if aspect in raters else None for aspect in aspects]
    ceiling = tuple(None if value is None else value.value for value in ceilings)
    return [
        DataTable(("aspect", *names.values(), "LM calls per item", "chosen"), rows, note, total=several_aspects),
        JudgesChart("Held-out agreement with the raters", label, tuple(row[0] for row in rows), series, ceiling),
        Paragraph("\n".join(table_notes(result)), look="small"),
    ]


def _learnt_about_raters(plan: CompilePlan, judge: CompiledJudge) -> list[ReportBlock]:
    blocks: list[ReportBlock] = [Quotation(f"Guide: {aspect}", guide) for aspect, guide in guides(judge).items()]
    before = plan.judge.instructions()
    changes = [
        TextChange(f"{aspect}: instructions of {role}", before[role], after)
        for aspect, chosen in judge.aspects.items()
        for role, after in chosen.judge.instructions().items()
        if after != before[role]
    ]
    if not blocks and not changes:
        return [Paragraph("The judge holds no guide, and its instructions are unchanged.")]
    note = "Instructions of the judge's roles, from uncompiled to compiled: what was added and what was removed."
    return [*blocks, *([Paragraph(note)] if changes else []), *changes]


def _agreement_by_rounds(plan: CompilePlan, searches: Mapping[str, SearchResult]) -> list[ReportBlock]:
    level, seed = plan.data.level, plan.settings.seed
    charts: list[ReportBlock] = []
    for aspect, search in searches.items():
        point, series, label = search.chosen.point, [], ""
        for variant in search.scores.debated_rounds:
            values = search.scores.agreement_by_rounds(variant, plan.statistic, level, seed)
            series.append(LineSeries(variant_name(variant), tuple(map(IntervalValue.of, values))))
            label = label or correlation_label(values[-1])
        if any(len(line.values) > 1 for line in series):
            chosen = None if point.tie_breaker else (variant_name(point.variant), point.rounds)
            charts.append(LineChart(aspect, label, tuple(series), chosen))
    note = (
        "On train and dev, without Tie-breaker and with unrounded scores; the best of many such figures is biased "
        "upwards."
    )
    return [Paragraph(note), *charts] if charts else []


def _agreement_against_cost(plan: CompilePlan, searches: Mapping[str, SearchResult]) -> list[ReportBlock]:
    label = f"{plan.objective_description}, {{}} sources"
    charts = [
        CostChart(
            aspect,
            label.format(len(search.chosen.scores)),
            tuple(map(_cost_point, search.outcomes)),
            tuple(map(_cost_point, search.front)),
            _cost_point(search.chosen),
        )
        for aspect, search in searches.items()
    ]
    note = "All points of the search, on train and dev; the best of many is biased upwards."
    return [Paragraph(note), *charts]


def _cost_point(outcome: Outcome) -> CostPoint:
    return CostPoint(outcome.calls, outcome.agreement, describe_point(outcome.point, outcome.calls))


def _costs(result: Result) -> list[ReportBlock]:
    meter = result.lm.meter
    return [Paragraph(f"{calls_text(meter)}."), cost_table(meter, result.lm.price)]


def _reproduce(plan: CompilePlan) -> list[ReportBlock]:
    data, settings = plan.data, plan.settings
    parts = {"train": data.splits.train, "dev": data.splits.dev, "held-out": data.evaluation_corpus}
    rows = [
        ("seed", str(settings.seed)),
        ("LM", settings.lm + (f" ({plan.note})" if plan.note else "")),
        ("data", f"{data.corpus.origin.name}, fingerprint {data.corpus.digest}"),
        *((name, f"{part.sources} sources, fingerprint {part.digest}") for name, part in parts.items()),
        ("settings", f"fingerprint {plan.identity}"),
    ]
    note = "Equal settings, data and replies of the LM give equal results; calls that were answered are not made again."
    return [*reproduce_blocks(as_command("compile", settings), rows), Paragraph(note, look="small")]
