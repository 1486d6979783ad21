"""What authors of judges, data sets and tuners need for their tests: functions with asserts, for any test framework."""

from __future__ import annotations

from collections.abc import Mapping

import dspy
from dspy.teleprompt.teleprompt import Teleprompter

from debate_judge.data.testing import check_corpus
from debate_judge.optimize.tuners import tuning_result
from debate_judge.optimize.tuners.rated import group_keys
from debate_judge.programs.judge import Judge
from debate_judge.programs.testing import ScriptedLM, check_judge, in_turn, sample_items, scripted_lm

__all__ = ["ScriptedLM", "check_corpus", "check_judge", "check_tuner", "in_turn", "sample_items", "scripted_lm"]


def check_tuner(optimizer: Teleprompter, judge: Judge, trainset: list[dspy.Example]) -> None:
    """Assert that an optimizer does not change the judge that it is given, returns judges of the same class and
    `debate_config` in which only tunable instructions differ, and names only groups of the trainset as those that a
    fold's judge was not tuned on.

    Args:
        optimizer: The optimizer, ready to `compile`.
        judge: The judge to tune.
        trainset: The examples to tune on.

    Raises:
        AssertionError: The first of these that does not hold.
    """
    before = dict(judge.instructions())
    tuned_judges = optimizer.compile(judge, trainset=trainset)
    assert judge.instructions() == before, "it changed the instructions of the judge that it was given"
    details = tuning_result(tuned_judges)
    for tuned in (tuned_judges, details.judge, *(fold.judge for fold in details.folds)):
        _check_tuned(tuned, judge, before)
    assert all(fold.unseen <= group_keys(trainset) for fold in details.folds), (
        "unseen groups that are not in the trainset"
    )


def _check_tuned(tuned: Judge, untuned: Judge, before: Mapping[str, str]) -> None:
    after = tuned.instructions()
    assert type(tuned) is type(untuned), f"it returned {tuned!r}"
    assert tuned.debate_config == untuned.debate_config, "the judge that it returned has another debate_config"
    assert set(after) == set(before), "the judge that it returned has other predictors"
    fixed = set(before) - set(untuned.tunable())
    assert all(after[name] == before[name] for name in fixed), "it rewrote what may not be tuned"
    assert all(text.strip() for text in after.values()), "it left a predictor without instructions"
