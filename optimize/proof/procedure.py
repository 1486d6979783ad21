"""Tunes, chooses and scores held-out: once for a single split, else in a loop over folds."""

from __future__ import annotations

import logging

from debate_judge.data.splits import Splits
from debate_judge.optimize.context import Run
from debate_judge.optimize.proof.held_out import Proof, score_held_out
from debate_judge.optimize.selection import Selected, TunedJudges, choose, learn

logger = logging.getLogger(__name__)


def prove(run: Run) -> tuple[Selected, list[Proof]]:
    """Compile a judge, and score held-out sources with it, or with the judges of all folds.

    Returns:
        The judge to export, and the held-out scores: one `Proof` for a single split, else one for each fold.

    Raises:
        InputError: Too many of the items to choose by have no score.
        dspy.LMError: The LM failed for good.
    """
    if run.plan.data.repeats:
        return _by_folds(run)
    selected = choose(run, learn(run))
    return selected, [_scored(run, selected)]


def _by_folds(run: Run) -> tuple[Selected, list[Proof]]:
    """Compile and score for each fold, and compile the judge to export on all sources.

    Folds run one after the other: a single search already has more calls than may be in flight at once.
    """
    proofs: list[Proof] = []
    of_whole: TunedJudges | None = None
    for repeat, folds in enumerate(run.plan.data.repeats):
        for half in folds.halves:
            learnt = learn(run.on(half[0]))
            # The exported judge is tuned on the first half of the first repeat, like half of the folds.
            of_whole = of_whole or learnt
            for splits in half:
                logger.info("fold %d of %d: %s", len(proofs) + 1, _count(run), _sizes(splits))
                fold = run.on(splits)
                proofs.append(_scored(fold, choose(fold, learnt), repeat))
    if of_whole is None:
        raise ValueError("a compile by folds without folds")
    logger.info("choosing the judge that is exported by all %d sources", len(run.plan.data.corpus.groups))
    return choose(run, of_whole), proofs


def _scored(run: Run, selected: Selected, repeat: int = 0) -> Proof:
    logger.info("scoring held-out with single calls, the uncompiled and the compiled judge")
    return Proof(run.plan, selected.judge, selected.searches, score_held_out(run, selected.judge), repeat)


def _count(run: Run) -> int:
    return sum(len(half) for folds in run.plan.data.repeats for half in folds.halves)


def _sizes(splits: Splits) -> str:
    train, dev, held_out = (len(part.groups) for part in (splits.train, splits.dev, splits.held_out))
    return f"{train} sources to learn from, {dev} more to choose by, {held_out} held out"
