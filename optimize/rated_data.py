"""The rated corpus of a compile: loaded, checked, split once or into folds."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

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

logger = logging.getLogger(__name__)


def rated_data(settings: Settings, judge: Judge, corpus: Corpus | None = None) -> CompileData:
    """Split `corpus`, or the one that the settings name, and determine the aspects and the level to choose by.

    Raises:
        InputError: The data cannot be used.
    """
    if corpus is None:
        corpus = data.load(settings.data, settings.task, settings.columns, settings.sources)
    held_out = None
    if settings.held_out is not None:
        held_out = data.load(settings.held_out, corpus.task, settings.columns)
        corpus = beside(corpus, held_out)
    names = aspects_to_judge(corpus, settings.aspects)
    require_enough_rated(corpus, names)
    aspects = tuple(corpus.task.aspect(name) for name in names)
    questions = find_questions(corpus.groups, aspects)
    level = settings.chosen_by.level
    if level == "auto":
        level = _level(corpus, aspects, questions, judge)
    require_level(corpus, level)
    folds = _folds(corpus, settings, list(names))
    if held_out is not None:
        splits = split_beside(corpus, len(held_out.groups), aspects=list(names), seed=settings.seed)
    else:
        splits = folds.whole if folds else split(corpus, aspects=list(names), seed=settings.seed)
    if splits.joined:
        logger.info(splits.joined_note())
    return CompileData(corpus, aspects, level, questions, splits, folds)


def _folds(corpus: Corpus, settings: Settings, aspects: Sequence[str]) -> Folds | None:
    """The folds that the settings ask for; None for a single split.

    Raises:
        InputError: Too few sources for the folds, or a test set beside them.
    """
    if settings.held_out is not None and (settings.folds or 1) != 1:
        raise InputError(
            "sources that were held out once are not held out by folds",
            field="--held-out",
            expected="no --folds",
            found=f"--folds {settings.folds}",
            remedy="leave it away, or --held-out",
        )
    count = usual_folds(corpus) if settings.folds is None else settings.folds
    if count == 1 or settings.held_out is not None:
        return None
    return fold(corpus, aspects=aspects, seed=settings.seed, count=count)


def _level(corpus: Corpus, aspects: Sequence[Aspect], questions: Mapping[str, Question], judge: Judge) -> Level:
    """The level `auto`: `summary` if groups have several candidates, else `sample`.

    Also `sample` if the ratings of all aspects are binary: one threshold is then used for all sources, the pooled
    correlation ranks judges much as AUROC does, and groups with a single label count, too. But not for a judge that
    compares, whose scores mean nothing across sources.
    """
    pooled = all(a.name in questions and questions[a.name].kind == "binary" for a in aspects)
    return "summary" if corpus.grouped and (not pooled or judge.compares) else "sample"
