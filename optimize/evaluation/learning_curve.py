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
    tracker.json("learning_curve.json", curve.to_json())
    for step in curve.steps:
        tracker.metrics({"learning_curve": step.table.average[level][statistic].value}, step=step.sources)


def sizes_of(sources: int, level: Level) -> list[int]:
    """The numbers of train sources: 0, the first step and its doubles up to 3/4 of all, and all."""
    found, size = [0], FIRST[level]
    while size * _WORTH_A_STEP <= sources:
        found.append(size)
        size *= 2
    return [*found, sources]


def learning_curve(run: Run, evaluations: Sequence[HeldOutEvaluation]) -> LearningCurve:
    """Tune on growing parts of train, and score held-out with the fixed choices.

    The tuning on all of train is repeated from the stored replies.
    """
    plan, whole = run.plan, run.plan.sampled_from
    # Held-out parts whose judges share a train part are tuned for together.
    halves = [_Half(replace(run, plan=own[0].plan), own) for own in _by_train(evaluations)]
    here = min(len(half.run.plan.data.splits.train.groups) for half in halves)
    steps: list[LearningStep] = []
    before: Mapping[str, Sequence[GroupScores]] | None = None
    for size in sizes_of(whole or here, plan.data.level):
        logger.info("learning curve: %d of %d train sources", size, whole or here)
        part = size if whole is None else round(size * here / whole)
        scores = _merged([half.scores(None if part == here else part, size) for half in halves])
        steps.append(_step(plan, size, scores, before))
        before = scores
    added = dict.fromkeys(aspect for half in halves for aspect in half.added)
    return LearningCurve(tuple(steps), halves[0].fixed[0], tuple(added))


class _Half:
    """The held-out parts whose judges share a train part, with their fixed choices by aspect."""

    def __init__(self, run: Run, evaluations: Sequence[HeldOutEvaluation]) -> None:
        self.run, self.evaluations = run, evaluations
        self.everything = optimizer.compile(run)
        self.fixed = [
            {a: _fixed(self.everything, found.chosen.point) for a, found in evaluation.searches.items()}
            for evaluation in evaluations
        ]

    @property
    def added(self) -> list[str]:
        """Aspects whose chosen judge has no knowledge of the raters."""
        return [
            aspect
            for evaluation, fixed in zip(self.evaluations, self.fixed, strict=True)
            for aspect, found in evaluation.searches.items()
            if found.chosen.point.knowledge == NO_KNOWLEDGE != fixed[aspect].knowledge
        ]

    def scores(self, part: int | None, size: int) -> dict[str, list[GroupScores]]:
        """The scores on all held-out parts after tuning on `part` train sources, None for all; `size` is for labels."""
        learnt = self.everything if not part else optimizer.compile(_with_part(self.run, part))
        found = []
        for evaluation, fixed in zip(self.evaluations, self.fixed, strict=True):
            points = {a: replace(p, knowledge=NO_KNOWLEDGE) for a, p in fixed.items()} if part == 0 else fixed
            found.append(_scores(replace(self.run, plan=evaluation.plan), learnt, points, evaluation.searches, size))
        return _merged(found)


def _by_train(evaluations: Sequence[HeldOutEvaluation]) -> list[list[HeldOutEvaluation]]:
    found: dict[str, list[HeldOutEvaluation]] = {}
    for evaluation in evaluations:
        found.setdefault(evaluation.plan.data.splits.fingerprints["train"], []).append(evaluation)
    return list(found.values())


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


def _fixed(learnt: TunedJudges, chosen: Point) -> Point:
    """The chosen point; if it has no knowledge of the raters, with the first kind that was tuned."""
    kinds = [*learnt.space.knowledge[1:], *(variant.knowledge for variant in learnt.space.rewritten)]
    if chosen.knowledge != NO_KNOWLEDGE or not kinds:
        return chosen
    return replace(chosen, knowledge=kinds[0], persona=TUNED if kinds[0] == TUNED else chosen.persona)


def _scores(
    run: Run,
    learnt: TunedJudges,
    points: Mapping[str, Point],
    searches: Mapping[str, SearchResult],
    size: int,
) -> dict[str, list[GroupScores]]:
    """Aspect -> held-out scores of the judges at these points; aspects share calls as in the compiled judge."""
    held_out = run.plan.data.splits.held_out
    judges: dict[str, Judge] = {}
    for unit in run.plan.units:
        for aspect in unit:
            point = points[aspect.name]
            # If tuning on so few sources did not give this kind of knowledge, the variant is the untuned judge.
            judge = learnt.variants[label_of(unit)][point.variant].judge
            judges[aspect.name] = judge.with_debate(rounds=point.rounds, tie_breaker=point.tie_breaker)
    what = f"learning curve, {size}"
    found = judge_held_out(run, {what: shared_judges(judges)}, of="")[what]
    granularity = {a: searches[a].scores.granularity(a, point) for a, point in points.items()}
    aspects = run.plan.data.aspects
    return {a.name: group_scores(held_out, a, found[a.name], granularity[a.name]) for a in aspects}


def _step(
    plan: CompilePlan,
    size: int,
    scores: Mapping[str, Sequence[GroupScores]],
    before: Mapping[str, Sequence[GroupScores]] | None,
) -> LearningStep:
    table = agreement_table(scores, levels=(plan.data.level,), **plan.resampling)
    return LearningStep(size, table, None if before is None else plan.versus(scores, before))
