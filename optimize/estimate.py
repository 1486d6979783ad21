"""What a compile would take before anything is spent, by carrying out its plan on a sample of each part.

Executed are the compile's own tuning, search and held-out scoring, with an LM for dry runs (`programs.dry_run`). Two
more things decide what is asked and are not known beforehand: what the tuner writes, and which points the search
visits and chooses. In the expected case they are what comes of the sample; in the lower and the upper case they are
bounds, put in the place of tuner and search.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tqdm import tqdm

from debate_judge.data.schema import Aspect, Corpus, RatedGroup
from debate_judge.optimize.context import CompilePlan, NoTracking, Run, label_of
from debate_judge.optimize.examples import examples
from debate_judge.optimize.held_out import score_held_out
from debate_judge.optimize.job import prepared
from debate_judge.optimize.measures.calibrating import calibration_label
from debate_judge.optimize.measures.learning_curve import learning_curve
from debate_judge.optimize.reflection import REFLECTION, reflection_lm
from debate_judge.optimize.search.choice_scores import JOINTLY, PARTS, ChoiceScores, search_stage
from debate_judge.optimize.search.course import breadth_of
from debate_judge.optimize.search.outcomes import Outcomes, SearchResult
from debate_judge.optimize.search.points import NO_KNOWLEDGE, JudgeVariant, Point, Probe, Space
from debate_judge.optimize.search.study import OnTrial, Search, SearchPlan, Strategy, search
from debate_judge.optimize.selection import select_all
from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuners import Tuned, Tuner, as_tuned
from debate_judge.programs.dry_run import DryRunEngine, EstimateCase
from debate_judge.programs.judge import Item, Judge, corpus_items
from debate_judge.programs.make_lm import replies_folder
from debate_judge.runs.estimates.dry_run import Estimate, Stage, Target, dry_run_all, reply_tokens
from debate_judge.runs.estimates.items import extent, sampled_groups
from debate_judge.runs.flags.lm import limits
from debate_judge.runs.runner.runner import JudgeRunner

SAMPLED = 96
"""Items that are sampled from each part, over all aspects."""

NOTES = (
    "Search: at most {probes} single calls, debates and Tie-breakers, each for all aspects, on dev and train, and",
    "a few more side by side where that may be chosen, {most} (--effort {effort}). Those that come first are",
    "always tried; the others are whatever is new (upper), nothing new (lower), or what the search tries on the",
    "sample (expected). Held-out: chosen is the cheapest point (lower), the dearest (upper), or the one that",
    "the search chooses on the sample (expected).",
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
    sample = _sample(plan)
    stages = _stages(plan, sample)
    steps = tqdm(total=3, desc="dry run", unit="case", delay=2, file=sys.stderr)

    def work(case: EstimateCase, runner: JudgeRunner) -> None:
        reflection = reflection_lm(settings, runner.lm, DryRunEngine(case))
        run = _run(case, Run.of(sample, runner, NoTracking(), reflection))
        judge, searches = select_all(run)
        score_held_out(run, judge)
        if settings.learning_curve:
            learning_curve(run, searches, len(plan.data.splits.train.groups))
        steps.update()

    with steps, _without_progress_lines():
        return dry_run_all(target, stages, work, _row)


def notes(settings: Settings) -> list[str]:
    """What the figures assume about the search."""
    breadth = breadth_of(settings.effort, settings.trials)
    most = f"at most {breadth.candidates:,} candidates of each aspect"
    lines = [line.format(probes=breadth.probes, most=most, effort=settings.effort) for line in NOTES]
    return [*lines, *([LEARNING_NOTE] if settings.learning_curve else [])]


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


# --- the sample ---


def _sample(plan: CompilePlan) -> CompilePlan:
    """The plan with a sample of each part and judges that only ask the LM."""
    splits, seed = plan.data.splits, plan.settings.seed
    # Train groups that give no example say nothing about tuning.
    useful = {item.group for item in _rated_items(plan, splits.train, plan.data.aspects)}
    tunable = [group for group in splits.train.groups if group.id in useful]
    telling = [group for group in splits.dev.groups if plan.data.tells(group, plan.data.aspects)]

    def few(part: Corpus, groups: Sequence[RatedGroup]) -> Corpus:
        size, ids = max(1, SAMPLED // len(plan.data.aspects)), {group.id for group in groups}
        # The others matter to calibration alone.
        others = sampled_groups([group for group in part.groups if group.id not in ids], size, seed)
        return replace(part, groups=(*sampled_groups(groups, size, seed), *others))

    sampled = replace(
        splits,
        train=few(splits.train, tunable),
        dev=few(splits.dev, telling),
        held_out=few(splits.held_out, splits.held_out.groups),
    )
    return replace(
        plan,
        # Too little may be scored in a sample; that is told when all is.
        settings=replace(plan.settings, max_unscored=1.0),
        data=replace(plan.data, splits=sampled),
        judge=plan.judge.dry_run_copy(),
        single=plan.single.dry_run_copy(),
    )


def _stages(plan: CompilePlan, sample: CompilePlan) -> dict[str, Stage]:
    """The stages by the names that tuning, search and held-out scoring give them."""
    found: dict[str, Stage] = {}
    held_out = plan.data.splits.held_out, sample.data.splits.held_out
    for unit in plan.units:
        label = label_of(unit)
        train = (_rated_items(plan, part.data.splits.train, unit) for part in (plan, sample))
        found[f"{label}: tuning"] = Stage.of(f"{label}: tuning", *map(extent, train))
        whole, few = plan.choice(unit), sample.choice(unit)
        for part in PARTS:
            by = [extent(_items(parts[part], unit)) for parts in (whole, few)]
            for kind in ("debates", "tie-breaks"):
                found[search_stage(label, kind, part)] = Stage.of(f"{label}: search, {kind}", *by)
            unranked = (extent(_items(of.choice(unit, ranked=False)[part], unit)) for of in (plan, sample))
            calibrating = Stage.of(calibration_label(label), *unranked)
            found |= {search_stage(calibration_label(label), k, part): calibrating for k in ("debates", "tie-breaks")}
            joint = Stage.of(f"{JOINTLY}: search", *by)
            found |= {search_stage(JOINTLY, kind, part): joint for kind in ("debates", "tie-breaks")}
        found[f"{JOINTLY}: held-out"] = Stage.of(
            f"{JOINTLY}: held-out", *(extent(_items(part, unit[:1])) for part in held_out)
        )
        for aspect in unit:
            found[f"{aspect.name}: held-out"] = Stage.of(
                f"{label}: held-out", *(extent(_items(part, [aspect])) for part in held_out)
            )
    return found


def _rated_items(plan: CompilePlan, part: Corpus, unit: Sequence[Aspect]) -> list[Item]:
    found = examples(part, unit, grouped=plan.data.level == "summary", seed=plan.settings.seed)
    return [item for example in found for item in example.questions]


def _items(part: Corpus, aspects: Sequence[Aspect]) -> list[Item]:
    return [item for aspect in aspects for item in corpus_items(part, aspect)]


# --- the cases ---


def _run(case: EstimateCase, plain: Run) -> Run:
    run = replace(plain, tuner=lambda tuning: plain.tuner(replace(tuning, folder=None)))
    if case.name == "lower":
        return replace(run, tuner=_changing(run.tuner, lambda judge, tuned: judge), search=_search_by(CHEAPEST))
    if case.name == "upper":
        return replace(run, tuner=_changing(run.tuner, _rewritten), search=_search_by(DEAREST))
    return replace(run, search=_search_by(Strategy()))


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


def _search_by(strategy: Strategy) -> Search:
    """The search itself, steered by `strategy`, which leaves no study behind."""

    def steered(
        units: Mapping[str, ChoiceScores], space: Space, plan: SearchPlan, on_trial: OnTrial
    ) -> dict[str, SearchResult]:
        return search(units, space, replace(plan, storage=None, strategy=strategy), on_trial)

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


def _most_promising_if_long(outcomes: Outcomes, points: Sequence[Point]) -> dict[Point, list[float]]:
    """What asks most is worth most."""
    return {point: [_calls(outcomes, point)] for point in points}


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

DEAREST = Strategy(
    _most_promising_if_long,
    _longest_first,
    _most_called_variants,
    may_win=lambda challenge, point, asked: True,
    chosen=_most_called,
)
"""A search whose further trials ask as much as they can, which drops nothing, and chooses what asks most."""
