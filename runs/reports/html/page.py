"""Makes the page of a report: one HTML file that loads nothing from outside and runs no script but its own.

Texts under evaluation are hostile here, too. Everything in the template is escaped; the debates are embedded as JSON
without characters that HTML could interpret, and the page's script inserts them into the document as text. The page's
content security policy allows that one script, by its hash, and no address at all.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from itertools import count, groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from debate_judge.runs.reports.html.blocks import (
    ConfusionMatrix,
    CostChart,
    DistributionChart,
    JudgesChart,
    LineChart,
    ReportBlock,
    ScatterChart,
)
from debate_judge.runs.reports.html.charts import DrawnChart, draw
from debate_judge.runs.reports.html.document import DebateTexts, Report, printable, to_json

if TYPE_CHECKING:
    from jinja2 import Template

MAX_WORDS = 20_000
"""Words of both texts together up to which they are compared; longer ones are shown one after the other."""

_ONE_NUMBER = r"[-−+<>~]?\s?\$?\d[\d.,]*\s?%?"
_NUMBER = re.compile(rf"{_ONE_NUMBER}(\s?/\s?{_ONE_NUMBER})*( \*)?( \[[^\]]*\])?")
"""A number, or several with slashes between them; it may have the star of a best value, and an interval."""


_CHARTS = (LineChart, CostChart, JudgesChart, ScatterChart, DistributionChart)


class Page:
    """The page of a report. The charts are drawn once, for the page without texts and the one with them."""

    def __init__(self, report: Report) -> None:
        self._report = report
        names = (f"c{number}" for number in count(1))
        self._sections = [
            (f"s{number}", section, _template_parts(section.blocks, names))
            for number, section in enumerate(report.sections)
        ]

    def html(self, texts: DebateTexts | None = None) -> str:
        """The page, with the texts of the data if they are given."""
        from markupsafe import Markup

        script = _read_file("report.js")
        payload = {
            "debates": to_json(self._report)["debates"],
            "texts": None if texts is None else to_json(texts),
            "labels": self._report.labels,
        }
        page = _template().render(
            report=self._report,
            sections=self._sections,
            full=texts is not None,
            policy=_policy(script),
            style=Markup(_read_file("report.css")),
            script=Markup(script),
            data=Markup(json_for_script(payload)),
        )
        return printable(page)


def json_for_script(value: object) -> str:
    """JSON for a `<script>` element: pure ASCII, without characters that HTML could interpret."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
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


def _template_parts(blocks: Sequence[ReportBlock], names: Iterator[str]) -> list[tuple[str, Any]]:
    """(kind, content) for the template; consecutive charts are one part, and so are consecutive quotations."""
    parts: list[tuple[str, Any]] = []
    for kind, consecutive in groupby(
        blocks, lambda b: "charts" if isinstance(b, (*_CHARTS, ConfusionMatrix)) else b.kind
    ):
        if kind == "charts":
            parts.append((kind, _draw_charts(list(consecutive), names)))
        elif kind == "quotation":
            parts.append((kind, list(consecutive)))
        else:
            parts += [(kind, block) for block in consecutive]
    return parts


def _draw_charts(blocks: Sequence[ReportBlock], names: Iterator[str]) -> dict[str, Any]:
    """Charts drawn side by side, and the legend entries that all have in common."""
    drawn = [draw(block, next(names)) if isinstance(block, _CHARTS) else block for block in blocks]
    legends = [part.legend for part in drawn if isinstance(part, DrawnChart) and part.legend]
    # A number marks a point of its own chart.
    common = [e for e in legends[0] if all(e in other for other in legends) and not e.mark.isdigit()] if legends else []
    shared = common if len(legends) > 1 else []
    without_shared = [
        replace(part, legend=tuple(e for e in part.legend if e not in shared)) if isinstance(part, DrawnChart) else part
        for part in drawn
    ]
    return {"charts": without_shared, "legend": shared}


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"svg": Markup, "with_interval": with_interval}
    environment.globals |= {"changed_words": changed_words, "column_classes": column_classes}
    return environment.from_string(_read_file("report.html.j2"))


@cache
def _read_file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


# --- functions of the template ---


class WordRun(NamedTuple):
    """Consecutive words of a diff that are all the same, added or removed."""

    kind: Literal["same", "added", "removed"]
    text: str


def changed_words(before: str, after: str) -> list[WordRun]:
    """A word diff of two texts; whitespace belongs to the word before it."""
    old, new = (re.findall(r"\s*\S+\s*|\s+", text) for text in (before, after))
    if len(old) + len(new) > MAX_WORDS:
        return [run for run in (WordRun("removed", before), WordRun("added", after)) if run.text]
    # Words are compared without whitespace, so that another line break is no change.
    matcher = difflib.SequenceMatcher(None, [w.strip() for w in old], [w.strip() for w in new], autojunk=False)
    runs: list[WordRun] = []
    for kind, start, end, new_start, new_end in matcher.get_opcodes():
        if kind == "equal":
            runs.append(WordRun("same", "".join(new[new_start:new_end])))
            continue
        runs += [WordRun("removed", "".join(old[start:end]))] if end > start else []
        runs += [WordRun("added", "".join(new[new_start:new_end]))] if new_end > new_start else []
    return runs


def column_classes(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The CSS class of each column: `number` for numbers and dashes, `long` for prose, else empty."""
    columns = [[row[i] for row in rows if i < len(row)] for i in range(len(header))]
    return [_column_class(cells) for cells in columns]


def _column_class(cells: Sequence[str]) -> str:
    filled = [cell for cell in cells if cell not in ("", "–")]
    if filled and all(_NUMBER.fullmatch(cell) for cell in filled):
        return "number"
    return "long" if any(len(cell) > 28 for cell in filled) else ""


def with_interval(cell: str) -> tuple[str, str]:
    """The value and the interval of a cell."""
    value, bracket, rest = cell.partition(" [")
    return (value, "[" + rest) if bracket and cell.endswith("]") else (cell, "")
