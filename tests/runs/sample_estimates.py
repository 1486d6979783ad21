"""Estimates of scoring a part of the sample."""

from __future__ import annotations

from pathlib import Path

from debate_judge.data.schema import Corpus
from debate_judge.programs import JUDGES, build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.judge import Item, corpus_items
from debate_judge.runs.estimates.dry_run import Estimate, EstimateTarget
from debate_judge.runs.estimates.items import estimate_scoring

OFFLINE = EstimateTarget("offline")


def judges(name: str, corpus: Corpus) -> dict[str, AspectJudge]:
    judge = AspectJudge(build(JUDGES[name].kind, JUDGES[name].config))
    return {aspect.name: judge for aspect in corpus.task.aspects}


def items(corpus: Corpus, aspects: int = 2) -> list[Item]:
    return [item for aspect in corpus.task.aspects[:aspects] for item in corpus_items(corpus, aspect)]


def estimated(name: str, corpus: Corpus, tmp_path: Path, target: EstimateTarget = OFFLINE) -> Estimate:
    aspects = corpus.task.aspects[:2]
    judge = CompiledJudge(corpus.task, judges(name, corpus))
    return estimate_scoring(target, judge, aspects, iter(items(corpus)))[0]
