"""Compares the judges on held-out sources: agreement, gains, decisions, and agreement with single raters.

With folds (`data/folds.py`) every source is held out once, and each fold has its own compiled judge. The figures are
computed as for a single held-out part, on the groups of all folds:

- At summary level the value of a group is computed from the scores of its fold's judge. Figures are means over groups,
  with t intervals.
- At sample and system level the scores of all folds are pooled. The judges of different folds may use the scale
  differently, which lowers the pooled correlation a little.

The intervals have a known limit: folds share sources to tune on and to choose by, so the values of groups are not
independent, and no unbiased estimate of their variance exists (Bengio and Grandvalet, No unbiased estimator of the
variance of K-fold cross-validation, 2004; Nadeau and Bengio, Inference for the generalization error, 2003). The
intervals account for other held-out sources but not for other sources to tune on, and so are somewhat too narrow for
the procedure. The differences between folds are reported with them (`FoldFigures`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from statistics import fmean
from typing import Any, Literal

from debate_judge.data.agreement.results import Agreement
from debate_judge.data.agreement.tables import AgreementTable, Difference, GroupScores, agreement_table
from debate_judge.data.calibration import CalibrationEffect, calibration_effect
from debate_judge.optimize.evaluation.held_out import COMPARED, HeldOutEvaluation
from debate_judge.optimize.plan import CompilePlan
from debate_judge.optimize.search.pooling import EQUAL_COST_TOLERANCE
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.judge import Judgement, corpus_items
from debate_judge.runs.comparison.results import Comparison, EvalSetup, EvaluatedJudge
from debate_judge.runs.runner.runner import calls_per_item, require_scored

COMPILED_MAPPED = "compiled-mapped"
"""The compiled judge again, with its scores mapped to the raters' scale."""


@dataclass(frozen=True, slots=True)
class FoldFigures:
    """Figures of each fold, averaged over aspects, in the correlation and at the level to choose by; None where a
    fold's ratings leave them undefined."""

    sources: tuple[int, ...]
    """Number of held-out sources of each fold."""
    compiled: tuple[float | None, ...]
    """Agreement of each fold's compiled judge on its held-out sources."""
    gain: tuple[float | None, ...]
    """That agreement minus the single call's."""


@dataclass(frozen=True)
class HeldOutComparison(Comparison):
    """The comparison on held-out; the judges are those of `COMPARED`, and `COMPILED_MAPPED` where there are maps. With
    folds, each source was judged by the judges of its fold."""

    calibrated: Mapping[str, Sequence[GroupScores]] = field(default_factory=dict)
    """Aspect -> the compiled judge's scores mapped to the raters' scale, with folds by each fold's map; aspects without
    a map are missing."""
    folds: FoldFigures | None = None
    """None for a single split."""

    @cached_property
    def tables(self) -> dict[str, AgreementTable]:
        """Judge name -> agreement."""
        return {row.name: row.table for row in self.rows}

    @cached_property
    def calls(self) -> dict[str, dict[str, float]]:
        """Judge name, of `COMPARED` -> aspect -> LM calls per item."""
        return {name: {a: calls_per_item(j) for a, j in self.judges[name].judgements.items()} for name in COMPARED}

    def calls_per_item(self, judge: str) -> float:
        """LM calls per item, averaged over aspects."""
        return fmean(self.calls[judge].values())

    @cached_property
    def gain(self) -> Difference:
        """Compiled minus single call, in the reported correlation, averaged over aspects."""
        return self.difference("compiled", "single")

    @cached_property
    def gains(self) -> dict[str, Difference]:
        """Aspect -> compiled minus single call, with intervals that hold for all aspects together in 95 % of cases
        (Bonferroni: each has the level 1 - .05 / aspects)."""
        compiled, single = (self.judges[name].scores for name in ("compiled", "single"))
        difference = partial(self.setup.difference, family_size=len(compiled))
        return {aspect: difference({aspect: compiled[aspect]}, {aspect: single[aspect]}) for aspect in compiled}

    @cached_property
    def gain_of_knowledge(self) -> Difference:
        """The single call with the same knowledge minus the single call: the effect of what was learnt."""
        return self.difference("informed_single", "single")

    @cached_property
    def gain_over_informed(self) -> Difference:
        """Compiled minus the single call with the same knowledge: the effect of the debate."""
        return self.difference("compiled", "informed_single")


def above_zero(agreement: Agreement) -> bool:
    """Whether agreement is shown to be above chance: the interval, or without one the value, is above 0."""
    bound = agreement.value if agreement.low is None else agreement.low
    return bound is not None and bound > 0


def compare_held_out(plan: CompilePlan, evaluations: Sequence[HeldOutEvaluation]) -> HeldOutComparison:
    """Compare the judges on held-out, by the evaluations of all folds, or by one.

    Raises:
        dspy.LMError: A judge left too many items without a score.
    """
    for name in COMPARED:
        by_fold = [evaluation.judgements[name] for evaluation in evaluations]
        judgements = [j for by_aspect in by_fold for judged, _ in by_aspect.values() for j in judged]
        require_scored(judgements, plan.settings.max_unscored, f"held-out items ({name.replace('_', ' ')})")
    calibrated = _calibrated(plan, evaluations)
    judges = {name: _judge(plan, evaluations, name) for name in COMPARED}
    if len(calibrated) == len(plan.data.aspects):
        judges[COMPILED_MAPPED] = EvaluatedJudge(calibrated)
    return HeldOutComparison(
        comparison_setup(plan),
        judges,
        baseline="single",
        calibrated=calibrated,
        folds=fold_figures(plan, evaluations) if plan.data.cross_validated else None,
    )


def comparison_setup(plan: CompilePlan) -> EvalSetup:
    """What the held-out comparison measures."""
    data, judge = plan.data, plan.judge
    cuts = data.cuts if judge.on_scale and not judge.compares_pairs else {}
    statistics, seed = (plan.statistic,), plan.settings.seed
    return EvalSetup(data.evaluation_corpus, data.aspects, data.level, statistics, seed, cuts, data.decision_rules)


def _judge(plan: CompilePlan, evaluations: Sequence[HeldOutEvaluation], name: str) -> EvaluatedJudge:
    """A compared judge on the evaluation corpus, with folds each group by the judge of its fold."""
    groups = {
        (aspect, group.group): group
        for evaluation in evaluations
        for aspect, of_aspect in evaluation.scores[name].items()
        for group in of_aspect
    }
    corpus = plan.data.evaluation_corpus
    return EvaluatedJudge(
        {a.name: [groups[a.name, group.id] for group in corpus.groups] for a in plan.data.aspects},
        _judgements(plan, evaluations, name),
        on_scale=(plan.single if name == "single" else plan.judge).on_scale,
    )


def _judgements(plan: CompilePlan, evaluations: Sequence[HeldOutEvaluation], judge: str) -> dict[str, list[Judgement]]:
    """Aspect -> judgements, in the order of the evaluation corpus."""
    judgements = {}
    for aspect in plan.data.aspects:
        by_item = {
            item.key: judgement
            for evaluation in evaluations
            for item, judgement in zip(
                corpus_items(evaluation.held_out, aspect), evaluation.judgements[judge][aspect.name][0], strict=True
            )
        }
        judgements[aspect.name] = [by_item[item.key] for item in corpus_items(plan.data.evaluation_corpus, aspect)]
    return judgements


def _calibrated(plan: CompilePlan, evaluations: Sequence[HeldOutEvaluation]) -> dict[str, list[GroupScores]]:
    """Aspect -> scores of the compiled judges mapped to the raters' scale, in the order of the evaluation corpus."""
    calibrated = {}
    for aspect in plan.data.aspects:
        maps = [evaluation.judge.aspects[aspect.name].calibration for evaluation in evaluations]
        mapped = {
            group.group: group
            for calibration, evaluation in zip(maps, evaluations, strict=True)
            if calibration is not None
            for group in calibration.map_groups(evaluation.scores["compiled"][aspect.name])
        }
        if all(calibration is not None for calibration in maps):
            calibrated[aspect.name] = [mapped[group.id] for group in plan.data.evaluation_corpus.groups]
    return calibrated


def fold_figures(plan: CompilePlan, evaluations: Sequence[HeldOutEvaluation]) -> FoldFigures:
    """The figures of the single folds."""
    level, statistic = plan.data.level, plan.statistic

    def agreement(scores: Mapping[str, Sequence[GroupScores]]) -> float | None:
        return agreement_table(scores, levels=(level,)).average[level][statistic].value

    setup, by_fold = comparison_setup(plan), [evaluation.scores for evaluation in evaluations]
    return FoldFigures(
        tuple(evaluation.held_out.sources for evaluation in evaluations),
        tuple(agreement(scores["compiled"]) for scores in by_fold),
        tuple(setup.difference(scores["compiled"], scores["single"]).value for scores in by_fold),
    )


def procedure_note(plan: CompilePlan) -> str:
    """How held-out figures from folds were estimated."""
    return f"Estimated by {len(plan.data.folds)}-fold nested cross-validation; intervals are slightly too narrow."


def folds_json(plan: CompilePlan, folds: FoldFigures) -> dict[str, Any]:
    """The figures of all folds as JSON values."""
    return {"count": len(folds.sources), **asdict(folds), "note": procedure_note(plan)}


# --- calibration ---


def calibration_effects(
    plan: CompilePlan, judge: CompiledJudge, held_out: HeldOutComparison
) -> dict[str, CalibrationEffect]:
    """Aspect -> the effect of its calibration on held-out, for aspects with a calibration.

    With folds, the scores of each fold are mapped by the calibration that was fitted without it.
    """
    effects = {}
    for aspect in plan.data.aspects:
        chosen, mapped = judge.aspects[aspect.name], held_out.calibrated.get(aspect.name)
        if chosen.calibration is not None and mapped is not None:
            scores = held_out.judges["compiled"].scores[aspect.name]
            effects[aspect.name] = calibration_effect(
                chosen.calibration, scores, plan.data.level, on_scale=chosen.judge.on_scale, mapped=mapped
            )
    return effects


# --- what is exported ---


@dataclass(frozen=True)
class ExportChoice:
    """The judge that is exported."""

    judge: CompiledJudge
    name: Literal["compiled", "single"]
    """Of `held_out.COMPARED`."""
    reason: str


def costs_more(calls: float, single_calls: float) -> bool:
    """Whether a judge with `calls` LM calls per item is more expensive than a single call."""
    return calls > (1 + EQUAL_COST_TOLERANCE) * single_calls


def choose_export(plan: CompilePlan, compiled: CompiledJudge, held_out: HeldOutComparison) -> ExportChoice:
    """Choose the judge to export.

    The single call, if held-out shows that the compiled judge is worse, or if it takes more calls and its gain is not
    shown. Otherwise, or if there is no interval of the gain, the compiled judge.
    """
    gain = held_out.gain
    calls, single_calls = held_out.calls_per_item("compiled"), held_out.calls_per_item("single")
    if gain.low is None or gain.high is None:
        return ExportChoice(compiled, "compiled", "the compiled judge")
    if gain.low > 0:
        return ExportChoice(compiled, "compiled", "the compiled judge, which is better than a single call")
    if gain.high < 0:
        reason = "held-out shows that it is worse than a single call"
    elif costs_more(calls, single_calls):
        reason = (
            f"held-out does not show that it is better than a single call, and it takes {calls:.1f} calls per item "
            f"instead of {single_calls:.1f}"
        )
    else:
        return ExportChoice(compiled, "compiled", "the compiled judge, which takes no more calls than a single call")
    judge = AspectJudge(plan.single.deepcopy())
    return ExportChoice(
        CompiledJudge(compiled.task, dict.fromkeys(compiled.aspects, judge)),
        "single",
        f"the single call and not the compiled judge, for {reason}",
    )
