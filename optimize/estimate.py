"""What a compile would take before anything is spent, by carrying out its plan on a sample of each part.

Executed are the compile's own tuning, search and held-out scoring, with an LM for dry runs (`programs.dry_run`). Two
more things decide what is asked and are not known beforehand: what the tuner writes, and which points the search
visits and chooses. In the expected case they are what comes of the sample; in the lower and the upper case they are
bounds, put in the place of tuner and search.
"""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

from tqdm import tqdm

from debate_judge.optimize.context import NoTracking, Run
from debate_judge.optimize.estimate_sample import sample_of, stages_of
from debate_judge.optimize.job import prepared
from debate_judge.optimize.measures.learning_curve import learning_curve
from debate_judge.optimize.proof.procedure import prove
from debate_judge.optimize.reflection import REFLECTION, reflection_lm
from debate_judge.optimize.search.choice_scores import ChoiceScores
from debate_judge.optimize.search.course import breadth_of
from debate_judge.optimize.search.outcomes import Outcomes, SearchResult
from debate_judge.optimize.search.points import NO_KNOWLEDGE, JudgeVariant, Point, Probe, Space
from debate_judge.optimize.search.study import OnTrial, Search, SearchPlan, Strategy, search
from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuners import Tuned, Tuner, as_tuned
from debate_judge.programs.dry_run import DryRunEngine, EstimateCase
from debate_judge.programs.judge import Judge
from debate_judge.programs.make_lm import replies_folder
from debate_judge.runs.estimates.dry_run import Estimate, Target, dry_run_all, reply_tokens
from debate_judge.runs.flags.lm import limits
from debate_judge.runs.runner.runner import JudgeRunner

NOTES = (
    "Search: at most {probes} single calls, debates and Tie-breakers, each for all aspects, on dev and train, and",
    "a few more side by side where that may be chosen, {most} (--effort {effort}). Those that come first are",
    "always tried; the others are whatever is new (upper), nothing new (lower), or what the search tries on the",
    "sample (expected). Held-out: chosen is the cheapest point (lower), the dearest (upper), or the one that",
    "the search chooses on the sample (expected).",
)


NOTES_ON_FOLDS = (
    "Folds (by default with few sources): each repeat tunes twice, once on each half of the sources, and searches for",
    "each fold and for the exported judge; what they ask alike is asked once. --folds 1 measures by a single split.",
)

LEARNING_NOTE = "Tuning and held-out include the steps of the learning curve."


def estimate_compile(settings: Settings, personas: Mapping[str, str], lengths: str = "") -> Estimate:
    """Estimate a compile, stage by stage; nothing is written.

    Args:
        settings: As for the compile.
        personas: Name -> text of the personas that a debate may be given.
        lengths: The value of `--estimate`.

    Raises:
        InputError: Settings or data cannot be used.
    """
    target = Target(
        settings.lm,
        settings.api_base,
        replies_folder(settings.store, settings.lm),
        {"temperature": settings.temperature, "max_tokens": settings.max_tokens},
        limits(settings),
        reply_tokens(lengths),
        {REFLECTION: settings.reflection_lm or settings.lm},
    )
    plan = prepared(settings, personas)
    sample = sample_of(plan)
    stages = stages_of(plan, sample)
    steps = tqdm(total=3, desc="dry run", unit="case", delay=2, file=sys.stderr)

    def work(case: EstimateCase, runner: JudgeRunner) -> None:
        reflection = reflection_lm(settings, runner.lm, DryRunEngine(case))
        run = _run(case, Run.of(sample, runner, NoTracking(), reflection))
        _, proofs = prove(run)
        if settings.learning_curve:
            learning_curve(run, proofs, len(plan.data.splits.train.groups))
        steps.update()

    with steps, _without_progress_lines():
        return dry_run_all(target, stages, work, _row, remember=bool(plan.data.repeats))


def notes(settings: Settings) -> list[str]:
    """What the figures assume about the search."""
    breadth = breadth_of(settings.effort, settings.trials)
    most = f"at most {breadth.candidates:,} candidates of each aspect"
    lines = [line.format(probes=breadth.probes, most=most, effort=settings.effort) for line in NOTES]
    folds = NOTES_ON_FOLDS if settings.folds != 1 else ()
    return [*lines, *folds, *([LEARNING_NOTE] if settings.learning_curve else [])]


def _row(stage: str, role: str) -> str:
    return f"{stage}, {'proposals' if role == REFLECTION else 'evaluations'}" if stage.endswith("tuning") else stage


@contextmanager
def _without_progress_lines() -> Iterator[None]:
    """Keep back what a compile says about its progress: nothing of it happens."""
    logger = logging.getLogger("debate_judge.optimize")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _run(case: EstimateCase, plain: Run) -> Run:
    run = replace(plain, tuner=lambda tuning: plain.tuner(replace(tuning, folder=None)))
    if case.name == "lower":
        return replace(
            run, tuner=_changing(run.tuner, lambda judge, tuned: judge), search=_search_by(lambda number: CHEAPEST)
        )
    if case.name == "upper":
        return replace(run, tuner=_changing(run.tuner, _rewritten), search=_search_by(_dearest))
    return replace(run, search=_search_by(lambda number: Strategy()))


def _changing(tuner: Tuner, change: Callable[[Judge, Judge | Tuned], Judge | Tuned]) -> Tuner:
    """The tuner, which asks what it asks, with `change` of the untuned judge and what it returns for its result."""
    return lambda tuning: change(tuning.judge, tuner(tuning))


def _rewritten(judge: Judge, found: Judge | Tuned) -> Judge | Tuned:
    """What the tuner found, or if that is nothing, the judge as if it had found other instructions for every role."""
    tuned = as_tuned(found).judge
    if tuned is judge or tuned.instructions() != judge.instructions():
        return found
    one = tuned.deepcopy()
    for name, predictor in one.named_predictors():
        if name in one.tunable():
            signature = predictor.signature
            predictor.signature = signature.with_instructions(f"{signature.instructions} Be thorough.")
    return one


def _search_by(strategy: Callable[[int], Strategy]) -> Search:
    """The search itself, which leaves no study behind, steered by the `strategy` of its number among those of a run."""
    numbers = count()

    def steered(
        units: Mapping[str, ChoiceScores], space: Space, plan: SearchPlan, on_trial: OnTrial
    ) -> dict[str, SearchResult]:
        return search(units, space, replace(plan, storage=None, strategy=strategy(next(numbers))), on_trial)

    return steered


def _calls(outcomes: Outcomes, point: Point) -> float:
    return sum(outcome.calls for outcome in outcomes.by_point[point].values())


def _choosable(outcomes: Outcomes) -> list[Point]:
    return [point for point in outcomes.by_point if point.knowledge not in outcomes.space.barred]


def _least_called(outcomes: Outcomes) -> dict[str, Point]:
    point = min(_choosable(outcomes), key=lambda p: (_calls(outcomes, p), outcomes.space.plainness(p)))
    return dict.fromkeys(outcomes.units, point)


def _most_called(outcomes: Outcomes) -> dict[str, Point]:
    # Of equally long debates those that know something ask more: they share no first turn with the uncompiled judge.
    point = max(_choosable(outcomes), key=lambda p: (round(_calls(outcomes, p), 6), p.knowledge != NO_KNOWLEDGE))
    return dict.fromkeys(outcomes.units, point)


def _most_promising_if_short(outcomes: Outcomes, points: Sequence[Point]) -> dict[Point, list[float]]:
    """What asks least is worth most."""
    return {point: [-_calls(outcomes, point)] for point in points}


def _most_called_variants(outcomes: Outcomes, points: Sequence[Point]) -> list[Point]:
    """As many as there are aspects, no two of the same variant."""
    aspects = sum(len(scores.aspects) for scores in outcomes.units.values())
    found: dict[JudgeVariant, Point] = {}
    for point in sorted(points, key=lambda point: -_calls(outcomes, point)):
        found.setdefault(point.variant, point)
    return list(found.values())[:aspects]


def _longest_first(study: object, space: Space, seed: int, left: Sequence[Probe]) -> Probe:
    """Debates before Tie-breakers, which are heard about open debates only."""
    return max(left, key=lambda probe: (not probe.tie_breaker, probe.rounds))


def _nothing(study: object, space: Space, seed: int, left: Sequence[Probe]) -> None:
    return None


CHEAPEST = Strategy(
    _most_promising_if_short,
    _nothing,
    lambda outcomes, points: [],
    may_win=lambda challenge, point, asked: False,
    chosen=_least_called,
)
"""A search that tries nothing beyond what every search tries, drops it at once, and chooses what asks least."""


def _dearest(number: int) -> Strategy:
    """A search whose further trials ask as much as they can, which drops nothing, and chooses what asks most. Of what
    asks alike every search prefers something else, as those of folds may: what they have in common is asked once."""

    def luck(point: Point) -> float:
        return 1e-3 * random.Random(f"{number} {point.variant}").random() if number else 0.0

    def worth(outcomes: Outcomes, points: Sequence[Point]) -> dict[Point, list[float]]:
        return {point: [_calls(outcomes, point) + luck(point)] for point in points}

    return Strategy(
        worth,
        _longest_first,
        _most_called_variants,
        may_win=lambda challenge, point, asked: True,
        chosen=_most_called,
    )
