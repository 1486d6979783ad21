"""The learning curve: held-out agreement after tuning on fewer train sources, to see whether more ratings would help.

The choices for each aspect (rounds, persona, Tie-breaker, reading, granularity) are fixed. The judge is tuned on 0, 4,
8, 16, … and all train sources, each a subset of the next, and scores held-out. So the curve measures the effect of
tuning on this judge; with fewer ratings another judge might have been chosen, and all of dev is used throughout. For an
aspect whose chosen judge has no knowledge about the raters, the curve uses what the tuner learnt, because with more
ratings it might be chosen. With folds, each keeps its own choices.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from debate_judge.data.agreement.tables import AgreementTable, Difference, GroupScores, Level, agreement_table
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Corpus
from debate_judge.optimize.evaluation.held_out import HeldOutEvaluation, judge_held_out
from debate_judge.optimize.plan import CompilePlan, CompileRun, unit_name
from debate_judge.optimize.search.knowledge import TUNED
from debate_judge.optimize.search.outcomes import SearchResult
from debate_judge.optimize.search.points import NO_KNOWLEDGE, Point
from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuning import TunedJudges, tune_judges
from debate_judge.programs.compiled import shared_judges
from debate_judge.programs.judge import Judge
from debate_judge.runs.runner.runner import group_scores
from debate_judge.runs.tracking.tracker import Tracker

logger = logging.getLogger(__name__)

FIRST_SIZE: Mapping[Level, int] = {"summary": 4, "sample": 16, "system": 4}
"""Train sources of the first step with tuning; more at sample level, where a source may be a single text."""

_MIN_LAST_RATIO = 4 / 3
"""Least ratio of the last step's train sources, which are all, to those of the step before it."""


@dataclass(frozen=True)
class LearningStep:
    """The judge after tuning on `sources` train sources."""

    sources: int
    table: AgreementTable
    """Agreement on held-out."""
    difference: Difference | None
    """Agreement minus that of the previous step, averaged over aspects; None for the first step."""


@dataclass(frozen=True)
class LearningCurve:
    """All steps, from no train source to all of them."""

    steps: tuple[LearningStep, ...]
    fixed_points: Mapping[str, Point]
    """Aspect -> the fixed choices, with folds those of the first; their `knowledge` is the kind that is tuned."""
    aspects_without_knowledge: tuple[str, ...]
    """Aspects whose chosen judge has no knowledge about the raters."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; every number finite or null."""
        return {
            "steps": [
                {
                    "sources": step.sources,
                    "agreement": step.table.to_json(),
                    "difference_to_previous_step": None if step.difference is None else asdict(step.difference),
                }
                for step in self.steps
            ],
            "fixed": {aspect: asdict(point) for aspect, point in self.fixed_points.items()},
            "aspects_without_knowledge": list(self.aspects_without_knowledge),
        }


def require_learning(settings: Settings) -> None:
    """Refuse a learning curve of a compile that learns nothing.

    Raises:
        InputError: It has neither tuner nor examples.
    """
    if settings.learning_curve and settings.tuner == "none" and not settings.examples:
        raise InputError(
            "nothing is learnt, so that there is no learning curve",
            field="learning-curve",
            expected="a tuner, or --examples",
            found="--tuner none",
        )


def log_curve(plan: CompilePlan, tracker: Tracker, curve: LearningCurve) -> None:
    """Log the learning curve in the run."""
    level, statistic = plan.data.level, plan.statistic
    tracker.log_json("learning_curve.json", curve.to_json())
    for step in curve.steps:
        tracker.log_metrics({"learning_curve": step.table.average[level][statistic].value}, step=step.sources)


def train_sizes(sources: int, level: Level) -> list[int]:
    """The numbers of train sources: 0, the first step and its doubles up to 3/4 of all, and all."""
    sizes, size = [0], FIRST_SIZE[level]
    while size * _MIN_LAST_RATIO <= sources:
        sizes.append(size)
        size *= 2
    return [*sizes, sources]


@dataclass(frozen=True)
class _FixedFold:
    """A fold's held-out evaluation, with its fixed choices by aspect."""

    run: CompileRun
    evaluation: HeldOutEvaluation
    fixed_points: Mapping[str, Point]


def learning_curve(
    run: CompileRun, tuned: Sequence[TunedJudges], evaluations: Sequence[HeldOutEvaluation]
) -> LearningCurve:
    """Tune on growing subsets of train, and score held-out with the fixed choices.

    Args:
        run: The compile.
        tuned: For each of the run's halves the judges tuned on its full train part.
        evaluations: Those of the folds, half by half.
    """
    plan, full_size, remaining = run.plan, run.plan.full_train_size, iter(evaluations)
    halves = [
        [_FixedFold(fold, evaluation := next(remaining), _fixed_points(judges, evaluation.searches)) for fold in half]
        for half, judges in zip(run.halves, tuned, strict=True)
    ]
    train_size = min(len(half[0].run.plan.data.splits.train.groups) for half in halves)
    sizes = train_sizes(full_size or train_size, plan.data.level)
    logger.info("learning curve: %s train sources", ", ".join(map(str, sizes)))
    jobs = []
    for size in sizes:
        subset_size = size if full_size is None else round(size * train_size / full_size)
        jobs += [
            partial(_scores_after_tuning, half, judges, None if subset_size == train_size else subset_size, size)
            for half, judges in zip(halves, tuned, strict=True)
        ]
    scored = iter(run.tune_concurrently(jobs))
    steps: list[LearningStep] = []
    previous: Mapping[str, Sequence[GroupScores]] | None = None
    for size in sizes:
        scores = _merged([next(scored) for _ in halves])
        table = agreement_table(scores, levels=(plan.data.level,), **plan.resampling)
        steps.append(LearningStep(size, table, None if previous is None else plan.paired_difference(scores, previous)))
        previous = scores
    without_knowledge = dict.fromkeys(aspect for half in halves for fold in half for aspect in _without_knowledge(fold))
    return LearningCurve(tuple(steps), halves[0][0].fixed_points, tuple(without_knowledge))


def _without_knowledge(fold: _FixedFold) -> list[str]:
    """Aspects whose chosen judge has no knowledge about the raters."""
    chosen = {aspect: search.chosen.point.knowledge for aspect, search in fold.evaluation.searches.items()}
    return [a for a, knowledge in chosen.items() if knowledge == NO_KNOWLEDGE != fold.fixed_points[a].knowledge]


def _merged(parts: Sequence[Mapping[str, list[GroupScores]]]) -> dict[str, list[GroupScores]]:
    return {aspect: [group for part in parts for group in part[aspect]] for aspect in parts[0]}


def train_subset(train: Corpus, size: int, seed: int) -> Corpus:
    """A random subset of `size` train sources, in train's order; it contains all smaller subsets."""
    order = list(range(len(train.groups)))
    random.Random(f"learning curve {seed}").shuffle(order)
    kept = set(order[:size])
    return replace(train, groups=tuple(group for number, group in enumerate(train.groups) if number in kept))


def _with_subset(run: CompileRun, size: int) -> CompileRun:
    """The run with a subset of train."""
    data = run.plan.data
    splits = replace(data.splits, train=train_subset(data.splits.train, size, run.plan.settings.seed))
    return replace(run, plan=replace(run.plan, data=replace(data, splits=splits)))


def _fixed_points(tuned: TunedJudges, searches: Mapping[str, SearchResult]) -> dict[str, Point]:
    """Aspect -> the chosen point; if it has no knowledge about the raters, with the first kind that was learnt."""
    kinds = [*tuned.space.knowledge[1:], *(variant.knowledge for variant in tuned.space.rewritten)]
    fixed = {aspect: search.chosen.point for aspect, search in searches.items()}
    for aspect, point in fixed.items():
        if point.knowledge == NO_KNOWLEDGE and kinds:
            fixed[aspect] = replace(point, knowledge=kinds[0], persona=TUNED if kinds[0] == TUNED else point.persona)
    return fixed


def _scores_after_tuning(
    half: Sequence[_FixedFold], tuned: TunedJudges, subset_size: int | None, size: int
) -> dict[str, list[GroupScores]]:
    """Aspect -> scores on all held-out parts of a half after tuning on `subset_size` train sources; None takes the
    judges `tuned` on all. `size` is for labels. Aspects share calls as in the compiled judge."""
    if subset_size:
        tuned = tune_judges(_with_subset(half[0].run, subset_size))
    by_fold = []
    for fold in half:
        plan, label, points = fold.run.plan, f"learning curve, {size}", fold.fixed_points
        if subset_size == 0:
            points = {aspect: replace(point, knowledge=NO_KNOWLEDGE) for aspect, point in points.items()}
        judges: dict[str, Judge] = {}
        for unit in plan.units:
            for aspect in unit:
                point = points[aspect.name]
                # If tuning on so few sources did not give this kind of knowledge, the variant is the untuned judge.
                judge = tuned.variants[unit_name(unit)][point.variant].judge
                judges[aspect.name] = judge.with_debate(rounds=point.rounds, tie_breaker=point.tie_breaker)
        judged = judge_held_out(fold.run, {label: shared_judges(judges)}, label_prefix="")[label]
        searches, held_out = fold.evaluation.searches, plan.data.splits.held_out
        granularity = {a: searches[a].scores.granularity(a, point) for a, point in points.items()}
        by_fold.append(
            {a.name: group_scores(held_out, a, judged[a.name], granularity[a.name]) for a in plan.data.aspects}
        )
    return _merged(by_fold)
