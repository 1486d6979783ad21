"""Open the report of a compile or a comparison: its results, and every debate with its texts.

    python runs/report.py runs/store/exports/NAME
    python runs/report.py RUN_ID
    python runs/report.py runs/store/exports/NAME --share

On a terminal the page opens in the browser; its path is always printed. --share prints the path of a page that quotes
no source, candidate, comment or debate; the page logged to MLflow quotes none either.
"""

from __future__ import annotations

import re
import shutil
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from debate_judge.data.errors import InputError
from debate_judge.runs.command_line import is_terminal
from debate_judge.runs.flags import command_settings, run_command, setting
from debate_judge.runs.shared_flags import STORE

_RUN = re.compile(r"(?:runs:/)?([0-9a-f]{32})")


@command_settings
class ReportFlags:
    """Which report, and which page of it."""

    run: str = setting(
        ...,
        "folder of an export or of a comparison, its page, or the id of an MLflow run",
        flag="RUN_OR_EXPORT",
        metavar="RUN_OR_EXPORT",
    )
    share: bool = setting(False, "print the path of the page to share, which quotes no text of the data")
    store: str | None = setting(
        None, "folder with the embedded MLflow store of a run", metavar="DIR", default_text=STORE.default
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Print the page's path and open it; returns the exit code (0 done, 2 bad input, 130 interrupted)."""
    return run_command("report", __doc__, ReportFlags, _run, argv)


def _run(flags: ReportFlags) -> int:
    run = _RUN.fullmatch(flags.run)
    if run is not None and not Path(flags.run).exists():
        page = _logged_page(run[1], flags.store)
    else:
        page = _page_in(Path(flags.run), share=flags.share)
    print(page)
    # No browser is opened if the output is piped to another program.
    if is_terminal(sys.stdout) and not flags.share and not webbrowser.open(page.resolve().as_uri()):
        print("no browser could be opened here; open this file with one", file=sys.stderr)
    return 0


def _page_in(path: Path, *, share: bool) -> Path:
    """The page itself, or the only one in a folder."""
    pages = [path] if path.suffix == ".html" else [*path.glob("report.html"), *sorted(path.glob("*-report.html"))]
    if share:
        pages = [page.with_stem(f"{page.stem.removesuffix('-share')}-share") for page in pages]
    if len(pages) > 1:
        found = ", ".join(page.name for page in pages)
        raise InputError("the folder has several reports", file=path, expected=f"one of {found}")
    if not pages or not pages[0].is_file():
        raise InputError(
            "there is no report",
            file=path,
            expected="folder of an export or of a comparison, its page, or the id of an MLflow run",
            remedy="run the compile or comparison again, without --report none; finished calls are not paid for again",
        )
    return pages[0]


def _logged_page(run_id: str, store: str | None) -> Path:
    from debate_judge.runs.mlflow_store import download, embedded_uri

    file = Path(store or STORE.default) / "reports" / run_id / "report.html"
    uri = None if store is None else embedded_uri(Path(store))
    with download(f"runs:/{run_id}/report.html", uri=uri) as page:
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, file)
    return file


if __name__ == "__main__":
    raise SystemExit(main())
