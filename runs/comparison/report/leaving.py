"""Where the report of a comparison is left: beside its outputs, and as a run in MLflow."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.runs.comparison.ablations.plan import Findings
from debate_judge.runs.comparison.flags import CompareFlags
from debate_judge.runs.comparison.report.sections import ComparedJudges, comparison_report
from debate_judge.runs.comparison.setup import Work
from debate_judge.runs.comparison.table import cells
from debate_judge.runs.flags.declared import deciding, telling
from debate_judge.runs.reports.html.document import Report
from debate_judge.runs.reports.html.keeping import ReportFiles, keep
from debate_judge.runs.reports.text import markdown_table


def leave_report(
    arguments: CompareFlags, work: Work, found: ComparedJudges, findings: Findings | None, lm: JudgeLM
) -> Path | None:
    """Write the report and log it; returns the page to look at, or None where no report is wanted.

    Raises:
        InputError: A file cannot be written, or there is no such MLflow store.
        TrackingError: The store failed.
    """
    if arguments.report == "none":
        return None
    report, texts = comparison_report(arguments, work, found, findings, lm)
    files = files_of(arguments, report.name)
    shared = keep(report, texts, files, Path(arguments.store), full=arguments.report == "full")
    embedded = Path(arguments.store) / "mlflow.db"
    if arguments.tracking_uri is not None or embedded.is_file():
        _log(arguments, work, found, report, shared)
    return files.page


def files_of(arguments: CompareFlags, name: str) -> ReportFiles:
    """Beside the file of results or the figure, named after it; else in a folder of the store."""
    for output in (arguments.json, arguments.figure):
        if output is not None:
            return ReportFiles(Path(output).parent, f"{Path(output).stem}-report")
    return ReportFiles(Path(arguments.store) / "comparisons" / name)


def _log(arguments: CompareFlags, work: Work, found: ComparedJudges, report: Report, shared: Mapping[str, str]) -> None:
    """One run for the comparison, and one in it for each judge, with the names of metrics that compiles have."""
    from debate_judge.runs.tracking.tracker import Tracker

    comparison, setup = found.comparison, work.setup
    corpus = Path(arguments.data.partition("=")[0]).stem
    with Tracker(
        uri=arguments.tracking_uri, store=Path(arguments.store), experiment=f"debate/{corpus}", run_name=report.name
    ) as tracker:
        aspects = {"aspects": ",".join(aspect.name for aspect in setup.aspects)}
        tracker.settings(deciding(arguments) | aspects, telling(arguments, ("data", "judges", "lm")) | aspects)
        tracker.tags({"identity": report.identity, "level": setup.level, "note": report.stand_in or None})
        header, rows = cells(comparison, all_intervals=False, bold=True)
        tracker.describe("\n\n".join(filter(None, [report.stand_in, markdown_table(header, rows)])))
        for result in comparison.results:
            average = result.table.average[setup.level][setup.statistics[0]]
            metrics = {
                "agreement": average.value,
                "agreement_low": average.low,
                "agreement_high": average.high,
                "calls_per_item": result.entry.calls,
                "unscored": float(average.unscored),
            }
            tracker.trial(result.name, {"judge": result.name, "lm": arguments.lm}, metrics)
        for path, text in shared.items():
            tracker.text(path, text)


def told(arguments: CompareFlags, work: Work, found: ComparedJudges, findings: Findings | None, lm: JudgeLM) -> None:
    """Leave the report and say where it is. A comparison is not lost because its report or run could not be kept."""
    from debate_judge.runs.tracking.tracker import TrackingError

    try:
        page = leave_report(arguments, work, found, findings, lm)
    except (InputError, TrackingError) as error:
        print(f"\nwarning: the report could not be kept: {error}", file=sys.stderr)
        return
    if page is not None:
        print(f"\nreport: {page}", file=sys.stderr)
