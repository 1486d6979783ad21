"""What a finished compile shows: one screen of the terminal, the report, and the page of its run in MLflow."""

from __future__ import annotations

import shlex
from dataclasses import replace

from debate_judge.optimize.held_out import COMPARED
from debate_judge.optimize.result import Result
from debate_judge.optimize.verdict import (
    NOT_ABOVE_CHANCE,
    agreement_table,
    evidence_tables,
    further_findings,
    guides,
    headings,
    metric_name,
    sources,
    variant_name,
    verdict,
)
from debate_judge.programs.lm.settings import EXAMPLE_LM, without_credentials
from debate_judge.runs.command_line import command
from debate_judge.runs.comparison.figures import build_report, point, reproduce_blocks
from debate_judge.runs.flags import as_command, command_words
from debate_judge.runs.reports.evidence import calibration_table, rank_note
from debate_judge.runs.reports.page import Chart, Paragraph, Quotation, Report, ReportBlock, Series
from debate_judge.runs.reports.tables import OutputBlock, Verbatim, calls_text, correlation_label, cost_table, markdown


def summary(result: Result, *, verbose: bool = False) -> list[OutputBlock]:
    """One screen; if `verbose`, all tables of the report come before it."""
    unscored, joined = result.agreement("compiled").unscored, result.plan.data.splits.near_duplicates_note()
    return [
        *(_details(result) if verbose else []),
        f"Held-out {metric_name(result)} with the human ratings, {sources(result)} sources, 95 % intervals",
        "",
        agreement_table(result, brief=True),
        "",
        *verdict(result),
        *([f"{unscored:,} items have no score."] if unscored else []),
        *([f"Split: {joined}"] if joined else []),
        *([] if result.beats_chance else [NOT_ABOVE_CHANCE]),
        *([f"{note} These figures do not tell you what an LM achieves."] if (note := result.plan.note) else []),
        calls_text(result.lm.meter, result.lm.price),
        "",
        next_steps(result),
    ]


def _details(result: Result) -> list[OutputBlock]:
    blocks: list[OutputBlock] = [agreement_table(result), "", *further_findings(result), ""]
    for title, parts in evidence_tables(result).items():
        blocks += [title, *(block for part in parts for block in ("", part)), ""]
    for aspect, guide in guides(result.compiled).items():
        blocks += [f"Guide: {aspect}", guide, ""]
    return [*blocks, *_trials(result), "", cost_table(result.lm.meter, result.lm.price), ""]


def _trials(result: Result) -> list[str]:
    """How many trials the search made, and how they ended."""
    search = next(iter(result.searches.values()))
    words = {"COMPLETE": "complete", "PRUNED": "pruned on a part of the sources", "FAIL": "failed: too many unscored"}
    counts = ", ".join(f"{search.states[state]} {word}" for state, word in words.items() if search.states.get(state))
    return [f"Search: {sum(search.states.values())} trials ({counts}), {len(search.outcomes)} judges to choose from"]


def next_steps(result: Result) -> Verbatim:
    """Where the results are, and the next commands, started in the same way as this process."""
    settings, tracked = result.plan.settings, result.tracked
    if tracked is None:
        raise ValueError("a dry run has no next steps")
    data = " ".join(command_words(settings, ("data", "task", "columns", "aspects", "sources", "held_out", "judge")))
    # The address in an export is not used unless the user confirms it.
    server = f"--api-base {without_credentials(settings.api_base)} " if settings.api_base else ""
    lines = [
        f"Export     {result.export}",
        *([f"Report     {result.report}"] if result.report else []),
        f"MLflow     {tracked.ui_command or tracked.link}",
        f"Score      {command('score')} {shlex.quote(str(result.export))} {server}--in texts.jsonl --out scores.jsonl",
        f"Your data  {command('check')} YOUR.csv"
        if settings.data == type(settings)().data
        else f"Real LM    OPENAI_API_KEY=... {command('compile')} {data} --lm {EXAMPLE_LM}",
    ]
    return Verbatim("\n".join(lines))


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
        "LM": settings.lm,
        "data": f"{data.corpus.origin.name}, fingerprint {data.corpus.digest}",
        **{name: f"{part.sources} sources, fingerprint {part.digest}" for name, part in parts.items()},
        "settings": f"fingerprint {plan.identity}",
    }
    note = "The same settings, data and LM replies give the same result; answered calls are not repeated."
    return [*reproduce_blocks(as_command("compile", settings), rows), Paragraph(note, "small")]


def description(result: Result) -> str:
    """The verdict and the table of held-out agreement, as Markdown."""
    lines = [
        *(f"{sentence}\n" for sentence in verdict(result)),
        f"Held-out {metric_name(result)} with the human ratings, with 95 % intervals:\n",
        markdown(agreement_table(result)),
    ]
    if result.plan.note:
        lines.append(f"\n{result.plan.note}")
    return "\n".join(lines)
