"""Calibration of the chosen judges: the map from their scores to the raters' scale, and its effect on held-out.

The map is fitted on train and dev, with the scores that the judge was chosen by. Scores of a train source come from
judges tuned without it (`search.choice_scores`): a judge is closer to ratings that it has seen, and a map fitted to
such scores would be too steep. Sources whose ratings are all equal cannot serve for choosing, because they rank
nothing; for the map they are as good as others, and are scored here.
"""

from __future__ import annotations

from debate_judge.data.calibration import Calibration, CalibrationEffect, effect_of, fit_calibration
from debate_judge.optimize.context import CompilePlan, Run, label_of
from debate_judge.optimize.proof.held_out import HeldOut
from debate_judge.optimize.search.choice_scores import ChoiceScores, CrossFitted
from debate_judge.optimize.search.outcomes import SearchResult
from debate_judge.programs.compiled import CompiledJudge


def calibrations(run: Run, found: SearchResult) -> dict[str, Calibration]:
    """Aspect -> map, for the aspects of one unit; none for a judge of pairs, whose outcomes do not rate single texts.

    Raises:
        dspy.LMError: The LM failed for good.
    """
    point, aspects, plan = found.chosen.point, found.scores.aspects, run.plan
    chosen = found.scores.variants[point.variant]
    if chosen.judge.compares:
        return {}
    parts = plan.choice(aspects, ranked=False)
    # No judge was tuned on these groups, because examples are groups whose ratings differ.
    places = [(aspect.name, group.id) for aspect in aspects for group in parts["train"].groups]
    others = CrossFitted(chosen.judge, {place: chosen.at("train", place) or chosen.judge for place in places})
    fixed = {aspect.name: found.scores.granularity(aspect.name, point) for aspect in aspects}
    unranked = ChoiceScores(
        {point.variant: others}, parts, aspects, run.runner, label=calibration_label(label_of(aspects)), fixed=fixed
    )
    more, _ = unranked.scores(point)
    fitted = {
        aspect.name: fit_calibration(
            [*found.chosen.scores[aspect.name], *more[aspect.name]], aspect.scale, on_scale=chosen.judge.on_scale
        )
        for aspect in aspects
    }
    return {name: one for name, one in fitted.items() if one is not None}


def calibration_label(label: str) -> str:
    """The name of a unit's calibration in stages and progress."""
    return f"{label}: calibration"


def calibration_effects(plan: CompilePlan, judge: CompiledJudge, held_out: HeldOut) -> dict[str, CalibrationEffect]:
    """Aspect -> the effect of its calibration on held-out, for aspects with a calibration.

    With folds, the scores of each fold are mapped by the calibration that was fitted without it.
    """
    found = {}
    for aspect in plan.data.aspects:
        own, mapped = judge.aspects[aspect.name], held_out.calibrated.get(aspect.name)
        if own.calibration is not None and mapped is not None:
            scores = held_out.scores["compiled"][aspect.name]
            found[aspect.name] = effect_of(
                own.calibration, scores, plan.data.level, on_scale=own.judge.on_scale, mapped=mapped
            )
    return found
