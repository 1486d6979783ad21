"""What the public functions, judges, exports, integrations and statistics refuse of their arguments."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import dspy
import pandas as pd

import debate_judge
from debate_judge import Aspect, Debate, Scale, Task, load, offline_lm
from debate_judge.data import load as load_data
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.agreement.tables import compare
from debate_judge.data.calibration import Calibration
from debate_judge.data.folds import make_folds
from debate_judge.data.requirements import require_level, require_ratings
from debate_judge.data.schema import Candidate, Corpus, Origin, RatedGroup
from debate_judge.data.splits import split
from debate_judge.runs.comparison.score_files import read_external
from debate_judge.runs.export.folder import load_in_tool
from debate_judge.runs.integrations import DebateScorer, ProgramMetric, score_frame
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
        ({"source": ...}, "source", "needs a source"),
        ({"references": "one"}, "references", "list"),
        ({"text": "half \ud83d"}, "text", "position 6"),
    ),
    *rows(score, ({"aspects": ["tonne"]}, "aspects", "'tone'"), ({"scale": "raters"}, "scale", "no map")),
    *rows(call, ({"aspect": ANOTHER}, "aspect", "")),
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


INTEGRATIONS = [
    row("a budget in words", lambda: load_in_tool("support"), None, "budget", env={"DEBATE_BUDGET": "much"}),
    row("inputs with two sources", exported(scorer), None, "source_key="),
    row("a prediction without the text", exported(program_metric), None, "'reply'"),
    *rows(framed, ("source summary", None, "text=..."), ("source text tone", None, "tone")),
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
    external("a score in words", "score", "not a number", score="4"),
    external("a second score", "candidate", "line 1", candidate="c0", aspect="coherence"),
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
    *(
        row(f"parts {parts}", parted(MANY, fractions=parts), None, "add up to 1")
        for parts in ((0.3, 0.3, 0.3), (float("nan"), 0.5, 0.5))
    ),
    row("nothing but threes", rated(toned((3, 3), (3, None))), None, "only 3"),
]


# --- statistics ---

SAMPLE = load_data("sample")


def group(name: str, ratings: Sequence[float], scores: Sequence[float], ids: str = "") -> GroupScores:
    return GroupScores(name, tuple(ids) or tuple("abcdef"[: len(ratings)]), tuple(ratings), tuple(scores))


ONE = {"x": [group("a", [1, 2], [1, 2])]}


def compared(**other: Any) -> Callable[[], object]:
    return lambda: compare(ONE, other)


AGREEMENT = [
    row("an endless score", lambda: group("a", [1, 2], [1, math.inf]), None, "finite", plain=True),
    row("other aspects", compared(y=ONE["x"]), None, "same aspects"),
    row("a map that is flat", partial(Calibration, ((1, 3), (2, 3)), 1, 1), None, "knots", plain=True),
]


DIVIDED = [
    row("too few single candidates", parted(toned(*((1.0 + i % 5,) for i in range(20)))), None, "at least 8"),
    row("ranks in groups of one", lambda: require_level(toned((1.0,), (2.0,)), "summary"), None, "sample"),
]

TABLE = [*JUDGES, *EXPORTS, *INTEGRATIONS, *SCORED, *CORPORA, *AGREEMENT, *DIVIDED]
