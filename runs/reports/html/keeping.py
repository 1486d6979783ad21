"""Where reports are kept, and how they are found again to be made anew.

`report.json` and `report.html` lie beside what they report on, on the user's machine, so the page shows the debates
with their texts. What is logged, and what is passed on (`report-share.html`), quotes no text of the data; the texts
themselves stay in the store of the command that judged them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.data.files.reading import json_object
from debate_judge.data.files.writing import opening
from debate_judge.runs.export.from_mlflow import run_artifact
from debate_judge.runs.reports.html.document import AGAIN, DebateTexts, Report, report_from, texts_from, to_json
from debate_judge.runs.reports.html.page import Page

_RUN = re.compile(r"(?:runs:/)?([0-9a-f]{32})")


@dataclass(frozen=True)
class ReportFiles:
    """The files of one report."""

    folder: Path
    stem: str = "report"

    @property
    def data(self) -> Path:
        """What the pages are made from."""
        return self.folder / f"{self.stem}.json"

    @property
    def page(self) -> Path:
        """The page to look at, with the texts of the data unless the user wants none."""
        return self.folder / f"{self.stem}.html"

    @property
    def shared_page(self) -> Path:
        """The page without texts, to be passed on."""
        return self.folder / f"{self.stem}-share.html"


@dataclass(frozen=True)
class FoundReport:
    """A report that was found again."""

    report: Report
    files: ReportFiles
    """Where its pages go."""
    store: Path
    """Where its texts should be."""

    def make(self, *, share: bool = False) -> Path:
        """Make the page again, with the texts of the data, or the one to be passed on; returns its path.

        Raises:
            InputError: The texts are not in the store, or a file cannot be written.
        """
        file = self.files.shared_page if share else self.files.page
        _write(file, Page(self.report).html(None if share else self._texts()))
        return file

    def _texts(self) -> DebateTexts:
        file = texts_file(self.store, self.report.identity)
        if not file.is_file():
            raise InputError(
                "the texts of this report are not in the store",
                file=file,
                field="--store",
                remedy="name the store of the command that made it, or make the page without texts with --share, or "
                + AGAIN,
            )
        return texts_from(json_object(file, remedy=AGAIN).values, str(file), self.report)


def keep(report: Report, texts: DebateTexts, files: ReportFiles, store: Path, *, full: bool) -> dict[str, str]:
    """Write a report and its page, and its texts into `store`.

    Args:
        report: The report.
        texts: Its texts.
        files: Where report and page go.
        store: The store of the command.
        full: Whether the page has the texts.

    Returns:
        What may be logged, by the names that it has there: report and page without the texts.

    Raises:
        InputError: A file cannot be written.
    """
    page = Page(report)
    _write(texts_file(store, report.identity), _as_json(texts))
    shared = {"report.json": _as_json(report), "report.html": page.html()}
    _write(files.data, shared["report.json"])
    _write(files.page, page.html(texts) if full else shared["report.html"])
    return shared


def find_report(address: str, store: Path | None, default_store: Path) -> FoundReport:
    """Find a report by what it reports on.

    Args:
        address: Folder of an export or of a comparison's report, the `.json` file of a report, or the id of an MLflow
            run, also as `runs:/ID`.
        store: Folder that holds the texts and the embedded MLflow store; None for the one that an export lies in, else
            the default.
        default_store: The store of commands that name none.

    Raises:
        InputError: There is no report.
    """
    run = _RUN.fullmatch(address)
    if run is not None and not Path(address).exists():
        own = store or default_store
        text = run_artifact(run[1], "report.json", store)
        return FoundReport(report_from(_values(text, address), address), ReportFiles(own / "reports" / run[1]), own)
    path = Path(address)
    file = _in_folder(path) if path.is_dir() else path
    if file.suffix != ".json" or not file.is_file():
        raise InputError(
            "no report is here",
            file=address,
            expected="folder of an export or of a comparison, the .json file of a report, or the id of an MLflow run",
            remedy=AGAIN,
        )
    report = report_from(json_object(file, remedy=AGAIN).values, str(file))
    above = file.resolve().parents
    lies_in = next((folder for folder in above[:3] if (folder / "reports").is_dir()), default_store)
    return FoundReport(report, ReportFiles(file.parent, file.stem), store or lies_in)


def _in_folder(folder: Path) -> Path:
    """The report in the folder of an export, or the only one that comparisons have left in a folder.

    Raises:
        InputError: Comparisons have left several.
    """
    reports = sorted(folder.glob("*-report.json"))
    if (folder / "report.json").is_file() or not reports:
        return folder / "report.json"
    if len(reports) > 1:
        names = ", ".join(file.name for file in reports)
        raise InputError("several reports are here", file=folder, expected=f"one of {names}")
    return reports[0]


def texts_file(store: Path, identity: str) -> Path:
    """Where the texts of a report are in a store."""
    # An identity comes from a file that anyone may have written, and must not lead elsewhere.
    return store / "reports" / (re.sub(r"\W", "_", identity)[:80] + ".json")


def _values(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InputError("this is not the data of a report", file=place, remedy=AGAIN) from None


def _as_json(value: Report | DebateTexts) -> str:
    return json.dumps(to_json(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def _write(path: Path, text: str) -> None:
    with opening(path, "report"):
        path.parent.mkdir(parents=True, exist_ok=True)
        # As the text has them: on no system may a line's end become another, for the page's policy holds a hash.
        path.write_text(text, encoding="utf-8", newline="\n")
