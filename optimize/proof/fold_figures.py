"""The figures of single folds, and the note on how to read figures from folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from debate_judge.data.agreement.tables import GroupScores, agreement_table, compare
from debate_judge.optimize.context import CompilePlan
from debate_judge.optimize.proof.held_out import FoldFigures, Proof, Scores


def fold_figures(plan: CompilePlan, proofs: Sequence[Proof]) -> FoldFigures:
    """The figures of the single folds."""
    level, statistic = plan.data.level, plan.statistic

    def agreement(scores: Mapping[str, Sequence[GroupScores]]) -> float | None:
        return agreement_table(scores, resamples=0, levels=(level,)).average[level][statistic].value

    def gain(scores: Scores) -> float | None:
        return compare(scores["compiled"], scores["single"], statistic=statistic, level=level, resamples=0).value

    scored = [proof.scores for proof in proofs]
    return FoldFigures(
        tuple(len(proof.held_out.groups) for proof in proofs),
        tuple(agreement(scores["compiled"]) for scores in scored),
        tuple(gain(scores) for scores in scored),
    )


def procedure_note(plan: CompilePlan) -> str:
    """What held-out figures from folds measure."""
    sources = len(plan.data.measured.groups)
    folds = len(plan.data.folds.parts) if plan.data.folds else 0
    return (
        f"The figures are those of the procedure, by {folds} folds: each source was scored by a judge that was "
        f"tuned and chosen on other sources. The compiled judge of this run uses all {sources} sources, so that none "
        "is left to measure it on. The intervals treat sources as independent; folds share what they learn from, which "
        "makes the intervals somewhat too narrow (Bengio and Grandvalet 2004)"
    )


def folds_json(plan: CompilePlan, folds: FoldFigures) -> dict[str, Any]:
    """The figures of all folds as JSON values."""
    return {"count": len(folds.sources), **asdict(folds), "note": procedure_note(plan)}
