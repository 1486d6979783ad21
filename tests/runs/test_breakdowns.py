"""Scores over the points of the scale, decisions over categories, and the time of a judge's calls."""

from __future__ import annotations

import asyncio

import pytest

from debate_judge.data.agreement.decisions import find_decision_rules
from debate_judge.data.agreement.tables import GroupScores
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.programs.lm.reply import InMemoryStore, Reply
from debate_judge.runs.reports.breakdowns import (
    category_tables,
    decisions_by_category,
    score_shares,
    score_shares_tables,
)
from debate_judge.runs.runner.judge_usage import JudgeUsage, UsageByJudge, charged_to

CLARITY = Aspect("clarity", "Is it clear?", Scale(1, 5))


def test_shares_of_scores_are_in_per_cent_and_what_lies_between_counts_for_the_nearer_point() -> None:
    groups = [GroupScores("g", tuple("abcd"), (1.0, 4 + 2 / 3, 4.5, None), (1.4, 5.0, 2.5, None))]
    shares = score_shares({"mine": {"clarity": groups}}, [CLARITY])["clarity"]
    third = pytest.approx(100 / 3)
    assert shares["raters"] == {"1": third, "2": 0, "3": 0, "4": 0, "5": pytest.approx(200 / 3)}
    assert shares["mine"] == {"1": third, "2": 0, "3": third, "4": 0, "5": third}
    (table,) = score_shares_tables({"clarity": shares})
    assert table.rows[0] == ("raters", "33.33", "0.00", "0.00", "0.00", "66.67")
    assert score_shares({"mine": {"clarity": groups}}, [Aspect("clarity", "Is it?", Scale(0, 100))]) == {}


def test_decisions_are_counted_by_category() -> None:
    preference = Aspect("preference", "Which would you rather have?", Scale(0, 1, 0.5))

    def pair(name: str, category: str, first: float) -> RatedGroup:
        candidates = (
            Candidate("a", "A", {"preference": (first,)}),
            Candidate("b", "B", {"preference": (1 - first,)}),
        )
        return RatedGroup(name, f"Question {name}?", candidates, category=category)

    groups = (pair("1", "coding", 1), pair("2", "coding", 0), pair("3", "writing", 1), pair("4", "", 1))
    corpus = Corpus(Task("questions", "question", "answer", (preference,)), groups, Origin("test", "nowhere"))
    scores = {"preference": [GroupScores(g.id, ("a", "b"), tuple(g.ratings("preference")), (1.0, 0.0)) for g in groups]}
    by_aspect = decisions_by_category({"mine": scores}, find_decision_rules(groups, [preference]), corpus)
    found = by_aspect["preference"]["mine"]
    assert {name: (v["accuracy"], v["decisions"]) for name, v in found.items()} == {
        "coding": (0.5, 2),
        "writing": (1.0, 1),
    }
    (table,) = category_tables(by_aspect)
    assert table.header == ("judge", "coding (2)", "writing (1)")
    assert table.rows[0][1].startswith("0.50/")


def test_the_time_of_a_shared_call_counts_for_every_judge_and_that_of_a_stored_reply_is_unknown() -> None:
    async def scenario() -> list[JudgeUsage]:
        store = UsageByJudge(InMemoryStore())
        first, second, third = JudgeUsage(), JudgeUsage(), JudgeUsage()
        with charged_to(first):
            assert await store.get("call") is None
        await store.put("call", "scorer", Reply("4", seconds=1.5))
        await store._store.put("stored", "scorer", Reply("5"))
        with charged_to(second):
            await store.get("call")
        with charged_to(third):
            await store.get("call")
            await store.get("stored")
        return [first, second, third]

    usages = asyncio.run(scenario())
    assert [(usage.seconds, usage.untimed) for usage in usages] == [(1.5, 0), (1.5, 0), (1.5, 1)]
