"""The figures of single folds, and the note on how to read figures from folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from debate_judge.data.agreement.tables import GroupScores, agreement_table, compare
from debate_judge.optimize.context import CompilePlan
from debate_judge.optimize.proof.held_out import FoldFigures, HeldOut, Proof, Scores, joined_scores


def fold_figures(plan: CompilePlan, proofs: Sequence[Proof]) -> FoldFigures:
    """The figures of the folds of one repeat."""
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
        agreement(joined_scores(plan, proofs)["compiled"]),
    )


def procedure_note(plan: CompilePlan) -> str:
    """What held-out figures from folds measure."""
    sources, repeats = len(plan.data.measured.groups), plan.data.repeats
    folds = sum(len(half) for half in repeats[0].halves)
    again = f", drawn {len(repeats)} times" if len(repeats) > 1 else ""
    return (
        f"The figures are those of the procedure, by {folds} folds{again}: each source was scored by a judge that was "
        f"tuned and chosen on other sources. The compiled judge of this run uses all {sources} sources, so that none "
        "is left to measure it on. The intervals treat sources as independent; folds share what they learn from, which "
        "makes the intervals somewhat too narrow (Bengio and Grandvalet 2004)"
    )


def folds_json(plan: CompilePlan, held_out: HeldOut) -> dict[str, Any]:
    """The figures of all folds as JSON values."""
    return {
        "count": len(held_out.folds[0].sources),
        "repeats": [asdict(repeat) for repeat in held_out.folds],
        "note": procedure_note(plan),
    }
