"""Storage of reports, and regeneration of their pages.

`report.json` and `report.html` are in the folder of the export or comparison, on the user's machine, so that the page
shows the debates with their texts. Logged reports and `report-share.html` quote no text of the data; the texts are in
the store of the command that made the report.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import write_errors
from debate_judge.runs.export.from_mlflow import run_artifact
from debate_judge.runs.reports.html.document import (
    REMEDY,
    DebateTexts,
    Report,
    report_from,
    texts_from,
    to_json,
)
from debate_judge.runs.reports.html.page import Page

_RUN = re.compile(r"(?:runs:/)?([0-9a-f]{32})")


@dataclass(frozen=True)
class ReportFiles:
    """The files of one report."""

    folder: Path
    stem: str = "report"

    @property
    def data(self) -> Path:
        """The report as JSON, from which pages are made."""
        return self.folder / f"{self.stem}.json"

    @property
    def page(self) -> Path:
        """The page, with the texts of the data unless the user wants none."""
        return self.folder / f"{self.stem}.html"


def write_files(report: Report, texts: DebateTexts, files: ReportFiles, store: Path, *, full: bool) -> dict[str, str]:
    """Write a report and its page, which has the texts if it is `full`, and the texts to the store.

    Returns:
        Artifact name -> content of the report and the page without texts, which may be logged.

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
    """Make a page again, with the texts of the data, or with `share` one that quotes none; returns its path.

    Args:
        address: Folder of an export or of a comparison's report, the `.json` file of a report, or the id of an MLflow
            run, also as `runs:/ID`.
        store: Folder of the texts and of the embedded MLflow store; by default the store that contains the export, else
            `default_store`.
        default_store: The store of commands without `--store`.
        share: Whether to make the page without texts.

    Raises:
        InputError: There is no report, its texts are not in the store, or the page cannot be written.
    """
    run = _RUN.fullmatch(address)
    if run is not None and not Path(address).exists():
        texts_store = store or default_store
        report = report_from(run_artifact(run[1], "report.json", store), address)
        files = ReportFiles(texts_store / "reports" / run[1])
    else:
        file = _data_file(Path(address))
        report, files = report_from(file.read_bytes(), str(file)), ReportFiles(file.parent, file.stem)
        parents = file.resolve().parents[:3]
        texts_store = store or next((folder for folder in parents if (folder / "reports").is_dir()), default_store)
    page = files.folder / f"{files.stem}-share.html" if share else files.page
    _write(page, Page(report).html(None if share else _texts_of(report, texts_store)))
    return page


def _data_file(path: Path) -> Path:
    """The JSON of a report: the file itself, that in the folder of an export, or the only comparison's in a folder."""
    comparisons = sorted(path.glob("*-report.json"))
    if path.is_dir():
        path = path / "report.json" if (path / "report.json").is_file() or len(comparisons) != 1 else comparisons[0]
    if path.suffix == ".json" and path.is_file():
        return path
    if len(comparisons) > 1:
        names = ", ".join(file.name for file in comparisons)
        raise InputError("the folder has several reports", file=path.parent, expected=f"one of {names}")
    expected = "folder of an export or of a comparison, the .json file of a report, or the id of an MLflow run"
    raise InputError("there is no report", file=path, expected=expected, remedy=REMEDY)


def _texts_of(report: Report, store: Path) -> DebateTexts:
    file = _texts_file(store, report)
    if not file.is_file():
        remedy = "name the store of the command that made it, or make the page without texts with --share, or " + REMEDY
        raise InputError("the texts of this report are not in the store", file=file, field="--store", remedy=remedy)
    return texts_from(file.read_bytes(), str(file), report)


def _texts_file(store: Path, report: Report) -> Path:
    # The identity is from a file that anyone may have written, and must not lead to another folder.
    return store / "reports" / (re.sub(r"\W", "_", report.identity)[:80] + ".json")


def _as_json(value: Report | DebateTexts) -> str:
    return json.dumps(to_json(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def _write(path: Path, text: str) -> None:
    with write_errors(path, "report"):
        path.parent.mkdir(parents=True, exist_ok=True)
        # No translation of newlines: the page's policy has a hash of its script.
        path.write_text(text, encoding="utf-8", newline="\n")
