"""The rated corpus of a compile: loaded, checked, split once or into folds."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from debate_judge import data
from debate_judge.data.agreement.decisions import DecisionRule, decision_cuts, find_decision_rules
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Corpus, Level, RatedGroup
from debate_judge.data.splits import (
    Folds,
    Splits,
    append_held_out,
    aspects_to_judge,
    default_folds,
    make_folds,
    require_enough_rated,
    require_level,
    split,
    split_with_held_out,
)
from debate_judge.optimize.settings import Settings
from debate_judge.programs.judge import Judge
from debate_judge.runs.human_ratings import resolve_data

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RatedData:
    """The rated texts of a compile before they are split."""

    corpus: Corpus
    held_out: Corpus | None = None
    """The part of `corpus` that is only measured on (`--held-out`)."""
    from_python: bool = False
    """Whether the corpus was passed from Python, instead of loaded from what the settings name."""


@dataclass(frozen=True)
class CompileData:
    """The rated corpus of a compile."""

    corpus: Corpus
    aspects: tuple[Aspect, ...]
    """The aspects to judge."""
    level: Level
    """Level of the agreement that judges are chosen by."""
    decision_rules: Mapping[str, DecisionRule]
    """Aspect -> the decision that its ratings define, for aspects whose ratings define one."""
    cuts: Mapping[str, float]
    """Aspect -> the least value that counts as a yes where decisions are compared
    (`data.agreement.absolute_agreement`)."""
    halves: tuple[tuple[Splits, ...], ...]
    """Splits in train, to tune on, dev, to choose by, and held-out, to measure on, by halves, whose splits have the
    same train part. The first is that of the exported judge; of a cross-validation that uses all sources and holds none
    out, and the others are the folds. Without folds it is the only one."""

    @property
    def splits(self) -> Splits:
        """The split of the exported judge."""
        return self.halves[0][0]

    @property
    def folds(self) -> list[Splits]:
        """The splits that hold sources out: one, or the folds of a cross-validation."""
        return [splits for half in self.halves for splits in half if splits.held_out.groups]

    @property
    def cross_validated(self) -> bool:
        return len(self.folds) > 1

    @property
    def evaluation_corpus(self) -> Corpus:
        """The sources of the held-out figures; with folds all."""
        return self.corpus if self.cross_validated else self.splits.held_out

    def discriminates(self, group: RatedGroup, aspects: Sequence[Aspect]) -> bool:
        """Whether a group's ratings can tell better from worse judges in one of the aspects."""
        if self.level == "summary" and not any(aspect.name in self.decision_rules for aspect in aspects):
            return any(group.has_distinct_ratings(aspect.name) for aspect in aspects)
        return True


def load(settings: Settings, corpus: Corpus | RatedData | None = None) -> RatedData:
    """Load what the settings name, with `corpus` in place of `--data`; `RatedData` is returned as it is."""
    if isinstance(corpus, RatedData):
        return corpus
    from_python = corpus is not None
    if corpus is None:
        file = resolve_data(settings.data)
        corpus = data.load(file, settings.task, settings.columns, settings.sources)
    if settings.held_out is None:
        return RatedData(corpus, from_python=from_python)
    file = resolve_data(settings.held_out, "--held-out")
    held_out = data.load(file, corpus.task, settings.columns)
    return RatedData(append_held_out(corpus, held_out), held_out, from_python)


def split_sources(rated: RatedData, settings: Settings, judge: Judge) -> CompileData:
    """Split the sources once or into folds, and determine the aspects and the level to choose by."""
    corpus = rated.corpus
    names = aspects_to_judge(corpus, settings.aspects)
    require_enough_rated(corpus, names)
    aspects = tuple(corpus.task.aspect(name) for name in names)
    decision_rules = find_decision_rules(corpus.groups, aspects)
    level = settings.metric_choice.level
    if level == "auto":
        level = _auto_level(corpus, aspects, decision_rules, judge)
    require_level(corpus, level)
    folds = _folds(corpus, settings, list(names))
    if rated.held_out is not None:
        splits = split_with_held_out(corpus, len(rated.held_out.groups), aspects=list(names), seed=settings.seed)
    else:
        splits = folds.final if folds else split(corpus, aspects=list(names), seed=settings.seed)
    if splits.joined:
        logger.info(splits.near_duplicates_note())
    first, *others = folds.halves if folds else ((),)
    halves = ((splits, *first), *others)
    cuts = decision_cuts(aspects, decision_rules, settings.cut)
    return CompileData(corpus, aspects, level, decision_rules, cuts, halves)


def _folds(corpus: Corpus, settings: Settings, aspects: Sequence[str]) -> Folds | None:
    """The folds; None for a single split.

    Raises:
        InputError: Too few sources for the folds.
    """
    if settings.held_out is not None:
        if (settings.folds or 1) != 1:
            raise InputError(
                "a separate held-out set cannot be combined with folds",
                field="--held-out",
                expected="no --folds",
                found=f"--folds {settings.folds}",
                remedy="give either --folds or --held-out",
            )
        return None
    count = default_folds(corpus) if settings.folds is None else settings.folds
    return None if count == 1 else make_folds(corpus, aspects=aspects, seed=settings.seed, count=count)


def _auto_level(
    corpus: Corpus, aspects: Sequence[Aspect], decision_rules: Mapping[str, DecisionRule], judge: Judge
) -> Level:
    """The level `auto`: `summary` if groups have several candidates, else `sample`.

    Also `sample` if the ratings of all aspects are binary: there is one threshold for all sources then, the pooled
    correlation ranks judges much as AUROC does, and groups with a single label count, too. But not for a judge that
    compares candidates, whose scores mean nothing across sources.
    """
    all_binary = all(a.name in decision_rules and decision_rules[a.name].kind == "binary" for a in aspects)
    return "summary" if corpus.grouped and (not all_binary or judge.compares_pairs) else "sample"
