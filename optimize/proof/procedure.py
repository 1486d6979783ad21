"""Tunes, chooses and scores held-out: once for a single split, else in a loop over folds."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from debate_judge.data.folds import Folds
from debate_judge.data.splits import Splits
from debate_judge.optimize.context import Run
from debate_judge.optimize.proof.held_out import Proof, score_held_out
from debate_judge.optimize.selection import Selected, choose, learn

logger = logging.getLogger(__name__)


def prove(run: Run) -> tuple[Selected, list[Proof]]:
    """Compile a judge, and score held-out sources with it, or with the judges of all folds.

    Returns:
        The judge to export, and the held-out scores: one `Proof` for a single split, else one for each fold.

    Raises:
        InputError: Too many of the items to choose by have no score.
        dspy.LMError: The LM failed for good.
    """
    if run.plan.data.folds:
        return _by_folds(run, run.plan.data.folds)
    selected = choose(run, learn(run))
    return selected, [_scored(run, selected)]


def _by_folds(run: Run, split: Folds) -> tuple[Selected, list[Proof]]:
    """Compile and score for each fold, and compile the judge to export on all sources.

    First all halves are tuned, then everything is chosen: nothing of a fold depends on another one.
    """
    learnt = run.tuned([partial(learn, run.on(half[0])) for half in split.halves])
    folds = [(run.on(splits), tuned) for half, tuned in zip(split.halves, learnt, strict=True) for splits in half]

    def fold(number: int) -> Proof:
        own, tuned = folds[number]
        logger.info("fold %d of %d: %s", number + 1, len(folds), _sizes(own.plan.data.splits))
        return _scored(own, choose(own, tuned))

    def whole() -> Selected:
        logger.info("choosing the judge that is exported by all %d sources", len(run.plan.data.corpus.groups))
        # It is tuned on the first half, like half of the folds.
        return choose(run, learnt[0])

    works: list[Callable[[], Any]] = [*(partial(fold, number) for number in range(len(folds))), whole]
    *proofs, selected = run.runner.at_once(works)
    return selected, proofs


def _scored(run: Run, selected: Selected) -> Proof:
    logger.info("scoring held-out with single calls, the uncompiled and the compiled judge")
    return Proof(run.plan, selected.judge, selected.searches, score_held_out(run, selected.judge))


def _sizes(splits: Splits) -> str:
    train, dev, held_out = (len(part.groups) for part in (splits.train, splits.dev, splits.held_out))
    return f"{train} sources to learn from, {dev} more to choose by, {held_out} held out"
