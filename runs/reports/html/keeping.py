"""Where reports are kept, and how they are found again to be made anew.

`report.json` and `report.html` lie beside what they report on. The texts of the data stay in the store of the command
that judged them; a page with texts, `report-full.html`, is written only where the user wants one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from debate_judge.data.files.writing import opening
from debate_judge.runs.reports.html.debates import DebateTexts
from debate_judge.runs.reports.html.document import Report, to_json
from debate_judge.runs.reports.html.page import Page

DATA, PAGE, FULL_PAGE = "report.json", "report.html", "report-full.html"


@dataclass(frozen=True)
class KeptReport:
    """The files of a report."""

    data: Path
    page: Path
    full_page: Path | None
    """The page with texts; None where none is wanted."""


def keep(report: Report, texts: DebateTexts, folder: Path, store: Path, *, full: bool) -> KeptReport:
    """Write a report into `folder` and its texts into `store`; with `full` also the page with texts.

    Raises:
        InputError: A file cannot be written.
    """
    _write(texts_file(store, report.identity), as_json(texts))
    _write(folder / DATA, as_json(report))
    page = Page(report)
    _write(folder / PAGE, page.html())
    if full:
        _write(folder / FULL_PAGE, page.html(texts))
    return KeptReport(folder / DATA, folder / PAGE, folder / FULL_PAGE if full else None)


def texts_file(store: Path, identity: str) -> Path:
    """Where the texts of a report are in a store."""
    return store / "reports" / f"{identity}.json"


def as_json(value: Report | DebateTexts) -> str:
    return json.dumps(to_json(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def _write(path: Path, text: str) -> None:
    with opening(path, "--store"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
