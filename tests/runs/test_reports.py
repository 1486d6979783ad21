"""The report: what its charts show, and that no text on its page is taken for markup or a script."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from debate_judge.data import load
from debate_judge.data.agreement.figures import GroupScores
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.programs.judge import Failure, Judgement, Transcript, Turn, Unscored, Verdict
from debate_judge.runs.comparison.figures import Comparison, EvaluatedJudge
from debate_judge.runs.reports.page import (
    Chart,
    Quotation,
    Report,
    ReportBlock,
    Warned,
    debates_of,
    draw,
    page,
)
from debate_judge.runs.reports.tables import DataTable
from tests.runs.rated_corpora import setup

# --- charts ---

ROUNDS = ((0, 0.3, 0.2, 0.5), (1, 0.4, 0.3, 0.6))
DOTS = Chart("held-out", "dots", "r", {"a": ((0.2, 0, 0.1, 0.4), (0.6, 1))}, ("style", "wit"), (0.8, None))
LINES = Chart("coherence", "lines", "Spearman", {"plain": ROUNDS, "strict": ROUNDS[:1]}, chosen=("plain", 1))


def places(svg: str) -> list[tuple[float, float]]:
    """Where markers stand."""
    return [(float(x), float(y)) for x, y in re.findall(r'translate\(([-.\d]+),([-.\d]+)\)" fill', svg)]


def test_points_stand_where_their_values_say_and_legends_name_them() -> None:
    svg, legend = draw(replace(DOTS, series={**DOTS.series, "b": ((0.2, 0),)}))
    (x0, y0), (x1, y1), (x2, y2) = places(svg)
    assert x0 == x2 < x1
    assert y0 < y2 < y1, "series of a row stand below one another"
    assert [text.split(":")[0] for _, _, text in legend] == ["a", "b", "the human ceiling"]
    svg, legend = draw(LINES)
    (x0, y0), (x1, y1), (x2, y2) = places(svg)
    assert y0 == y2 > y1, "a greater value stands higher"
    assert x0 < x2 < x1, "points of equal n do not hide one another"
    assert [text for _, _, text in legend] == ["plain", "strict", "chosen: plain, n = 1"]
    assert places(draw(replace(DOTS, series={"none": ()}, ceiling=()))[0]) == []


# --- the page ---

HOSTILE = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "<!--<script>",
    "nul \x00 and bell \x07",
    "{{ 7 * 7 }} {% raw %} ${7 * 7} `",
    "&lt;b&gt; &amp;amp; \\u003cb\\u003e",
    "<svg onload='window.hacked = 1'><style>*{display:none}</style>",
    "'\"><a href='javascript:window.hacked = 1'>",
    "]]> <![CDATA[ <math><mtext></form><form>",
    "half of a pair \ud83d",
)
"""Texts as an attacker would write them."""

ASPECTS = (Aspect("clarity", "Is it clear?", Scale(1, 5)), Aspect("wit", "Is it funny?", Scale(0, 10, 0.5)))
TASK = Task("toy", "article", "summary", ASPECTS, "background")


def report(text: str, *parts: ReportBlock) -> Report:
    """A report with this text as source, context, candidates, comments and turns."""
    candidates = [Candidate(f"c{n}", f"{n} {text}", {a.name: (n + 1.0,) for a in ASPECTS}) for n in range(2)]
    rated = tuple(replace(c, comments={"clarity": (text,)}) for c in candidates)
    corpus = Corpus(TASK, (RatedGroup("g0", text, rated, text),), Origin("toy", "nowhere"))
    transcript = Transcript((Turn("scorer", 0, text, 2.0), Turn("critic", 1, text)))
    failed = replace(transcript, failure=Failure("critic", 1, "unreadable reply", text, 1))
    judgements: list[Judgement] = [
        Verdict(2.0, 1, "rounds over", 2, transcript), Unscored("unreadable reply", text, 2, failed),
    ]  # fmt: skip
    rated_and_scored = GroupScores("g0", ("c0", "c1"), (1.0, 2.0), (2.0, None))
    scores = {aspect.name: [rated_and_scored] for aspect in ASPECTS}
    judge = EvaluatedJudge(scores, {a.name: judgements for a in ASPECTS})
    return Report("Compiled judge", text, parts, {text: parts}, compared(corpus, judge), {"judge": "debate"}, text)


def compared(corpus: Corpus, judge: EvaluatedJudge) -> Comparison:
    aspects = tuple(aspect for aspect in ASPECTS if aspect.name in judge.scores)
    return replace(setup(), corpus=corpus, aspects=aspects, judges={"judge": judge})


def one_of_each(text: str) -> tuple[ReportBlock, ...]:
    """Everything that a section may hold, with the text wherever there is one."""
    return (
        text,
        Warned(text),
        DataTable((text, "n"), ((text, "1"), ("b", "2.5 [1.0, 3.0]")), text, total=True),
        Quotation(text, text),
        replace(DOTS, title=text, caption=text, series={text: ROUNDS}, rows=(text, "b")),
        replace(LINES, title=text, caption=text, series={text: ROUNDS, "strict": ROUNDS[:1]}, chosen=(text, 0)),
    )


class Parsed(HTMLParser):
    """The elements of a page with the names of their attributes, and the content of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, ...]] = []
        self.scripts: list[str] = []
        self.quotations: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, *(name for name, _ in attributes)))

    def handle_data(self, data: str) -> None:
        if data.strip() and self.elements[-1][0] == "script":
            self.scripts.append(data)
        elif data.strip() and self.elements[-1][0] == "blockquote":
            self.quotations.append(data)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_adds_no_element_and_arrives_letter_by_letter(text: str, full: bool) -> None:
    made, like = report(text, *one_of_each(text)), "x" * len(text)
    found = Parsed(page(made, full=full))
    assert found.elements == Parsed(page(report(like, *one_of_each(like)), full=full)).elements
    shown = text.replace("\ud83d", "?")
    assert found.quotations == [shown] * 2
    data, _ = found.scripts
    assert not set("<>&") & set(data)
    _, texts = debates_of(made.comparison, made.browsed)
    expected = json.loads(json.dumps(texts).replace("\\ud83d", "?"))
    assert json.loads(data)["texts"] == (expected if full else None)
    assert full or shown not in json.dumps(json.loads(data)["debates"])


def test_the_policy_allows_the_pages_own_script_alone_which_makes_no_markup_of_texts() -> None:
    html = page(report("a"), full=True)
    policy = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)[0].replace("&#39;", "'")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "require-trusted-types-for 'script'" in policy
    sinks = r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(|fetch\(|import\(|srcdoc"
    assert not re.search(sinks, Parsed(html).scripts[1])


def test_comments_are_not_credited_to_ratings(tmp_path: Path) -> None:
    """One rater is silent and another leaves the rating blank: two ratings and two comments, of three raters."""
    file, row = tmp_path / "long.csv", "summary,article,s1,clarity,{},{},{}\n"
    raters = (("anna", "2", ""), ("bob", "5", "clear"), ("cid", "", "gave up: could not read it"))
    file.write_text("text,source,candidate,aspect,rater,rating,comment\n" + "".join(row.format(*r) for r in raters))
    on = load(str(file), TASK)
    scores = (GroupScores(on.groups[0].id, ("s1",), tuple(on.groups[0].ratings("clarity")), (3.0,)),)
    debates, texts = debates_of(compared(on, EvaluatedJudge({"clarity": scores})), {"judge": "metric"})
    assert debates["items"][0]["ratings"] == [2, 5]
    assert texts["items"][0]["comments"] == ["clear", "gave up: could not read it"]
