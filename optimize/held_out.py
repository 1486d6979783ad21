"""Held-out: each judge scores the sources that were used neither for tuning nor for choosing, and is compared there.

With folds (`data/splits.py`) every source is held out once, and each fold has its own compiled judge. The figures are
computed as for a single held-out part, on the groups of all folds:

- At summary level the value of a group is computed from the scores of its fold's judge. Figures are means over groups,
  with t intervals.
- At sample and system level the scores of all folds are pooled. The judges of different folds may use the scale
  differently, which lowers the pooled correlation a little.

The intervals have a known limit: folds share sources to tune on and to choose by, so the values of groups are not
independent, and no unbiased estimate of their variance exists (Bengio and Grandvalet, No unbiased estimator of the
variance of K-fold cross-validation, 2004; Nadeau and Bengio, Inference for the generalization error, 2003). The
intervals account for other held-out sources but not for other sources to tune on, and so are somewhat too narrow for
the procedure. The agreement of each fold is reported with them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from statistics import fmean
from typing import Any, Literal

from debate_judge.data.agreement.correlations import agreement
from debate_judge.data.agreement.figures import Figure, GroupScores, ScoresByAspect
from debate_judge.data.calibration import CalibrationEffect, calibration_effect
from debate_judge.data.schema import Aspect, Corpus
from debate_judge.data.splits import Splits
from debate_judge.optimize.plan import CompilePlan, CompileRun
from debate_judge.optimize.pooling import EQUAL_COST_TOLERANCE
from debate_judge.programs.judge import CompiledJudge, Judgement, corpus_items, default_granularity
from debate_judge.runs.comparison.figures import Comparison, EvaluatedJudge
from debate_judge.runs.progress import stage
from debate_judge.runs.runner import calls_per_item, group_scores, require_scored

logger = logging.getLogger(__name__)

COMPARED = ("single", "informed_single", "compiled")
"""The compared judges: one call of the Scorer; one call of the Scorer with the compiled judge's knowledge about the
raters, which separates the effect of the debate from that of tuning; the compiled debate."""

COMPILED_MAPPED = "compiled-mapped"
"""The compiled judge again, with its scores mapped to the raters' scale."""


def evaluate(run: CompileRun, compiled: CompiledJudge, splits: Splits) -> dict[str, EvaluatedJudge]:
    """Score held-out with all compared judges; `compiled` was made without it.

    Returns:
        Judge, of `COMPARED` and `COMPILED_MAPPED` -> its scores, the latter in the aspects that have a map. Empty where
        no source is held out: with folds, the exported judge learns from all.
    """
    if not splits.held_out.groups:
        return {}
    logger.info("scoring held-out with single calls and the compiled judge")
    # A copy, because a judge may cache what it derives, and the plan may be executed again.
    single, chosen = run.plan.single.deepcopy(), {a: aspect.judge for a, aspect in compiled.aspects.items()}
    # A single call is the first turn of the debate with the same knowledge, so that its reply is in the store, or
    # shared in flight.
    judges = {
        "single": dict.fromkeys(chosen, single),
        "informed_single": {a: judge.with_debate(rounds=0, tie_breaker=False) for a, judge in chosen.items()},
        "compiled": chosen,
    }

    def judge(name: str, aspect: Aspect) -> list[Judgement]:
        with stage(f"{aspect.name}: held-out"):
            items = corpus_items(splits.held_out, aspect)
            return run.runner.judge(judges[name][aspect.name], items, f"{aspect.name}: held-out, {name}")

    passes = [(name, aspect) for name in COMPARED for aspect in run.plan.aspects]
    judged = run.runner.run_concurrently([partial(judge, name, aspect) for name, aspect in passes])
    judgements = {(name, aspect.name): of_aspect for (name, aspect), of_aspect in zip(passes, judged, strict=True)}

    def evaluated(name: str) -> EvaluatedJudge:
        scores = {}
        for a in run.plan.aspects:
            granularity = default_granularity(single, a) if name == "single" else compiled.aspects[a.name].granularity
            scores[a.name] = group_scores(splits.held_out, a, judgements[name, a.name], granularity)
        on_scale = (run.plan.single if name == "single" else run.plan.judge).on_scale
        return EvaluatedJudge(scores, {a: judgements[name, a] for a in scores}, on_scale=on_scale)

    evaluations = {name: evaluated(name) for name in COMPARED}
    maps = {name: aspect.calibration for name, aspect in compiled.aspects.items() if aspect.calibration}
    scores = evaluations["compiled"].scores
    mapped = EvaluatedJudge({name: calibration.map_groups(scores[name]) for name, calibration in maps.items()})
    return {**evaluations, COMPILED_MAPPED: mapped}


@dataclass(frozen=True, kw_only=True)
class HeldOutComparison(Comparison):
    """The comparison on held-out; the judges are those of `COMPARED`, and `COMPILED_MAPPED` where there are maps. With
    folds, each source was judged by the judges of its fold."""

    mapped: ScoresByAspect = field(default_factory=dict)
    """Aspect -> the compiled judge's scores mapped to the raters' scale, with folds by each fold's map; aspects without
    a map are missing."""
    fold_agreement: tuple[float | None, ...] = ()
    """Agreement of each fold's compiled judge on its held-out sources, averaged over aspects; None where their ratings
    leave it undefined. Empty for a single split."""

    @cached_property
    def calls(self) -> dict[str, dict[str, float]]:
        """Judge name, of `COMPARED` -> aspect -> LM calls per item."""
        return {name: {a: calls_per_item(j) for a, j in self.judges[name].judgements.items()} for name in COMPARED}

    def calls_per_item(self, judge: str) -> float:
        """LM calls per item, averaged over aspects."""
        return fmean(self.calls[judge].values())

    @cached_property
    def gain(self) -> Figure:
        """Compiled minus single call, in the reported correlation, averaged over aspects."""
        return self.difference("compiled", "single")

    @cached_property
    def gains(self) -> dict[str, Figure]:
        """Aspect -> compiled minus single call, with intervals that hold for all aspects together in 95 % of cases
        (Bonferroni: each has the level 1 - .05 / aspects)."""
        difference = partial(self.difference, "compiled", "single", family_size=len(self.aspects))
        return {aspect.name: difference(aspect.name) for aspect in self.aspects}

    @cached_property
    def gain_of_knowledge(self) -> Figure:
        """The single call with the same knowledge minus the single call: the effect of what was learnt."""
        return self.difference("informed_single", "single")

    @cached_property
    def gain_over_informed(self) -> Figure:
        """Compiled minus the single call with the same knowledge: the effect of the debate."""
        return self.difference("compiled", "informed_single")


def above_zero(agreement: Figure) -> bool:
    """Whether agreement is shown to be above chance: the interval, or without one the value, is above 0."""
    bound = agreement.value if agreement.low is None else agreement.low
    return bound is not None and bound > 0


def compare_held_out(plan: CompilePlan, folds: Sequence[Mapping[str, EvaluatedJudge]]) -> HeldOutComparison:
    """Compare the judges by what `evaluate` returned for each fold, or for the single split.

    Raises:
        dspy.LMError: A judge left too many items without a score.
    """
    corpus, folds = plan.evaluation_corpus, [fold for fold in folds if fold]
    for name in COMPARED:
        judgements = [j for fold in folds for of_aspect in fold[name].judgements.values() for j in of_aspect]
        require_scored(judgements, plan.settings.max_unscored, f"held-out items ({name.replace('_', ' ')})")
    judges = {name: _in_corpus_order(corpus, [fold[name] for fold in folds]) for name in (*COMPARED, COMPILED_MAPPED)}
    mapped = judges[COMPILED_MAPPED].scores
    if len(mapped) < len(plan.aspects):
        del judges[COMPILED_MAPPED]
    by_fold = [agreement(fold["compiled"].scores, plan.statistic, plan.level).value for fold in folds]
    return HeldOutComparison(
        corpus=corpus,
        aspects=plan.aspects,
        level=plan.level,
        statistics=(plan.statistic,),
        seed=plan.settings.seed,
        cuts=plan.cuts if plan.judge.on_scale and not plan.judge.compares_pairs else {},
        decision_rules=plan.decision_rules,
        judges=judges,
        baseline="single",
        mapped=mapped,
        fold_agreement=tuple(by_fold) if plan.cross_validated else (),
    )


def _in_corpus_order(corpus: Corpus, folds: Sequence[EvaluatedJudge]) -> EvaluatedJudge:
    """A compared judge on the evaluation corpus, each group by the judge of its fold; in the aspects that all have."""
    scores: dict[str, list[GroupScores]] = {}
    judgements: dict[str, list[Judgement]] = {}
    for aspect in folds[0].scores:
        if not all(aspect in fold.scores for fold in folds):
            continue
        by_group = {}
        for fold in folds:
            answers = iter(fold.judgements.get(aspect, ()))
            for group in fold.scores[aspect]:
                by_group[group.group] = group, list(islice(answers, len(group.candidates)))
        scores[aspect] = [by_group[group.id][0] for group in corpus.groups]
        judgements[aspect] = [judgement for group in corpus.groups for judgement in by_group[group.id][1]]
    return EvaluatedJudge(scores, judgements, on_scale=folds[0].on_scale)


def procedure_note(plan: CompilePlan) -> str:
    """How held-out figures from folds were estimated."""
    return f"Estimated by {len(plan.folds)}-fold nested cross-validation; intervals are slightly too narrow."


def folds_json(plan: CompilePlan, held_out: HeldOutComparison) -> dict[str, Any]:
    """The agreement of all folds as JSON values."""
    agreement = held_out.fold_agreement
    return {"count": len(agreement), "agreement": list(agreement), "note": procedure_note(plan)}


def calibration_effects(
    plan: CompilePlan, judge: CompiledJudge, held_out: HeldOutComparison
) -> dict[str, CalibrationEffect]:
    """Aspect -> the effect of its calibration on held-out, for aspects with a calibration.

    With folds, the scores of each fold are mapped by the calibration that was fitted without it.
    """
    effects = {}
    for aspect, mapped in held_out.mapped.items():
        chosen, scores = judge.aspects[aspect], held_out.judges["compiled"].scores[aspect]
        if chosen.calibration is not None:
            effects[aspect] = calibration_effect(
                chosen.calibration, scores, plan.level, on_scale=chosen.judge.on_scale, mapped=mapped
            )
    return effects


def costs_more(calls: float, single_calls: float) -> bool:
    """Whether a judge with `calls` LM calls per item is more expensive than a single call."""
    return calls > (1 + EQUAL_COST_TOLERANCE) * single_calls


def choose_export(held_out: HeldOutComparison) -> tuple[Literal["compiled", "single"], str]:
    """Which judge is exported, and why.

    The single call, if held-out shows that the compiled judge is worse, or if it takes more calls and its gain is not
    shown. Otherwise, or if there is no interval of the gain, the compiled judge.
    """
    gain = held_out.gain
    calls, single_calls = held_out.calls_per_item("compiled"), held_out.calls_per_item("single")
    if gain.low is None or gain.high is None:
        return "compiled", "the compiled judge"
    if gain.low > 0:
        return "compiled", "the compiled judge, which is better than a single call"
    if gain.high < 0:
        reason = "held-out shows that it is worse than a single call"
    elif costs_more(calls, single_calls):
        reason = (
            f"held-out does not show that it is better than a single call, and it takes {calls:.1f} calls per item "
            f"instead of {single_calls:.1f}"
        )
    else:
        return "compiled", "the compiled judge, which takes no more calls than a single call"
    return "single", f"the single call and not the compiled judge, for {reason}"
