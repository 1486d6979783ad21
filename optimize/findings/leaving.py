"""Writes the report of a compile into its export's folder and its run."""

from __future__ import annotations

import logging
from pathlib import Path

from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import opening
from debate_judge.optimize.context import CompilePlan
from debate_judge.runs.reports.html.document import DebateTexts, Report
from debate_judge.runs.reports.html.keeping import ReportFiles, keep
from debate_judge.runs.tracking.tracker import Tracker

logger = logging.getLogger(__name__)


def write_report(plan: CompilePlan, tracker: Tracker, report: Report, texts: DebateTexts) -> Path | None:
    """Write the report and log it in the run; returns the page.

    If the page cannot be written, this is only a warning, because the compile has been paid for by now.
    """
    settings, export = plan.settings, plan.export
    full = settings.report == "full"
    try:
        files = ReportFiles(export)
        shared = keep(report, texts, files, Path(settings.store), full=full)
        if full:
            _warn_of_texts(export / "README.md")
    except InputError as error:
        logger.warning("no report: %s", error)
        return None
    for name, text in shared.items():
        tracker.text(name, text)
    return files.page


def _warn_of_texts(readme: Path) -> None:
    """Add to the export's README that the page with texts quotes the data."""
    with opening(readme, "report"), readme.open("a", encoding="utf-8") as out:
        out.write(
            "\nreport.html quotes the texts of the data: take it out before the export goes to others. `debate report "
            "THIS_FOLDER --share` makes a page that quotes none.\n"
        )
