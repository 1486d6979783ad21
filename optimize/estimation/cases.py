"""The cases of an estimate: the least, the expected and the most calls of tuner and search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import dspy
import optuna
from dspy.teleprompt.teleprompt import Teleprompter

from debate_judge.optimize.plan import CompileRun
from debate_judge.optimize.search.points import Point
from debate_judge.optimize.search.study import Search, SearchSettings
from debate_judge.optimize.tuners import LearntPersona, Tuner, TuningResult, tuning_result, with_tuning_result
from debate_judge.optimize.tuners.persona import CRITIC
from debate_judge.programs.dry_run import EstimateCase
from debate_judge.programs.judge import Judge


def run_for_case(case: EstimateCase, run: CompileRun) -> CompileRun:
    """The run with the tuner and the search of a case, which store nothing."""
    if case.name == "lower":
        tuner = _transformed(run.tuner, lambda judge, tuned: TuningResult(judge))
        return replace(run, tuner=tuner, adjust_search=_cheapest)
    if case.name == "upper":
        longest = partial(_costliest, longest=run.plan.judge.debate_config.rounds)
        return replace(run, tuner=_transformed(run.tuner, _as_if_rewritten), adjust_search=longest)
    return replace(run, adjust_search=lambda settings: replace(settings, storage=None))


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


class _PruneEverything(optuna.pruners.BasePruner):
    def prune(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> bool:
        # The first trial is never pruned.
        return bool(study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,)))


def _calls(search: Search, point: Point) -> float:
    return sum(outcome.calls for outcome in search.outcomes[point].values())


def _fewest_calls(search: Search, points: Sequence[Point]) -> dict[str, Point]:
    return dict.fromkeys(search.aspects, min(points, key=lambda point: _calls(search, point)))


def _most_calls(search: Search, points: Sequence[Point]) -> dict[str, Point]:
    return dict.fromkeys(search.aspects, max(points, key=lambda point: _calls(search, point)))


def _cheapest(settings: SearchSettings) -> SearchSettings:
    """A search that prunes all it may, whose sampler suggests single calls, and that chooses the fewest calls."""
    sampler = _FixedRounds(0, settings.seed)
    return replace(settings, storage=None, pruner=_PruneEverything(), sampler=sampler, choose=_fewest_calls)


def _costliest(settings: SearchSettings, longest: int) -> SearchSettings:
    """A search that prunes nothing, whose sampler suggests the longest debates, and that chooses the most calls."""
    sampler = _FixedRounds(longest, settings.seed)
    pruner = optuna.pruners.NopPruner()
    return replace(settings, storage=None, pruner=pruner, sampler=sampler, choose=_most_calls)


class _FixedRounds(optuna.samplers.RandomSampler):
    """Suggests at random, with one number of rounds."""

    def __init__(self, rounds: int, seed: int) -> None:
        super().__init__(seed)
        self._rounds = rounds

    def sample_independent(self, study: optuna.Study, trial: Any, param_name: str, param_distribution: Any) -> Any:
        if param_name == "rounds":
            return self._rounds
        return super().sample_independent(study, trial, param_name, param_distribution)
