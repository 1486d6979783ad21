"""The report of a comparison: its sections, and its output as files and as a run in MLflow.

To add a section, add an entry in `comparison_report`.
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
from debate_judge.runs.comparison.entrants import Entrant
from debate_judge.runs.comparison.evidence import EvidenceSection
from debate_judge.runs.comparison.flags import CompareFlags
from debate_judge.runs.comparison.judged import EvaluatedJudge
from debate_judge.runs.comparison.plan import ComparisonPlan
from debate_judge.runs.comparison.results import AVERAGE, Comparison, EvalSetup
from debate_judge.runs.comparison.table import judges_table
from debate_judge.runs.flags.declaration import changed_settings, result_settings
from debate_judge.runs.flags.parser import as_command
from debate_judge.runs.reports import absolute_agreement as absolute_agreement_tables
from debate_judge.runs.reports.costs import cost_table
from debate_judge.runs.reports.html.blocks import (
    CostChart,
    CostPoint,
    IntervalValue,
    JudgesChart,
    LineChart,
    LineSeries,
    Paragraph,
    ReportBlock,
    Section,
)
from debate_judge.runs.reports.html.common import (
    JudgedScores,
    debates_of,
    reproduce_blocks,
    score_charts,
    text_labels,
)
from debate_judge.runs.reports.html.document import DebateTexts, Report
from debate_judge.runs.reports.html.report_files import ReportFiles, write_files
from debate_judge.runs.reports.tables import DataTable, markdown
from debate_judge.runs.reports.text import correlation_label, interval, interval_metrics, p_text

_MAX_DIFFERENCES = 10
"""Texts that are listed for each judge."""

_MAX_CHARTED_JUDGES = 6
"""Judges with charts of scores against ratings; the page lists the debates of all judges."""


@dataclass(frozen=True)
class RenderedComparison:
    """A comparison with the tables and the JSON of all its views."""

    comparison: Comparison
    legend: str
    evidence: tuple[EvidenceSection, ...] = ()
    """Further figures, besides the correlations."""
    record: Mapping[str, Any] = field(default_factory=dict)
    """The JSON of `--json`, every number finite or null."""
    incomplete: tuple[str, ...] = ()
    """Judges without figures, because they left more texts without a score than `max-unscored` allows."""


def comparison_report(
    flags: CompareFlags, plan: ComparisonPlan, rendered: RenderedComparison, lms: Sequence[JudgeLM]
) -> tuple[Report, DebateTexts]:
    """The report without the texts of the data, and the texts."""
    comparison, setup = rendered.comparison, plan.setup
    identity = fingerprint(["comparison", rendered.record])
    judged_scores = {result.name: _judged_scores(setup, result.judge) for result in comparison.rows}
    debates, texts = debates_of(setup.corpus, setup.aspects, judged_scores, identity)
    sections: dict[str, list[ReportBlock]] = {
        "Result": _verdict(comparison),
        "Agreement": _agreement(rendered),
        "Agreement against cost": _cost_chart(comparison),
        "Agreement by rounds": _rounds_charts(comparison, plan.entrants),
    }
    sections |= {kind.title: list(kind.tables) for kind in rendered.evidence}
    sections |= {
        "Scores against ratings": _score_charts(setup, judged_scores),
        "Where judges differ most from the raters": _largest_differences(setup, judged_scores),
        "Cost": _cost_tables(comparison, lms),
        "Reproduce": _reproduce(flags, plan),
    }
    name = setup.corpus.origin.name
    report = Report(
        "comparison",
        f"compare-{name}-{identity[:8]}",
        f"{name}: {len(judged_scores)} judges, {plan.context.lm}",
        identity,
        tuple(Section(t, tuple(blocks), t != "Reproduce") for t, blocks in sections.items() if blocks),
        debates,
        stand_in=plan.context.lm_note if plan.context.stand_in else "",
        labels=text_labels(setup.corpus.task),
    )
    return report, texts


def _judged_scores(setup: EvalSetup, judge: EvaluatedJudge) -> JudgedScores:
    return JudgedScores(judge.scores, judge.judgements, setup.on_scale(judge))


def _verdict(comparison: Comparison) -> list[ReportBlock]:
    best = comparison.best[AVERAGE]
    best_text = (
        f"{best}, on average: it differs from every other judge (p < 0.05, Holm over all columns)."
        if best
        else f"{comparison.setup.corpus.sources} sources are too few to tell: no judge differs from every other one on "
        "average (p < 0.05, Holm over all columns)."
    )
    blocks: list[ReportBlock] = []
    if len(comparison.results) > 1:
        blocks.append(Paragraph(best_text, "Which judge is the best?"))
    lines = [
        f"{name}: {interval(difference)}, {p_text(comparison.corrected_p_values[name])}"
        for name, difference in comparison.differences.items()
    ]
    if lines:
        blocks.append(Paragraph("\n".join(lines), f"How do they differ from {comparison.baseline}?"))
    blocks += [Paragraph(f"{name}: {why}", look="warning") for name, why in comparison.failed.items()]
    return blocks


def _agreement(rendered: RenderedComparison) -> list[ReportBlock]:
    comparison, setup = rendered.comparison, rendered.comparison.setup
    first = setup.statistics[0]
    series = tuple(
        LineSeries(result.name, tuple(IntervalValue.of(result.agreement(column)[first]) for column in setup.columns))
        for result in comparison.results
    )
    label = correlation_label(comparison.rows[0].agreement(setup.columns[-1])[first])
    blocks: list[ReportBlock] = [judges_table(comparison, all_intervals=True, caption=rendered.legend)]
    if series:
        blocks.append(JudgesChart("Agreement with the raters", label, setup.columns, series))
    if comparison.differences:
        spans = tuple(map(IntervalValue.of, comparison.differences.values()))
        paired_difference = LineSeries(f"judge minus {comparison.baseline}", spans)
        title = f"Difference to {comparison.baseline}"
        blocks.append(
            JudgesChart(title, f"{label}, averaged, paired", tuple(comparison.differences), (paired_difference,))
        )
    return blocks


def _rounds_charts(comparison: Comparison, entrants: Sequence[Entrant]) -> list[ReportBlock]:
    """A chart for each judge that is compared with every number of rounds from 0 on, e.g. `debate[rounds=0|1|2]`."""
    setup, first = comparison.setup, comparison.setup.statistics[0]
    results = {result.name: result for result in comparison.results}
    by_judge: dict[str, dict[int, str]] = {}
    for entrant in entrants:
        if "rounds" in entrant.settings and entrant.name in results:
            by_judge.setdefault(entrant.name_without("rounds"), {})[entrant.settings["rounds"]] = entrant.name
    blocks: list[ReportBlock] = []
    for judge, names in by_judge.items():
        if len(names) > 1 and sorted(names) == list(range(len(names))):
            results_by_rounds = [results[names[n]] for n in range(len(names))]
            series = [
                LineSeries(c, tuple(IntervalValue.of(result.agreement(c)[first]) for result in results_by_rounds))
                for c in setup.columns
            ]
            label = correlation_label(results_by_rounds[-1].agreement(setup.columns[-1])[first])
            blocks.append(LineChart(f"{judge}: agreement by the number of rounds n", label, tuple(series)))
    return blocks


def _cost_chart(comparison: Comparison) -> list[ReportBlock]:
    first = comparison.setup.statistics[0]
    points = []
    for result in comparison.results:
        value = result.agreement(AVERAGE)[first].value
        if value is not None and result.judge.calls is not None:
            points.append(CostPoint(result.judge.calls, value, result.name))
    pareto_front: list[CostPoint] = []
    for point in sorted(points, key=lambda p: (p.calls, -p.agreement)):
        if not pareto_front or point.agreement > pareto_front[-1].agreement:
            pareto_front.append(point)
    if len(points) < 2:
        return []
    label = correlation_label(comparison.results[0].agreement(AVERAGE)[first])
    return [CostChart("Average agreement", label, tuple(points), tuple(pareto_front))]


def _score_charts(setup: EvalSetup, judged_scores: Mapping[str, JudgedScores]) -> list[ReportBlock]:
    blocks: list[ReportBlock] = []
    for name in list(judged_scores)[:_MAX_CHARTED_JUDGES]:
        blocks += [Paragraph("", name), *score_charts(setup.aspects, judged_scores[name])]
    return blocks


def _largest_differences(setup: EvalSetup, judged_scores: Mapping[str, JudgedScores]) -> list[ReportBlock]:
    """The texts on which each judge is farthest from the raters' mean; the reasons stand with the debates."""
    blocks: list[ReportBlock] = []
    for name, judged in list(judged_scores.items())[:_MAX_CHARTED_JUDGES] if setup.aspects else ():
        if not judged.on_scale:
            continue
        rows = [
            (abs(score - rating), (group.group, candidate, aspect, f"{rating:.2f}", f"{score:.2f}"))
            for aspect, groups in judged.scores.items()
            for group in groups
            for candidate, rating, score in zip(group.candidates, group.ratings, group.scores, strict=True)
            if rating is not None and score is not None
        ]
        largest = sorted(rows, key=lambda row: -row[0])[:_MAX_DIFFERENCES]
        header = ("group", "candidate", "aspect", "raters", "judge")
        caption = f"{name}: the reasons are in the debates of these texts"
        blocks += [DataTable(header, [row for _, row in largest], caption, keys=2)] if largest else []
    return blocks


def _cost_tables(comparison: Comparison, lms: Sequence[JudgeLM]) -> list[ReportBlock]:
    rows = []
    for result in comparison.rows:
        judge = result.judge
        tokens = [getattr(judge.usage, kind) for kind in ("fresh", "cached", "output")] if judge.usage else []
        per_item = [f"{count / max(1, judge.items):,.0f}" for count in tokens] or ["–"] * 3
        usd = "–" if judge.usd_per_thousand is None else f"{judge.usd_per_thousand:.4g}"
        rows.append([result.name, "–" if judge.calls is None else f"{judge.calls:.2f}", *per_item, usd])
    header = ("judge", "LM calls per item", "input fresh", "input cached", "output", "$ per 1,000 items")
    note = "Tokens per item that each judge would use alone; a call that several judges need is made once."
    return [DataTable(header, rows, note), *(cost_table(lm.meter, lm.price) for lm in lms)]


def _reproduce(flags: CompareFlags, plan: ComparisonPlan) -> list[ReportBlock]:
    corpus, context = plan.setup.corpus, plan.context
    part = f"{context.groups}, fingerprint {corpus.digest}"
    rows = [
        ("seed", str(flags.seed)),
        ("LM", context.lm + (f" ({context.lm_note})" if context.stand_in else "")),
        ("data", f"{corpus.origin.name}, {part}"),
    ]
    return reproduce_blocks(as_command("compare", flags), rows)


# --- output ---


def write_report(
    flags: CompareFlags, plan: ComparisonPlan, rendered: RenderedComparison, lms: Sequence[JudgeLM]
) -> None:
    """Write the report, log the run, and print where they are.

    If that fails there is a warning only, so that the comparison itself is not lost.
    """
    from debate_judge.runs.tracking.tracker import TrackingError

    store = Path(flags.store)
    without_texts: dict[str, str] = {}
    output = "report"
    try:
        report, texts = comparison_report(flags, plan, rendered, lms)
        if flags.report != "none":
            files = report_file_paths(flags, report.name)
            without_texts = write_files(report, texts, files, store, full=flags.report == "full")
            print(f"\nreport: {files.page}", file=sys.stderr)
        if flags.tracking_uri is not None or (store / "mlflow.db").is_file():
            output = "run"
            log_lines = _log(flags, plan, rendered, report, without_texts)
            print("\nrun: " + "\n     then open ".join(filter(None, log_lines)), file=sys.stderr)
    except (InputError, TrackingError) as error:
        print(f"\nwarning: the {output} could not be written: {error}", file=sys.stderr)


def report_file_paths(flags: CompareFlags, name: str) -> ReportFiles:
    """Next to the file of `--json` and named after it; else in a folder of the store."""
    if flags.json is not None:
        return ReportFiles(Path(flags.json).parent, f"{Path(flags.json).stem}-report")
    return ReportFiles(Path(flags.store) / "comparisons" / name)


def _log(
    flags: CompareFlags,
    plan: ComparisonPlan,
    rendered: RenderedComparison,
    report: Report,
    artifacts: Mapping[str, str],
) -> tuple[str | None, str]:
    """Log a run with a nested run for each judge, and `artifacts` by name; metric names are those of compiles.

    Returns the command that starts MLflow's page, if one is needed, and the address of the run.
    """
    from debate_judge.runs.tracking.tracker import Tracker

    comparison, setup = rendered.comparison, plan.setup
    experiment = f"debate/{Path(flags.data.partition('=')[0]).stem}"
    params = {"lm": plan.context.lm, "aspects": ",".join(aspect.name for aspect in setup.aspects)}
    name, store = flags.name or report.name, Path(flags.store)
    with Tracker(uri=flags.tracking_uri, store=store, experiment=experiment, run_name=name) as tracker:
        tracker.log_settings(result_settings(flags) | params, changed_settings(flags, ("data", "judges")) | params)
        tracker.set_tags({"identity": report.identity, "level": setup.level, "note": report.stand_in or None})
        if plan.context.part == "held-out":
            tracker.log_dataset("held_out", setup.corpus, setup.corpus.digest)
        tracker.set_description("\n\n".join(filter(None, [report.stand_in, markdown(judges_table(comparison))])))
        for result in comparison.rows:
            # Agreement on sources of a compile is no evidence, and must not be sorted among figures that are.
            agreement = "in_sample_agreement" if result.judge.compiled_on else "agreement"
            average = result.agreement(AVERAGE)[setup.statistics[0]]
            metrics = {
                **interval_metrics(agreement, average),
                "calls_per_item": result.judge.calls,
                "unscored": float(average.unscored),
                **absolute_agreement_tables.averages(comparison.absolute_agreement, result.name),
            }
            lm = {"lm": result.judge.lm} if result.judge.lm else {}
            tracker.log_trial(result.name, {"judge": result.name, **params, **lm}, metrics)
        tracker.log_json("comparison.json", rendered.record)
        for artifact, text in artifacts.items():
            tracker.log_text(artifact, text)
        return tracker.ui_command, tracker.run_link()
