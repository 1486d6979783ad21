"""The cost of a compile before anything is spent: the compile itself on a sample of sources, with an LM that counts.

In the expected case the tuner writes, and the search tries and chooses, what it does on the sample. At most nothing is
pruned, the sampler suggests the longest debates, and the choice falls on the most expensive judge.
"""

from __future__ import annotations

from dataclasses import replace

from debate_judge.data.schema import Corpus
from debate_judge.data.splits import Splits
from debate_judge.optimize.compile import learn_and_measure
from debate_judge.optimize.plan import CompilePlan, CompileRun
from debate_judge.optimize.run import REFLECTION, make_reflection_lm
from debate_judge.optimize.search import PARTS, search_stage
from debate_judge.optimize.selection import calibration_label
from debate_judge.optimize.tuners.rated import examples
from debate_judge.programs import options_of
from debate_judge.programs.dry_run import DryRunTransport, EstimateCase
from debate_judge.programs.judge import corpus_items
from debate_judge.runs.estimates import (
    NO_LIMITS,
    Estimate,
    EstimateTarget,
    Stage,
    Texts,
    estimate_by_dry_run,
    sampled_groups,
    text_totals,
)
from debate_judge.runs.progress import RunProgress
from debate_judge.runs.runner import JudgeRunner
from debate_judge.runs.shared_flags import together_question

SAMPLED_ITEMS = 640
"""Items of the sample, over all aspects and parts."""


def estimate_compile(plan: CompilePlan, reply_lengths: str = "") -> Estimate:
    """Estimate a compile, stage by stage; nothing is written.

    Args:
        plan: As for the compile.
        reply_lengths: The value of `--estimate`.
    """
    settings = plan.settings
    target = EstimateTarget.of(
        settings,
        settings.store,
        reply_lengths,
        settings.lm,
        settings.api_base,
        {"temperature": settings.temperature, "max_tokens": settings.max_tokens},
        {REFLECTION: settings.reflection_lm or settings.lm},
    )
    sample = sampled(plan)
    whole, part = stage_texts(plan), stage_texts(sample)
    # The row is the kind of work, whatever the aspect: `tuning`, `search`, `calibration`, `held-out`.
    stages = {name: Stage.of(name.split(": ")[1].partition(",")[0], whole[name], part[name]) for name in whole}

    with RunProgress() as progress, progress.track("dry run, cases", 2) as steps:

        def work(case: EstimateCase, runner: JudgeRunner) -> None:
            reflection_lm = make_reflection_lm(settings, runner.lm, NO_LIMITS, DryRunTransport(case))
            learn_and_measure(CompileRun(sample, runner, reflection_lm, at_most=case.at_most))
            steps.advance()

        return estimate_by_dry_run(target, stages, work, cache_debates=plan.cross_validated)


def notes(plan: CompilePlan) -> list[str]:
    """What the figures assume about the search, and what shared calls about the texts of a source would save."""
    settings, most = plan.settings, plan.search_limits.candidates
    search = (
        f"Search: on at most {most:,} texts per aspect (--effort {settings.effort}). Expected: from a sample. "
        "At most: no trial is pruned, the sampler suggests the longest debates, and the most expensive judge is chosen."
    )
    together = "together" in options_of(settings.judge) and "together" not in settings.options()
    sizes = [len(group.candidates) for group in plan.corpus.groups] if together else []
    return [*together_question(sizes), search]


def sampled(plan: CompilePlan) -> CompilePlan:
    """The plan with a sample of the sources of each part or fold, and judges that make LM calls only."""
    first, seed = plan.splits, plan.settings.seed
    parts = [fold.held_out for fold in plan.folds] if plan.cross_validated else [first.train, first.dev, first.held_out]
    texts = SAMPLED_ITEMS // len(plan.aspects) // len(parts)
    sampled_ids: set[str] = set()
    for groups in (part.groups for part in parts):
        # The others are for calibration alone.
        for discriminating in (True, False):
            kind = [group for group in groups if plan.discriminates(group, plan.aspects) == discriminating]
            sampled_ids |= {group.id for group in sampled_groups(kind, texts, seed)}

    def take(part: Corpus) -> Corpus:
        return replace(part, groups=tuple(group for group in part.groups if group.id in sampled_ids))

    def taken(splits: Splits) -> Splits:
        return replace(splits, train=take(splits.train), dev=take(splits.dev), held_out=take(splits.held_out))

    return replace(
        plan,
        # That too many items of a sample are unscored is no error.
        settings=replace(plan.settings, max_unscored=1.0),
        corpus=take(plan.corpus),
        halves=tuple(tuple(map(taken, half)) for half in plan.halves),
        judge=plan.judge.dry_run_copy(),
        single=plan.single.dry_run_copy(),
    )


def stage_texts(plan: CompilePlan) -> dict[str, Texts]:
    """Name of a stage (`runs.runner.stage`) -> the texts that are judged in it, each once."""
    totals: dict[str, Texts] = {}
    grouped, seed = plan.level == "summary", plan.settings.seed
    splits = [splits for half in plan.halves for splits in half]
    for aspect in plan.aspects:
        rated = [e for half in plan.halves for e in examples(half[0].train, [aspect], grouped=grouped, seed=seed)]
        totals[f"{aspect.name}: tuning"] = text_totals(item for example in rated for item in example.questions)
        for label, discriminating in ((aspect.name, True), (calibration_label(aspect.name), False)):
            choices = [plan.choice_corpora(each, aspect, discriminating=discriminating) for each in splits]
            for part in PARTS:
                items = [item for choice in choices for item in corpus_items(choice[part], aspect)]
                for kind in ("debates", "tie-breaks"):
                    totals[search_stage(label, kind, part)] = text_totals(items)
        totals[f"{aspect.name}: held-out"] = text_totals(corpus_items(plan.evaluation_corpus, aspect))
    return totals
