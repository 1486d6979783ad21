"""The held-out evidence: each compared judge scores, once, the sources that nothing was chosen on."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from debate_judge.data.agreement.decisions import Decided, decide, with_tuned_threshold
from debate_judge.data.agreement.tables import AgreementTable, Difference, GroupScores, agreement_table, compare
from debate_judge.data.schema import Granularity
from debate_judge.optimize.context import Run
from debate_judge.optimize.search.study import SearchResult
from debate_judge.optimize.selection import start
from debate_judge.optimize.settings import Settings
from debate_judge.programs import options_of, preset
from debate_judge.programs.compiled import CompiledJudge
from debate_judge.programs.judge import Judge, Judgement, corpus_items
from debate_judge.runs.runner.runner import calls_per_item, group_scores, require_scored

logger = logging.getLogger(__name__)

COMPARED = ("single", "uncompiled", "compiled")
"""One call of the Scorer; the debate as it comes; the debate as compiled."""

DEV_CUT = "compiled-dev-cut"
"""The compiled judge once more, its scores turned into decisions at the cut that was best on dev."""


@dataclass(frozen=True)
class HeldOut:
    """What the compared judges did on held-out."""

    tables: Mapping[str, AgreementTable]
    """Judge name, of `COMPARED` -> agreement."""
    calls: Mapping[str, Mapping[str, float]]
    """Judge name -> aspect -> LM calls per item."""
    gain: Difference
    """Compiled minus single call, in the objective, averaged over aspects."""
    over_uncompiled: Difference
    """Compiled minus uncompiled, likewise."""
    judgements: Mapping[str, Sequence[Judgement]]
    """Aspect -> the compiled judge's judgements, in corpus order."""
    decisions: Mapping[str, Mapping[str, Decided]]
    """Judge name, of `COMPARED` or `DEV_CUT` -> aspect -> decisions, where the corpus calls for any."""

    def calls_per_item(self, judge: str) -> float:
        by_aspect = self.calls[judge]
        return sum(by_aspect.values()) / len(by_aspect)


def evaluate_held_out(run: Run, compiled: CompiledJudge, searches: Mapping[str, SearchResult]) -> HeldOut:
    """Score held-out with the single call, the uncompiled and the compiled judge, and compare them.

    Args:
        run: The compile.
        compiled: Its result.
        searches: Aspect -> the search that chose its judge; dev scores are read off it, for the cut.
    """
    logger.info("scoring held-out with the single call, the uncompiled and the compiled judge")
    judged: dict[str, dict[str, tuple[list[Judgement], Granularity]]] = {name: {} for name in COMPARED}
    single, uncompiled = untouched(run.settings)
    for aspect in run.aspects:
        items = corpus_items(run.splits.held_out, aspect)
        chosen = compiled.aspects[aspect.name]
        # The single call is the first turn of the uncompiled debate: no call is made twice for it.
        for name, judge, granularity in (
            ("uncompiled", uncompiled, "given"),
            ("single", single, "given"),
            ("compiled", chosen.judge, chosen.granularity),
        ):
            found = run.runner.judge(judge, items, f"{aspect.name}: held-out, {name}")
            judged[name][aspect.name] = (found, cast(Granularity, granularity))
    compiled_alone = [j for found, _ in judged["compiled"].values() for j in found]
    require_scored(compiled_alone, run.settings.max_unscored, "held-out items")
    scores = {name: _scores(run, by_aspect) for name, by_aspect in judged.items()}
    resamples, seed = run.settings.resamples, run.settings.seed

    def versus(other: str) -> Difference:
        return compare(
            scores["compiled"],
            scores[other],
            statistic=run.statistic,
            level=run.level,
            resamples=resamples,
            seed=seed,
        )

    return HeldOut(
        tables={name: agreement_table(scores[name], resamples=resamples, seed=seed) for name in COMPARED},
        calls={name: {a: calls_per_item(j) for a, (j, _) in by.items()} for name, by in judged.items()},
        gain=versus("single"),
        over_uncompiled=versus("uncompiled"),
        judgements={a: j for a, (j, _) in judged["compiled"].items()},
        decisions=_decisions(run, scores, searches),
    )


def _decisions(
    run: Run, scores: Mapping[str, Mapping[str, Sequence[GroupScores]]], searches: Mapping[str, SearchResult]
) -> dict[str, dict[str, Decided]]:
    """Decisions at the fixed threshold, and the compiled judge's at the cut of dev where that is another one."""
    questions = run.questions
    resamples, seed = run.settings.resamples, run.settings.seed
    found = {"single": decide(scores["single"], questions, resamples=resamples, seed=seed)}
    on_scale = start(run.settings).on_scale
    for name in COMPARED[1:]:
        found[name] = decide(scores[name], questions, on_scale=on_scale, resamples=resamples, seed=seed)
    cut = {
        name: with_tuned_threshold(question, searches[name].chosen.scores[name], "dev")
        for name, question in questions.items()
    }
    cut = {name: question for name, question in cut.items() if question != questions[name]}
    found[DEV_CUT] = decide(scores["compiled"], cut, resamples=resamples, seed=seed)
    return {name: by_aspect for name, by_aspect in found.items() if by_aspect}


def untouched(settings: Settings) -> tuple[Judge, Judge]:
    """The single call and the judge as it comes, which the compiled one is compared with."""
    # Whatever way of scoring the user chose, the single call scores in the same.
    single = preset("single", {o: v for o, v in settings.options().items() if o in options_of("single")})
    return single, start(settings)


def _scores(run: Run, judged: Mapping[str, tuple[list[Judgement], Granularity]]) -> dict[str, list[GroupScores]]:
    held_out = run.splits.held_out
    return {aspect.name: group_scores(held_out, aspect, *judged[aspect.name]) for aspect in run.aspects}
