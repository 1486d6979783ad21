"""The page of a report in a real browser: hostile texts do nothing, debates can be looked through, and how it looks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data import load
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.programs.judge import Judgement, Unscored, Verdict
from debate_judge.programs.transcript import Failure, Transcript, Turn
from debate_judge.runs.reports.html.blocks import (
    CostChart,
    CostPoint,
    DataTable,
    IntervalValue,
    JudgesChart,
    LineChart,
    LineSeries,
    Paragraph,
    Quotation,
    ReportBlock,
    Section,
    TextChange,
)
from debate_judge.runs.reports.html.document import DebateTexts, Report
from debate_judge.runs.reports.html.items import JudgedScores, debates_of, score_charts
from debate_judge.runs.reports.html.page import Page
from tests.browser import Browser, OpenPage, needs_browser

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
    drawn = [*score_charts(ASPECTS, judges["debate"]), *score_charts(ASPECTS, judges["metric"])]
    sections = (Section("First", blocks), Section("Scores against ratings", tuple(drawn))) if blocks else ()
    labels = {"source": "article", "candidate": "summary", "context": "background"}
    return Report("compile", "toy", "Toy", "id", sections, debates, "an LM of paper", labels=labels), texts


def blocks(text: str) -> tuple[ReportBlock, ...]:
    """Everything that a section may hold, with the text wherever there is one."""
    spans = (IntervalValue(0.5, 0.4, 0.6), IntervalValue(None), IntervalValue(0.7))
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


pytestmark = needs_browser

SHORT = [text[:200] for text in HOSTILE]


@pytest.fixture(scope="module")
def hostile() -> tuple[Page, DebateTexts]:
    """A page with these texts wherever it can have one."""
    on = corpus(HOSTILE, tuple(f"{i} {text}" for i, text in enumerate(SHORT)))
    made, texts = report(on, *(block for text in SHORT for block in blocks(text)))
    return Page(replace(made, title=SHORT[0], stand_in=SHORT[1])), texts


@pytest.mark.integration
@pytest.mark.parametrize("full", [False, True])
def test_hostile_texts_are_shown_and_do_nothing(
    hostile: tuple[Page, DebateTexts], browser: Browser, tmp_path: Path, full: bool
) -> None:
    made, texts = hostile
    page = opened(browser, tmp_path, made.html(texts if full else None))
    assert page.value("window.hacked") is None
    assert page.dialogs == []
    assert page.complaints == []
    assert page.requests == [(tmp_path / "page.html").as_uri()]
    names = ("script", "img", "meta", "a")
    counts = {name: page.value(f"document.querySelectorAll('{name}').length") for name in names}
    links = page.value("document.querySelectorAll('nav a').length")
    assert counts == {"script": 2, "img": 0, "meta": 5, "a": links}
    assert page.value("document.querySelector('h1').textContent") == SHORT[0]
    assert page.value("getComputedStyle(document.querySelector('main')).display") == "block"
    # Each chart is whole, and each text that HTML can hold stands there letter by letter.
    assert page.value("document.querySelectorAll('svg').length") == 4 * len(SHORT) + 6
    quoted = page.value("[...document.querySelectorAll('blockquote')].map(b => b.textContent)")
    assert quoted == [text.replace("\0", "").replace("\ud83d", "?") for text in SHORT]


def test_every_text_arrives_letter_by_letter(browser: Browser, tmp_path: Path) -> None:
    """Through JSON even what HTML cannot hold does, but for half of a surrogate pair."""
    made, texts = report(corpus(HOSTILE))
    page = opened(browser, tmp_path, Page(made).html(texts))
    choose(page, "order", "file")
    whole = "[...document.querySelectorAll('.debate .text')].map(t => t.textContent)"
    for number, text in enumerate(HOSTILE):
        page.value(f"document.querySelector('.list').scrollTop = {60 * 3 * number}")
        place = 3 * number
        page.value(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => {"
            f"document.querySelector('#row-{place}').click(); done() }})))"
        )
        page.value("document.querySelectorAll('.debate .more').forEach(button => button.click())")
        # The rationale holds the candidate's text.
        expected = [f"{name}: {text}" for name in ("comment", "candidate 0", "context", "source")]
        expected += [f"rationale: candidate 0: {text}", f"critique: candidate 0: {text}"]
        expected = [one.replace("\ud83d", "?") for one in expected]
        found = page.value(whole)
        assert sorted(set(expected) - set(found)) == [], number
    assert page.value("window.hacked") is None
    assert page.requests == [(tmp_path / "page.html").as_uri()]


def test_a_long_text_is_cut_until_it_is_asked_for(browser: Browser, tmp_path: Path) -> None:
    made, texts = report(corpus(HOSTILE[-1:]))
    page = opened(browser, tmp_path, Page(made).html(texts))
    longest = "Math.max(...[...document.querySelectorAll('.text')].map(t => t.textContent.length))"
    assert page.value(longest) < 5000
    assert "show all 1,05" in page.value("document.querySelector('.more').textContent")
    page.value("document.querySelector('.more').click()")
    assert page.value(longest) > 1_000_000


def test_the_policy_forbids_all_but_the_pages_own_script(browser: Browser, tmp_path: Path) -> None:
    made, texts = report(corpus())
    page = opened(browser, tmp_path, Page(made).html(texts))
    markup = "try { document.body.insertAdjacentHTML('beforeend', '<i>') ; 'done' } catch (error) { error.name }"
    assert page.value(markup) == "TypeError"
    assert page.value("fetch('http://127.0.0.1:9/').then(() => 'done', error => error.name)") == "TypeError"
    inline = "const s = document.createElement('button'); s.setAttribute('id', 'b'); document.body.append(s); s.id"
    assert page.value(inline) == "b"
    style = "const l = document.createElement('link'); l.rel = 'stylesheet'; l.href = 'http://127.0.0.1:9/a.css';"
    blocked = f"new Promise(done => {{ {style} l.onerror = () => done('blocked'); document.head.append(l) }})"
    assert page.value(blocked) == "blocked"
    assert any("Content Security Policy" in text for text in page.complaints)


def rows(page: OpenPage) -> list[str]:
    """What the list shows, from the top."""
    found: list[str] = page.value(
        "[...document.querySelectorAll('.row')].map(r => [r.offsetTop, r.innerText]).sort((a, b) => a[0] - b[0])"
        ".map(r => r[1].replace(/\\s+/g, ' ').trim())"
    )
    return found


def detail(page: OpenPage) -> str:
    text: str = page.value("document.querySelector('.debate').textContent")
    return text


# --- looking through debates ---


def test_the_largest_disagreement_comes_first(browser: Browser, tmp_path: Path) -> None:
    made, texts = report(corpus(("a",)))
    page = opened(browser, tmp_path, Page(made).html(texts))
    # Of three candidates the scores are 2, 4, none; mean ratings 1.5, 2.5, 3.5 (clarity) and 0, 2, 4 (wit).
    assert rows(page) == [
        "+37.5 % g0 · c1 clarity: raters 2.5, judge 4",
        "+20 % g0 · c0 wit: raters 0, judge 2",
        "+20 % g0 · c1 wit: raters 2, judge 4",
        "+12.5 % g0 · c0 clarity: raters 1.5, judge 2",
        "– g0 · c2 clarity: raters 3.5, unscored: unreadable reply",
        "– g0 · c2 wit: raters 4, unscored: unreadable reply",
    ]
    # Two rounds took the score from 2, which the raters give as well, to 4.
    choose(page, "order", "worse")
    assert rows(page)[0] == "+20 % g0 · c1 wit: raters 2, judge 4"


def test_filters_and_search(browser: Browser, tmp_path: Path) -> None:
    made, texts = report(corpus(("apple", "pear")))
    page = opened(browser, tmp_path, Page(made).html(texts))
    assert choose(page, "aspect", "wit") == "6 of 12"
    assert choose(page, "rounds", "2") == "2 of 12"
    assert choose(page, "search", "PEAR") == "1 of 12"
    assert "candidate 1: pear" in detail(page)
    assert choose(page, "search", "nothing like it") == "0 of 12"
    assert detail(page) == "No debate meets these filters."
    assert choose(page, "search", "") == "2 of 12"
    choose(page, "rounds", "")
    assert choose(page, "state", "none:unreadable reply") == "2 of 12"
    assert choose(page, "state", "stop:no issue") == "2 of 12"
    # Scores of the other judge are ranked: it gives the first candidate most, the raters the last.
    choose(page, "state", "")
    assert choose(page, "judge", "1") == "6 of 12"
    assert rows(page)[0] == "+90 % g0 · c0 wit: raters 0, judge 100"


def test_a_debate_is_shown_as_a_conversation(browser: Browser, tmp_path: Path) -> None:
    made, texts = report(corpus(("a",)))
    page = opened(browser, tmp_path, Page(made).html(texts))
    text = detail(page)
    assert "Ratings: 2, 3; mean 2.5 (scale 1 to 5)" in text
    assert "comment of a rater" in text
    path = page.value("[...document.querySelector('.path').querySelectorAll('.chip')].map(c => c.textContent)")
    steps = ["scorer: 2", "critic 1", "scorer 1: 3", "critic 2", "scorer 2: 4 (farther)", "score 4"]
    # 2 and 3 are as far from 2.5 as each other: the first step is no nearer.
    assert path == [*steps[:2], "scorer 1: 3 (farther)", *steps[3:]]
    turns = page.value("[...document.querySelectorAll('.turn .speaker')].map(s => s.textContent)")
    assert turns[:3] == ["scorer, round 0, score 2", "critic, round 1", "scorer, round 1, score 3"]


def test_comments_are_not_credited_to_ratings(browser: Browser, tmp_path: Path) -> None:
    """One rater is silent and another leaves the rating blank: two ratings and two comments, of three raters."""
    file = tmp_path / "long.csv"
    row = "summary,article,s1,clarity,{},{},{}\n"
    raters = (("anna", "2", ""), ("bob", "5", "clear"), ("cid", "", "gave up: could not read it"))
    file.write_text("text,source,candidate,aspect,rater,rating,comment\n" + "".join(row.format(*r) for r in raters))
    on, aspect = load(str(file), TASK), ASPECTS[0]
    unasked = (GroupScores(on.groups[0].id, ("s1",), tuple(on.groups[0].ratings(aspect.name)), (3.0,)),)
    debates, texts = debates_of(on, (aspect,), {"metric": JudgedScores({aspect.name: unasked})}, "id")
    page = opened(browser, tmp_path, Page(Report("compile", "toy", "Toy", "id", (), debates)).html(texts))
    text = detail(page)
    assert "Ratings: 2, 5; mean 3.5 (scale 1 to 5)" in text
    assert "comment of a raterclearcomment of a ratergave up: could not read it" in text


def test_of_thousands_of_debates_few_rows_are_drawn(browser: Browser, tmp_path: Path) -> None:
    groups = corpus(tuple(f"text {i}" for i in range(834)))
    made, texts = report(groups)
    assert len(made.debates.items) == 5004
    page = opened(browser, tmp_path, Page(made).html(texts))
    assert page.value("document.querySelector('.count').textContent") == "5,004 of 5,004"
    drawn = "document.querySelectorAll('.row').length"
    assert 5 < page.value(drawn) < 60
    page.value("document.querySelector('.list').dispatchEvent(new KeyboardEvent('keydown', {key: 'End'}))")
    assert page.value("document.querySelector('.row[aria-selected=true]').dataset.place") == "5003"
    assert 5 < page.value(drawn) < 60
    assert choose(page, "search", "text 833") == "6 of 5,004"


# --- looks ---


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window(browser: Browser, tmp_path: Path, width: int) -> None:
    long = "unbroken" * 60
    made, texts = report(corpus((long,)), *blocks(long))
    page = opened(browser, tmp_path, Page(made).html(texts), width=width, height=800)
    assert page.value("document.documentElement.scrollWidth") <= width


def test_light_and_dark(browser: Browser, tmp_path: Path) -> None:
    made, texts = report(corpus(), *blocks("a"))
    html = Page(made).html(texts)
    ground = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('svg text')).fill"
    found = {}
    for dark in (False, True):
        page = opened(browser, tmp_path, html, dark=dark)
        found[dark] = (page.value(ground), page.value(ink))
        assert page.value(ink) == page.value("getComputedStyle(document.body).color")
    assert found[False] == ("rgb(255, 255, 255)", "rgb(26, 31, 38)")
    assert found[True] == ("rgb(20, 24, 29)", "rgb(228, 232, 236)")


def test_on_paper_everything_is_open_and_nothing_is_to_be_pressed(browser: Browser, tmp_path: Path) -> None:
    long = "unbroken" * 20
    made, texts = report(corpus((long,)), *blocks(long))
    page = opened(browser, tmp_path, Page(made).html(texts))
    page.send("Emulation.setEmulatedMedia", {"media": "print"})
    page.value("window.dispatchEvent(new Event('beforeprint'))")
    assert page.value("document.querySelectorAll('details:not([open])').length") == 0
    # As wide as the text of a page of A4.
    size = {"width": 718, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    page.send("Emulation.setDeviceMetricsOverride", size)
    assert page.value("document.documentElement.scrollWidth") <= 718
    assert page.value("[...document.querySelectorAll('button, select, input')].filter(e => e.offsetHeight).length") == 0
    page.value("window.dispatchEvent(new Event('afterprint'))")
    assert page.value("document.querySelectorAll('details:not([open])').length") > 0


def test_a_stand_in_is_named_beside_every_figure(browser: Browser, tmp_path: Path) -> None:
    made, _ = report(corpus(), *blocks("a"))
    page = opened(browser, tmp_path, Page(made).html())
    captions = page.value("[...document.querySelectorAll('.charts figcaption')].map(c => c.textContent)")
    assert captions
    assert all("stand-in LM" in caption for caption in captions)
    assert page.value("document.querySelector('.banner').textContent") == "Stand-in LM. an LM of paper"
    assert page.value("document.querySelectorAll('h2 .stand-in').length") == 3
