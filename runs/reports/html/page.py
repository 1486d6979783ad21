"""Makes the page of a report: one HTML file that asks for nothing from outside and runs no script but its own.

Texts under evaluation are hostile here, too. Whatever the template shows is escaped; the debates travel as JSON, whose
signs that HTML could read are written as escapes, and the page's script puts them into the document as text. The page's
policy (CSP) allows that one script, by its hash, and no address at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from itertools import count, groupby
from typing import TYPE_CHECKING, Any

from debate_judge.runs.reports.html.blocks import (
    Confusion,
    CostChart,
    JudgesChart,
    ReportBlock,
    RoundsChart,
    ScatterChart,
    SharesChart,
)
from debate_judge.runs.reports.html.charts import DrawnChart, draw
from debate_judge.runs.reports.html.debates import DebateTexts, printable
from debate_judge.runs.reports.html.document import Report, to_json
from debate_judge.runs.reports.html.wording import changed_words, column_looks, with_interval

if TYPE_CHECKING:
    from jinja2 import Template

_CHARTS = (RoundsChart, CostChart, JudgesChart, ScatterChart, SharesChart)


class Page:
    """The page of a report. The charts are drawn once, for the page without texts and the one with them."""

    def __init__(self, report: Report) -> None:
        self._report = report
        names = (f"c{number}" for number in count(1))
        self._sections = [
            (f"s{number}", section, _parts(section.blocks, names)) for number, section in enumerate(report.sections)
        ]

    def html(self, texts: DebateTexts | None = None) -> str:
        """The page, with the texts of the data if they are given."""
        from markupsafe import Markup

        script = _file("report.js")
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
            style=Markup(_file("report.css")),
            script=Markup(script),
            data=Markup(embedded(payload)),
        )
        return printable(page)


def embedded(value: object) -> str:
    """JSON that can stand in a `<script>` element: pure ASCII, without a sign that HTML could read."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    # None of the three stands outside of a JSON text, so that the escape always is one of a character.
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


def _parts(blocks: Sequence[ReportBlock], names: Iterator[str]) -> list[tuple[str, Any]]:
    """What the template shows: charts that follow each other stand side by side, and so do quotations."""
    parts: list[tuple[str, Any]] = []
    for kind, run in groupby(blocks, lambda b: "charts" if isinstance(b, (*_CHARTS, Confusion)) else b.kind):
        if kind == "charts":
            parts.append((kind, _side_by_side(list(run), names)))
        elif kind == "quotation":
            parts.append((kind, list(run)))
        else:
            parts += [(kind, block) for block in run]
    return parts


def _side_by_side(blocks: Sequence[ReportBlock], names: Iterator[str]) -> dict[str, Any]:
    """The drawn charts, and apart from them the part of their legends that all have in common."""
    drawn = [draw(block, next(names)) if isinstance(block, _CHARTS) else block for block in blocks]
    legends = [one.legend for one in drawn if isinstance(one, DrawnChart) and one.legend]
    shared = [e for e in legends[0] if all(e in other for other in legends)] if len(legends) > 1 else []
    own = [
        replace(one, legend=tuple(e for e in one.legend if e not in shared)) if isinstance(one, DrawnChart) else one
        for one in drawn
    ]
    return {"charts": own, "legend": shared}


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"svg": Markup, "with_interval": with_interval}
    environment.globals |= {"changed_words": changed_words, "column_looks": column_looks}
    return environment.from_string(_file("report.html.j2"))


@cache
def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
