"""The report of judges on the same corpus, for a compile and for `compare`, and the output of `compare`."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.runs.comparison.entrants import Entrant
from debate_judge.runs.comparison.evidence import evidence
from debate_judge.runs.comparison.flags import CompareFlags
from debate_judge.runs.comparison.plan import ComparisonPlan
from debate_judge.runs.comparison.results import AVERAGE, Comparison
from debate_judge.runs.comparison.table import judges_table, verdict
from debate_judge.runs.comparison.tracked import identity_of, log_comparison, name_of
from debate_judge.runs.flags.parser import as_command
from debate_judge.runs.reports.costs import cost_table
from debate_judge.runs.reports.html.charts import Chart, Point, Series
from debate_judge.runs.reports.html.debates import debates_of
from debate_judge.runs.reports.html.page import Paragraph, Quotation, Report, ReportBlock
from debate_judge.runs.reports.html.report_files import ReportFiles, write_files
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.text import HasInterval, correlation_label
from debate_judge.runs.tracking.tracker import Tracker, TrackingError
from debate_judge.runs.tracking.values import versions

_MAX_POINTS = 300
"""Points of a chart of scores against ratings."""

_MAX_CHARTED_JUDGES = 6
"""Judges with charts of scores against ratings."""


@dataclass(frozen=True)
class RenderedComparison:
    """A comparison with its notes and JSON."""

    comparison: Comparison
    notes: tuple[str, ...]
    record: Mapping[str, Any] = field(default_factory=dict)
    """The JSON of `--json`, every number finite or null."""
    incomplete: tuple[str, ...] = ()
    """Judges without figures, because they left more texts without a score than `max-unscored` allows."""


# --- the report of a compile and of a comparison ---


def build_report(
    comparison: Comparison,
    names: Mapping[str, str],
    *,
    subject: Literal["Compiled judge", "Comparison of judges"],
    name: str,
    title: str,
    identity: str,
    verdict: Sequence[ReportBlock],
    sections: Mapping[str, Sequence[ReportBlock]],
    charted: Sequence[str],
    browsed: Sequence[str],
    last_sections: Mapping[str, Sequence[ReportBlock]],
    stand_in: str,
) -> tuple[Report, dict[str, Any]]:
    """The report without the texts of the data, and the texts.

    Args:
        comparison: The judges on their corpus.
        names: Judge -> its name on the page.
        subject: What the report is about.
        name: Name of the run.
        title: Heading of the page.
        identity: Equal for reports of the same run.
        verdict: Findings and table; a chart of agreement follows.
        sections: Sections before those that all reports have.
        charted: Judges of this chart.
        browsed: Judges whose debates are on the page; the first is shown first.
        last_sections: Sections after those that all reports have.
        stand_in: A notice for the figures where the LM was a stand-in, else empty.
    """
    setup, judges = comparison.setup, comparison.judges
    shown = {judge: judges[judge] for judge in browsed}
    on_scale = {names[judge]: setup.on_scale(evaluated) for judge, evaluated in shown.items()}
    named = {names[judge]: evaluated for judge, evaluated in shown.items()}
    debates, texts = debates_of(setup.corpus, setup.aspects, named, on_scale)
    chart = _agreement_chart(comparison, {judge: names[judge] for judge in charted})
    spread = [chart for judge in browsed[:_MAX_CHARTED_JUDGES] for chart in _scatter(comparison, judge, names[judge])]
    task = setup.corpus.task
    report = Report(
        subject,
        name,
        title,
        identity,
        [*verdict, *([chart] if chart else [])],
        {
            **sections,
            **{kind.title: kind.tables for kind in evidence(comparison, names)},
            "Scores against ratings": spread,
            **last_sections,
        },
        debates,
        stand_in,
        {"source": task.source_label, "candidate": task.candidate_label, "context": task.context_label},
    )
    return report, texts


def point(x: float, y: HasInterval | None) -> tuple[Point, ...]:
    """A point of a chart with its interval; none where there is no value."""
    if y is None or y.value is None:
        return ()
    return ((x, y.value) if y.low is None or y.high is None else (x, y.value, y.low, y.high),)


def _agreement_chart(comparison: Comparison, names: Mapping[str, str]) -> Chart | None:
    """Agreement of the judges in each column of the table, with the human ceiling where single raters are known."""
    setup, results = comparison.setup, [row for row in comparison.results if row.name in names]
    if not results:
        return None
    columns, first = setup.columns, setup.statistics[0]
    series = []
    for result in results:
        points = (p for row, column in enumerate(columns) for p in point(row, result.agreement(column)[first]))
        series.append(Series(names[result.name], tuple((y, x, *ends) for x, y, *ends in points)))
    raters = next(iter(comparison.rater_agreement.values()), {})
    ceilings = [raters[column].ceiling if column in raters else None for column in columns]
    ceiling = tuple(None if measure is None else measure.value for measure in ceilings)
    caption = correlation_label(results[-1].agreement(columns[-1])[first])
    return Chart("Agreement with the raters", "dots", f"{caption}; 95 % intervals", tuple(series), columns, ceiling)


def _scatter(comparison: Comparison, judge: str, name: str) -> list[Chart]:
    """For each aspect a judge's scores against the mean ratings."""
    evaluated, charts = comparison.judges[judge], []
    on_scale = comparison.setup.on_scale(evaluated)
    for aspect in comparison.setup.aspects:
        pairs = [
            (rating, score)
            for group in evaluated.scores[aspect.name]
            for rating, score in zip(group.ratings, group.scores, strict=True)
            if rating is not None and score is not None
        ]
        if not pairs:
            continue
        sample = pairs if len(pairs) <= _MAX_POINTS else random.Random(0).sample(pairs, _MAX_POINTS)
        sampled = "" if len(sample) == len(pairs) else f", {len(sample)} of them drawn at random"
        line = "dashed: score = rating" if on_scale else "the scores are not on the raters' scale"
        caption = f"{len(pairs):,} items{sampled}, jittered; {line}"
        scale = (aspect.scale.low, aspect.scale.high) if on_scale else None
        title = f"{name}: {aspect.name}"
        charts.append(Chart(title, "scatter", caption, (Series(name, tuple(sample)),), scale=scale))
    return charts


def cost_chart(
    title: str, caption: str, judges: Sequence[tuple[str, float, float]], chosen: tuple[str, float, float] | None = None
) -> Chart:
    """Agreement against LM calls per item.

    Args:
        title: Of the chart.
        caption: What agreement is measured by.
        judges: Name, calls per item and agreement of each judge.
        chosen: The one that was chosen.
    """
    front: list[tuple[str, float, float]] = []
    for judge in sorted(judges, key=lambda judge: (judge[1], -judge[2])):
        if not front or judge[2] > front[-1][2]:
            front.append(judge)
    ordered = [*front, *(judge for judge in judges if judge not in front)]
    series = tuple(Series(name, ((calls, agreement),)) for name, calls, agreement in ordered)
    return Chart(title, "costs", f"{caption}; blue: the Pareto front", series, chosen=chosen, front=len(front))


def reproduce_blocks(command: str, rows: Mapping[str, str]) -> list[ReportBlock]:
    """How to reproduce a run: its command, and what its result depends on."""
    installed = ", ".join(f"{name} {version}" for name, version in versions().items())
    return [Quotation("Command", command), DataTable(("what", "value"), [*rows.items(), ("versions", installed)])]


# --- the report and the run of `compare` ---


def comparison_report(
    flags: CompareFlags, plan: ComparisonPlan, rendered: RenderedComparison, lms: Sequence[JudgeLM]
) -> tuple[Report, dict[str, Any]]:
    """The report of a comparison without the texts of the data, and the texts."""
    comparison, corpus, context = rendered.comparison, plan.setup.corpus, plan.context
    names = {result.name: result.name for result in comparison.rows}
    findings: list[ReportBlock] = [Paragraph(sentence) for sentence in verdict(comparison)]
    reproduced = {
        "seed": str(flags.seed),
        "LM": context.lm + (f" ({context.lm_note})" if context.stand_in else ""),
        "data": f"{corpus.origin.name}, {context.groups}, fingerprint {corpus.digest}",
    }
    return build_report(
        comparison,
        names,
        subject="Comparison of judges",
        name=name_of(flags, plan),
        title=f"{corpus.origin.name}: {len(names)} judges, {context.lm}",
        identity=identity_of(flags, plan),
        verdict=[*findings, judges_table(comparison, all_intervals=True)],
        sections={
            "Statistics": [Paragraph(note) for note in rendered.notes],
            "Agreement against cost": _cost_chart(comparison),
            "Agreement by rounds": _rounds_charts(comparison, plan.entrants),
        },
        charted=list(names),
        browsed=list(names),
        last_sections={
            "Cost": _cost_tables(comparison, lms),
            "Reproduce": reproduce_blocks(as_command("compare", flags), reproduced),
        },
        stand_in=context.lm_note if context.stand_in else "",
    )


def _rounds_charts(comparison: Comparison, entrants: Sequence[Entrant]) -> list[ReportBlock]:
    """A chart for each judge that is compared with every number of rounds from 0 on, e.g. `debate[rounds=0|1|2]`."""
    setup, first = comparison.setup, comparison.setup.statistics[0]
    results = {result.name: result for result in comparison.results}
    by_judge: dict[str, dict[int, str]] = {}
    for entrant in entrants:
        if "rounds" in entrant.settings and entrant.name in results:
            by_judge.setdefault(entrant.name_without("rounds"), {})[entrant.settings["rounds"]] = entrant.name
    blocks: list[ReportBlock] = []
    for judge, of_rounds in by_judge.items():
        if len(of_rounds) > 1 and sorted(of_rounds) == list(range(len(of_rounds))):
            by_rounds = [results[of_rounds[n]] for n in range(len(of_rounds))]
            series = [
                Series(c, tuple(p for n, r in enumerate(by_rounds) for p in point(n, r.agreement(c)[first])))
                for c in setup.columns
            ]
            label = correlation_label(by_rounds[-1].agreement(setup.columns[-1])[first])
            blocks.append(Chart(f"{judge}: agreement by the number of rounds n", "lines", label, tuple(series)))
    return blocks


def _cost_chart(comparison: Comparison) -> list[ReportBlock]:
    first = comparison.setup.statistics[0]
    points = []
    for result in comparison.results:
        value = result.agreement(AVERAGE)[first].value
        if value is not None and result.judge.calls is not None:
            points.append((result.name, result.judge.calls, value))
    if len(points) < 2:
        return []
    return [cost_chart("Average agreement", correlation_label(comparison.results[0].agreement(AVERAGE)[first]), points)]


def _cost_tables(comparison: Comparison, lms: Sequence[JudgeLM]) -> list[ReportBlock]:
    rows = []
    for result in comparison.rows:
        judge = result.judge
        tokens = [getattr(judge.usage, kind) for kind in ("fresh", "cached", "output")] if judge.usage else []
        per_item = [f"{count / max(1, judge.items):,.0f}" for count in tokens] or ["–"] * 3
        usd = "–" if judge.usd_per_thousand is None else f"{judge.usd_per_thousand:.4g}"
        rows.append([result.name, "–" if judge.calls is None else f"{judge.calls:.2f}", *per_item, usd])
    header = ("judge", "LM calls per item", "input", "cached input", "output", "$ per 1,000 items")
    note = "Tokens per item that each judge would use alone; a call that several judges need is made once."
    return [DataTable(header, rows, note), *(cost_table(lm.meter, lm.price) for lm in lms)]


def write_report(
    flags: CompareFlags,
    plan: ComparisonPlan,
    rendered: RenderedComparison,
    lms: Sequence[JudgeLM],
    tracker: Tracker,
) -> dict[str, str]:
    """Write the report and log the run; returns where they are, by a word for each.

    If that fails there is a warning only, so that the comparison itself is not lost.
    """
    store, places = Path(flags.store), dict[str, str]()
    without_texts: dict[str, str] = {}
    output = "report"
    try:
        report, texts = comparison_report(flags, plan, rendered, lms)
        if flags.report != "none":
            files = report_file_paths(flags, report.name)
            without_texts = write_files(report, texts, files, store, full=flags.report == "full")
            places["Report"] = str(files.page)
        output = "run"
        log_comparison(tracker, plan, rendered, without_texts)
        places["MLflow"] = tracker.ui_command or tracker.run_link()
    except (InputError, TrackingError) as error:
        print(f"warning: the {output} could not be written: {error}", file=sys.stderr)
    return places


def report_file_paths(flags: CompareFlags, name: str) -> ReportFiles:
    """Next to the file of `--json` and named after it; else in a folder of the store."""
    if flags.json is not None:
        return ReportFiles(Path(flags.json).parent, f"{Path(flags.json).stem}-report")
    return ReportFiles(Path(flags.store) / "comparisons" / name)
