"""The report of a comparison: what its page says, and where it is written, as files and as a run in MLflow.

A further section is a further entry in `comparison_report`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.data.schema import fingerprint
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.comparison.flags import CompareFlags
from debate_judge.runs.comparison.probes import ProbeEffects, probe_metrics
from debate_judge.runs.comparison.results import AVERAGE, Comparison, EvalSetup
from debate_judge.runs.comparison.setup import ComparisonPlan
from debate_judge.runs.comparison.table import judges_table
from debate_judge.runs.evaluation.entrants import Entrant
from debate_judge.runs.evaluation.rows import EvaluatedJudge
from debate_judge.runs.flags.declaration import changed_settings, result_settings
from debate_judge.runs.flags.parser import as_command
from debate_judge.runs.reports import absolute_agreement as closeness_tables
from debate_judge.runs.reports.costs import cost_block
from debate_judge.runs.reports.html.blocks import (
    CostChart,
    CostPoint,
    JudgesChart,
    LineChart,
    LineSeries,
    Paragraph,
    ReportBlock,
    Section,
    Span,
)
from debate_judge.runs.reports.html.document import DebateTexts, Report
from debate_judge.runs.reports.html.items import (
    JudgedScores,
    beside_ratings,
    debates_of,
    labels_of,
    reproduce_blocks,
)
from debate_judge.runs.reports.html.report_files import ReportFiles, keep
from debate_judge.runs.reports.tables import DataTable, markdown
from debate_judge.runs.reports.text import correlation_label, interval, p_text, with_ends

_MAX_DRAWN = 6
"""Judges whose scores are drawn beside the ratings; all can be looked through."""


@dataclass(frozen=True)
class ComparedJudges:
    """A comparison with all views of its table."""

    comparison: Comparison
    legend: str
    tables: tuple[tuple[str, DataTable], ...] = ()
    """Section and table of all that the data and the flags call for besides."""
    record: Mapping[str, Any] = field(default_factory=dict)
    """All of it as the JSON of `--json`, every number finite or null."""
    effects: Mapping[str, ProbeEffects] = field(default_factory=dict)
    """Judge -> what bias probes did to its scores."""


def comparison_report(
    arguments: CompareFlags, work: ComparisonPlan, compared: ComparedJudges, lm: JudgeLM
) -> tuple[Report, DebateTexts]:
    """What the page shows, without the texts of the data, and these."""
    comparison, setup = compared.comparison, work.setup
    identity = fingerprint(["comparison", compared.record])
    judged = {result.name: _judged(setup, result.entry) for result in comparison.results}
    debates, texts = debates_of(setup.corpus, setup.aspects, judged, identity)
    sections: dict[str, list[ReportBlock]] = {
        "Result": _result(comparison),
        "Agreement": _agreement(compared),
        "Agreement against cost": _cost(comparison),
        "Agreement by rounds": _rounds(comparison, work.entrants),
    }
    for section, table in compared.tables:
        sections.setdefault(section, []).append(table)
    sections |= {
        "Human against judge": _beside(setup, judged),
        "Cost": _costs(comparison, lm),
        "Reproduce": _reproduce(arguments, work),
    }
    name = setup.corpus.origin.name
    report = Report(
        "comparison",
        f"compare-{name}-{identity[:8]}",
        f"{name}: {len(judged)} judges, {work.setting.lm}",
        identity,
        tuple(Section(t, tuple(blocks), t != "Reproduce") for t, blocks in sections.items() if blocks),
        debates,
        stand_in=work.setting.note if work.setting.lm == OFFLINE else "",
        labels=labels_of(setup.corpus.task),
    )
    return report, texts


def _judged(setup: EvalSetup, entry: EvaluatedJudge) -> JudgedScores:
    return JudgedScores(entry.scores, entry.judgements, setup.on_scale(entry))


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


def _agreement(compared: ComparedJudges) -> list[ReportBlock]:
    comparison, setup = compared.comparison, compared.comparison.setup
    first = setup.statistics[0]
    series = tuple(
        LineSeries(result.name, tuple(Span.of(result.at(setup, column)[first]) for column in setup.columns))
        for result in comparison.results
    )
    label = correlation_label(comparison.results[0].at(setup, setup.columns[-1])[first])
    blocks: list[ReportBlock] = [
        judges_table(comparison, all_intervals=True, caption=compared.legend),
        JudgesChart("Agreement with the raters", label, setup.columns, series),
    ]
    if comparison.differences:
        spans = tuple(map(Span.of, comparison.differences.values()))
        paired_difference = LineSeries(f"judge minus {comparison.baseline}", spans)
        title = f"Difference to {comparison.baseline}"
        blocks.append(
            JudgesChart(title, f"{label}, averaged, paired", tuple(comparison.differences), (paired_difference,))
        )
    return blocks


def _rounds(comparison: Comparison, entrants: Sequence[Entrant]) -> list[ReportBlock]:
    """A chart for each judge that took part with every number of rounds from 0 on, e.g. `debate[rounds=0|1|2]`."""
    setup, first = comparison.setup, comparison.setup.statistics[0]
    results = {result.name: result for result in comparison.results}
    by_judge: dict[str, dict[int, str]] = {}
    for entrant in entrants:
        if "rounds" in entrant.settings and entrant.name in results:
            by_judge.setdefault(entrant.without("rounds"), {})[entrant.settings["rounds"]] = entrant.name
    blocks: list[ReportBlock] = []
    for judge, names in by_judge.items():
        if len(names) > 1 and sorted(names) == list(range(len(names))):
            results_by_rounds = [results[names[n]] for n in range(len(names))]
            series = [
                LineSeries(c, tuple(Span.of(entrant.at(setup, c)[first]) for entrant in results_by_rounds))
                for c in setup.columns
            ]
            label = correlation_label(results_by_rounds[-1].at(setup, setup.columns[-1])[first])
            blocks.append(LineChart(f"{judge}: agreement by the number of rounds n", label, tuple(series)))
    return blocks


def _cost(comparison: Comparison) -> list[ReportBlock]:
    setup, first = comparison.setup, comparison.setup.statistics[0]
    points = []
    for result in comparison.results:
        value = result.at(setup, AVERAGE)[first].value
        if value is not None and result.entry.calls is not None:
            points.append(CostPoint(result.entry.calls, value, result.name))
    front: list[CostPoint] = []
    for point in sorted(points, key=lambda p: (p.calls, -p.agreement)):
        if not front or point.agreement > front[-1].agreement:
            front.append(point)
    if len(points) < 2:
        return []
    label = correlation_label(comparison.results[0].at(setup, AVERAGE)[first])
    return [CostChart("Average agreement", label, tuple(points), tuple(front))]


def _beside(setup: EvalSetup, judged: Mapping[str, JudgedScores]) -> list[ReportBlock]:
    blocks: list[ReportBlock] = []
    for name in list(judged)[:_MAX_DRAWN]:
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
    return [DataTable(header, rows, note), cost_block(lm.meter, lm.price)]


def _reproduce(arguments: CompareFlags, work: ComparisonPlan) -> list[ReportBlock]:
    corpus, setting = work.setup.corpus, work.setting
    part = f"{len(corpus.groups)} groups, {setting.where}, fingerprint {corpus.digest}"
    rows = [
        ("seed", str(arguments.seed)),
        ("LM", setting.lm + (f" ({setting.note})" if setting.lm == OFFLINE else "")),
        ("data", f"{corpus.origin.name}, {part}"),
    ]
    return reproduce_blocks(as_command("compare", arguments), rows)


# --- where it is written ---


def write_report(arguments: CompareFlags, work: ComparisonPlan, compared: ComparedJudges, lm: JudgeLM) -> None:
    """Write the report, log the run, and say where they are.

    A comparison is not lost because its report or run cannot be kept: that is a warning.
    """
    from debate_judge.runs.tracking.tracker import TrackingError

    store = Path(arguments.store)
    shared: dict[str, str] = {}
    try:
        report, texts = comparison_report(arguments, work, compared, lm)
        if arguments.report != "none":
            files = files_of(arguments, report.name)
            shared = keep(report, texts, files, store, full=arguments.report == "full")
            print(f"\nreport: {files.page}", file=sys.stderr)
        if arguments.tracking_uri is not None or (store / "mlflow.db").is_file():
            where = _log(arguments, work, compared, report, shared)
            print("\nrun: " + "\n     then open ".join(filter(None, where)), file=sys.stderr)
    except (InputError, TrackingError) as error:
        what = "run" if shared else "report"
        print(f"\nwarning: the {what} could not be kept: {error}", file=sys.stderr)


def files_of(arguments: CompareFlags, name: str) -> ReportFiles:
    """Beside the file of results, named after it; else in a folder of the store."""
    if arguments.json is not None:
        return ReportFiles(Path(arguments.json).parent, f"{Path(arguments.json).stem}-report")
    return ReportFiles(Path(arguments.store) / "comparisons" / name)


def _log(
    arguments: CompareFlags, work: ComparisonPlan, compared: ComparedJudges, report: Report, shared: Mapping[str, str]
) -> tuple[str | None, str]:
    """One run for the comparison, and one in it for each judge, with the names of metrics that compiles have."""
    from debate_judge.runs.tracking.tracker import Tracker

    comparison, setup = compared.comparison, work.setup
    corpus, store = Path(arguments.data.partition("=")[0]).stem, Path(arguments.store)
    name, lm = arguments.name or report.name, {"lm": work.setting.lm}
    with Tracker(uri=arguments.tracking_uri, store=store, experiment=f"debate/{corpus}", run_name=name) as tracker:
        lm["aspects"] = ",".join(aspect.name for aspect in setup.aspects)
        tracker.log_settings(result_settings(arguments) | lm, changed_settings(arguments, ("data", "judges")) | lm)
        tracker.set_tags({"identity": report.identity, "level": setup.level, "note": report.stand_in or None})
        if work.setting.held_out:
            tracker.log_dataset("held_out", setup.corpus, work.setting.held_out)
        tracker.set_description("\n\n".join(filter(None, [report.stand_in, markdown(judges_table(comparison))])))
        for result in comparison.results:
            average = result.at(setup, AVERAGE)[setup.statistics[0]]
            metrics = {
                **with_ends("agreement", average),
                "calls_per_item": result.entry.calls,
                "unscored": float(average.unscored),
                **closeness_tables.averages(comparison.absolute_agreement, result.name),
            }
            tracker.log_trial(result.name, {"judge": result.name, **lm}, metrics)
        for judge, effects in compared.effects.items():
            tracker.log_metrics(probe_metrics(effects, judge, whole=True))
            tracker.log_details(probe_metrics(effects, judge, whole=False))
        tracker.log_json("comparison.json", compared.record)
        for path, text in shared.items():
            tracker.log_text(path, text)
        return tracker.ui_command, tracker.run_link()
