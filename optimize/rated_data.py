"""The rated corpus of a compile: loaded, checked, split once or into folds."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import cast

from debate_judge import data
from debate_judge.data.agreement.decisions import Question, find_questions
from debate_judge.data.agreement.tables import Level
from debate_judge.data.errors import InputError
from debate_judge.data.folds import Folds, fold, usual_folds
from debate_judge.data.requirements import aspects_to_judge, require_enough_rated, require_level
from debate_judge.data.schema import Aspect, Corpus
from debate_judge.data.splits import beside, split, split_beside
from debate_judge.optimize.context import CompileData
from debate_judge.optimize.settings import Settings
from debate_judge.programs.judge import Judge
from debate_judge.runs.tracking.human_ratings import rated_file

logger = logging.getLogger(__name__)

_FURTHER = 1_000_003
"""Difference between the seeds of repeats: large, so that repeats of nearby seeds do not coincide."""


def rated_data(settings: Settings, judge: Judge, corpus: Corpus | None = None) -> CompileData:
    """Split `corpus`, or the one that the settings name, and determine the aspects and the level to choose by.

    Raises:
        InputError: The data cannot be used.
    """
    if corpus is None:
        file = rated_file(settings.data, settings.tracking_uri)
        corpus = data.load(file, settings.task, settings.columns, settings.sources)
    held_out = None
    if settings.held_out is not None:
        held_out = data.load(settings.held_out, corpus.task, settings.columns)
        corpus = beside(corpus, held_out)
    names = aspects_to_judge(corpus, settings.aspects)
    require_enough_rated(corpus, names)
    aspects = tuple(corpus.task.aspect(name) for name in names)
    questions = find_questions(corpus.groups, aspects)
    automatic = settings.level == "auto"
    level = _level(corpus, aspects, questions, judge) if automatic else cast(Level, settings.level)
    require_level(corpus, level)
    repeats = _folds(corpus, settings, list(names))
    if held_out is not None:
        splits = split_beside(corpus, len(held_out.groups), aspects=list(names), seed=settings.seed)
    else:
        splits = repeats[0].whole if repeats else split(corpus, aspects=list(names), seed=settings.seed)
    if splits.joined:
        logger.info(splits.joined_note())
    return CompileData(corpus, aspects, level, questions, splits, repeats)


def _folds(corpus: Corpus, settings: Settings, aspects: Sequence[str]) -> tuple[Folds, ...]:
    """The folds of each repeat, the first drawn with the seed; empty for a single split.

    Raises:
        InputError: Too few sources for the folds, or repeats of a single split.
    """
    if settings.held_out is not None:
        if (settings.folds or 1, settings.repeats) != (1, 1):
            raise InputError(
                "sources that were held out once are not held out by folds",
                field="--held-out",
                expected="neither --folds nor --repeats",
                found=f"--folds {settings.folds}" if settings.folds else f"--repeats {settings.repeats}",
                remedy="leave them away, or --held-out",
            )
        return ()
    count = usual_folds(corpus, settings.repeats) if settings.folds is None else settings.folds
    if count == 1:
        if settings.repeats > 1:
            raise InputError(
                "a single split is not repeated",
                field="--repeats",
                expected="1 with --folds 1",
                found=settings.repeats,
                remedy="choose --folds 6, or leave --folds out",
            )
        return ()
    seeds = [settings.seed + _FURTHER * number for number in range(settings.repeats)]
    return tuple(fold(corpus, aspects=aspects, seed=seed, count=count) for seed in seeds)


def _level(corpus: Corpus, aspects: Sequence[Aspect], questions: Mapping[str, Question], judge: Judge) -> Level:
    """The level for `--level auto`: `summary` if groups have several candidates, else `sample`.

    Also `sample` if the ratings of all aspects are binary: one threshold is then used for all sources, the pooled
    correlation ranks judges much as AUROC does, and groups with a single label count, too. But not for a judge that
    compares, whose scores mean nothing across sources.
    """
    pooled = all(a.name in questions and questions[a.name].kind == "binary" for a in aspects)
    return "summary" if corpus.grouped and (not pooled or judge.compares) else "sample"
