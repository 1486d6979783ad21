"""Open the page of a compile or a comparison in the browser.

    python runs/view.py runs/store/exports/NAME
    python runs/view.py RUN_ID --full

The page is made again first (see `debate report`). Its path is printed, so that it can be opened elsewhere where this
machine has no browser.
"""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Sequence

from debate_judge.runs.flags.declared import command_settings
from debate_judge.runs.flags.parser import exit_code, settings_of
from debate_judge.runs.report import FoundReportFlags, made


@command_settings
class ViewFlags(FoundReportFlags):
    """Settings of one view."""


def main(argv: Sequence[str] | None = None) -> int:
    """Open the page; returns the exit code (0 done, 2 bad input, 130 interrupted)."""

    def work() -> int:
        page = made(settings_of("view", __doc__, ViewFlags, argv))
        print(page)
        if not webbrowser.open(page.resolve().as_uri()):
            print("no browser could be opened here; open this file with one", file=sys.stderr)
        return 0

    return exit_code(work)


if __name__ == "__main__":
    raise SystemExit(main())
