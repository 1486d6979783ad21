"""Open the report of a compile or a comparison: its results, and every debate with its texts.

    python runs/report.py runs/store/exports/NAME
    python runs/report.py RUN_ID
    python runs/report.py runs/store/exports/NAME --share

The page is rendered from the report.json that the command wrote and the texts in its store, without LM calls. On a
terminal it opens in the browser; its path is always printed. --share makes a page that quotes no source, candidate,
comment or debate.
"""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from debate_judge.runs.flags.common import STORE
from debate_judge.runs.flags.declaration import command_settings, setting
from debate_judge.runs.flags.parser import run_command
from debate_judge.runs.flags.text_layout import is_terminal


@command_settings
class ReportFlags:
    """Which report, and which page of it."""

    run: str = setting(
        ...,
        "folder of an export or of a comparison, the .json file of a report, or the id of an MLflow run",
        flag="RUN_OR_EXPORT",
        metavar="RUN_OR_EXPORT",
    )
    share: bool = setting(False, "make a page to share, which quotes no text of the data")
    store: str | None = setting(
        None,
        "folder of the texts and of the embedded MLflow store",
        metavar="DIR",
        default_text="the one that has the export",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Make the page, print its path, open it; returns the exit code (0 done, 2 bad input, 130 interrupted)."""
    return run_command("report", __doc__, ReportFlags, _run, argv)


def _run(flags: ReportFlags) -> int:
    from debate_judge.runs.reports.html.report_files import regenerate

    store = None if flags.store is None else Path(flags.store)
    page = regenerate(flags.run, store, Path(STORE.default), share=flags.share)
    print(page)
    # No browser is opened if the output is piped to another program.
    if is_terminal(sys.stdout) and not flags.share and not webbrowser.open(page.resolve().as_uri()):
        print("no browser could be opened here; open this file with one", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
