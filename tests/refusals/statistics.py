"""What the statistics and the splits refuse: scores that do not belong together, and data that can tell nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from debate_judge import data
from debate_judge.data.agreement.decisions import DecisionRule, decision_rules_from_scores, evaluate_decisions
from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.agreement.tables import agreement_table, compare
from debate_judge.data.calibration import Calibration
from debate_judge.data.folds import make_folds
from debate_judge.data.inference.absolute_agreement import decision_cuts
from debate_judge.data.requirements import aspects_to_judge, require_level
from debate_judge.data.schema import Aspect, Corpus, Scale, Task
from debate_judge.data.splits import append_held_out, split
from tests.refusals.functions import toned
from tests.refusals.refusal import row

SAMPLE = data.load("sample")
TONE = Task("tone", "message", "reply", (Aspect("kind", "Is it kind?", Scale(1, 5)),))


def group(name: str, ratings: Sequence[float], scores: Sequence[float], ids: str = "") -> GroupScores:
    return GroupScores(name, tuple(ids) or tuple("abcdef"[: len(ratings)]), tuple(ratings), tuple(scores))


ONE = {"x": [group("a", [1, 2], [1, 2])]}


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
    row("other candidates", compared(x=[group("a", [1, 2], [1, 2], "pq")]), None, "'a'", plain=True),
    row(
        "a group of one as a pair",
        lambda: evaluate_decisions({"x": [group("5", [1], [1])]}, {"x": DecisionRule("pairs")}),
        None,
        "not a pair",
    ),
    row(
        "equal ratings as decisions",
        lambda: decision_rules_from_scores({"x": [group("a", [1, 1], [1, 1])]}, "binary"),
        None,
        "equal",
        plain=True,
    ),
    row(
        "a cut on one side of all ratings",
        lambda: decision_cuts((Aspect("x", "?", Scale(0, 1)),), {"x": DecisionRule("binary", 0.5, 0.5)}, 3),
        "cut",
        "one side",
    ),
    *(
        row(f"a map with the knots {knots}", lambda k=knots: Calibration(k, 1, 1), None, "knots", plain=True)  # type: ignore[misc]
        for knots in ((), ((1, 2), (1, 3)), ((1, 3), (2, 3)), ((1, 3), (2, 1)), ((1, math.nan),))
    ),
]


def chosen(count: int) -> Corpus:
    """The sample with so many of its 24 sources chosen for rating."""
    own = [replace(g, sampling_probability=0.25) if i < count else g for i, g in enumerate(SAMPLE.groups)]
    return replace(SAMPLE, groups=tuple(own))


def rare() -> Corpus:
    """An aspect that is rated in one group of many."""
    whole = toned(*((1, 2 + i % 3) for i in range(31)))
    first = whole.groups[0]
    solved = tuple(replace(c, ratings={**c.ratings, "solved": (float(i),)}) for i, c in enumerate(first.candidates))
    return replace(whole, groups=(replace(first, candidates=solved), *whole.groups[1:]))


CORPORA = [
    row("a split of chosen sources", lambda: split(chosen(16), aspects=["coherence"], seed=0), None, "at random"),
    row(
        "folds of chosen sources",
        lambda: make_folds(chosen(23), aspects=["coherence"], seed=0, count=4),
        None,
        "at random",
    ),
    row(
        "a test set of selected sources",
        lambda: append_held_out(
            replace(SAMPLE, groups=SAMPLE.groups[12:]), replace(SAMPLE, groups=chosen(1).groups[:12])
        ),
        None,
        "selected",
    ),
    row("an aspect rated in few groups", lambda: split(rare(), aspects=["tone", "solved"], seed=0), None, "--aspects"),
    row(
        "too few single candidates",
        lambda: split(toned(*((1.0 + i % 5,) for i in range(20))), aspects=["tone"], seed=0),
        None,
        "at least 8",
    ),
    row("ranks in groups of one", lambda: require_level(toned((1.0,), (2.0,)), "summary"), None, "sample"),
    row("systems of one text", lambda: require_level(toned((1.0,), (2.0,)), "system"), None, "two candidate ids"),
    row("all aspects and one", lambda: aspects_to_judge(SAMPLE, ("all", "fluency")), "aspects", "'all'"),
    row("a sample for another task", lambda: data.load("sample", TONE), None, "'tone'"),
]

TABLE = [*AGREEMENT, *CORPORA]
