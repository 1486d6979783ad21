"""Held-out scores: each compared judge scores the sources that were not used for tuning or choosing."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial

from debate_judge.data.agreement.tables import GroupScores
from debate_judge.data.schema import Aspect, Corpus, Granularity
from debate_judge.data.splits import Splits
from debate_judge.optimize.plan import CompileRun
from debate_judge.optimize.search.study import SearchResult
from debate_judge.programs.compiled import CompiledJudge, default_granularity
from debate_judge.programs.judge import Judgement, corpus_items
from debate_judge.runs.runner.judge_usage import stage
from debate_judge.runs.runner.runner import group_scores

logger = logging.getLogger(__name__)

COMPARED = ("single", "informed_single", "compiled")
"""The compared judges: one call of the Scorer; one call of the Scorer with the compiled judge's knowledge about the
raters, which separates the effect of the debate from that of tuning; the compiled debate."""

HeldOutJudgements = Mapping[str, Mapping[str, tuple[list[Judgement], Granularity]]]
"""Judge name, of `COMPARED` -> aspect -> its judgements in corpus order, and the granularity of reported scores."""


@dataclass(frozen=True)
class HeldOutEvaluation:
    """One held-out part and the compared judges' scores on it."""

    held_out: Corpus
    judge: CompiledJudge
    """The judge that was compiled without the part."""
    searches: Mapping[str, SearchResult]
    """Aspect -> the search that chose its judge; it has the scores on dev that cuts are tuned on."""
    judgements: HeldOutJudgements

    @cached_property
    def scores(self) -> dict[str, dict[str, list[GroupScores]]]:
        """Judge name -> aspect -> scores by group."""
        return {
            judge: {
                name: group_scores(self.held_out, self.judge.task.aspect(name), *judged)
                for name, judged in by_aspect.items()
            }
            for judge, by_aspect in self.judgements.items()
        }


def evaluate(
    run: CompileRun, compiled: CompiledJudge, searches: Mapping[str, SearchResult], splits: Splits
) -> HeldOutEvaluation:
    """Score held-out with all compared judges; `compiled` was made without it, and `searches` chose its judges."""
    plan, held_out = run.plan, splits.held_out
    if not held_out.groups:
        # With folds, the judge that learns from all sources has none left.
        return HeldOutEvaluation(held_out, compiled, searches, {})
    logger.info("scoring held-out with single calls and the compiled judge")
    names = [aspect.name for aspect in plan.data.aspects]
    # Copies, because a judge may cache what it derives, and the plan may be executed again.
    single = plan.single.deepcopy()
    chosen = {name: compiled.aspects[name].judge for name in names}
    # A single call is the first turn of the debate with the same knowledge, so that its reply is in the store, or
    # shared in flight.
    judges = {
        "single": dict.fromkeys(names, single),
        "compiled": chosen,
        "informed_single": {name: judge.with_debate(rounds=0, tie_breaker=False) for name, judge in chosen.items()},
    }

    def granularity(name: str, aspect: Aspect) -> Granularity:
        if name == "single":
            return default_granularity(single, aspect)
        return compiled.aspects[aspect.name].granularity

    def judge(name: str, aspect: Aspect) -> tuple[list[Judgement], Granularity]:
        with stage(f"{aspect.name}: held-out"):
            items = corpus_items(held_out, aspect)
            judged = run.runner.judge(judges[name][aspect.name], items, f"{aspect.name}: held-out, {name}")
        return judged, granularity(name, aspect)

    passes = [(name, aspect) for name in judges for aspect in plan.data.aspects]
    judged = run.runner.run_concurrently([partial(judge, name, aspect) for name, aspect in passes])
    judgements: dict[str, dict[str, tuple[list[Judgement], Granularity]]] = {name: {} for name in judges}
    for (name, aspect), of_aspect in zip(passes, judged, strict=True):
        judgements[name][aspect.name] = of_aspect
    return HeldOutEvaluation(held_out, compiled, searches, judgements)
