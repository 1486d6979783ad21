"""Aspects in one call: where that is tried and when it is chosen."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from debate_judge.optimize.search.outcomes import Criterion, Outcomes, SearchResult, drop_unshareable_joint_points
from debate_judge.optimize.search.points import Point, SearchSpace
from debate_judge.optimize.search.study import SearchSettings
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import Script, ScriptedLM, debater, requested, scripted_lm, section
from tests.optimize.joint_space import SPACE, true_rating, units
from tests.optimize.searches import UNPRUNED, limits_of, search
from tests.programs.tables import joint_table_script, requested_cells

NAMES = ("clear", "warm")


def guess(prompt: str, text: str, aspect: str) -> float:
    return 1.0 + zlib.crc32((section(prompt, "source") + text + aspect).encode()) % 4


def reader(jointly: Sequence[str] = NAMES) -> Script:
    """An LM that knows what the raters gave; of several aspects at once it knows those named, and guesses the rest."""
    alone = debater(score=lambda prompt: str(true_rating(prompt, section(prompt, "candidate"), "")))

    def several(prompt: str, text: str, aspect: str) -> float:
        return (true_rating if not aspect or aspect in jointly else guess)(prompt, text, aspect)

    return lambda prompt: (alone if "score" in requested(prompt) else joint_table_script(several))(prompt)


def searched(script: Script, storage: Path | None = None) -> tuple[dict[str, SearchResult], ScriptedLM]:
    lm = scripted_lm(script)
    plan = SearchSettings(
        criterion=Criterion("spearman", "summary"),
        limits=limits_of(9),
        seed=0,
        study_name="s",
        storage=storage,
        strategy=UNPRUNED,
    )
    with JudgeRunner(lm, progress=False) as runner:
        return search(units(runner), SPACE, plan), lm


def chosen(found: Mapping[str, SearchResult]) -> dict[str, tuple[str, float]]:
    return {name: (one.chosen.point.reading, one.chosen.calls) for name, one in found.items()}


# --- what is chosen ---


def test_chosen_points_are_tried_with_all_aspects_in_a_call() -> None:
    found, lm = searched(reader())
    assert chosen(found) == {name: ("joint", 0.125) for name in NAMES}
    # Each aspect side by side and alone; then both of a source in one call.
    assert len(lm.prompts) == 2 * 6 + 2 * 24 + 6
    assert [len(requested_cells(prompt, "scores")) for prompt in lm.prompts[-6:]] == [8] * 6
    judge = found["clear"].scores.variants[found["clear"].chosen.point.variant].judge
    assert (judge.together, judge.joint) == (16, True)


@pytest.mark.parametrize("jointly", [(), ("clear",)])
def test_it_is_not_chosen_where_it_is_worse_or_only_one_aspect_would_have_it(jointly: tuple[str, ...]) -> None:
    found, lm = searched(reader(jointly))
    assert chosen(found) == {name: ("side by side", 0.25) for name in NAMES}
    assert len(lm.prompts) == 2 * 6 + 2 * 24 + 6


def point(rounds: int, persona: str = "strict", knowledge: str = "guide", reading: Any = "side by side") -> Point:
    return Point(knowledge, persona, rounds, False, "half", reading=reading)


def test_if_all_points_are_joint_aspects_choose_the_same_configuration() -> None:
    """What an aspect alone would have chosen costs it the calls that it would have for itself."""
    worth = {
        point(1, knowledge="none"): {"a": 0.9, "b": 0.1},
        point(1, "plain"): {"a": 0.2, "b": 0.8},
        point(1, "plain", "none"): {"a": 0.7, "b": 0.3},
        point(2): {"a": 0.6, "b": 0.7},
    }

    def best(among: Any) -> dict[str, Point]:
        return {label: max(filter(among, worth), key=lambda p: worth[p][label]) for label in ("a", "b")}

    made = SimpleNamespace(
        space=SearchSpace(("none", "guide"), ("strict", "plain"), (0, 1, 2), (False,), readings=("joint",)),
        units={label: SimpleNamespace(aspects=[SimpleNamespace(name=label)]) for label in ("a", "b")},
        by_point={p: {label: SimpleNamespace(calls=1.0) for label in found} for p, found in worth.items()},
        posterior_means=lambda points: {p: list(worth[p].values()) for p in points},
        choose=best,
    )
    own = best(lambda p: True)
    assert (own["a"], own["b"]) == (point(1, knowledge="none"), point(1, "plain"))
    # Under the plain persona each has .7 and .8; what is known of the raters may differ.
    assert drop_unshareable_joint_points(cast(Outcomes, made), own) == {
        "a": point(1, "plain", "none"),
        "b": point(1, "plain"),
    }
    alike = dict.fromkeys(("a", "b"), point(2))
    assert drop_unshareable_joint_points(cast(Outcomes, made), alike) == alike
