"""What a compile is told to maximize, and to show, reaches those who do it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from debate_judge.optimize.search import outcomes
from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuners import guide, rated_examples
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.flags.judge import personas
from debate_judge.runs.runner.runner import JudgeRunner
from tests.optimize.compiles import compiled
from tests.optimize.small_corpus import small_corpus


def spied(patch: pytest.MonkeyPatch, module: Any, name: str) -> list[tuple[Any, ...]]:
    """The arguments of each call of a function of a module, filled as calls are made."""
    calls: list[tuple[Any, ...]] = []
    real = getattr(module, name)

    def spy(*given: Any, **named: Any) -> Any:
        calls.append(given)
        return real(*given, **named)

    patch.setattr(module, name, spy)
    return calls


def test_guides_are_compared_and_judges_chosen_by_the_error_and_pairs_by_the_judges_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = spied(monkeypatch, outcomes, "group_values")
    tuned = spied(monkeypatch, guide, "group_metric")
    shown = spied(monkeypatch, rated_examples, "choose_pairs")
    data: dict[str, Any] = {"data": str(small_corpus(tmp_path)), "aspects": ("coherence",), "store": str(tmp_path)}
    quick: dict[str, Any] = {"max_rounds": 0, "folds": 1, "resamples": 100}
    settings = Settings(**data, **quick, metric="mae", examples="pairs:2", export_examples=True)
    lm = make_lm("offline")
    with JudgeRunner(lm, progress=False) as runner:
        result = compiled(settings, personas(None), runner, lm)
    # Scores of groups, the objective, the level, and the scale of 1 to 5 with its cut.
    assert {(objective, level, scale.width, scale.cut) for _, objective, level, scale in chosen} == {
        ("mae", "summary", 4.0, 4.0)
    }
    assert {(objective, scale.width) for _, _, objective, scale in tuned} == {("mae", 4.0)}
    train = result.plan.data.splits.train
    for corpus, _, count, scores, *_ in shown:
        assert (corpus, count) == (train, 2)
        assert set(scores) == {("coherence", g.id, c.id) for g in train.groups for c in g.candidates}
    assert shown
    assert result.to_json()["objective"]["maximized"] == "mae"
