"""Make the page of a compile or a comparison again, from the report.json that it left.

    python runs/report.py runs/store/exports/NAME
    python runs/report.py runs/store/exports/NAME --full
    python runs/report.py RUN_ID

The page quotes no text of the data. With --full a second one is made that quotes them all: sources, candidates,
comments and debates, which are taken from the store of the command that judged them. Nothing is asked of an LM.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from debate_judge.runs.flags.common import STORE
from debate_judge.runs.flags.declared import command_settings, flag_group, setting
from debate_judge.runs.flags.parser import exit_code, settings_of


@flag_group("report")
class FoundReportFlags:
    """Which report, and which page of it."""

    run: str = setting(
        ...,
        "folder of an export or of a comparison, the .json file of a report, or the id of an MLflow run",
        name="RUN_OR_EXPORT",
        metavar="RUN_OR_EXPORT",
    )
    full: bool = setting(False, "make the page that quotes the texts of the data")
    store: str | None = setting(
        None,
        "folder of the texts and of the embedded MLflow store",
        metavar="DIR",
        shown="the one that the export lies in",
    )


@command_settings
class ReportFlags(FoundReportFlags):
    """Settings of one page."""


def main(argv: Sequence[str] | None = None) -> int:
    """Make the page and print its path; returns the exit code (0 done, 2 bad input, 130 interrupted)."""

    def work() -> int:
        print(made(settings_of("report", __doc__, ReportFlags, argv)))
        return 0

    return exit_code(work)


def made(flags: FoundReportFlags) -> Path:
    """Find the report and make the page that is wanted.

    Raises:
        InputError: There is no such report, or its texts are not here.
    """
    from debate_judge.runs.reports.html.keeping import find_report

    store = None if flags.store is None else Path(flags.store)
    return find_report(flags.run, store, Path(STORE.default)).make(full=flags.full)


if __name__ == "__main__":
    raise SystemExit(main())
