"""The report of a compile: the verdict, and its own sections besides those that `compare` has as well."""

from __future__ import annotations

from dataclasses import replace

from debate_judge.optimize.held_out import COMPARED
from debate_judge.optimize.reporting.formatting import guides, variant_name
from debate_judge.optimize.reporting.verdict import (
    NOT_ABOVE_CHANCE,
    agreement_table,
    further_findings,
    headings,
    verdict,
)
from debate_judge.optimize.result import Result
from debate_judge.runs.comparison.report import build_report, point, reproduce_blocks
from debate_judge.runs.flags.parser import as_command
from debate_judge.runs.reports.charts import Chart, Series
from debate_judge.runs.reports.costs import calls_text, cost_table
from debate_judge.runs.reports.evidence import calibration_table, rank_note
from debate_judge.runs.reports.page import Paragraph, Quotation, Report, ReportBlock
from debate_judge.runs.reports.text import correlation_label

_BIASED = "On train and dev; the best of many such figures is biased upward."


def compile_report(result: Result) -> Report:
    """The report of a compile."""
    plan, meter = result.plan, result.lm.meter
    warning = [] if result.beats_chance else [Paragraph(NOT_ABOVE_CHANCE, "warning")]
    sentences: list[ReportBlock] = [Paragraph(sentence) for sentence in verdict(result)]
    effects = result.calibration
    return build_report(
        result.held_out,
        headings(result),
        subject="Compiled judge",
        name=plan.name,
        title=f"{plan.corpus_name}: {result.judge_kind}, {plan.settings.lm}",
        verdict=[*warning, *sentences, agreement_table(result)],
        sections={
            "Statistics": [Paragraph(finding) for finding in further_findings(result)],
            "What was learnt about the raters": _learnt_about_raters(result),
            "Agreement by rounds and persona": _agreement_by_rounds(result),
            "Scores on the raters' scale": [calibration_table(effects), Paragraph(rank_note(effects))]
            if effects
            else [],
        },
        charted=COMPARED,
        browsed=("compiled", "single"),
        last_sections={
            "Cost": [Paragraph(f"{calls_text(meter, result.lm.price)}."), cost_table(meter, result.lm.price)],
            "Reproduce": _reproduce(result),
        },
        stand_in=plan.note or "",
    )


def _learnt_about_raters(result: Result) -> list[ReportBlock]:
    judge, before = result.compiled, result.plan.judge.instructions()
    blocks: list[ReportBlock] = [Quotation(f"Guide: {aspect}", guide) for aspect, guide in guides(judge).items()]
    changes = [
        Quotation(f"{aspect}: instructions of {role}", after)
        for aspect, chosen in judge.aspects.items()
        for role, after in chosen.judge.instructions().items()
        if after != before[role]
    ]
    if not blocks and not changes:
        return [Paragraph("The judge has no guide, and its instructions are unchanged.")]
    note = "Instructions of the judge's roles, where the compile changed them."
    return [*blocks, *([Paragraph(note)] if changes else []), *changes]


def _agreement_by_rounds(result: Result) -> list[ReportBlock]:
    plan = result.plan
    charts: list[ReportBlock] = []
    for aspect, search in result.searches.items():
        chosen, series, label = search.chosen, [], ""
        for variant in search.scores.debated_rounds:
            values = search.scores.agreement_by_rounds(variant, plan.statistic, plan.data.level, plan.settings.seed)
            points = tuple(p for n, value in enumerate(values) for p in point(n, value))
            series.append(Series(variant_name(variant), points))
            label = label or correlation_label(values[-1])
        if any(len(line.points) > 1 for line in series):
            chart = Chart(aspect, "lines", f"{label}; without Tie-breaker, scores not rounded", tuple(series))
            if not chosen.point.tie_breaker:
                name = variant_name(chosen.point.variant)
                chart = replace(chart, chosen=(name, chosen.point.rounds))
            charts.append(chart)
    return [Paragraph(_BIASED), *charts] if charts else []


def _reproduce(result: Result) -> list[ReportBlock]:
    data, settings, plan = result.plan.data, result.plan.settings, result.plan
    parts = {"train": data.splits.train, "dev": data.splits.dev, "held-out": data.evaluation_corpus}
    rows = {
        "seed": str(settings.seed),
        "LM": settings.lm + (f" ({plan.note})" if plan.note else ""),
        "data": f"{data.corpus.origin.name}, fingerprint {data.corpus.digest}",
        **{name: f"{part.sources} sources, fingerprint {part.digest}" for name, part in parts.items()},
        "settings": f"fingerprint {plan.identity}",
    }
    note = "The same settings, data and LM replies give the same result; answered calls are not repeated."
    return [*reproduce_blocks(as_command("compile", settings), rows), Paragraph(note, "small")]
