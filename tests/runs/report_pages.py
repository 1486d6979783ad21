"""Reports over toy corpora, opened in a browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.programs.judge import Judgement, Unscored, Verdict
from debate_judge.programs.transcript import Failure, Transcript, Turn
from debate_judge.runs.reports.html.blocks import (
    CostChart,
    CostPoint,
    DataTable,
    JudgesChart,
    LineChart,
    LineSeries,
    Paragraph,
    Quotation,
    ReportBlock,
    Section,
    Span,
    TextChange,
)
from debate_judge.runs.reports.html.document import DebateTexts, Report
from debate_judge.runs.reports.html.items import JudgedScores, beside_ratings, debates_of
from tests.browser import Browser, OpenPage

HOSTILE = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "<!--<script>",
    "\u2028\u2029 line and paragraph separators",
    "\u202egnisrever\u202c and \u2067 never ended",
    "nul \x00 and bell \x07",
    "{{ 7 * 7 }} {% raw %} ${7 * 7} `",
    "&lt;b&gt; &amp;amp; \\u003cb\\u003e",
    "<svg onload='window.hacked = 1'><style>*{display:none}</style>",
    "'\"><a href='javascript:window.hacked = 1'>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
    "]]> <![CDATA[ <math><mtext></form><form>",
    "half of a pair \ud83d",
    "word " * 210_000,
)
"""Texts as an attacker would write them; the last has more than a million characters."""

ASPECTS = (Aspect("clarity", "Is it clear?", Scale(1, 5)), Aspect("wit", "Is it funny?", Scale(0, 10, 0.5)))
TASK = Task("toy", "article", "summary", ASPECTS, "background")


def corpus(texts: tuple[str, ...] = ("plain",), names: tuple[str, ...] = ()) -> Corpus:
    """A group for each text, which is its source, its context, its candidates and the comments on them."""
    groups = [
        RatedGroup(
            names[i] if names else f"g{i}",
            f"source: {text}",
            tuple(
                Candidate(
                    f"c{j}",
                    f"candidate {j}: {text}",
                    {"clarity": (j + 1.0, j + 2.0), "wit": (2.0 * j,)},
                    {"clarity": (f"comment: {text}", "no comment")},
                )
                for j in range(3)
            ),
            f"context: {text}",
        )
        for i, text in enumerate(texts)
    ]
    return Corpus(TASK, tuple(groups), Origin("toy", "nowhere"))


def judgement(number: int, text: str) -> Judgement:
    """No issue at once; two rounds; or an unreadable reply: by turns."""
    opening = Turn("scorer", 0, f"rationale: {text}", 2.0)
    critique = Turn("critic", 1, f"critique: {text}", None, number % 3 == 0)
    if number % 3 == 0:
        return Verdict(2.0, 1, "no issue", 2, Transcript((opening, critique)))
    if number % 3 == 1:
        turns = (opening, critique, Turn("scorer", 1, "revised", 3.0), Turn("critic", 2, "again"))
        return Verdict(4.0, 2, "rounds over", 5, Transcript((*turns, Turn("scorer", 2, "once more", 4.0))))
    failed = Failure("critic", 1, "unreadable reply", f"reply: {text}", 1)
    return Unscored("unreadable reply", f"critic, round 1: reply: {text}", 2, Transcript((opening,), failed))


def judged(on: Corpus) -> dict[str, JudgedScores]:
    """A debate, and scores from a file that lie on a scale of their own."""
    texts = [c.text for g in on.groups for c in g.candidates]
    found = {a.name: [judgement(i, text) for i, text in enumerate(texts)] for a in ASPECTS}

    def scores(aspect: str, given: list[float | None]) -> list[GroupScores]:
        values = iter(given)
        return [
            GroupScores(
                g.id,
                tuple(c.id for c in g.candidates),
                tuple(g.ratings(aspect)),
                tuple(next(values) for _ in g.candidates),
            )
            for g in on.groups
        ]

    debate = {a: scores(a, [j.score if isinstance(j, Verdict) else None for j in own]) for a, own in found.items()}
    file = {a.name: scores(a.name, [100.0 - i for i in range(len(texts))]) for a in ASPECTS}
    return {"debate": JudgedScores(debate, found), "metric": JudgedScores(file, on_scale=False)}


def report(on: Corpus, *blocks: ReportBlock) -> tuple[Report, DebateTexts]:
    judges = judged(on)
    debates, texts = debates_of(on, ASPECTS, judges, "id")
    drawn = [*beside_ratings(ASPECTS, judges["debate"]), *beside_ratings(ASPECTS, judges["metric"])]
    sections = (Section("First", blocks), Section("Human against judge", tuple(drawn))) if blocks else ()
    labels = {"source": "article", "candidate": "summary", "context": "background"}
    return Report("compile", "toy", "Toy", "id", sections, debates, "an LM of paper", labels=labels), texts


def blocks(text: str) -> tuple[ReportBlock, ...]:
    """Everything that a section may hold, with the text wherever there is one."""
    spans = (Span(0.5, 0.4, 0.6), Span(None), Span(0.7))
    point = CostPoint(1.0, 0.5, text)
    return (
        Paragraph(text, text),
        DataTable((text, "n"), ((text, "1"), ("b", "2.5 [1.0, 3.0]")), text, total=True),
        Quotation(text, text),
        TextChange(text, f"kept {text}", f"kept and new {text}"),
        LineChart(text, text, (LineSeries(text, spans), LineSeries("other", spans)), (text, 0)),
        CostChart(text, text, (point, CostPoint(2.0, 0.4, "b")), (point,), point),
        JudgesChart(text, text, (text, "b", "c"), (LineSeries(text, spans),)),
    )


def opened(browser: Browser, folder: Path, html: str, **look: Any) -> OpenPage:
    file = folder / "page.html"
    file.write_text(html, encoding="utf-8", newline="\n")
    return browser.open(file, **look)


def choose(page: OpenPage, name: str, value: str) -> str:
    """Set a filter; returns how many debates are left, as the page says it."""
    field = f"document.querySelector('.filters .{name} :is(select, input)')"
    page.value(f"{field}.value = {json.dumps(value)}; {field}.dispatchEvent(new Event('change'))")
    return str(page.value("document.querySelector('.count').textContent"))


# --- texts that mean harm ---


SHORT = [text[:200] for text in HOSTILE]
