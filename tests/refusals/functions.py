"""What the public functions, judges, exports, integrations and statistics refuse of their arguments."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import dspy
import pandas as pd

import debate_judge
from debate_judge import Aspect, Debate, Scale, Task, corpus, data, examples, load, offline_lm
from debate_judge.data import LOADERS
from debate_judge.data import load as load_data
from debate_judge.data.agreement.absolute_agreement import decision_cuts
from debate_judge.data.agreement.decisions import DecisionRule, evaluate_decisions
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.agreement.tables import agreement_table, compare
from debate_judge.data.calibration import Calibration
from debate_judge.data.folds import make_folds
from debate_judge.data.requirements import aspects_to_judge, require_level, require_ratings
from debate_judge.data.schema import Candidate, Corpus, Origin, RatedGroup
from debate_judge.data.splits import split
from debate_judge.runs.comparison.score_files import read_external
from debate_judge.runs.export.folder import load_in_tool
from debate_judge.runs.integrations import DebateScorer, ProgramMetric, score_frame
from debate_judge.runs.integrations.dspy_metric import to_unit
from debate_judge.runs.integrations.mlflow_scorer import text_in
from tests.refusals.refusal import alike, row, rows
from tests.runs.rated_corpora import TASK
from tests.runs.rated_corpora import corpus as numbered

GOOD = {"source": "s", "text": "t", "aspect": "fluency"}


def debate(**change: Any) -> object:
    given = {"lm": offline_lm(), **GOOD, **change}
    with dspy.context(lm=given.pop("lm")):
        return Debate(rounds=0)(**given)


def compiled(**change: Any) -> object:
    usual = {"data": "rated.jsonl", "aspects": ["coherence"], "max_rounds": 1, "tuner": "none", "progress": False}
    return debate_judge.compile(**{**usual, **change})


TWO_TONES = pd.DataFrame([["x", 4, 5]], columns=["text", "tone", "tone"])
JUDGES = [
    *rows(
        debate,
        ({"source": None}, "source", "missing"),
        ({"source": 3}, "source", "not a text"),
        ({"text": None}, "text", "no text"),
        ({"texts": ["t"]}, "text", "both"),
        ({"text": b"t"}, "text", "not a text"),
        ({"text": "half \ud83d"}, "text", "surrogate"),
        ({"text": None, "texts": []}, "texts", "no text"),
        ({"text": None, "texts": "abc"}, "texts", "list"),
        ({"text": None, "texts": ["a", ""]}, "texts[1]", "empty"),
        ({"aspect": None}, "aspect", "missing"),
        ({"aspect": "fluencey"}, "aspect", "'fluency'"),
        ({"aspect": "tone", "task": "dialogue"}, "aspect", "naturalness"),
        ({"txt": "t"}, "txt", "'text'"),
        ({"references": "one"}, "references", "list"),
        ({"context": 3}, "context", "not a text"),
        ({"lm": None}, "lm", "dspy.configure"),
    ),
    *rows(
        compiled,
        ({"data": TWO_TONES}, "tone", "rename"),
        ({"max_round": 1}, None, "max_rounds"),
        ({"lm": "gpt-4o"}, "lm", "PROVIDER/MODEL"),
    ),
    row("arguments without a name", lambda: Debate(rounds=0)("question", "answer"), None, "keywords"),
    row("examples of no aspect", lambda: examples(corpus("sample"), ["coherense"]), "aspects", "coherence"),
    row("examples of no part", lambda: examples(corpus("sample"), part="test"), "part", "train"),
    *rows(corpus, ("sampel", "--data", "'sample'")),
    *alike(load_data, None, "nowhere", *(f"{name}=nowhere" for name in LOADERS)),
]


def exported(ask: Callable[[Any], object]) -> Callable[[], object]:
    def given() -> object:
        with load("support") as judge:
            return ask(judge)

    return given


def score_rows(**change: Any) -> object:
    with load("support") as judge:
        return judge.score_many([{key: v for key, v in {"text": "t", "source": "s", **change}.items() if v is not ...}])


def score(**more: Any) -> object:
    with load("support") as judge:
        return judge.score(text="t", source="s", **more)


def call(**change: Any) -> object:
    with load("support") as judge:
        return judge(**{**GOOD, "aspect": "tone", **change})


ANOTHER = Aspect("tone", "Another definition.", Scale(1, 5))
EXPORTS = [
    *rows(
        score_rows,
        ({"text": " "}, "text", "empty"),
        ({"source": ...}, "source", "needs a source"),
        ({"references": "one"}, "references", "list"),
        ({"references": ["one", 2]}, "references[1]", "text"),
        ({"text": "half \ud83d"}, "text", "position 6"),
        ({"source": ..., "sorce": "s"}, "source", "'sorce'"),
        ({"context": 3}, "context", "text"),
    ),
    *rows(
        score,
        ({"aspects": ["tonne"]}, "aspects", "'tone'"),
        ({"aspects": []}, "aspects", "no aspect"),
        ({"scale": "raters"}, "scale", "no map"),
        ({"scale": "rater"}, "scale", "raters"),
    ),
    *rows(
        call,
        ({"aspect": ANOTHER}, "aspect", ""),
        ({"task": "dialogue"}, "task", ""),
        ({"scale": "raters"}, "scale", ""),
    ),
]

METRIC = {"source": "message", "text": "reply"}


def scorer(judge: Any) -> object:
    return DebateScorer(judge=judge, aspects=["tone"])(inputs={"a": "q", "b": "h"}, outputs="reply")


def program_metric(judge: Any) -> object:
    return ProgramMetric(judge, **METRIC)(dspy.Example(message="m"), dspy.Prediction(answer="a"))


def framed(columns: str) -> object:
    frame = pd.DataFrame([["x"] * len(columns.split())], columns=columns.split())
    with load("support") as judge:
        return score_frame(frame, judge)


def text_of(value: object, key: str | None = None) -> object:
    return text_in(value, "text", key)


INTEGRATIONS = [
    *(
        row(f"{name}={value}", lambda: load_in_tool("support"), None, keyword, env={name: value})
        for name, value, keyword in (("DEBATE_RPM", "many", "DEBATE_RPM"), ("DEBATE_BUDGET", "much", "budget"))
    ),
    row("inputs with two sources", exported(scorer), None, "source_key="),
    row("a prediction without the text", exported(program_metric), None, "'reply'"),
    *rows(
        framed,
        ("source summary", None, "text=..."),
        ("article text", None, "source=..."),
        ("source text tone", None, "tone"),
    ),
    row("a score off its scale", lambda: to_unit(0.5, ANOTHER), None, "scale"),
    *alike(text_of, None, "text", {"value": {"a": "q", "b": "s"}}, {"value": {"n": 3}, "key": "n"}, 3),
]

RATED = numbered([1, 2, 3], [3, 1, 2])
SCORES = [
    {"group": g.id, "candidate": c.id, "aspect": a.name, "score": 10.0}
    for g in RATED.groups
    for c in g.candidates
    for a in TASK.aspects
]


def external(name: str, field: str | None, keyword: str, **third: Any) -> object:
    """Scores of another judge, of which the third row is changed; what becomes ... is absent."""
    changed = {key: value for key, value in {**SCORES[2], **third}.items() if value is not ...}
    files = {"peer.jsonl": "".join(json.dumps(record) + "\n" for record in [*SCORES[:2], changed, *SCORES[3:]])}
    return row(name, read_peer, field, keyword, "peer.jsonl", 3, files)


def read_peer() -> object:
    return read_external(Path("peer.jsonl"), "peer", RATED, TASK.aspects, full_corpus=RATED)


SCORED = [
    external("a group misspelled", "group", "'g0'", group="g0x"),
    external("a candidate misspelled", "candidate", "'c2'", candidate="c22"),
    external("an aspect misspelled", "aspect", "'coherence'", aspect="coherance"),
    external("another layout", None, "layout", aspect=...),
    external("a group is missing", "group", "missing", group=...),
    external("a score is missing", "score", "missing", score=...),
    external("a score in words", "score", "not a number", score="4"),
    external("a score that is true", "score", "not a number", score=True),
    external("a score beyond all", "score", "finite", score=1.7e308),
    external("a second score", "candidate", "line 1", candidate="c0", aspect="coherence"),
    row("no row", read_peer, None, "no score", "peer.jsonl", files={"peer.jsonl": ""}),
]


def toned(*groups: tuple[float | None, ...]) -> Corpus:
    """Groups whose candidates have these ratings of tone."""

    def candidates(ratings: tuple[float | None, ...]) -> tuple[Candidate, ...]:
        return tuple(Candidate(str(j), "x", {} if r is None else {"tone": (r,)}) for j, r in enumerate(ratings))

    rated = tuple(RatedGroup(str(i), f"source {i}", candidates(ratings)) for i, ratings in enumerate(groups))
    return Corpus(TONE, rated, Origin("made", "made.jsonl"))


TONE = Task("t", "source", "text", (Aspect("tone", "Kind?", Scale(1, 5)), Aspect("solved", "Solved?", Scale(0, 1))))
MANY = toned(*((1, 2 + i % 3) for i in range(30)))
SINGLE = toned(*((1.0 + i % 5,) for i in range(12)))


def parted(given: Corpus, aspect: str = "tone", **more: Any) -> Callable[[], object]:
    return lambda: split(given, aspects=[aspect], seed=0, **more)


def folded(given: Corpus, count: int) -> Callable[[], object]:
    return lambda: make_folds(given, aspects=["tone"], seed=0, count=count)


def rated(given: Corpus, aspect: str = "tone") -> Callable[[], object]:
    return lambda: require_ratings(given, [aspect])


CORPORA = [
    row("3 folds", folded(MANY, 3), "--folds", "4 or more"),
    row("few sources for four folds", folded(toned(*((1, 2),) * 3), 4), "--folds", "3 sources"),
    row("folds of equal ratings", folded(toned(*((3, 3),) * 20, (1, 2)), 4), None, "too few ratings"),
    row("folds of few texts", folded(SINGLE, 4), None, "too few ratings of tone"),
    row("folds of equal texts", folded(toned(*((3,),) * 24), 4), None, "are equal"),
    row("a split of four", parted(toned(*((1, 2),) * 4)), None, "at least 2 groups"),
    row("an aspect of no task", parted(MANY, "tune"), "aspects", "'tone'"),
    *(
        row(f"parts {parts}", parted(MANY, fractions=parts), None, "add up to 1")
        for parts in ((0.5, 0.5, 0.0), (0.3, 0.3, 0.3), (float("nan"), 0.5, 0.5))
    ),
    row("nothing rated", rated(toned((None,))), None, '"ratings"'),
    row("nothing but threes", rated(toned((3, 3), (3, None))), None, "only 3"),
    row("31 sources", lambda: data.load("sample", sources=31), "sources", "at most 18"),
]


# --- statistics ---

SAMPLE = load_data("sample")
KIND = Task("tone", "message", "reply", (Aspect("kind", "Is it kind?", Scale(1, 5)),))


def group(name: str, ratings: Sequence[float], scores: Sequence[float], ids: str = "") -> GroupScores:
    return GroupScores(name, tuple(ids) or tuple("abcdef"[: len(ratings)]), tuple(ratings), tuple(scores))


ONE, EQUAL = {"x": [group("a", [1, 2], [1, 2])]}, {"x": [group("a", [1, 1], [1, 1])]}
SINGLE_TEXT, PAIRS = {"x": [group("5", [1], [1])]}, DecisionRule("pairs")
YES, RULE = Aspect("x", "?", Scale(0, 1)), DecisionRule("binary", 0.5, 0.5)


def compared(**other: Any) -> Callable[[], object]:
    return lambda: compare(ONE, other)


AGREEMENT = [
    row("agreement of no aspect", lambda: agreement_table({}), None, "no aspect", plain=True),
    row("a group twice", lambda: agreement_table({"x": [ONE["x"][0]] * 2}), None, "twice"),
    row("a candidate of a group twice", lambda: group("a", [1, 2], [1, 2], "aa"), None, "same id", plain=True),
    row("an endless score", lambda: group("a", [1, 2], [1, math.inf]), None, "finite", plain=True),
    row("other aspects", compared(y=ONE["x"]), None, "same aspects"),
    row("other groups", compared(x=[group("b", [1, 2], [1, 2])]), None, "same groups", plain=True),
    row("other ratings", compared(x=[group("a", [1, 3], [1, 2])]), None, "'a'", plain=True),
    row("a group of one as a pair", partial(evaluate_decisions, SINGLE_TEXT, {"x": PAIRS}), None, "not a pair"),
    row("a cut on one side of all ratings", partial(decision_cuts, (YES,), {"x": RULE}, 3), "cut", "one side"),
    *(
        row(f"a map with the knots {knots}", partial(Calibration, knots, 1, 1), None, "knots", plain=True)
        for knots in ((), ((1, 2), (1, 3)), ((1, 3), (2, 3)), ((1, math.nan),))
    ),
]


def rare() -> Corpus:
    whole = toned(*((1, 2 + i % 3) for i in range(31)))
    first = whole.groups[0]
    solved = tuple(replace(c, ratings={**c.ratings, "solved": (float(i),)}) for i, c in enumerate(first.candidates))
    return replace(whole, groups=(replace(first, candidates=solved), *whole.groups[1:]))


DIVIDED = [
    row("an aspect rated in few groups", lambda: split(rare(), aspects=["tone", "solved"], seed=0), None, "--aspects"),
    row("too few single candidates", parted(toned(*((1.0 + i % 5,) for i in range(20)))), None, "at least 8"),
    row("ranks in groups of one", lambda: require_level(toned((1.0,), (2.0,)), "summary"), None, "sample"),
    row("systems of one text", lambda: require_level(toned((1.0,), (2.0,)), "system"), None, "two candidate ids"),
    row("all aspects and one", lambda: aspects_to_judge(SAMPLE, ("all", "fluency")), "aspects", "'all'"),
    row("a sample for another task", lambda: load_data("sample", KIND), None, "'tone'"),
]

TABLE = [*JUDGES, *EXPORTS, *INTEGRATIONS, *SCORED, *CORPORA, *AGREEMENT, *DIVIDED]
