"""Looking through the debates of a report in a real browser, and how the page looks in windows and on paper."""

from __future__ import annotations

from pathlib import Path

import pytest

from debate_judge.data import load
from debate_judge.data.agreement.results import GroupScores
from debate_judge.runs.reports.html.document import Report
from debate_judge.runs.reports.html.items import JudgedScores, debates_of
from debate_judge.runs.reports.html.page import Page
from tests.browser import Browser, OpenPage, needs_browser
from tests.runs.report_pages import ASPECTS, TASK, blocks, choose, corpus, opened, report

pytestmark = needs_browser


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
