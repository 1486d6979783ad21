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

from debate_judge.data.schema import GRANULARITIES, Aspect, Corpus, RatedGroup
from debate_judge.optimize.context import CompilePlan, NoTracking, Run, label_of
from debate_judge.optimize.examples import examples
from debate_judge.optimize.held_out import score_held_out
from debate_judge.optimize.job import prepared
from debate_judge.optimize.reflection import REFLECTION, reflection_lm
from debate_judge.optimize.search.dev_scores import DevScores, Outcome, Point, Space
from debate_judge.optimize.search.study import SearchPlan, SearchResult, evaluate, first_points, search
from debate_judge.optimize.selection import TUNED, select_all
from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuners import Tuning
from debate_judge.programs.dry_run import DryRunEngine, EstimateCase
from debate_judge.programs.judge import Item, Judge, corpus_items
from debate_judge.programs.make_lm import replies_folder
from debate_judge.runs.estimates.dry_run import Estimate, Stage, Target, dry_run_all, reply_tokens
from debate_judge.runs.estimates.items import extent, sampled_groups
from debate_judge.runs.flags.lm import limits
from debate_judge.runs.runner.runner import JudgeRunner

SAMPLED = 96
"""Items that are sampled from each part, over all aspects that have judges of their own."""

NOTES = (
    "Search: of {trials} trials those that come first are always made; the others visit whatever is new (upper),",
    "nothing new (lower), or what the search visits on the sample (expected). Held-out: the cheapest point that was",
    "visited is chosen (lower), the dearest (upper), or the one that the search chooses on the sample (expected).",
)


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
    samples = [_sample(plan, unit) for unit in plan.units]
    stages: dict[str, Stage] = {}
    for sample in samples:
        stages |= _stages(plan, sample)
    steps = tqdm(total=3 * len(samples), desc="dry run", unit="aspect", delay=2, file=sys.stderr)

    def work(case: EstimateCase, runner: JudgeRunner) -> None:
        reflection = reflection_lm(settings, runner.lm, DryRunEngine(case))
        for sample in samples:
            run = _run(case, Run.of(sample, runner, NoTracking(), reflection))
            score_held_out(run, select_all(run)[0])
            steps.update()

    with steps, _without_progress_lines():
        return dry_run_all(target, stages, work, _row)


def notes(settings: Settings) -> list[str]:
    """What the figures assume about the search."""
    return [line.format(trials=settings.trials) for line in NOTES]


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


def _sample(plan: CompilePlan, unit: tuple[Aspect, ...]) -> CompilePlan:
    """The plan for the aspects that share a judge, with a sample of each part and judges that only ask the LM."""
    splits, seed = plan.data.splits, plan.settings.seed
    # Train groups that give no example say nothing about tuning.
    useful = {item.group for item in _rated_items(plan, splits.train, unit)}
    tunable = [group for group in splits.train.groups if group.id in useful]

    def few(part: Corpus, groups: Sequence[RatedGroup]) -> Corpus:
        return replace(part, groups=sampled_groups(groups, max(1, SAMPLED // len(plan.data.aspects)), seed))

    sampled = replace(
        splits,
        train=few(splits.train, tunable),
        dev=few(splits.dev, splits.dev.groups),
        held_out=few(splits.held_out, splits.held_out.groups),
    )
    return replace(
        plan,
        # Too little may be scored in a sample; that is told when all is.
        settings=replace(plan.settings, max_unscored=1.0),
        data=replace(plan.data, aspects=unit, splits=sampled),
        judge=plan.judge.dry_run_copy(),
        single=plan.single.dry_run_copy(),
    )


def _stages(plan: CompilePlan, sample: CompilePlan) -> dict[str, Stage]:
    """The stages of the sampled aspects, by the names that tuning, search and held-out scoring give them."""
    unit, label = sample.data.aspects, label_of(sample.data.aspects)
    whole, few = plan.data.splits, sample.data.splits

    def stage(name: str, *items: Sequence[Item]) -> Stage:
        return Stage.of(f"{label}: {name}", *map(extent, items))

    tuning, debates, ties = "tuning", "search, debates", "search, tie-breaks"
    found = {
        f"{label}: {tuning}": stage(tuning, *(_rated_items(plan, part, unit) for part in (whole.train, few.train)))
    }
    for name in (debates, ties):
        found[f"{label}: {name}"] = stage(name, *(_items(part, unit) for part in (whole.dev, few.dev)))
    for aspect in unit:
        parts = (_items(part, [aspect]) for part in (whole.held_out, few.held_out))
        found[f"{aspect.name}: held-out"] = stage("held-out", *parts)
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
        return replace(run, tuner=_changing(run.tuner, lambda judge, tuned: judge), search=_cheapest)
    if case.name == "upper":
        return replace(run, tuner=_changing(run.tuner, _rewritten), search=_dearest)
    return replace(run, search=_in_memory)


def _changing(tuner: Callable[[Tuning], Judge], change: Callable[[Judge, Judge], Judge]) -> Callable[[Tuning], Judge]:
    """The tuner, which asks what it asks, with `change` of the untuned and the tuned judge for its result."""
    return lambda tuning: change(tuning.judge, tuner(tuning))


def _rewritten(judge: Judge, tuned: Judge) -> Judge:
    """The judge as if the tuner had found other instructions for every role."""
    if tuned is judge:
        return judge
    one = tuned.deepcopy()
    for name, predictor in one.named_predictors():
        if name in one.tunable():
            signature = predictor.signature
            predictor.signature = signature.with_instructions(f"{signature.instructions} Be thorough.")
    return one


def _in_memory(
    dev_scores: DevScores, space: Space, plan: SearchPlan, on_trial: Callable[[Outcome], None]
) -> SearchResult:
    """The search itself, which leaves no study behind."""
    return search(dev_scores, space, replace(plan, storage=None), on_trial)


def _cheapest(
    dev_scores: DevScores, space: Space, plan: SearchPlan, on_trial: Callable[[Outcome], None]
) -> SearchResult:
    """A search that visits nothing beyond what every search visits, and chooses what asks least."""
    return _chosen(dev_scores, first_points(space.points(), plan.trials), plan, lambda outcome: (-outcome.calls,))


def _dearest(
    dev_scores: DevScores, space: Space, plan: SearchPlan, on_trial: Callable[[Outcome], None]
) -> SearchResult:
    """A search whose further trials ask as much as they can, and which chooses what asks most."""
    points = space.points()
    first = first_points(points, plan.trials)
    # Each n of each variant has ties of its own, those of the longest debates read most; granularity costs nothing.
    further = sorted(
        (point for point in points if point not in first),
        key=lambda point: (GRANULARITIES.index(point.granularity), not point.tie_breaker, -point.rounds),
    )
    visited = [*first, *further][: min(plan.trials, len(points))]
    # Of equally long debates the tuned one asks more: it shares no first turn with the judges that it is compared with.
    return _chosen(dev_scores, visited, plan, lambda outcome: (outcome.calls, outcome.point.persona == TUNED))


def _chosen(
    dev_scores: DevScores, points: Sequence[Point], plan: SearchPlan, worth: Callable[[Outcome], tuple[float, ...]]
) -> SearchResult:
    outcomes = tuple(evaluate(dev_scores, point, plan.criterion) for point in points)
    chosen = max(outcomes, key=worth)
    return SearchResult(chosen, chosen, outcomes, dev_scores)
