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
from debate_judge.optimize.search.bounds import CHEAPEST, DEAREST
from debate_judge.optimize.search.choice_scores import JOINTLY, PARTS, ChoiceScores, search_stage
from debate_judge.optimize.search.course import BREADTHS, breadth_of
from debate_judge.optimize.search.outcomes import Dropped, SearchResult
from debate_judge.optimize.search.points import Point, Space
from debate_judge.optimize.search.storage import Found
from debate_judge.optimize.search.study import OnTrial, Search, SearchPlan, Strategy, search
from debate_judge.optimize.selection import select_all
from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuners import Tuned, Tuner, as_tuned
from debate_judge.programs.dry_run import DryRunEngine, EstimateCase
from debate_judge.programs.judge import Item, Judge, corpus_items
from debate_judge.programs.make_lm import replies_folder
from debate_judge.runs.estimates.dry_run import Estimate, Ledger, Stage, Target, Used, dry_run_all, reply_tokens
from debate_judge.runs.estimates.items import extent, sampled_groups
from debate_judge.runs.flags.lm import limits
from debate_judge.runs.runner.runner import JudgeRunner

SAMPLED = 192
"""Items that are sampled from each part, over all aspects."""

SAMPLED_OF_OTHERS = 64
"""The same, for the efforts that the settings do not choose."""

NOTES = (
    "Search: at most {probes} single calls, debates and Tie-breakers, each for all aspects, on dev and train, and",
    "a few more in the dearer reading where there are two, {most} (--effort {effort}).",
    "All but the judge as it comes is dropped after the first sources (lower), or nothing is (upper), or what loses",
    "its race on the sample (expected). What comes first is always tried; the rest is whatever is new (upper), nothing",
    "new (lower), or what the search tries on the sample (expected). Held-out: chosen is the cheapest point (lower),",
    "the dearest (upper), or the one that the search chooses on the sample (expected).",
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
    return _estimated(prepared(settings, personas), reply_tokens(lengths), SAMPLED)


def estimate_efforts(settings: Settings, personas: Mapping[str, str], lengths: str, known: Used) -> dict[str, Used]:
    """What each `--effort` would take in the expected case, on a smaller sample; arguments as for `estimate_compile`.

    Args:
        settings: As for the compile.
        personas: Name -> text of the personas that a debate may be given.
        lengths: The value of `--estimate`.
        known: What the effort of the settings would take.
    """
    plan, found = prepared(settings, personas), {}
    for effort in BREADTHS:
        other = replace(plan, settings=replace(settings, effort=effort))  # type: ignore[arg-type]
        tokens = reply_tokens(lengths)
        chosen = effort == settings.effort
        found[effort] = known if chosen else _estimated(other, tokens, SAMPLED_OF_OTHERS, expected_only=True).total[1]
    return found


def _estimated(plan: CompilePlan, tokens: tuple[int, int, int], size: int, *, expected_only: bool = False) -> Estimate:
    settings = plan.settings
    target = Target(
        settings.lm,
        settings.api_base,
        replies_folder(settings.store, settings.lm),
        {"temperature": settings.temperature, "max_tokens": settings.max_tokens},
        limits(settings),
        tokens,
        {REFLECTION: settings.reflection_lm or settings.lm},
    )
    sample = _sample(plan, size)
    stages = _stages(plan, sample)
    steps = tqdm(total=1 if expected_only else 3, desc="dry run", unit="case", delay=2, file=sys.stderr)

    def work(case: EstimateCase, runner: JudgeRunner, ledger: Ledger) -> None:
        reflection = reflection_lm(settings, runner.lm, DryRunEngine(case))
        run = _run(case, Run.of(sample, runner, NoTracking(), reflection), ledger)
        judge, searches = select_all(run)
        score_held_out(run, judge)
        if settings.learning_curve:
            learning_curve(run, searches, len(plan.data.splits.train.groups))
        steps.update()

    with steps, _without_progress_lines():
        return dry_run_all(target, stages, work, _row, expected_only=expected_only)


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


def _sample(plan: CompilePlan, size: int) -> CompilePlan:
    """The plan with a sample of each part and judges that only ask the LM."""
    splits, seed = plan.data.splits, plan.settings.seed
    # Train groups that give no example say nothing about tuning.
    useful = {item.group for item in _rated_items(plan, splits.train, plan.data.aspects)}
    tunable = [group for group in splits.train.groups if group.id in useful]
    telling = [group for group in splits.dev.groups if plan.data.tells(group, plan.data.aspects)]

    def few(part: Corpus, groups: Sequence[RatedGroup]) -> Corpus:
        least, ids = max(1, size // len(plan.data.aspects)), {group.id for group in groups}
        # The others matter to calibration alone.
        others = sampled_groups([group for group in part.groups if group.id not in ids], least, seed)
        return replace(part, groups=(*sampled_groups(groups, least, seed), *others))

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


def _run(case: EstimateCase, plain: Run, ledger: Ledger) -> Run:
    """The run with the tuner and the search of a case, which leave nothing behind."""
    run = replace(plain, tuner=lambda tuning: plain.tuner(replace(tuning, folder=None)))
    if case.name == "lower":
        return replace(run, tuner=_changing(run.tuner, lambda judge, tuned: judge), search=_search_by(CHEAPEST, ledger))
    if case.name == "upper":
        return replace(run, tuner=_changing(run.tuner, _rewritten), search=_search_by(DEAREST, ledger))
    return replace(run, search=_search_by(Strategy(), ledger))


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


def _search_by(strategy: Strategy, ledger: Ledger) -> Search:
    """The search itself, steered by `strategy`, which leaves no study behind.

    A race is over a number of sources, however many there are: what loses it on the sample is counted as it was asked.
    """

    def steered(
        units: Mapping[str, ChoiceScores], space: Space, plan: SearchPlan, on_trial: OnTrial
    ) -> dict[str, SearchResult]:
        begin = len(ledger.asked)

        def tried(point: Point, found: Found) -> None:
            nonlocal begin
            if isinstance(found, Dropped):
                ledger.as_many(begin)
            begin = len(ledger.asked)
            on_trial(point, found)

        return search(units, space, replace(plan, storage=None, strategy=strategy), tried)

    return steered
