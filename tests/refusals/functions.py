"""What the public functions, judges, exports, integrations and statistics refuse of their arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import dspy
import pandas as pd

import debate_judge
from debate_judge import Aspect, Debate, Scale, Task, load, offline_lm
from debate_judge.data import load as load_data
from debate_judge.data.agreement.figures import GroupScores
from debate_judge.data.calibration import Calibration
from debate_judge.data.schema import Candidate, Corpus, Origin, RatedGroup
from debate_judge.data.splits import make_folds, require_level, require_ratings, split
from debate_judge.runs.integrations import score_frame
from debate_judge.runs.loaded import load_in_tool
from tests.refusals.refusal import alike, row, rows

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
        ({"text": "half \ud83d"}, "text", "surrogate"),
        ({"text": None, "texts": ["a", ""]}, "texts[1]", "empty"),
        ({"aspect": "fluencey"}, "aspect", "'fluency'"),
        ({"txt": "t"}, "txt", "'text'"),
        ({"references": "one"}, "references", "list"),
        ({"lm": None}, "lm", "dspy.configure"),
    ),
    *rows(compiled, ({"data": TWO_TONES}, "tone", "rename"), ({"lm": "gpt-4o"}, "lm", "PROVIDER/MODEL")),
    row("arguments without a name", lambda: Debate(rounds=0)("question", "answer"), None, "keywords"),
    *alike(load_data, None, "nowhere", "summeval=nowhere"),
]


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
        ({"source": ...}, "source", "needs a source"),
    ),
    *rows(score, ({"aspects": ["tonne"]}, "aspects", "'tone'")),
    *rows(call, ({"aspect": ANOTHER}, "aspect", "")),
]


def framed(columns: str) -> object:
    frame = pd.DataFrame([["x"] * len(columns.split())], columns=columns.split())
    with load("support") as judge:
        return score_frame(frame, judge)


INTEGRATIONS = [
    row("a budget in words", lambda: load_in_tool("support"), None, "budget", env={"DEBATE_BUDGET": "much"}),
    *rows(
        framed,
        ("source summary", None, "text=..."),
        ("source text tone", None, "tone"),
        ("source text text", "text", "several"),
    ),
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
    row("few sources for four folds", folded(toned(*((1, 2),) * 3), 4), "--folds", "3 sources"),
    row("folds of equal ratings", folded(toned(*((3, 3),) * 20, (1, 2)), 4), None, "too few ratings"),
    row("a split of four", parted(toned(*((1, 2),) * 4)), None, "at least 2 groups"),
    row("an aspect of no task", parted(MANY, "tune"), "aspects", "'tone'"),
    row("parts of .9", parted(MANY, fractions=(0.3, 0.3, 0.3)), None, "add up to 1"),
    row("nothing but threes", rated(toned((3, 3), (3, None))), None, "only 3"),
]


DIVIDED = [
    row("an endless score", lambda: GroupScores("a", ("b",), (1.0,), (math.inf,)), None, "finite", plain=True),
    row("a map that is flat", partial(Calibration, ((1, 3), (2, 3)), 1, 1), None, "knots", plain=True),
    row("too few single candidates", parted(toned(*((1.0 + i % 5,) for i in range(20)))), None, "at least 8"),
    row("ranks in groups of one", lambda: require_level(toned((1.0,), (2.0,)), "summary"), None, "sample"),
]

TABLE = [*JUDGES, *EXPORTS, *INTEGRATIONS, *CORPORA, *DIVIDED]
