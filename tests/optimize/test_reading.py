"""Whether candidates are read alone or side by side: where that is searched, what is tried, and what is chosen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from debate_judge import offline_lm
from debate_judge.optimize.result import Result
from debate_judge.optimize.search.choice_scores import ChoiceScores
from debate_judge.optimize.search.outcomes import SearchResult
from debate_judge.optimize.search.points import Point, SearchSpace
from debate_judge.optimize.search.study import SearchLimits
from debate_judge.optimize.settings import Settings
from debate_judge.programs.debate.personas import ADVOCATE
from debate_judge.runs.runner.runner import JudgeRunner
from tests.optimize.compiles import compiled, plan_of
from tests.optimize.searches import FakeScores, limits_of, plan, search, tried_points, varied_noise
from tests.optimize.small_corpus import small_corpus

SPACE = SearchSpace(
    ("none", "guide"), ("strict", "plain"), (0, 1, 2), (False, True), readings=("alone", "side by side")
)


def price(point: Point) -> float:
    return (1 + 2 * point.rounds + 0.5 * point.tie_breaker) / (1 if point.reading == "alone" else 16)


def run(
    fake: FakeScores, storage: Path | None = None, limits: SearchLimits | None = None, space: SearchSpace = SPACE
) -> SearchResult:
    return search({"a": cast(ChoiceScores, fake)}, space, plan(storage, limits or limits_of(9)))["a"]


# --- where it is searched ---


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ("side by side", "alone")),
        ({"together": 4}, ("side by side",)),
        ({"judge_option": ("together=0",)}, ("alone",)),
        ({"score_mode": "expected"}, ("alone",)),
        ({"data": "one.jsonl"}, ("alone",)),
    ],
    ids=str,
)
def test_readings_are_searched_where_there_are_several_and_the_user_has_set_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], expected: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    rated = [{"id": "c", "text": f"Text {n}.", "ratings": {"coherence": 1 + n % 5}} for n in range(60)]
    lines = [{"group": f"g{n}", "source": f"Source {n} is of {n * n}.", "candidates": [c]} for n, c in enumerate(rated)]
    Path("one.jsonl").write_text("\n".join(json.dumps({"task": "summarization", **line}) for line in lines))
    assert plan_of(Settings(**settings), {ADVOCATE.name: ADVOCATE.text}).readings == expected


# --- what is tried ---


def test_single_calls_come_in_both_readings_and_debates_in_the_judges_own() -> None:
    fake = FakeScores(varied_noise, price)
    run(fake, limits=replace(limits_of(99), suggestions=0))
    assert tried_points(fake)[:7] == [
        *("none", "guide", "none", "guide"),
        *("none strict 2", "guide strict 2"),
        "guide plain 1",
    ]


def test_what_is_best_alone_is_tried_side_by_side_in_the_end() -> None:
    fake = FakeScores(
        lambda p: 0.0 if (p.knowledge, p.persona, p.tie_breaker) == ("guide", "plain", True) else 3.0, price
    )
    found = run(fake, limits=limits_of(14))
    assert ("guide", "plain") in {(p.knowledge, p.persona) for p in fake.asked if p.reading == "side by side"}
    assert (found.chosen.point.persona, found.chosen.point.reading) == ("plain", "side by side")


# --- where it is searched ---


def test_a_judge_that_reads_side_by_side_is_measured_alone_if_that_is_wanted(tmp_path: Path) -> None:
    """As tools hand texts over; nothing else changes."""
    found: list[Result] = []
    for wanted in (False, True):
        lm = offline_lm()
        with JudgeRunner(lm, progress=False) as runner:
            settings = Settings(
                data=str(small_corpus(tmp_path)),
                aspects=("coherence",),
                max_rounds=0,
                folds=1,
                tuner="none",
                resamples=200,
                read_alone=wanted,
            )
            found.append(compiled(settings, {}, runner, lm))
    without, with_it = (result.held_out for result in found)
    alone = with_it.read_alone
    assert without.read_alone is None
    assert with_it.calls == without.calls
    assert with_it.calls_per_item("compiled") < alone.calls == 1
    # The offline stand-in reads each text for itself.
    compiled_average = with_it.tables["compiled"].average["summary"]["spearman"]
    assert (alone.change.value, alone.agreement.value) == (0, compiled_average.value)
    before, after = (result.verdict.splitlines() for result in found)
    (said,) = set(after) - set(before)
    assert said.startswith("And if texts come one at a time? ")
    assert "1.0 LM calls per item" in said
    assert found[1].evidence()["read_alone"]["calls"] == 1
