"""The learning curve: held-out agreement after tuning on fewer train sources, to see whether more ratings would help.

The choices for each aspect (rounds, persona, Tie-breaker, reading, granularity) are fixed. The judge is tuned on 0, 4,
8, 16, … and all train sources, each a part of the next, and scores held-out. So the curve measures the effect of tuning
on this judge; with fewer ratings another judge might have been chosen, and all of dev is used throughout. For an aspect
whose chosen judge has no knowledge of the raters, the curve uses what the tuner found, because with more ratings it
might be chosen. With folds, each keeps its own choices.
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
from debate_judge.optimize import optimizer
from debate_judge.optimize.context import CompilePlan, Run, label_of
from debate_judge.optimize.evaluation.held_out import HeldOutEvaluation, judge_held_out
from debate_judge.optimize.optimizer import TunedJudges
from debate_judge.optimize.search.knowledge import TUNED
from debate_judge.optimize.search.outcomes import SearchResult
from debate_judge.optimize.search.points import NO_KNOWLEDGE, Point
from debate_judge.optimize.settings import Settings
from debate_judge.programs.compiled import shared_judges
from debate_judge.programs.judge import Judge
from debate_judge.runs.runner.runner import group_scores
from debate_judge.runs.tracking.tracker import Tracker

logger = logging.getLogger(__name__)

FIRST: Mapping[Level, int] = {"summary": 4, "sample": 16, "system": 4}
"""Train sources of the first step with tuning; more at sample level, where a source may be a single text."""

_WORTH_A_STEP = 4 / 3
"""Least ratio of all train sources to those of the step before."""


@dataclass(frozen=True)
class LearningStep:
    """The judge after tuning on `sources` train sources."""

    sources: int
    table: AgreementTable
    """Agreement on held-out."""
    difference: Difference | None
    """Agreement minus that of the step before, averaged over aspects; None for the first step."""


@dataclass(frozen=True)
class LearningCurve:
    """All steps, from no train source to all of them."""

    steps: tuple[LearningStep, ...]
    fixed: Mapping[str, Point]
    """Aspect -> the fixed choices, with folds those of the first; their `knowledge` is the kind that is tuned."""
    added: tuple[str, ...]
    """Aspects whose chosen judge has no knowledge of the raters."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; every number finite or null."""
        return {
            "steps": [
                {
                    "sources": step.sources,
                    "agreement": step.table.to_json(),
                    "minus_step_before": None if step.difference is None else asdict(step.difference),
                }
                for step in self.steps
            ],
            "fixed": {aspect: asdict(point) for aspect, point in self.fixed.items()},
            "knows_nothing_as_chosen": list(self.added),
        }


def require_learning(settings: Settings) -> None:
    """Refuse a learning curve of a compile without tuning.

    Raises:
        InputError: It has no tuner and shows no examples.
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


def sizes_of(sources: int, level: Level) -> list[int]:
    """The numbers of train sources: 0, the first step and its doubles up to 3/4 of all, and all."""
    sizes, size = [0], FIRST[level]
    while size * _WORTH_A_STEP <= sources:
        sizes.append(size)
        size *= 2
    return [*sizes, sources]


@dataclass(frozen=True)
class _Fold:
    """A held-out part with the fixed choices by aspect."""

    run: Run
    evaluation: HeldOutEvaluation
    fixed: Mapping[str, Point]


def learning_curve(run: Run, tuned: Sequence[TunedJudges], evaluations: Sequence[HeldOutEvaluation]) -> LearningCurve:
    """Tune on growing parts of train, and score held-out with the fixed choices.

    Args:
        run: The compile.
        tuned: What each of the run's halves has learnt from all of its train part.
        evaluations: Those of the folds, half by half.
    """
    plan, whole, left = run.plan, run.plan.sampled_from, iter(evaluations)
    halves = [
        [_Fold(fold, proofs_of_half := next(left), _fixed(judges, proofs_of_half.searches)) for fold in half]
        for half, judges in zip(run.halves, tuned, strict=True)
    ]
    train_size = min(len(half[0].run.plan.data.splits.train.groups) for half in halves)
    sizes = sizes_of(whole or train_size, plan.data.level)
    logger.info("learning curve: %s train sources", ", ".join(map(str, sizes)))
    works = []
    for size in sizes:
        part = size if whole is None else round(size * train_size / whole)
        works += [
            partial(_scores, *each, None if part == train_size else part, size)
            for each in zip(halves, tuned, strict=True)
        ]
    scored = iter(run.tune_at_once(works))
    steps: list[LearningStep] = []
    before: Mapping[str, Sequence[GroupScores]] | None = None
    for size in sizes:
        scores = _merged([next(scored) for _ in halves])
        table = agreement_table(scores, levels=(plan.data.level,), **plan.resampling)
        steps.append(LearningStep(size, table, None if before is None else plan.paired_difference(scores, before)))
        before = scores
    added = dict.fromkeys(aspect for half in halves for fold in half for aspect in _added(fold))
    return LearningCurve(tuple(steps), halves[0][0].fixed, tuple(added))


def _added(fold: _Fold) -> list[str]:
    """Aspects whose chosen judge has no knowledge of the raters."""
    chosen = {aspect: search.chosen.point.knowledge for aspect, search in fold.evaluation.searches.items()}
    return [a for a, knowledge in chosen.items() if knowledge == NO_KNOWLEDGE != fold.fixed[a].knowledge]


def _merged(parts: Sequence[Mapping[str, list[GroupScores]]]) -> dict[str, list[GroupScores]]:
    return {aspect: [group for part in parts for group in part[aspect]] for aspect in parts[0]}


def first_sources(train: Corpus, size: int, seed: int) -> Corpus:
    """A part of train with `size` sources, in train's order; it contains all smaller parts."""
    order = list(range(len(train.groups)))
    random.Random(f"learning curve {seed}").shuffle(order)
    kept = set(order[:size])
    return replace(train, groups=tuple(group for number, group in enumerate(train.groups) if number in kept))


def _with_part(run: Run, size: int) -> Run:
    """The run with a part of train, and with its own identity, under which tuners keep their state."""
    plan = run.plan
    part = first_sources(plan.data.splits.train, size, plan.settings.seed)
    splits = replace(plan.data.splits, train=part)
    return replace(run, plan=replace(plan, identity=f"{plan.identity}-{size}", data=replace(plan.data, splits=splits)))


def _fixed(learnt: TunedJudges, searches: Mapping[str, SearchResult]) -> dict[str, Point]:
    """Aspect -> the chosen point; if it has no knowledge of the raters, with the first kind that was tuned."""
    kinds = [*learnt.space.knowledge[1:], *(variant.knowledge for variant in learnt.space.rewritten)]
    fixed = {aspect: search.chosen.point for aspect, search in searches.items()}
    for aspect, point in fixed.items():
        if point.knowledge == NO_KNOWLEDGE and kinds:
            fixed[aspect] = replace(point, knowledge=kinds[0], persona=TUNED if kinds[0] == TUNED else point.persona)
    return fixed


def _scores(half: Sequence[_Fold], learnt: TunedJudges, part: int | None, size: int) -> dict[str, list[GroupScores]]:
    """Aspect -> scores on all held-out parts of a half after tuning on `part` train sources, None for all, which has
    `learnt` this; `size` is for labels. Aspects share calls as in the compiled judge."""
    if part:
        learnt = optimizer.compile(_with_part(half[0].run, part))
    found = []
    for fold in half:
        plan, what = fold.run.plan, f"learning curve, {size}"
        points = {a: replace(p, knowledge=NO_KNOWLEDGE) for a, p in fold.fixed.items()} if part == 0 else fold.fixed
        judges: dict[str, Judge] = {}
        for unit in plan.units:
            for aspect in unit:
                point = points[aspect.name]
                # If tuning on so few sources did not give this kind of knowledge, the variant is the untuned judge.
                judge = learnt.variants[label_of(unit)][point.variant].judge
                judges[aspect.name] = judge.with_debate(rounds=point.rounds, tie_breaker=point.tie_breaker)
        judged = judge_held_out(fold.run, {what: shared_judges(judges)}, of="")[what]
        searches, held_out = fold.evaluation.searches, plan.data.splits.held_out
        granularity = {a: searches[a].scores.granularity(a, point) for a, point in points.items()}
        found.append(
            {a.name: group_scores(held_out, a, judged[a.name], granularity[a.name]) for a in plan.data.aspects}
        )
    return _merged(found)
