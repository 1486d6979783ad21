"""The page of a report: one HTML file that loads nothing from outside and runs no script but its own.

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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import resources
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from debate_judge.runs.reports.html.charts import Chart, draw
from debate_judge.runs.reports.tables import DataTable

if TYPE_CHECKING:
    from jinja2 import Template

FORMAT = "debate-judge report 2"
"""Increased when a field is renamed or changes its meaning; reports of other formats are not read."""

MAX_WORDS = 20_000
"""Words of both texts together up to which they are compared; longer ones are shown one after the other."""

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


@dataclass(frozen=True, slots=True)
class TextChange:
    """A text before and after, shown as a word diff."""

    title: str
    before: str
    after: str
    kind: Literal["change"] = "change"


ReportBlock = Paragraph | DataTable | Quotation | TextChange | Chart


@dataclass(frozen=True)
class Report:
    """The report of a compile or a comparison, without the texts of the data."""

    subject: Literal["Compiled judge", "Comparison of judges"]
    name: str
    title: str
    identity: str
    """Equal for reports of the same run; identifies the report's texts."""
    verdict: Sequence[ReportBlock]
    """The first thing on the page; the debates follow."""
    sections: Mapping[str, Sequence[ReportBlock]]
    """Title -> blocks, folded; without blocks there is no section."""
    debates: Mapping[str, Any]
    """See `debates_of`."""
    stand_in: str = ""
    """A notice for the figures where the LM was a stand-in, else empty."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """`source`, `candidate` and `context` -> the task's label."""

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values, from which its page is made."""
        sections = {title: list(blocks) for title, blocks in self.sections.items() if blocks}
        values = {name: getattr(self, name) for name in ("subject", "name", "title", "identity", "stand_in", "labels")}
        blocks = [asdict(block) for block in self.verdict]
        by_title = {title: [asdict(block) for block in blocks] for title, blocks in sections.items()}
        return {"format": FORMAT, **values, "verdict": blocks, "sections": by_title, "debates": self.debates}


def page(report: Mapping[str, Any], texts: Mapping[str, Any] | None = None) -> str:
    """The page of a report that is given as JSON values, with the texts of the data if they are given."""
    from markupsafe import Markup

    script = _read_file("report.js")
    data = {"debates": report["debates"], "texts": texts, "labels": report["labels"]}
    html = _template().render(
        report=report,
        full=texts is not None,
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
    environment.globals |= {"changed_words": changed_words, "column_classes": column_classes, "draw": draw}
    return environment.from_string(_read_file("report.html.j2"))


@cache
def _read_file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


# --- functions of the template ---


def consecutive_by_kind(blocks: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Blocks of one kind that follow one another; charts and quotations stand side by side."""
    return [list(same) for _, same in groupby(blocks, lambda block: block["kind"])]


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
    return [_column_class([row[i] for row in rows if i < len(row)]) for i in range(len(header))]


def _column_class(cells: Sequence[str]) -> str:
    filled = [cell for cell in cells if cell not in ("", "–")]
    if filled and all(_NUMBER.fullmatch(cell) for cell in filled):
        return "number"
    return "long" if any(len(cell) > 28 for cell in filled) else ""


def with_interval(cell: str) -> tuple[str, str]:
    """The value and the interval of a cell."""
    value, bracket, rest = cell.partition(" [")
    return (value, "[" + rest) if bracket and cell.endswith("]") else (cell, "")
