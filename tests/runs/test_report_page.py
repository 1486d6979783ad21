"""The page of a report in a real browser: texts that mean harm arrive as they are and do nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from debate_judge.runs.reports.html.document import DebateTexts
from debate_judge.runs.reports.html.page import Page
from tests.browser import Browser, needs_browser
from tests.runs.report_pages import HOSTILE, SHORT, blocks, choose, corpus, opened, report

pytestmark = needs_browser


@pytest.fixture(scope="module")
def hostile() -> tuple[Page, DebateTexts]:
    """A page with these texts wherever it can have one."""
    on = corpus(HOSTILE, tuple(f"{i} {text}" for i, text in enumerate(SHORT)))
    made, texts = report(on, *(block for text in SHORT for block in blocks(text)))
    return Page(replace(made, title=SHORT[0], stand_in=SHORT[1])), texts


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
