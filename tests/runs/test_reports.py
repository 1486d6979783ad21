"""The report: what its charts show and the numbers behind them, and the page in a real browser."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import to_hex

from debate_judge.data import load
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.programs.judge import Judgement, Unscored, Verdict
from debate_judge.programs.transcript import Failure, Transcript, Turn
from debate_judge.runs.reports.html import blocks
from debate_judge.runs.reports.html.charts import AnyChart, draw, figure
from debate_judge.runs.reports.html.common import JudgedScores, debates_of, score_charts
from debate_judge.runs.reports.html.document import DebateTexts, Report
from debate_judge.runs.reports.html.page import MAX_WORDS, Page, changed_words
from tests.browser import Browser, OpenPage, needs_browser

RATINGS = (1.0, 2.0, 2.4, 2.6, 5.0, None, 3.0)
SCORES = (1.0, 4.0, 2.0, 2.5, 4.6, 3.0, None)


def charts(
    scale: Scale, ratings: Sequence[float | None], scores: Sequence[float | None], *, on_scale: bool = True
) -> list[Any]:
    """The charts of one aspect with these candidates, the first of which is a group of its own."""
    ids = tuple(f"c{i}" for i in range(len(ratings)))
    parts = (slice(0, 1), slice(1, None))
    groups = [GroupScores(f"g{p.stop}", ids[p], tuple(ratings[p]), tuple(scores[p])) for p in parts]
    return list(score_charts((Aspect("wit", "?", scale),), JudgedScores({"wit": groups}, on_scale=on_scale)))


def test_items_with_both_a_rating_and_a_score_are_drawn_and_counted_in_whole_points() -> None:
    scatter, spread, counts = charts(Scale(1, 5), RATINGS, SCORES)
    assert scatter.points == ((1, 1), (2, 4), (2.4, 2), (2.6, 2.5), (5, 4.6))
    assert spread.edges == (0.5, 1.5, 2.5, 3.5, 4.5, 5.5)
    assert spread.ratings == (1 / 5, 2 / 5, 1 / 5, 0, 1 / 5)
    # 2.5 lies on an end, and belongs to the bin above it.
    assert spread.scores == (1 / 5, 1 / 5, 1 / 5, 1 / 5, 1 / 5)
    # Ratings by rows. Rated 2 and 2.4: one scored 4, one 2. Rated 2.6, scored 2.5: both are 3.
    assert counts.counts == ((1, 0, 0, 0, 0), (0, 1, 0, 1, 0), (0, 0, 1, 0, 0), (0, 0, 0, 0, 0), (0, 0, 0, 0, 1))


def test_scales_of_many_points_have_ten_bins_and_scores_off_the_scale_none() -> None:
    tenths = [i / 10 for i in range(11)]
    _, spread = charts(Scale(0, 1, 0.01), tenths, tenths)
    # Each bin begins at a tenth; the last holds both 0.9 and 1.
    assert spread.ratings == spread.scores == pytest.approx((1 / 11,) * 9 + (2 / 11,))
    (scatter,) = charts(Scale(1, 5), RATINGS, [90.0] * 7, on_scale=False)
    assert scatter.points == tuple((rating, 90.0) for rating in RATINGS if rating is not None)
    assert charts(Scale(1, 5), (None, 2.0), (3.0, None)) == [], "where no item has both"


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


NOTE = "offline LM: text statistics, a stand-in, not an LLM"
PLAIN = blocks.LineSeries("plain", (blocks.IntervalValue(0.3, 0.2, 0.5), blocks.IntervalValue(0.4, 0.3, 0.6)))
STRICT = blocks.LineSeries("strict", (blocks.IntervalValue(0.3, 0.2, 0.5), blocks.IntervalValue(None)))
ROUNDS = blocks.LineChart("coherence", "summary-level Spearman, 9 groups", (PLAIN, STRICT), ("plain", 1))


def axes_of(chart: AnyChart) -> Any:
    (axes,) = figure(chart, "The title", NOTE).axes
    return axes


def legend(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def lines(axes: Any) -> list[list[tuple[float, float]]]:
    """The points of what is drawn, without what stands for it in the legend."""
    series = (zip(map(float, line.get_xdata()), map(float, line.get_ydata()), strict=True) for line in axes.lines)
    return [points for points in map(list, series) if points]


def bars(axes: Any) -> list[tuple[float, ...]]:
    """The ends of the intervals, of x or of y, whichever differ."""
    segments = [segment for c in axes.collections for segment in c.get_segments()]
    return sorted(
        tuple(round(float(end), 3) for (a, b) in zip(*s, strict=True) if a != b for end in (a, b)) for s in segments
    )


def test_a_line_a_series_with_its_known_values_intervals_and_the_choice() -> None:
    axes = axes_of(ROUNDS)
    assert legend(axes) == ["plain", "strict", "chosen: plain, n = 1"]
    plain, ring, strict = lines(axes)
    assert [[y for _, y in points] for points in (plain, strict, ring)] == [[0.3, 0.4], [0.3], [0.4]]
    assert plain[0][0] < strict[0][0], "points of equal n must not hide one another"
    assert bars(axes) == [(0.2, 0.5), (0.2, 0.5), (0.3, 0.6)]
    title = axes.get_title(loc="left").splitlines()
    assert title == ["The title", "summary-level Spearman, 9 groups; 95 % intervals", NOTE]


def test_judges_have_a_row_an_aspect_and_a_colour_each() -> None:
    judges = [
        blocks.LineSeries(n, (blocks.IntervalValue(v, v - 0.1, v + 0.1), blocks.IntervalValue(v)))
        for n, v in (("a", 0.1), ("b", 0.5))
    ]
    axes = axes_of(blocks.JudgesChart("held-out", "Spearman", ("style", "average"), tuple(judges), (0.8, None)))
    assert [t.get_text() for t in axes.get_yticklabels()] == ["style", "average"]
    assert [text.split(",")[0] for text in legend(axes)[:2]] == ["a", "b"]
    assert "human ceiling" in legend(axes)[2]
    *of_judges, rule = lines(axes)
    assert [[x for x, _ in points] for points in of_judges] == [[0.1, 0.1], [0.5, 0.5]]
    assert [round(y) for _, y in of_judges[0]] == [0, 1]
    assert len({to_hex(line.get_color()) for line in axes.lines[:2]}) == 2
    # Of the second row neither judge has an interval.
    assert bars(axes) == [(-0.46, 0.46), (0.0, 0.2), (0.4, 0.6)]
    assert rule[0][1] == 0.5


def test_the_front_is_numbered_by_cost_and_named_beside() -> None:
    a, b, c = blocks.CostPoint(1.0, 0.3, "a"), blocks.CostPoint(3.0, 0.5, "b"), blocks.CostPoint(2.0, 0.2, "c")
    axes = axes_of(blocks.CostChart("coherence", "Spearman", (a, b, c), (b, a), a))
    assert legend(axes) == ["a", "b", "c", "chosen: a"]
    assert lines(axes)[:2] == [[(1.0, 0.3), (3.0, 0.5), (2.0, 0.2)], [(1.0, 0.3), (3.0, 0.5)]]
    assert [(t.get_text(), t.xy) for t in axes.texts] == [("1", (1.0, 0.3)), ("2", (3.0, 0.5)), ("3", (2.0, 0.2))]


def test_on_the_page_colours_are_the_pages_and_nothing_is_registered_with_pyplot() -> None:
    chart = draw(ROUNDS, "c1")
    assert {entry.css for entry in chart.legend} == {"var(--series-0)", "var(--series-1)", "currentColor"}
    assert "var(--series-1)" in chart.svg
    assert "#0072b2" not in chart.svg.lower()
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []


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


def report(on: Corpus, *parts: blocks.ReportBlock) -> tuple[Report, DebateTexts]:
    """A debate, and scores from a file that lie on a scale of their own."""
    texts = [c.text for g in on.groups for c in g.candidates]
    judgements = [judgement(i, text) for i, text in enumerate(texts)]
    scores = [j.score if isinstance(j, Verdict) else None for j in judgements]
    judges = {
        "debate": JudgedScores(scored(on, scores), {a.name: judgements for a in ASPECTS}),
        "metric": JudgedScores(scored(on, [100.0 - i for i in range(len(texts))]), on_scale=False),
    }
    debates, texts_of_debates = debates_of(on, ASPECTS, judges, "id")
    spread = tuple(chart for judge in judges.values() for chart in score_charts(ASPECTS, judge))
    sections = (blocks.Section("First", parts), blocks.Section("Scores against ratings", spread)) if parts else ()
    labels = {"source": "article", "candidate": "summary", "context": "background"}
    return Report("compile", "toy", "Toy", "id", sections, debates, "an LM of paper", labels=labels), texts_of_debates


def one_of_each(text: str) -> tuple[blocks.ReportBlock, ...]:
    """Everything that a section may hold, with the text wherever there is one."""
    spans = (blocks.IntervalValue(0.5, 0.4, 0.6), blocks.IntervalValue(None), blocks.IntervalValue(0.7))
    point = blocks.CostPoint(1.0, 0.5, text)
    return (
        blocks.Paragraph(text, text),
        blocks.DataTable((text, "n"), ((text, "1"), ("b", "2.5 [1.0, 3.0]")), text, total=True),
        blocks.Quotation(text, text),
        blocks.TextChange(text, f"kept {text}", f"kept and new {text}"),
        blocks.LineChart(text, text, (blocks.LineSeries(text, spans), blocks.LineSeries("other", spans)), (text, 0)),
        blocks.CostChart(text, text, (point, blocks.CostPoint(2.0, 0.4, "b")), (point,), point),
        blocks.JudgesChart(text, text, (text, "b", "c"), (blocks.LineSeries(text, spans),)),
    )


OpenReport = Callable[..., OpenPage]


def in_a_browser(test: Callable[..., None]) -> Callable[..., None]:
    marked: Callable[..., None] = needs_browser(pytest.mark.integration(test))
    return marked


@pytest.fixture
def open_report(browser: Browser, tmp_path: Path) -> OpenReport:
    """Opens the report on a corpus with these parts, or a page that is given."""

    def show(on: Corpus | str, *parts: blocks.ReportBlock, **look: Any) -> OpenPage:
        if isinstance(on, Corpus):
            page, texts = report(on, *parts)
            on = Page(page).html(texts)
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
    page = open_report(Page(replace(hostile, title=SHORT[0], stand_in=SHORT[1])).html(texts if full else None))
    assert page.value("window.hacked") is None
    assert (page.dialogs, page.complaints) == ([], [])
    assert page.requests == [(tmp_path / "page.html").as_uri()]
    elements = {name: count(page, name) for name in ("script", "img", "meta", "a")}
    assert elements == {"script": 2, "img": 0, "meta": 5, "a": count(page, "nav a")}
    assert texts_of(page, "h1") == [SHORT[0]]
    assert page.value("getComputedStyle(document.querySelector('main')).display") == "block"
    # Each chart is whole, and each text that HTML can hold stands there letter by letter.
    assert count(page, "svg") == 4 * len(SHORT) + 6
    assert texts_of(page, "blockquote") == [text.replace("\0", "").replace("\ud83d", "?") for text in SHORT]


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
    debates, texts = debates_of(on, (aspect,), {"metric": JudgedScores({aspect.name: scores})}, "id")
    text = detail(open_report(Page(Report("compile", "toy", "Toy", "id", (), debates)).html(texts)))
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
    assert count(page, "h2 .stand-in") == 3


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
