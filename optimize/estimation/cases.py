"""The cases of an estimate: what tuner and search do at least, as expected, and at most."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import dspy
import optuna
from dspy.teleprompt.teleprompt import Teleprompter

from debate_judge.optimize.context import Run
from debate_judge.optimize.search.choice_scores import ChoiceScores
from debate_judge.optimize.search.outcomes import Outcomes, PrunedPoint
from debate_judge.optimize.search.points import NO_KNOWLEDGE, JudgeVariant, Point, Space
from debate_judge.optimize.search.storage import TrialOutcome
from debate_judge.optimize.search.study import OnTrial, SearchPlan, Strategy, Study, StudyMaker
from debate_judge.optimize.tuners import LearntPersona, Tuned, Tuner, details_of, with_details
from debate_judge.optimize.tuners.persona import CRITIC
from debate_judge.programs.dry_run import EstimateCase
from debate_judge.programs.judge import Judge
from debate_judge.runs.estimates.dry_run import DryRunStore


def run_of(case: EstimateCase, run: Run, store: DryRunStore) -> Run:
    """The run with the tuner and the search of a case, which leave nothing behind."""
    if case.name == "lower":
        return replace(
            run,
            tuner=_changing(run.tuner, lambda judge, tuned: Tuned(judge)),
            study=_study_by(lambda number: CHEAPEST, store),
        )
    if case.name == "upper":
        return replace(run, tuner=_changing(run.tuner, _rewritten), study=_study_by(_most_expensive, store))
    return replace(run, study=_study_by(lambda number: Strategy(), store))


class _Changing(Teleprompter):
    """An optimizer that makes the calls of another one, and returns `change` of the untuned judge and its result."""

    def __init__(self, optimizer: Teleprompter, change: Callable[[Judge, Tuned], Tuned]) -> None:
        super().__init__()
        self._optimizer, self._change = optimizer, change

    def compile(self, student: Judge, *, trainset: list[dspy.Example], **kwargs: Any) -> Judge:
        tuned = self._change(student, details_of(self._optimizer.compile(student, trainset=trainset)))
        return with_details(tuned.judge, tuned)


def _changing(tuner: Tuner, change: Callable[[Judge, Tuned], Tuned]) -> Tuner:
    return lambda tuning: _Changing(tuner(tuning), change)


def _rewritten(judge: Judge, tuned: Tuned) -> Tuned:
    """What the tuner found, or if that is nothing, the judge as if it had found other instructions for every role."""
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
    return Tuned(copied)


def _study_by(strategy: Callable[[int], Strategy], store: DryRunStore) -> StudyMaker:
    """The search itself, which leaves no study behind, steered by the `strategy` of its number among those of a run.

    Blocks are of so many sources, however many there are: what is pruned on the sample is counted as it was asked.
    """

    numbers = count()

    def steered(units: Mapping[str, ChoiceScores], space: Space, plan: SearchPlan, on_trial: OnTrial) -> Study:
        begin = len(store.calls)

        def tried(point: Point, outcome: TrialOutcome) -> None:
            nonlocal begin
            if isinstance(outcome, PrunedPoint):
                store.count_unscaled(begin)
            begin = len(store.calls)
            on_trial(point, outcome)

        return Study(units, space, replace(plan, storage=None, strategy=strategy(next(numbers))), tried)

    return steered


def _calls(outcomes: Outcomes, point: Point) -> float:
    return sum(outcome.calls for outcome in outcomes.by_point[point].values())


def _choosable(outcomes: Outcomes) -> list[Point]:
    return [point for point in outcomes.by_point if point.knowledge not in outcomes.space.not_exportable]


def _least_called(outcomes: Outcomes) -> dict[str, Point]:
    point = min(_choosable(outcomes), key=lambda p: (_calls(outcomes, p), outcomes.space.complexity(p)))
    return dict.fromkeys(outcomes.units, point)


def _most_called(outcomes: Outcomes) -> dict[str, Point]:
    """Debates that ask most. Half of the units have other personas than the others, as far as there are any, and every
    second one has other knowledge: what fits together is tried jointly, so that the costliest joint points are met."""
    points = [point for point in _choosable(outcomes) if point.rounds] or _choosable(outcomes)
    ranked = sorted(points, key=lambda p: (-round(_calls(outcomes, p), 6), p.knowledge == NO_KNOWLEDGE))
    personas = list(dict.fromkeys(point.persona for point in ranked))
    by_label = {}
    for number, label in enumerate(outcomes.units):
        with_persona = [p for p in ranked if p.persona == personas[2 * number // len(outcomes.units) % len(personas)]]
        speakers = with_persona[0].rounds, with_persona[0].tie_breaker
        by_knowledge = {p.knowledge: p for p in reversed(with_persona) if (p.rounds, p.tie_breaker) == speakers}
        by_label[label] = list(by_knowledge.values())[number % len(by_knowledge)]
    return by_label


def _most_called_variants(outcomes: Outcomes, points: Sequence[Point]) -> list[Point]:
    """As many as there are aspects, no two of the same variant."""
    aspects = sum(len(scores.aspects) for scores in outcomes.units.values())
    by_variant: dict[JudgeVariant, Point] = {}
    for point in sorted(points, key=lambda point: -_calls(outcomes, point)):
        by_variant.setdefault(point.variant, point)
    return list(by_variant.values())[:aspects]


def _longest_first(left: Sequence[Point]) -> list[Point]:
    """Debates before Tie-breakers, which are asked only about debates that ended without agreement."""
    return sorted(left, key=lambda point: (point.tie_breaker, -point.rounds))


class _PrunesAll(optuna.pruners.BasePruner):
    def prune(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> bool:
        # The first trial is asked about everything in every search.
        return bool(study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,)))


CHEAPEST = Strategy(
    pruner=lambda expensive: _PrunesAll(),
    suggested=lambda left: [],
    read_again=lambda outcomes, points: [],
    chosen=_least_called,
)
"""A search that tries nothing beyond the starting points, prunes all at once, and chooses what asks least."""


def _most_expensive(number: int) -> Strategy:
    """A search whose further trials ask as much as they can, which prunes nothing, and chooses what asks most. Of what
    asks alike every search prefers something else, as those of folds may: what they have in common is asked once."""

    def scorers(outcomes: Outcomes, variants: Sequence[JudgeVariant]) -> list[JudgeVariant]:
        # Whatever few of the variants are compared, searches with different numbers differ in the best of them.
        return [variant for _, variant in sorted((place ^ number, each) for place, each in enumerate(variants))]

    return Strategy(
        pruner=lambda expensive: optuna.pruners.NopPruner(),
        suggested=_longest_first,
        scorers=scorers,
        read_again=_most_called_variants,
        chosen=_most_called,
    )
