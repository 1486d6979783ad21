"""The sample that an estimate carries a compile out on, and how it stands for the whole, stage by stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from debate_judge.data.folds import Folds
from debate_judge.data.schema import Aspect, Corpus, RatedGroup
from debate_judge.data.splits import Splits
from debate_judge.optimize.context import CompileData, CompilePlan, label_of
from debate_judge.optimize.examples import examples
from debate_judge.optimize.measures.calibrating import calibration_label
from debate_judge.optimize.search.choice_scores import JOINTLY, PARTS, search_stage
from debate_judge.optimize.search.spots import ChoicePart
from debate_judge.programs.judge import Item, corpus_items
from debate_judge.runs.estimates.dry_run import Stage
from debate_judge.runs.estimates.items import extent, sampled_groups

SAMPLED = 192
"""Items that are sampled from each part, over all aspects."""


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
    telling = [group for group in splits.dev.groups if plan.data.tells(group, plan.data.aspects)]

    def few(part: Corpus, groups: Sequence[RatedGroup]) -> Corpus:
        least, ids = max(1, SAMPLED // len(plan.data.aspects)), {group.id for group in groups}
        # The others matter to calibration alone.
        others = sampled_groups([group for group in part.groups if group.id not in ids], least, seed)
        return replace(part, groups=(*sampled_groups(groups, least, seed), *others))

    return replace(
        splits,
        train=few(splits.train, tunable),
        dev=few(splits.dev, telling),
        held_out=few(splits.held_out, splits.held_out.groups),
    )


def _sampled_folds(plan: CompilePlan, folds: Folds) -> CompileData:
    """The data with a sample of each fold, which serves wherever the fold is held out, chosen by or learnt from."""
    data, kept = plan.data, set[str]()
    least = SAMPLED // len(data.aspects) // len(folds.parts)
    for one in (splits.held_out for splits in folds.parts):
        telling = [group for group in one.groups if data.tells(group, data.aspects)]
        others = [group for group in one.groups if not data.tells(group, data.aspects)]
        for groups in (telling, others):
            kept |= {group.id for group in sampled_groups(groups, least, plan.settings.seed)}

    def few(part: Corpus) -> Corpus:
        return replace(part, groups=tuple(group for group in part.groups if group.id in kept))

    def sampled(splits: Splits) -> Splits:
        return replace(splits, train=few(splits.train), dev=few(splits.dev), held_out=few(splits.held_out))

    few_folds = Folds(sampled(folds.whole), tuple(tuple(map(sampled, half)) for half in folds.halves))
    return replace(data, corpus=few(data.corpus), splits=few_folds.whole, folds=few_folds)


def stages_of(plan: CompilePlan, sample: CompilePlan) -> dict[str, Stage]:
    """The stages by the names that tuning, search and held-out scoring give them."""
    found: dict[str, Stage] = {}
    held_out = plan.data.measured, sample.data.measured
    for unit in plan.units:
        label = label_of(unit)
        # With folds every source is learnt from, in one of the halves.
        train = (one.data.corpus if one.data.folds else one.data.splits.train for one in (plan, sample))
        found[f"{label}: tuning"] = Stage.of(
            f"{label}: tuning", *(extent(_rated_items(plan, part, unit)) for part in train)
        )
        whole, few = _choice(plan, unit), _choice(sample, unit)
        for part in PARTS:
            by = [extent(_items(parts[part], unit)) for parts in (whole, few)]
            for kind in ("debates", "tie-breaks"):
                found[search_stage(label, kind, part)] = Stage.of(f"{label}: search, {kind}", *by)
            unranked = (extent(_items(_choice(of, unit, ranked=False)[part], unit)) for of in (plan, sample))
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


def _choice(plan: CompilePlan, unit: Sequence[Aspect], *, ranked: bool = True) -> dict[ChoicePart, Corpus]:
    """The sources that a unit is chosen by, of all folds together."""
    if not plan.data.folds:
        return plan.choice(unit, ranked=ranked)
    choices = [plan.on(splits, 1).choice(unit, ranked=ranked) for splits in plan.data.folds.parts]
    found: dict[ChoicePart, Corpus] = {}
    for part in PARTS:
        ids = {group.id for choice in choices for group in choice[part].groups}
        found[part] = replace(plan.data.corpus, groups=tuple(g for g in plan.data.corpus.groups if g.id in ids))
    return found


def _rated_items(plan: CompilePlan, part: Corpus, unit: Sequence[Aspect]) -> list[Item]:
    found = examples(part, unit, grouped=plan.data.level == "summary", seed=plan.settings.seed)
    return [item for example in found for item in example.questions]


def _items(part: Corpus, aspects: Sequence[Aspect]) -> list[Item]:
    return [item for aspect in aspects for item in corpus_items(part, aspect)]
