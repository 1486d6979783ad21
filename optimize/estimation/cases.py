"""The cases of an estimate: the least, the expected and the most calls of tuner and search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import dspy
import optuna
from dspy.teleprompt.teleprompt import Teleprompter

from debate_judge.optimize.plan import CompileRun
from debate_judge.optimize.search.choice_scores import ChoiceScores
from debate_judge.optimize.search.outcomes import Outcomes, PrunedPoint
from debate_judge.optimize.search.points import NO_KNOWLEDGE, JudgeVariant, Point, SearchSpace
from debate_judge.optimize.search.storage import TrialOutcome
from debate_judge.optimize.search.study import OnTrial, SearchSettings, Strategy, Study, StudyFactory
from debate_judge.optimize.tuners import LearntPersona, Tuner, TuningResult, tuning_result, with_tuning_result
from debate_judge.optimize.tuners.persona import CRITIC
from debate_judge.programs.dry_run import EstimateCase
from debate_judge.programs.judge import Judge
from debate_judge.runs.estimates.dry_run import DryRunStore


def run_for_case(case: EstimateCase, run: CompileRun, store: DryRunStore) -> CompileRun:
    """The run with the tuner and the search of a case, which store nothing."""
    if case.name == "lower":
        return replace(
            run,
            tuner=_transformed(run.tuner, lambda judge, tuned: TuningResult(judge)),
            study_factory=_study_factory(lambda number: CHEAPEST, store),
        )
    if case.name == "upper":
        return replace(
            run, tuner=_transformed(run.tuner, _as_if_rewritten), study_factory=_study_factory(_most_expensive, store)
        )
    return replace(run, study_factory=_study_factory(lambda number: Strategy(), store))


class _TransformedOptimizer(Teleprompter):
    """An optimizer that makes the calls of another one, and returns `transform` of the untuned judge and its result."""

    def __init__(self, optimizer: Teleprompter, transform: Callable[[Judge, TuningResult], TuningResult]) -> None:
        super().__init__()
        self._optimizer, self._transform = optimizer, transform

    def compile(self, student: Judge, *, trainset: list[dspy.Example], **kwargs: Any) -> Judge:
        tuned = self._transform(student, tuning_result(self._optimizer.compile(student, trainset=trainset)))
        return with_tuning_result(tuned.judge, tuned)


def _transformed(tuner: Tuner, transform: Callable[[Judge, TuningResult], TuningResult]) -> Tuner:
    return lambda tuning: _TransformedOptimizer(tuner(tuning), transform)


def _as_if_rewritten(judge: Judge, tuned: TuningResult) -> TuningResult:
    """The tuner's result with a persona, or if it changed no instructions, as if it had changed those of all roles."""
    if tuned.judge is judge:
        return tuned
    if tuned.judge.instructions() != judge.instructions():
        learnt = LearntPersona("Be thorough.") if CRITIC in judge.tunable() else None
        return replace(tuned, persona=tuned.persona or learnt)
    copied = tuned.judge.deepcopy()
    for name, predictor in copied.named_predictors():
        if name in copied.tunable():
            signature = predictor.signature
            predictor.signature = signature.with_instructions(f"{signature.instructions} Be thorough.")
    return TuningResult(copied)


def _study_factory(make_strategy: Callable[[int], Strategy], store: DryRunStore) -> StudyFactory:
    """The search itself, without a stored study, with the strategy for its number among the searches of a run.

    Block sizes do not depend on the number of sources, so the calls of a pruned trial are not scaled up.
    """

    numbers = count()

    def make_study(
        units: Mapping[str, ChoiceScores], space: SearchSpace, settings: SearchSettings, on_trial: OnTrial
    ) -> Study:
        first_call = len(store.calls)

        def on_tried(point: Point, outcome: TrialOutcome) -> None:
            nonlocal first_call
            if isinstance(outcome, PrunedPoint):
                store.count_unscaled(first_call)
            first_call = len(store.calls)
            on_trial(point, outcome)

        return Study(units, space, replace(settings, storage=None, strategy=make_strategy(next(numbers))), on_tried)

    return make_study


def _calls(outcomes: Outcomes, point: Point) -> float:
    return sum(outcome.calls for outcome in outcomes.by_point[point].values())


def _fewest_calls(outcomes: Outcomes) -> dict[str, Point]:
    point = min(outcomes.by_point, key=lambda p: (_calls(outcomes, p), outcomes.space.complexity(p)))
    return dict.fromkeys(outcomes.units, point)


def _most_calls(outcomes: Outcomes) -> dict[str, Point]:
    """The debates with most calls; if possible of different personas and knowledge, so that units share no calls."""
    points = [point for point in outcomes.by_point if point.rounds] or list(outcomes.by_point)
    ranked = sorted(points, key=lambda p: (-round(_calls(outcomes, p), 6), p.knowledge == NO_KNOWLEDGE))
    personas = list(dict.fromkeys(point.persona for point in ranked))
    by_unit = {}
    for number, unit in enumerate(outcomes.units):
        with_persona = [p for p in ranked if p.persona == personas[2 * number // len(outcomes.units) % len(personas)]]
        config = with_persona[0].rounds, with_persona[0].tie_breaker
        by_knowledge = {p.knowledge: p for p in reversed(with_persona) if (p.rounds, p.tie_breaker) == config}
        by_unit[unit] = list(by_knowledge.values())[number % len(by_knowledge)]
    return by_unit


def _longest_first(remaining: Sequence[Point]) -> list[Point]:
    """Debates before Tie-breakers, which are asked only about debates that ended without agreement."""
    return sorted(remaining, key=lambda point: (point.tie_breaker, -point.rounds))


class _PruneEverything(optuna.pruners.BasePruner):
    def prune(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> bool:
        # The first trial is never pruned.
        return bool(study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,)))


CHEAPEST = Strategy(
    pruner=_PruneEverything,
    next_points=lambda remaining: [],
    choose=_fewest_calls,
)
"""A search that tries the starting points alone, prunes all after the first block, and chooses the fewest calls."""


def _most_expensive(number: int) -> Strategy:
    """A search whose further trials make as many calls as possible, which prunes nothing, and chooses the most calls.
    Among equals each search prefers another variant, as folds may: calls that they have in common are made once."""

    def rank_variants(outcomes: Outcomes, variants: Sequence[JudgeVariant]) -> list[JudgeVariant]:
        # Searches with different numbers rank another variant first, whichever of them are compared.
        return [v for _, v in sorted((position ^ number, variant) for position, variant in enumerate(variants))]

    return Strategy(
        pruner=optuna.pruners.NopPruner,
        next_points=_longest_first,
        rank_variants=rank_variants,
        choose=_most_calls,
    )
