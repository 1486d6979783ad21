"""The cost of a compile before anything is spent, by executing its plan on a sample of each part.

Tuning, search and held-out scoring are those of the compile, with an LM for dry runs (`programs.dry_run`). The number
of calls depends on what the tuner writes and on the points that the search tries and chooses. In the expected case
these are those of the sample; in the lower and the upper case, bounds take their place (`cases`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from debate_judge.data.folds import Folds
from debate_judge.data.schema import Aspect, Corpus, RatedGroup
from debate_judge.data.splits import Splits
from debate_judge.optimize.estimation.cases import run_for_case
from debate_judge.optimize.examples import examples
from debate_judge.optimize.job import compile_judge, make_plan
from debate_judge.optimize.plan import CompileData, CompilePlan, CompileRun
from debate_judge.optimize.rated_data import load
from debate_judge.optimize.reflection import REFLECTION, make_reflection_lm
from debate_judge.optimize.search.choice_scores import PARTS, ChoicePart, search_stage
from debate_judge.optimize.search.study import SEARCH_LIMITS
from debate_judge.optimize.selection import calibration_label
from debate_judge.optimize.settings import Settings
from debate_judge.programs import options_of
from debate_judge.programs.dry_run import DryRunTransport, EstimateCase
from debate_judge.programs.judge import Item, corpus_items
from debate_judge.programs.lm.reply import replies_folder
from debate_judge.runs.estimates.dry_run import (
    DryRunStore,
    Estimate,
    EstimateTarget,
    Stage,
    estimate_by_dry_run,
    reply_tokens,
)
from debate_judge.runs.estimates.items import sampled_groups, text_totals
from debate_judge.runs.flags.judge import together_question
from debate_judge.runs.flags.lm import lm_options
from debate_judge.runs.runner.progress import StepProgress
from debate_judge.runs.runner.runner import JudgeRunner

SAMPLE_ITEMS = 192
"""Items that are sampled from each part, over all aspects."""

SEARCH_NOTE = (
    "Search: on dev and train, {most} (--effort {effort}). Expected is what the search does on a sample; lower is a "
    "search that prunes all it may and chooses the fewest calls, upper one that prunes nothing, suggests the longest "
    "debates and chooses the most calls."
)

FOLDS_NOTE = (
    "Folds (by default with few sources): the judge is tuned twice, once on each half of the sources, and searched for "
    "each fold and for the exported judge; calls that they have in common are made once. "
    "--folds 1 measures by a single split."
)

_CALL_KINDS = ("debates", "tie-breaks")


def estimate_compile(settings: Settings, personas: Mapping[str, str], reply_lengths: str = "") -> Estimate:
    """Estimate a compile, stage by stage; nothing is written.

    Args:
        settings: As for the compile.
        personas: Name -> text of the personas that a debate may be given.
        reply_lengths: The value of `--estimate`.
    """
    plan = make_plan(rated := load(settings), settings, personas)
    target = EstimateTarget(
        settings.lm,
        settings.api_base,
        replies_folder(settings.store, settings.lm),
        {"temperature": settings.temperature, "max_tokens": settings.max_tokens},
        lm_options(settings),
        reply_tokens(reply_lengths),
        {REFLECTION: settings.reflection_lm or settings.lm},
    )
    sample = sample_plan(plan)
    stages = make_stages(plan, sample)
    steps = StepProgress("dry run", 3)

    def work(case: EstimateCase, runner: JudgeRunner, store: DryRunStore) -> None:
        reflection_lm = make_reflection_lm(settings, runner.lm, DryRunTransport(case))
        run = run_for_case(case, CompileRun.of(sample, runner, None, reflection_lm))
        compile_judge(settings, personas, rated, run_factory=lambda plan: nullcontext(run))
        steps.advance()

    with steps, _without_progress_lines():
        return estimate_by_dry_run(target, stages, work, _row_name, cache_debates=plan.data.folds is not None)


def notes(settings: Settings) -> list[str]:
    """What the figures assume about the search."""
    most = f"at most {SEARCH_LIMITS[settings.effort].candidates:,} candidates of each aspect"
    search = SEARCH_NOTE.format(most=most, effort=settings.effort)
    folds = [FOLDS_NOTE] if settings.folds != 1 else []
    together = "together" in options_of(settings.judge) and "together" not in settings.options()
    sizes = [len(group.candidates) for group in load(settings).corpus.groups] if together else []
    return [*together_question(sizes), search, *folds]


def _row_name(stage: str, role: str) -> str:
    return f"{stage}, {'proposals' if role == REFLECTION else 'evaluations'}" if stage.endswith("tuning") else stage


@contextmanager
def _without_progress_lines() -> Iterator[None]:
    """Suppress the progress messages of the compile, none of which is true of a dry run."""
    logger = logging.getLogger("debate_judge.optimize")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


# --- the sample, and the full size of each stage ---


def sample_plan(plan: CompilePlan) -> CompilePlan:
    """The plan with a sample of each part, and judges that make LM calls only."""
    return replace(
        plan,
        # That too many items of a sample are unscored is no error.
        settings=replace(plan.settings, max_unscored=1.0),
        data=_sampled_folds(plan, plan.data.folds)
        if plan.data.folds
        else replace(plan.data, splits=_sampled_split(plan)),
        judge=plan.judge.dry_run_copy(),
        single=plan.single.dry_run_copy(),
    )


def _sampled_split(plan: CompilePlan) -> Splits:
    splits, seed = plan.data.splits, plan.settings.seed
    # Train groups without examples have no part in tuning.
    example_ids = {item.group for item in _rated_items(plan, splits.train, plan.data.aspects)}
    example_groups = [group for group in splits.train.groups if group.id in example_ids]
    discriminating = [group for group in splits.dev.groups if plan.data.discriminates(group, plan.data.aspects)]

    def take(part: Corpus, groups: Sequence[RatedGroup]) -> Corpus:
        count, ids = max(1, SAMPLE_ITEMS // len(plan.data.aspects)), {group.id for group in groups}
        # The others are for calibration alone.
        others = sampled_groups([group for group in part.groups if group.id not in ids], count, seed)
        return replace(part, groups=(*sampled_groups(groups, count, seed), *others))

    return replace(
        splits,
        train=take(splits.train, example_groups),
        dev=take(splits.dev, discriminating),
        held_out=take(splits.held_out, splits.held_out.groups),
    )


def _sampled_folds(plan: CompilePlan, folds: Folds) -> CompileData:
    """The data with a sample of each fold, the same wherever the fold is held out, chosen by or learnt from."""
    data, sampled_ids = plan.data, set[str]()
    count = SAMPLE_ITEMS // len(data.aspects) // len(folds.folds)
    for held_out in (splits.held_out for splits in folds.folds):
        discriminating = [group for group in held_out.groups if data.discriminates(group, data.aspects)]
        others = [group for group in held_out.groups if not data.discriminates(group, data.aspects)]
        for groups in (discriminating, others):
            sampled_ids |= {group.id for group in sampled_groups(groups, count, plan.settings.seed)}

    def take(part: Corpus) -> Corpus:
        return replace(part, groups=tuple(group for group in part.groups if group.id in sampled_ids))

    def sampled_split(splits: Splits) -> Splits:
        return replace(splits, train=take(splits.train), dev=take(splits.dev), held_out=take(splits.held_out))

    sampled_folds = Folds(sampled_split(folds.final), tuple(tuple(map(sampled_split, half)) for half in folds.halves))
    return replace(data, corpus=take(data.corpus), splits=sampled_folds.final, folds=sampled_folds)


def make_stages(plan: CompilePlan, sample: CompilePlan) -> dict[str, Stage]:
    """The stages by the names that tuning, search and held-out scoring use, with the totals of plan and sample."""
    stages: dict[str, Stage] = {}
    held_out = plan.data.evaluation_corpus, sample.data.evaluation_corpus
    for aspect in plan.data.aspects:
        label, unit = aspect.name, [aspect]
        # With folds every source is learnt from, in one of the halves.
        train = (p.data.corpus if p.data.folds else p.data.splits.train for p in (plan, sample))
        stages[f"{label}: tuning"] = Stage.of(
            f"{label}: tuning", *(text_totals(_rated_items(plan, part, unit)) for part in train)
        )
        full, sampled = _choice_corpora(plan, aspect), _choice_corpora(sample, aspect)
        for part in PARTS:
            totals = [text_totals(_items(parts[part], unit)) for parts in (full, sampled)]
            for call_kind in _CALL_KINDS:
                stages[search_stage(label, call_kind, part)] = Stage.of(f"{label}: search, {call_kind}", *totals)
            equally_rated = (
                text_totals(_items(_choice_corpora(p, aspect, discriminating=False)[part], unit))
                for p in (plan, sample)
            )
            calibration = Stage.of(calibration_label(label), *equally_rated)
            stages |= {search_stage(calibration_label(label), kind, part): calibration for kind in _CALL_KINDS}
        stages[f"{label}: held-out"] = Stage.of(
            f"{label}: held-out", *(text_totals(_items(part, unit)) for part in held_out)
        )
    return stages


def _choice_corpora(plan: CompilePlan, aspect: Aspect, *, discriminating: bool = True) -> dict[ChoicePart, Corpus]:
    """The sources that an aspect's judge is chosen by, of all folds together."""
    if not plan.data.folds:
        return plan.choice_corpora(aspect, discriminating=discriminating)
    choices = [
        plan.for_fold(splits, 1).choice_corpora(aspect, discriminating=discriminating)
        for splits in plan.data.folds.folds
    ]
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
