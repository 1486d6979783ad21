"""Compares the judges on held-out sources: agreement, gains, decisions, and agreement with single raters.

With folds (`data/folds.py`) every source is held out once, and each fold has its own compiled judge. The figures are
computed as for a single held-out part, on the groups of all folds:

- At summary level the value of a group is computed from the scores of its fold's judge. Figures are means over groups,
  with t intervals of these values.
- At sample and system level the scores of all folds are pooled, with an interval from resampling groups. The judges of
  different folds may use the scale differently, which lowers the pooled correlation a little.

The intervals have a known limit: folds share sources to tune on and to choose by, so the values of groups are not
independent, and no unbiased estimate of their variance exists (Bengio and Grandvalet, No unbiased estimator of the
variance of K-fold cross-validation, 2004; Nadeau and Bengio, Inference for the generalization error, 2003). The
intervals account for other held-out sources but not for other sources to tune on, and so are somewhat too narrow for
the procedure. The differences between folds are reported with them (`FoldFigures`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean

from debate_judge.data.agreement.decisions import Decided, Question, decide, with_tuned_threshold
from debate_judge.data.agreement.raters import RaterAgreement, beside_raters
from debate_judge.data.agreement.tables import GroupScores, agreement_table, compare
from debate_judge.data.inference.closeness import Closeness, closeness
from debate_judge.optimize.context import CompilePlan
from debate_judge.optimize.proof.fold_figures import fold_figures
from debate_judge.optimize.proof.held_out import (
    ALONE,
    COMPARED,
    DEV_CUT,
    MAPPED,
    HeldOut,
    Proof,
    ReadAlone,
    Scores,
    joined_scores,
)
from debate_judge.programs.judge import Judgement, corpus_items
from debate_judge.runs.reports.raters import several_raters
from debate_judge.runs.runner.runner import calls_per_item, require_scored


def compare_held_out(plan: CompilePlan, proofs: Sequence[Proof]) -> HeldOut:
    """Agreement of the compared judges, and the compiled one's gain.

    Args:
        plan: The plan of the compile.
        proofs: One for a single split, else one for each fold.

    Raises:
        InputError: The compiled judge left too many items without a score.
    """
    compiled = [j for proof in proofs for judged, _ in proof.scored["compiled"].values() for j in judged]
    require_scored(compiled, plan.settings.max_unscored, "held-out items")
    scores, calibrated = joined_scores(plan, proofs), _calibrated(plan, proofs)
    versus = partial(
        compare,
        statistic=plan.statistic,
        level=plan.data.level,
        resamples=plan.settings.resamples,
        seed=plan.settings.seed,
    )
    return HeldOut(
        tables={
            name: agreement_table(scores[name], resamples=plan.settings.resamples, seed=plan.settings.seed)
            for name in COMPARED
        },
        calls={name: _calls(proofs, name) for name in COMPARED},
        gain=versus(scores["compiled"], scores["single"]),
        gains={
            aspect: versus({aspect: own}, {aspect: scores["single"][aspect]}, family=len(scores["compiled"]))
            for aspect, own in scores["compiled"].items()
        },
        of_knowledge=versus(scores["informed_single"], scores["single"]),
        over_informed=versus(scores["compiled"], scores["informed_single"]),
        over_uncompiled=versus(scores["compiled"], scores["uncompiled"]),
        judged={name: _judgements(plan, proofs, name) for name in COMPARED},
        scores=scores,
        calibrated=calibrated,
        closeness=_closeness(plan, scores, calibrated),
        alone=_read_alone(plan, proofs, scores),
        decisions=_decisions(plan, scores, proofs),
        raters=_beside_raters(plan, scores),
        folds=fold_figures(plan, proofs) if plan.data.folds else None,
    )


def _read_alone(plan: CompilePlan, proofs: Sequence[Proof], scores: Scores) -> ReadAlone | None:
    if ALONE not in scores:
        return None
    level, statistic = plan.data.level, plan.statistic
    resamples, seed = plan.settings.resamples, plan.settings.seed
    own, compiled = scores[ALONE], scores["compiled"]
    return ReadAlone(
        agreement_table(own, levels=(level,), resamples=resamples, seed=seed).average[level][statistic],
        compare(own, compiled, statistic=statistic, level=level, resamples=resamples, seed=seed),
        fmean(_calls(proofs, ALONE).values()),
    )


def _calls(proofs: Sequence[Proof], name: str) -> dict[str, float]:
    """Aspect -> LM calls per item of a judge."""
    return {a: calls_per_item([j for p in proofs for j in p.scored[name][a][0]]) for a in proofs[0].scored[name]}


def _judgements(plan: CompilePlan, proofs: Sequence[Proof], judge: str) -> dict[str, list[Judgement]]:
    """Aspect -> judgements, in the order of the measured sources."""
    found = {}
    for aspect in plan.data.aspects:
        by_item = {
            item.key: judgement
            for proof in proofs
            for item, judgement in zip(
                corpus_items(proof.held_out, aspect), proof.scored[judge][aspect.name][0], strict=True
            )
        }
        found[aspect.name] = [by_item[item.key] for item in corpus_items(plan.data.measured, aspect)]
    return found


def _calibrated(plan: CompilePlan, proofs: Sequence[Proof]) -> dict[str, list[GroupScores]]:
    """Aspect -> scores of the compiled judges mapped to the raters' scale, in the order of the measured sources."""
    found = {}
    for aspect in plan.data.aspects:
        maps = [proof.judge.aspects[aspect.name].calibration for proof in proofs]
        mapped = {
            group.group: group
            for one, proof in zip(maps, proofs, strict=True)
            if one is not None
            for group in one.applied(proof.scores["compiled"][aspect.name])
        }
        if all(one is not None for one in maps):
            found[aspect.name] = [mapped[group.id] for group in plan.data.measured.groups]
    return found


def _closeness(
    plan: CompilePlan, scores: Scores, calibrated: Mapping[str, Sequence[GroupScores]]
) -> dict[str, dict[str, Closeness]]:
    if not plan.judge.on_scale or plan.judge.compares:
        return {}
    judges = {name: scores[name] for name in COMPARED}
    if len(calibrated) == len(plan.data.aspects):
        judges[MAPPED] = calibrated
    return closeness(
        judges,
        plan.data.cuts,
        one_scale=len({aspect.scale for aspect in plan.data.aspects}) == 1,
        resamples=plan.settings.resamples,
        seed=plan.settings.seed,
    )


def _beside_raters(plan: CompilePlan, scores: Scores) -> dict[str, dict[str, RaterAgreement]]:
    if not several_raters(scores["compiled"]):
        return {}
    at = partial(
        beside_raters,
        statistic=plan.statistic,
        level=plan.data.level,
        on_scale=plan.judge.on_scale,
        resamples=plan.settings.resamples,
        seed=plan.settings.seed,
    )
    return {name: {aspect: at(groups) for aspect, groups in scores[name].items()} for name in COMPARED}


def _decisions(plan: CompilePlan, scores: Scores, proofs: Sequence[Proof]) -> dict[str, dict[str, Decided]]:
    """Decisions at the fixed threshold, and the compiled judge's at the cut tuned on dev if that differs."""
    questions = plan.data.questions
    at = partial(decide, resamples=plan.settings.resamples, seed=plan.settings.seed)
    found = {"single": at(scores["single"], questions)}
    for name in COMPARED[1:]:
        found[name] = at(scores[name], questions, on_scale=plan.judge.on_scale)
    cut, shifted = {}, {}
    for aspect, question in questions.items():
        cuts = [_dev_cut(proof, aspect, question) for proof in proofs]
        if any(one != question for one in cuts):
            cut[aspect], shifted[aspect] = _one_cut(cuts, [proof.scores["compiled"][aspect] for proof in proofs])
    found[DEV_CUT] = at(shifted, cut)
    return {name: by_aspect for name, by_aspect in found.items() if by_aspect}


def _dev_cut(proof: Proof, aspect: str, question: Question) -> Question:
    dev = {group.id for group in proof.plan.data.splits.dev.groups}
    groups = [g for g in proof.searches[aspect].chosen.scores[aspect] if g.group in dev]
    return with_tuned_threshold(question, groups, "dev")


def _one_cut(cuts: Sequence[Question], scores: Sequence[list[GroupScores]]) -> tuple[Question, list[GroupScores]]:
    """One cut for all folds: the mean of theirs. Each fold's scores are shifted accordingly, so no decision changes."""
    if len(cuts) == 1:
        return cuts[0], scores[0]
    places = [one.threshold if one.cut is None else one.cut for one in cuts]
    middle = math.fsum(places) / len(places)
    moved = [
        replace(group, scores=tuple(None if s is None else s - place + middle for s in group.scores))
        for place, groups in zip(places, scores, strict=True)
        for group in groups
    ]
    return replace(cuts[0], cut=middle, chosen_on="dev, fold by fold; the mean"), moved
