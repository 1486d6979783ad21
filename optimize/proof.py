"""The held-out evidence: each compared judge scores, once, the sources that nothing was chosen on."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from data.agreement import AgreementTable, Difference, GroupScores, agreement_table, compare
from data.schema import Granularity
from optimize.choosing import start
from optimize.run import Run
from programs import JUDGES, build
from programs.compiled import CompiledJudge
from programs.judge import Judgement, corpus_items
from runs.scoring import calls_per_item, group_scores

logger = logging.getLogger(__name__)

COMPARED = ("single", "uncompiled", "compiled")
"""One call of the Scorer; the debate as it comes; the debate as compiled."""


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

    def calls_per_item(self, judge: str) -> float:
        by_aspect = self.calls[judge]
        return sum(by_aspect.values()) / len(by_aspect)


def prove(run: Run, compiled: CompiledJudge) -> HeldOut:
    """Score held-out with the single call, the uncompiled and the compiled judge, and compare them."""
    logger.info("scoring held-out with the single call, the uncompiled and the compiled judge")
    judged: dict[str, dict[str, tuple[list[Judgement], Granularity]]] = {name: {} for name in COMPARED}
    single, uncompiled = build(JUDGES["single"].kind, JUDGES["single"].config), start(run.settings)
    for aspect in run.aspects:
        items = corpus_items(run.splits.held_out, aspect)
        chosen = compiled.aspects[aspect.name]
        # The single call is the first turn of the uncompiled debate: no call is made twice for it.
        for name, judge, granularity in (
            ("uncompiled", uncompiled, "given"),
            ("single", single, "given"),
            ("compiled", chosen.judge, chosen.granularity),
        ):
            found = run.panel.judge(judge, items, f"{aspect.name}: held-out, {name}")
            judged[name][aspect.name] = (found, cast(Granularity, granularity))
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
    )


def _scores(run: Run, judged: Mapping[str, tuple[list[Judgement], Granularity]]) -> dict[str, list[GroupScores]]:
    held_out = run.splits.held_out
    return {aspect.name: group_scores(held_out, aspect, *judged[aspect.name]) for aspect in run.aspects}
