"""Calibration of the chosen judges: the map from their scores to the raters' scale, and what it changes on held-out.

The map is fitted to the ratings of train and dev, on the scores that the judge was chosen by: those of a train source
come from judges that learnt without it (`search.choice_scores`), for a judge is nearer to ratings that it has seen than
to others, and the map would trust it too much. Sources whose ratings do not differ say nothing of rank, so that no
judge is chosen by them; they say as much as others of the raters' scale, and are asked about here.
"""

from __future__ import annotations

from debate_judge.data.calibration import Calibration, CalibrationEffect, effect_of, fit_calibration
from debate_judge.optimize.context import CompilePlan, Run, label_of
from debate_judge.optimize.proof.held_out import HeldOut
from debate_judge.optimize.search.choice_scores import ChoiceScores, CrossFitted
from debate_judge.optimize.search.outcomes import SearchResult
from debate_judge.programs.compiled import CompiledJudge


def calibrations(run: Run, found: SearchResult) -> dict[str, Calibration]:
    """Aspect -> map, for the aspects of one unit; none for a judge of pairs, whose outcomes are no scores of a text.

    Raises:
        dspy.LMError: The LM failed for good.
    """
    point, aspects, plan = found.chosen.point, found.scores.aspects, run.plan
    chosen = found.scores.variants[point.variant]
    if chosen.judge.compares:
        return {}
    parts = plan.choice(aspects, ranked=False)
    # Whatever learns from examples has not seen these groups: an example is a group whose ratings differ.
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
    """The name, in stages and progress, of what is asked for the calibration of a unit."""
    return f"{label}: calibration"


def calibration_effects(plan: CompilePlan, judge: CompiledJudge, held_out: HeldOut) -> dict[str, CalibrationEffect]:
    """Aspect -> what its calibration changes on held-out; no entry where the judge has none.

    With folds the scores of each are mapped by what was fitted without it.
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
