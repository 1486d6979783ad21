"""What a compile would take before anything is spent, by carrying out its plan on a sample of each part.

Executed are the compile's own tuning, search and held-out scoring, with an LM for dry runs (`programs.dry_run`). Two
more things decide what is asked and are not known beforehand: what the tuner writes, and which points the search
visits and chooses. In the expected case they are what comes of the sample; in the lower and the upper case they are
bounds, put in the place of tuner and search.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from debate_judge.data.folds import Folds
from debate_judge.data.schema import Aspect, Corpus, RatedGroup
from debate_judge.data.splits import Splits
from debate_judge.optimize.context import CompileData, CompilePlan, Run, label_of
from debate_judge.optimize.estimation.cases import run_of
from debate_judge.optimize.examples import examples
from debate_judge.optimize.job import compile_judge, split
from debate_judge.optimize.rated_data import load
from debate_judge.optimize.reflection import REFLECTION, reflection_lm
from debate_judge.optimize.search.choice_scores import JOINTLY, PARTS, ChoicePart, search_stage
from debate_judge.optimize.search.study import breadth_of
from debate_judge.optimize.selection import calibration_label
from debate_judge.optimize.settings import Settings
from debate_judge.programs.dry_run import DryRunEngine, EstimateCase
from debate_judge.programs.judge import Item, corpus_items
from debate_judge.programs.lm.reply import replies_folder
from debate_judge.runs.estimates.dry_run import DryRunStore, Estimate, EstimateTarget, Stage, dry_run_all, reply_tokens
from debate_judge.runs.estimates.items import item_totals, sampled_groups
from debate_judge.runs.flags.lm import limits
from debate_judge.runs.runner.progress import StepProgress
from debate_judge.runs.runner.runner import JudgeRunner

SAMPLED = 192
"""Items that are sampled from each part, over all aspects."""

NOTE = (
    "Search: the starting points and {suggestions} suggestions of the sampler, each for all aspects, on dev and train, "
    "{most} (--effort {effort}). "
    "All but the untuned single call is pruned after the first sources (lower), or nothing is (upper), or what is "
    "pruned on the sample (expected). The starting points are always tried; the rest is whatever takes most calls "
    "(upper), nothing (lower), or what the sampler suggests on the sample (expected). Held-out: chosen is the "
    "cheapest point (lower), the costliest (upper), or the one that the search chooses on the sample (expected)."
)

NOTE_ON_FOLDS = (
    "Folds (by default with few sources): the judge is tuned twice, once on each half of the sources, and searched for "
    "each fold and for the exported judge; what they ask alike is asked once. --folds 1 measures by a single split."
)

LEARNING_NOTE = "Tuning and held-out include the steps of the learning curve."


def estimate_compile(settings: Settings, personas: Mapping[str, str], lengths: str = "") -> Estimate:
    """Estimate a compile, stage by stage; nothing is written.

    Args:
        settings: As for the compile.
        personas: Name -> text of the personas that a debate may be given.
        lengths: The value of `--estimate`.
    """
    plan = split(rated := load(settings), settings, personas)
    target = EstimateTarget(
        settings.lm,
        settings.api_base,
        replies_folder(settings.store, settings.lm),
        {"temperature": settings.temperature, "max_tokens": settings.max_tokens},
        limits(settings),
        reply_tokens(lengths),
        {REFLECTION: settings.reflection_lm or settings.lm},
    )
    sample = sample_of(plan)
    stages = stages_of(plan, sample)
    steps = StepProgress("dry run", 3)

    def work(case: EstimateCase, runner: JudgeRunner, store: DryRunStore) -> None:
        reflection = reflection_lm(settings, runner.lm, DryRunEngine(case))
        run = run_of(case, Run.of(sample, runner, None, reflection), store)
        compile_judge(settings, personas, rated, opened=lambda plan: nullcontext(run))
        steps.advance()

    with steps, _without_progress_lines():
        return dry_run_all(target, stages, work, _row, remember=plan.data.folds is not None)


def notes(settings: Settings) -> list[str]:
    """What the figures assume about the search."""
    breadth = breadth_of(settings.effort, settings.trials)
    most = f"at most {breadth.candidates:,} candidates of each aspect"
    search = NOTE.format(suggestions=breadth.suggestions, most=most, effort=settings.effort)
    folds = [NOTE_ON_FOLDS] if settings.folds != 1 else []
    return [search, *folds, *([LEARNING_NOTE] if settings.learning_curve else [])]


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


# --- the sample, and how it represents the whole ---


def sample_of(plan: CompilePlan) -> CompilePlan:
    """The plan with a sample of each part and judges that only ask the LM."""
    return replace(
        plan,
        # Too little may be scored in a sample; that is told when all is.
        settings=replace(plan.settings, max_unscored=1.0),
        data=_sampled_folds(plan, plan.data.folds)
        if plan.data.folds
        else replace(plan.data, splits=_sampled_split(plan)),
        judge=plan.judge.dry_run_copy(),
        single=plan.single.dry_run_copy(),
        sampled_from=len(plan.data.splits.train.groups),
    )


def _sampled_split(plan: CompilePlan) -> Splits:
    splits, seed = plan.data.splits, plan.settings.seed
    # Train groups that give no example say nothing about tuning.
    useful = {item.group for item in _rated_items(plan, splits.train, plan.data.aspects)}
    tunable = [group for group in splits.train.groups if group.id in useful]
    ranked = [group for group in splits.dev.groups if plan.data.discriminates(group, plan.data.aspects)]

    def few(part: Corpus, groups: Sequence[RatedGroup]) -> Corpus:
        least, ids = max(1, SAMPLED // len(plan.data.aspects)), {group.id for group in groups}
        # The others matter to calibration alone.
        others = sampled_groups([group for group in part.groups if group.id not in ids], least, seed)
        return replace(part, groups=(*sampled_groups(groups, least, seed), *others))

    return replace(
        splits,
        train=few(splits.train, tunable),
        dev=few(splits.dev, ranked),
        held_out=few(splits.held_out, splits.held_out.groups),
    )


def _sampled_folds(plan: CompilePlan, folds: Folds) -> CompileData:
    """The data with a sample of each fold, which serves wherever the fold is held out, chosen by or learnt from."""
    data, kept = plan.data, set[str]()
    least = SAMPLED // len(data.aspects) // len(folds.folds)
    for held_out in (splits.held_out for splits in folds.folds):
        ranked = [group for group in held_out.groups if data.discriminates(group, data.aspects)]
        others = [group for group in held_out.groups if not data.discriminates(group, data.aspects)]
        for groups in (ranked, others):
            kept |= {group.id for group in sampled_groups(groups, least, plan.settings.seed)}

    def few(part: Corpus) -> Corpus:
        return replace(part, groups=tuple(group for group in part.groups if group.id in kept))

    def sampled(splits: Splits) -> Splits:
        return replace(splits, train=few(splits.train), dev=few(splits.dev), held_out=few(splits.held_out))

    few_folds = Folds(sampled(folds.final), tuple(tuple(map(sampled, half)) for half in folds.halves))
    return replace(data, corpus=few(data.corpus), splits=few_folds.final, folds=few_folds)


def stages_of(plan: CompilePlan, sample: CompilePlan) -> dict[str, Stage]:
    """The stages by the names that tuning, search and held-out scoring give them."""
    stages: dict[str, Stage] = {}
    held_out = plan.data.measured, sample.data.measured
    for unit in plan.units:
        label = label_of(unit)
        # With folds every source is learnt from, in one of the halves.
        train = (
            each_plan.data.corpus if each_plan.data.folds else each_plan.data.splits.train
            for each_plan in (plan, sample)
        )
        stages[f"{label}: tuning"] = Stage.of(
            f"{label}: tuning", *(item_totals(_rated_items(plan, part, unit)) for part in train)
        )
        whole, few = _choice(plan, unit), _choice(sample, unit)
        for part in PARTS:
            by = [item_totals(_items(parts[part], unit)) for parts in (whole, few)]
            for kind in ("debates", "tie-breaks"):
                stages[search_stage(label, kind, part)] = Stage.of(f"{label}: search, {kind}", *by)
            unranked = (item_totals(_items(_choice(of, unit, ranked=False)[part], unit)) for of in (plan, sample))
            calibrating = Stage.of(calibration_label(label), *unranked)
            stages |= {search_stage(calibration_label(label), k, part): calibrating for k in ("debates", "tie-breaks")}
            joint = Stage.of(f"{JOINTLY}: search", *by)
            stages |= {search_stage(JOINTLY, kind, part): joint for kind in ("debates", "tie-breaks")}
        stages[f"{JOINTLY}: held-out"] = Stage.of(
            f"{JOINTLY}: held-out", *(item_totals(_items(part, unit[:1])) for part in held_out)
        )
        for aspect in unit:
            stages[f"{aspect.name}: held-out"] = Stage.of(
                f"{label}: held-out", *(item_totals(_items(part, [aspect])) for part in held_out)
            )
    return stages


def _choice(plan: CompilePlan, unit: Sequence[Aspect], *, ranked: bool = True) -> dict[ChoicePart, Corpus]:
    """The sources that a unit is chosen by, of all folds together."""
    if not plan.data.folds:
        return plan.choice(unit, ranked=ranked)
    choices = [plan.on(splits, 1).choice(unit, ranked=ranked) for splits in plan.data.folds.folds]
    parts: dict[ChoicePart, Corpus] = {}
    for part in PARTS:
        ids = {group.id for choice in choices for group in choice[part].groups}
        parts[part] = replace(plan.data.corpus, groups=tuple(g for g in plan.data.corpus.groups if g.id in ids))
    return parts


def _rated_items(plan: CompilePlan, part: Corpus, unit: Sequence[Aspect]) -> list[Item]:
    rated = examples(part, unit, grouped=plan.data.level == "summary", seed=plan.settings.seed)
    return [item for example in rated for item in example.questions]


def _items(part: Corpus, aspects: Sequence[Aspect]) -> list[Item]:
    return [item for aspect in aspects for item in corpus_items(part, aspect)]
