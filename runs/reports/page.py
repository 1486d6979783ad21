"""The page of a report: one HTML file that loads nothing from outside and runs no script but its own.

Texts under evaluation are hostile here, too. Everything in the template is escaped; the debates are embedded as JSON
without characters that HTML could interpret, and the page's script inserts them into the document as text. The page's
content security policy allows that one script, by its hash, and no address at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from debate_judge.data.files.writing import write_errors
from debate_judge.runs.reports.charts import Chart, draw
from debate_judge.runs.reports.tables import DataTable

if TYPE_CHECKING:
    from jinja2 import Template

_ONE_NUMBER = r"[-−+<>~]?\s?\$?\d[\d.,]*\s?%?"
_NUMBER = re.compile(rf"{_ONE_NUMBER}(\s?/\s?{_ONE_NUMBER})*( \*)?( \[[^\]]*\])?")
"""A number, or several with slashes between them; it may have the star of a best value, and an interval."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of prose."""

    text: str
    look: Literal["", "small", "warning"] = ""
    kind: Literal["paragraph"] = "paragraph"


@dataclass(frozen=True, slots=True)
class Quotation:
    """A longer text quoted in full, e.g. a guide to the raters."""

    title: str
    text: str
    kind: Literal["quotation"] = "quotation"


ReportBlock = Paragraph | DataTable | Quotation | Chart


@dataclass(frozen=True)
class Report:
    """The report of a compile or a comparison."""

    subject: Literal["Compiled judge", "Comparison of judges"]
    name: str
    """Of the run."""
    title: str
    verdict: Sequence[ReportBlock]
    """The first thing on the page; the debates follow."""
    sections: Mapping[str, Sequence[ReportBlock]]
    """Title -> blocks, folded; without blocks there is no section."""
    debates: Mapping[str, Any]
    texts: Mapping[str, Any]
    """See `debates_of`."""
    stand_in: str = ""
    """A notice for the figures where the LM was a stand-in, else empty."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """`source`, `candidate` and `context` -> the task's label."""


def write_pages(report: Report, file: Path, *, full: bool) -> str:
    """Write the page to `file`, with the texts of the data if it is `full`, and beside it one to share, without them.

    Returns:
        The page to share, which may be logged.

    Raises:
        InputError: A file cannot be written.
    """
    shareable = page(report)
    with write_errors(file, "report"):
        file.parent.mkdir(parents=True, exist_ok=True)
        for path, html in ((file, page(report, full=True) if full else shareable), (shared_page(file), shareable)):
            # No translation of newlines: the page's policy has a hash of its script.
            path.write_text(html, encoding="utf-8", newline="\n")
    return shareable


def shared_page(file: Path) -> Path:
    """The page to share beside one that quotes texts."""
    return file.with_stem(f"{file.stem}-share")


def page(report: Report, *, full: bool = False) -> str:
    """The page of a report; if it is `full`, with the texts of the data."""
    from markupsafe import Markup

    script = _read_file("report.js")
    data = {"debates": report.debates, "texts": report.texts if full else None, "labels": report.labels}
    html = _template().render(
        report=report,
        sections={title: blocks for title, blocks in report.sections.items() if blocks},
        full=full,
        policy=_policy(script),
        style=Markup(_read_file("report.css")),
        script=Markup(script),
        data=Markup(json_for_script(data)),
    )
    # Half of a surrogate pair is no character, and has no encoding.
    return html.encode("utf-8", "replace").decode("utf-8")


def json_for_script(value: object) -> str:
    """JSON for a `<script>` element, without characters that HTML could interpret."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # The three occur in JSON only inside strings, where these escapes are valid.
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _policy(script: str) -> str:
    """The content security policy: the page's own script by its hash, styles, and nothing from anywhere."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = (
        "default-src 'none'",
        f"script-src 'sha256-{digest}'",
        "style-src 'unsafe-inline'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
    )
    return "; ".join(rules)


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"svg": Markup, "with_interval": with_interval, "groupby_kind": consecutive_by_kind}
    environment.globals |= {"column_classes": column_classes, "draw": draw}
    return environment.from_string(_read_file("report.html.j2"))


@cache
def _read_file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


# --- functions of the template ---


def consecutive_by_kind(blocks: Sequence[ReportBlock]) -> list[list[ReportBlock]]:
    """Blocks of one kind that follow one another; charts and quotations stand side by side."""
    return [list(same) for _, same in groupby(blocks, lambda block: block.kind)]


def column_classes(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The CSS class of each column: `number` for numbers and dashes, `long` for prose, else empty."""
    return [_column_class([row[i] for row in rows]) for i in range(len(header))]


def _column_class(cells: Sequence[str]) -> str:
    filled = [cell for cell in cells if cell not in ("", "–")]
    if filled and all(_NUMBER.fullmatch(cell) for cell in filled):
        return "number"
    return "long" if any(len(cell) > 28 for cell in filled) else ""


def with_interval(cell: str) -> tuple[str, str]:
    """The value and the interval of a cell."""
    value, bracket, rest = cell.partition(" [")
    return (value, "[" + rest) if bracket and cell.endswith("]") else (cell, "")
