"""The report: what its charts show and the numbers behind them, and the page in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data import load
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.programs.judge import Judgement, Unscored, Verdict
from debate_judge.programs.transcript import Failure, Transcript, Turn
from debate_judge.runs.comparison.judged import EvaluatedJudge
from debate_judge.runs.reports.html.charts import Chart, DrawnChart, Series, draw
from debate_judge.runs.reports.html.debates import debates_of
from debate_judge.runs.reports.html.page import (
    MAX_WORDS,
    Paragraph,
    Quotation,
    Report,
    ReportBlock,
    TextChange,
    changed_words,
)
from debate_judge.runs.reports.html.page import (
    page as page_of,
)
from debate_judge.runs.reports.html.report_files import ReportFiles, regenerate, write_files
from debate_judge.runs.reports.tables import DataTable
from tests.browser import Browser, OpenPage, needs_browser


@pytest.mark.parametrize(
    ("before", "after", "runs"),
    [
        ("Rate the\ntext now.", "Rate the text\n  now.", [("same", "Rate the text\n  now.")]),
        ("Rate the text.", "Rate the whole text.", [("same", "Rate the "), ("added", "whole "), ("same", "text.")]),
        ("One two", "One three", [("same", "One "), ("removed", "two"), ("added", "three")]),
        # Too long to be compared.
        ("word " * MAX_WORDS, "word " * MAX_WORDS, [("removed", "word " * MAX_WORDS), ("added", "word " * MAX_WORDS)]),
    ],
    ids=["a line broken elsewhere", "added", "replaced", "too long"],
)
def test_words_are_kept_removed_or_added(before: str, after: str, runs: list[tuple[str, str]]) -> None:
    assert [tuple(run) for run in changed_words(before, after)] == runs


# --- charts ---

PLAIN, STRICT = Series("plain", ((0, 0.3, 0.2, 0.5), (1, 0.4, 0.3, 0.6))), Series("strict", ((0, 0.3, 0.2, 0.5),))
DOTS = Chart("held-out", "dots", "r", (Series("a", ((0.2, 0, 0.1, 0.4), (0.6, 1))),), ("style", "wit"), (0.8, None))
LINES = Chart("coherence", "lines", "Spearman", (PLAIN, STRICT), chosen=("plain", 1, 0.4))
JUDGES = tuple(Series(name, ((x, y),)) for name, x, y in (("b", 1, 0.3), ("a", 3, 0.5), ("c", 2, 0.2)))
COSTS = Chart("coherence", "costs", "Spearman", JUDGES, chosen=("a", 3, 0.5), front=2)
SCATTER = Chart("wit", "scatter", "3 items", (Series("judge", ((1, 1), (2, 4), (5, 4.6))),), scale=(1, 5))


def drawn(chart: Chart) -> DrawnChart:
    return draw(json.loads(json.dumps(asdict(chart))))


def places(svg: str) -> list[tuple[float, float]]:
    """Where markers stand."""
    return [(float(x), float(y)) for x, y in re.findall(r'translate\(([-.\d]+),([-.\d]+)\)" fill', svg)]


def test_points_stand_where_their_values_say_and_legends_name_them() -> None:
    dots, lines = drawn(replace(DOTS, series=(*DOTS.series, Series("b", ((0.2, 0),))))), drawn(LINES)
    (x0, y0), (x1, y1), (x2, y2) = places(dots.svg)
    assert x0 == x2 < x1
    assert y0 < y2 < y1, "series of a row stand below one another"
    assert [entry.text.split(":")[0] for entry in dots.legend] == ["a", "b", "the human ceiling"]
    assert len({(entry.mark, entry.colour) for entry in dots.legend}) == 3
    (x0, y0), (x1, y1), (x2, y2) = places(lines.svg)
    assert y0 == y2 > y1, "a greater value stands higher"
    assert x0 < x2 < x1, "points of equal n do not hide one another"
    assert [entry.text for entry in lines.legend] == ["plain", "strict", "chosen: plain, n = 1"]
    assert lines.svg.count("<circle") == 1


def test_the_front_is_numbered_by_cost_and_named_beside() -> None:
    costs = drawn(COSTS)
    assert [(entry.mark, entry.text) for entry in costs.legend] == [
        *(("1", "b"), ("2", "a"), ("3", "c"), ("◯", "chosen: a"))
    ]
    many = tuple(Series(f"j{i}", ((i + 4, 0.1),)) for i in range(20))
    legend = drawn(replace(COSTS, series=(*COSTS.series, *many))).legend
    assert [entry.text for entry in legend] == ["b", "a", "21 others", "chosen: a"]


def test_a_chart_of_equal_values_or_of_none_can_be_drawn() -> None:
    same = Series("same", ((1, 2), (1, 2)))
    assert len(places(drawn(replace(SCATTER, series=(same,), scale=None)).svg)) == 2
    assert places(drawn(replace(DOTS, series=(Series("none", ()),), ceiling=())).svg) == []


# --- files ---


def test_a_file_that_is_no_report_is_refused(tmp_path: Path) -> None:
    made, texts = report(corpus("a"))
    written = Report("Compiled judge", "toy", "Toy", "id", one_of_each("a"), {}, made["debates"])
    write_files(written, texts, ReportFiles(tmp_path), tmp_path, full=True)
    page = regenerate(str(tmp_path), None, tmp_path)
    assert "quotes the texts" in page.read_text()
    content = json.loads((tmp_path / "report.json").read_text())
    broken = content | {"verdict": [content["verdict"][4] | {"draw": "pie"}]}
    for other in ([], {}, content | {"format": "?"}, broken):
        (tmp_path / "report.json").write_text(json.dumps(other))
        with pytest.raises(InputError, match="no report"):
            regenerate(str(tmp_path), None, tmp_path)


# --- the page: hostile texts do nothing, debates can be looked through, and how it looks ---

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


def corpus(*texts: str) -> Corpus:
    """A group for each text, which is its source, its context, its candidates and the comments on them."""

    def candidate(number: int, text: str) -> Candidate:
        ratings = {"clarity": (number + 1.0, number + 2.0), "wit": (2.0 * number,)}
        comments = {"clarity": (f"comment: {text}", "no comment")}
        return Candidate(f"c{number}", f"candidate {number}: {text}", ratings, comments)

    groups = [
        RatedGroup(f"g{i}", f"source: {text}", tuple(candidate(n, text) for n in range(3)), f"context: {text}")
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


def scored(on: Corpus, scores: Sequence[float | None]) -> dict[str, list[GroupScores]]:
    """The same scores in every aspect, three for each group."""
    return {
        aspect.name: [
            GroupScores(g.id, ("c0", "c1", "c2"), tuple(g.ratings(aspect.name)), tuple(scores[3 * i : 3 * i + 3]))
            for i, g in enumerate(on.groups)
        ]
        for aspect in ASPECTS
    }


Content = tuple[dict[str, Any], dict[str, Any]]


def report(on: Corpus, *parts: ReportBlock) -> Content:
    """The JSON of a report and its texts: a debate, and scores from a file that lie on a scale of their own."""
    texts = [c.text for g in on.groups for c in g.candidates]
    judgements = [judgement(i, text) for i, text in enumerate(texts)]
    scores = [j.score if isinstance(j, Verdict) else None for j in judgements]
    judges = {
        "debate": EvaluatedJudge(scored(on, scores), {a.name: judgements for a in ASPECTS}),
        "metric": EvaluatedJudge(scored(on, [100.0 - i for i in range(len(texts))]), on_scale=False),
    }
    debates, texts_of_debates = debates_of(on, ASPECTS, judges, {"debate": True, "metric": False})
    labels = {"source": "article", "candidate": "summary", "context": "background"}
    made = Report("Compiled judge", "toy", "Toy", "id", parts, {"First": parts}, debates, "an LM of paper", labels)
    return json.loads(json.dumps(made.to_json())), texts_of_debates


def one_of_each(text: str) -> tuple[ReportBlock, ...]:
    """Everything that a section may hold, with the text wherever there is one."""
    named = Series(text, ((0, 0.3, 0.2, 0.5), (1, 0.4, 0.3, 0.6)))
    return (
        Paragraph(text, "small"),
        DataTable((text, "n"), ((text, "1"), ("b", "2.5 [1.0, 3.0]")), text, total=True),
        Quotation(text, text),
        TextChange(text, f"kept {text}", f"kept and new {text}"),
        replace(DOTS, title=text, caption=text, series=(named,), rows=(text, "b")),
        replace(LINES, title=text, caption=text, series=(named, STRICT), chosen=(text, 0, 0.3)),
        replace(COSTS, title=text, caption=text, series=(Series(text, ((1, 0.5),)),), chosen=(text, 1, 0.5), front=1),
        replace(SCATTER, title=text, caption=text),
    )


OpenReport = Callable[..., OpenPage]


def in_a_browser(test: Callable[..., None]) -> Callable[..., None]:
    marked: Callable[..., None] = needs_browser(pytest.mark.integration(test))
    return marked


@pytest.fixture
def open_report(browser: Browser, tmp_path: Path) -> OpenReport:
    """Opens the report on a corpus with these parts, or a page that is given."""

    def show(on: Corpus | str, *parts: ReportBlock, **look: Any) -> OpenPage:
        if isinstance(on, Corpus):
            page, texts = report(on, *parts)
            on = page_of(page, texts)
        file = tmp_path / "page.html"
        file.write_text(on, encoding="utf-8", newline="\n")
        return browser.open(file, **look)

    return show


def choose(page: OpenPage, name: str, value: str) -> str:
    """Set a filter; returns how many debates are left, as the page says it."""
    field = f"document.querySelector('.filters .{name} :is(select, input)')"
    page.value(f"{field}.value = {json.dumps(value)}; {field}.dispatchEvent(new Event('change'))")
    return str(page.value("document.querySelector('.count').textContent"))


def rows(page: OpenPage) -> list[str]:
    """What the list shows, from the top."""
    texts: list[str] = page.value(
        "[...document.querySelectorAll('.row')].map(r => [r.offsetTop, r.innerText]).sort((a, b) => a[0] - b[0])"
        ".map(r => r[1].replace(/\\s+/g, ' ').trim())"
    )
    return texts


def texts_of(page: OpenPage, selector: str) -> list[str]:
    texts: list[str] = page.value(f"[...document.querySelectorAll('{selector}')].map(e => e.textContent)")
    return texts


def count(page: OpenPage, selector: str) -> int:
    return int(page.value(f"document.querySelectorAll('{selector}').length"))


def detail(page: OpenPage) -> str:
    return texts_of(page, ".debate")[0]


SHORT = [text[:200] for text in HOSTILE]


@in_a_browser
@pytest.mark.parametrize("full", [False, True])
def test_hostile_texts_are_shown_and_do_nothing(open_report: OpenReport, tmp_path: Path, full: bool) -> None:
    """On a page with these texts wherever it can have one."""
    hostile, texts = report(corpus(*HOSTILE), *(block for text in SHORT for block in one_of_each(text)))
    page = open_report(page_of(hostile | {"title": SHORT[0], "stand_in": SHORT[1]}, texts if full else None))
    assert page.value("window.hacked") is None
    assert (page.dialogs, page.complaints) == ([], [])
    assert page.requests == [(tmp_path / "page.html").as_uri()]
    elements = {name: count(page, name) for name in ("script", "img", "meta", "a")}
    assert elements == {"script": 2, "img": 0, "meta": 5, "a": count(page, "nav a")}
    assert texts_of(page, "h1") == [SHORT[0]]
    assert page.value("getComputedStyle(document.querySelector('main')).display") == "block"
    # Each chart is whole, and each text that HTML can hold stands there letter by letter.
    assert count(page, "svg") == 2 * 4 * len(SHORT)
    assert texts_of(page, "#verdict blockquote") == [text.replace("\0", "").replace("\ud83d", "?") for text in SHORT]


@in_a_browser
def test_every_text_arrives_letter_by_letter(open_report: OpenReport, tmp_path: Path) -> None:
    """Even what HTML cannot hold, but for half of a surrogate pair; a long text is cut until it is asked for."""
    page = open_report(corpus(*HOSTILE))
    choose(page, "order", "file")
    for number, text in enumerate(HOSTILE):
        place = 3 * number
        page.value(f"document.querySelector('.list').scrollTop = {60 * place}")
        page.value(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => {"
            f"document.querySelector('#row-{place}').click(); done() }})))"
        )
        if text == HOSTILE[-1]:
            assert max(map(len, texts_of(page, ".text"))) < 5000
            assert "show all 1,05" in texts_of(page, ".more")[0]
        page.value("document.querySelectorAll('.debate .more').forEach(button => button.click())")
        # The rationale holds the candidate's text.
        expected = [f"{name}: {text}" for name in ("comment", "candidate 0", "context", "source")]
        expected += [f"{name}: candidate 0: {text}" for name in ("rationale", "critique")]
        missing = {whole.replace("\ud83d", "?") for whole in expected} - {*texts_of(page, ".debate .text")}
        assert missing == set(), number
    assert page.value("window.hacked") is None
    assert page.requests == [(tmp_path / "page.html").as_uri()]


@in_a_browser
def test_the_policy_forbids_all_but_the_pages_own_script(open_report: OpenReport) -> None:
    page = open_report(corpus("plain"))
    markup = "try { document.body.insertAdjacentHTML('beforeend', '<i>') ; 'done' } catch (error) { error.name }"
    assert page.value(markup) == "TypeError"
    assert page.value("fetch('http://127.0.0.1:9/').then(() => 'done', error => error.name)") == "TypeError"
    style = "const l = document.createElement('link'); l.rel = 'stylesheet'; l.href = 'http://127.0.0.1:9/a.css';"
    blocked = f"new Promise(done => {{ {style} l.onerror = () => done('blocked'); document.head.append(l) }})"
    assert page.value(blocked) == "blocked"
    assert any("Content Security Policy" in text for text in page.complaints)


# --- looking through debates ---


@in_a_browser
def test_a_debate_is_shown_as_a_conversation_the_largest_disagreement_first(open_report: OpenReport) -> None:
    page = open_report(corpus("a"))
    # Of three candidates the scores are 2, 4, none; mean ratings 1.5, 2.5, 3.5 (clarity) and 0, 2, 4 (wit).
    assert rows(page) == [
        "+37.5 % g0 · c1 clarity: raters 2.5, judge 4",
        "+20 % g0 · c0 wit: raters 0, judge 2",
        "+20 % g0 · c1 wit: raters 2, judge 4",
        "+12.5 % g0 · c0 clarity: raters 1.5, judge 2",
        "– g0 · c2 clarity: raters 3.5, unscored: unreadable reply",
        "– g0 · c2 wit: raters 4, unscored: unreadable reply",
    ]
    assert "Ratings: 2, 3; mean 2.5 (scale 1 to 5)" in detail(page)
    # 2 and 3 are as far from 2.5 as each other: the first step is no nearer.
    assert texts_of(page, ".path .chip") == [
        *("scorer: 2", "critic 1", "scorer 1: 3 (farther)", "critic 2", "scorer 2: 4 (farther)", "score 4")
    ]
    assert texts_of(page, ".turn .speaker")[:2] == ["scorer, round 0, score 2", "critic, round 1"]
    # Two rounds took the score from 2, which the raters give as well, to 4.
    choose(page, "order", "worse")
    assert rows(page)[0] == "+20 % g0 · c1 wit: raters 2, judge 4"


@in_a_browser
def test_filters_and_search(open_report: OpenReport) -> None:
    page = open_report(corpus("apple", "pear"))
    assert choose(page, "aspect", "wit") == "6 of 12"
    assert choose(page, "rounds", "2") == "2 of 12"
    assert choose(page, "search", "PEAR") == "1 of 12"
    assert "candidate 1: pear" in detail(page)
    assert choose(page, "search", "nothing like it") == "0 of 12"
    assert detail(page) == "No debate meets these filters."
    choose(page, "search", "")
    choose(page, "rounds", "")
    assert choose(page, "state", "none:unreadable reply") == "2 of 12"
    assert choose(page, "state", "stop:no issue") == "2 of 12"
    # Scores of the other judge are ranked: it gives the first candidate most, the raters the last.
    choose(page, "state", "")
    assert choose(page, "judge", "1") == "6 of 12"
    assert rows(page)[0] == "+90 % g0 · c0 wit: raters 0, judge 100"


@in_a_browser
def test_comments_are_not_credited_to_ratings(open_report: OpenReport, tmp_path: Path) -> None:
    """One rater is silent and another leaves the rating blank: two ratings and two comments, of three raters."""
    file = tmp_path / "long.csv"
    row = "summary,article,s1,clarity,{},{},{}\n"
    raters = (("anna", "2", ""), ("bob", "5", "clear"), ("cid", "", "gave up: could not read it"))
    file.write_text("text,source,candidate,aspect,rater,rating,comment\n" + "".join(row.format(*r) for r in raters))
    on, aspect = load(str(file), TASK), ASPECTS[0]
    scores = (GroupScores(on.groups[0].id, ("s1",), tuple(on.groups[0].ratings(aspect.name)), (3.0,)),)
    debates, texts = debates_of(on, (aspect,), {"metric": EvaluatedJudge({aspect.name: scores})}, {"metric": True})
    made = Report("Compiled judge", "toy", "Toy", "id", (), {}, debates)
    text = detail(open_report(page_of(made.to_json(), texts)))
    assert "Ratings: 2, 5; mean 3.5 (scale 1 to 5)" in text
    assert "comment of a raterclearcomment of a ratergave up: could not read it" in text


@in_a_browser
def test_of_thousands_of_debates_few_rows_are_drawn(open_report: OpenReport) -> None:
    page = open_report(corpus(*(f"text {i}" for i in range(834))))
    assert texts_of(page, ".count") == ["5,004 of 5,004"]
    assert 5 < count(page, ".row") < 60
    page.value("document.querySelector('.list').dispatchEvent(new KeyboardEvent('keydown', {key: 'End'}))")
    assert page.value("document.querySelector('.row[aria-selected=true]').dataset.position") == "5003"
    assert 5 < count(page, ".row") < 60
    assert choose(page, "search", "text 833") == "6 of 5,004"


# --- looks ---

WIDTH = "document.documentElement.scrollWidth"


@in_a_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window(open_report: OpenReport, width: int) -> None:
    long = "unbroken" * 60
    assert open_report(corpus(long), *one_of_each(long), width=width, height=800).value(WIDTH) <= width


@in_a_browser
@pytest.mark.parametrize(
    ("dark", "ground", "ink"),
    [(False, "rgb(255, 255, 255)", "rgb(26, 31, 38)"), (True, "rgb(20, 24, 29)", "rgb(228, 232, 236)")],
)
def test_light_and_dark_a_stand_in_is_named_beside_every_figure(
    open_report: OpenReport, dark: bool, ground: str, ink: str
) -> None:
    page = open_report(corpus("plain"), *one_of_each("a"), dark=dark)
    assert page.value("getComputedStyle(document.body).backgroundColor") == ground
    assert page.value("getComputedStyle(document.body).color") == ink
    assert page.value("getComputedStyle(document.querySelector('svg text')).fill") == ink
    captions = texts_of(page, ".charts figcaption")
    assert ["stand-in LM" in caption for caption in captions] == [True] * (len(captions) or 1)
    assert texts_of(page, ".banner") == ["Stand-in LM. an LM of paper"]
    assert count(page, ".stand-in") == 3


@in_a_browser
def test_on_paper_everything_is_open_and_nothing_is_to_be_pressed(open_report: OpenReport) -> None:
    long = "unbroken" * 20
    page = open_report(corpus(long), *one_of_each(long))
    page.send("Emulation.setEmulatedMedia", {"media": "print"})
    page.value("window.dispatchEvent(new Event('beforeprint'))")
    assert count(page, "details:not([open])") == 0
    # As wide as the text of a page of A4.
    size = {"width": 718, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    page.send("Emulation.setDeviceMetricsOverride", size)
    assert page.value(WIDTH) <= 718
    assert page.value("[...document.querySelectorAll('button, select, input')].filter(e => e.offsetHeight).length") == 0
    page.value("window.dispatchEvent(new Event('afterprint'))")
    assert count(page, "details:not([open])") > 0
