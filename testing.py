"""All that authors of judges, data sets and tuners need for their tests, as one module to import.

Functions with asserts, to be called from any test framework.
"""

from __future__ import annotations

from collections.abc import Mapping

import dspy
from dspy.teleprompt.teleprompt import Teleprompter

from debate_judge.data.testing import check_corpus
from debate_judge.optimize.examples import group_keys
from debate_judge.optimize.tuners import details_of
from debate_judge.programs.judge import Judge
from debate_judge.programs.testing import ScriptedLM, check_judge, in_turn, sample_items, scripted_lm

__all__ = ["ScriptedLM", "check_corpus", "check_judge", "check_tuner", "in_turn", "sample_items", "scripted_lm"]


def check_tuner(optimizer: Teleprompter, judge: Judge, trainset: list[dspy.Example]) -> None:
    """Assert that an optimizer returns judges of the same kind and debate, in which only tunable instructions may
    differ, leaves the one that it was given alone, and names as unseen only groups that there are.

    Args:
        optimizer: Made with what it works with.
        judge: The judge that it tunes, which is compared before and after.
        trainset: What it tunes on.

    Raises:
        AssertionError: The first of these that does not hold.
    """
    before = dict(judge.instructions())
    tuned_judges = optimizer.compile(judge, trainset=trainset)
    assert judge.instructions() == before, "the judge that it was given has other instructions now"
    details = details_of(tuned_judges)
    for tuned in (tuned_judges, details.judge, *(fold.judge for fold in details.folds)):
        _check_tuned(tuned, judge, before)
    assert all(fold.unseen <= group_keys(trainset) for fold in details.folds), "it names groups that there are not"


def _check_tuned(tuned: Judge, given: Judge, before: Mapping[str, str]) -> None:
    after = tuned.instructions()
    assert type(tuned) is type(given), f"it returned {tuned!r}"
    assert tuned.debate_config == given.debate_config, "the judge that it returned debates otherwise"
    assert set(after) == set(before), "the judge that it returned has other predictors"
    fixed = set(before) - set(given.tunable())
    assert all(after[name] == before[name] for name in fixed), "it rewrote what may not be tuned"
    assert all(text.strip() for text in after.values()), "it left a predictor without instructions"
