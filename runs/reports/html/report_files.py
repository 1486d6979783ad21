"""Storage of reports, and regeneration of their pages.

`report.json` and `report.html` lie beside what they report on, on the user's machine, so the page shows the debates
with their texts. What is logged, and what is passed on (`report-share.html`), quotes no text of the data; the texts
themselves stay in the store of the command that judged them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import write_errors
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


def keep(report: Report, texts: DebateTexts, files: ReportFiles, store: Path, *, full: bool) -> dict[str, str]:
    """Write a report and its page, which has the texts if it is to be `full`, and the texts into the store.

    Returns:
        What may be logged, by the names that it has there: report and page without the texts.

    Raises:
        InputError: A file cannot be written.
    """
    page = Page(report)
    _write(_texts_file(store, report), _as_json(texts))
    shared = {"report.json": _as_json(report), "report.html": page.html()}
    _write(files.data, shared["report.json"])
    _write(files.page, page.html(texts) if full else shared["report.html"])
    return shared


def regenerate(address: str, store: Path | None, default_store: Path, *, share: bool = False) -> Path:
    """Make a page again, with the texts of the data, or the one to be passed on, which quotes none; returns its path.

    Args:
        address: Folder of an export or of a comparison's report, the `.json` file of a report, or the id of an MLflow
            run, also as `runs:/ID`.
        store: Folder of the texts and of the embedded MLflow store; None for the one that an export lies in, else the
            default.
        default_store: The store of commands that name none.
        share: Which page.

    Raises:
        InputError: There is no report, its texts are not in the store, or the page cannot be written.
    """
    run = _RUN.fullmatch(address)
    if run is not None and not Path(address).exists():
        store_of_texts = store or default_store
        report = report_from(run_artifact(run[1], "report.json", store), address)
        files = ReportFiles(store_of_texts / "reports" / run[1])
    else:
        file = _data_file(Path(address))
        report, files = report_from(file.read_bytes(), str(file)), ReportFiles(file.parent, file.stem)
        above = file.resolve().parents[:3]
        store_of_texts = store or next((folder for folder in above if (folder / "reports").is_dir()), default_store)
    page = files.folder / f"{files.stem}-share.html" if share else files.page
    _write(page, Page(report).html(None if share else _texts_of(report, store_of_texts)))
    return page


def _data_file(path: Path) -> Path:
    """The JSON of a report: a file, that of an export's folder, or the only one that comparisons left in a folder."""
    several = sorted(path.glob("*-report.json"))
    if path.is_dir():
        path = path / "report.json" if (path / "report.json").is_file() or len(several) != 1 else several[0]
    if path.suffix == ".json" and path.is_file():
        return path
    if len(several) > 1:
        names = ", ".join(file.name for file in several)
        raise InputError("several reports are here", file=path.parent, expected=f"one of {names}")
    expected = "folder of an export or of a comparison, the .json file of a report, or the id of an MLflow run"
    raise InputError("no report is here", file=path, expected=expected, remedy=AGAIN)


def _texts_of(report: Report, store: Path) -> DebateTexts:
    file = _texts_file(store, report)
    if not file.is_file():
        remedy = "name the store of the command that made it, or make the page without texts with --share, or " + AGAIN
        raise InputError("the texts of this report are not in the store", file=file, field="--store", remedy=remedy)
    return texts_from(file.read_bytes(), str(file), report)


def _texts_file(store: Path, report: Report) -> Path:
    # An identity comes from a file that anyone may have written, and must not lead elsewhere.
    return store / "reports" / (re.sub(r"\W", "_", report.identity)[:80] + ".json")


def _as_json(value: Report | DebateTexts) -> str:
    return json.dumps(to_json(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def _write(path: Path, text: str) -> None:
    with write_errors(path, "report"):
        path.parent.mkdir(parents=True, exist_ok=True)
        # As the text has them: on no system may a line's end become another, for the page's policy holds a hash.
        path.write_text(text, encoding="utf-8", newline="\n")
