"""Storage of reports, and regeneration of their pages.

`report.json` and `report.html` are in the folder of the export or comparison, on the user's machine, so that the page
shows the debates with their texts. Logged reports and `report-share.html` quote no text of the data; the texts are in
the store of the command that made the report.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import write_errors
from debate_judge.runs.export.from_mlflow import run_artifact
from debate_judge.runs.reports.html.page import FORMAT, Report, page

_REMEDY = "run the compile or comparison again, without --report none; finished calls are not paid for again"

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


def write_files(
    report: Report, texts: Mapping[str, Any], files: ReportFiles, store: Path, *, full: bool
) -> dict[str, str]:
    """Write a report and its page, which has the texts if it is `full`, and the texts to the store.

    Returns:
        Artifact name -> content of the report and the page without texts, which may be logged.

    Raises:
        InputError: A file cannot be written.
    """
    values = report.to_json()
    shared = {"report.json": _as_json(values), "report.html": page(values)}
    _write(_texts_file(store, report.identity), _as_json(texts))
    _write(files.data, shared["report.json"])
    _write(files.page, page(values, texts) if full else shared["report.html"])
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
    content: str | bytes
    if run is not None and not Path(address).exists():
        texts_store, location = store or default_store, address
        content, files = run_artifact(run[1], "report.json", store), ReportFiles(texts_store / "reports" / run[1])
    else:
        file = _data_file(Path(address))
        content, location, files = file.read_bytes(), str(file), ReportFiles(file.parent, file.stem)
        parents = file.resolve().parents[:3]
        texts_store = store or next((folder for folder in parents if (folder / "reports").is_dir()), default_store)
    not_a_report = InputError("this is no report, or one of another version", file=location, remedy=_REMEDY)
    try:
        report = json.loads(content)
        identity = str(report["identity"]) if report["format"] == FORMAT else None
    except (ValueError, TypeError, LookupError, RecursionError):
        raise not_a_report from None
    if identity is None:
        raise not_a_report
    texts = None if share else _texts_of(identity, texts_store)
    try:
        text = page(report, texts)
    # A file that anyone may have written fails anywhere in the template.
    except Exception:
        raise not_a_report from None
    page_file = files.folder / f"{files.stem}-share.html" if share else files.page
    _write(page_file, text)
    return page_file


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
    raise InputError("there is no report", file=path, expected=expected, remedy=_REMEDY)


def _texts_of(identity: str, store: Path) -> Any:
    file = _texts_file(store, identity)
    if not file.is_file():
        remedy = (
            f"name the store of the command that made it, or make the page without texts with --share, or {_REMEDY}"
        )
        raise InputError("the texts of this report are not in the store", file=file, field="--store", remedy=remedy)
    return json.loads(file.read_bytes())


def _texts_file(store: Path, identity: str) -> Path:
    # The identity is from a file that anyone may have written, and must not lead to another folder.
    return store / "reports" / (re.sub(r"\W", "_", identity)[:80] + ".json")


def _as_json(value: Mapping[str, Any]) -> str:
    # ASCII, because texts may have lone surrogates.
    return json.dumps(value, allow_nan=False, separators=(",", ":")) + "\n"


def _write(path: Path, text: str) -> None:
    with write_errors(path, "report"):
        path.parent.mkdir(parents=True, exist_ok=True)
        # No translation of newlines: the page's policy has a hash of its script.
        path.write_text(text, encoding="utf-8", newline="\n")
