"""The held-out evidence: each compared judge scores, once, the sources that nothing was chosen on."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from data.agreement import AgreementTable, Difference, GroupScores, agreement_table, compare
from data.schema import Aspect, Granularity
from optimize.choosing import start
from optimize.run import Run
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
    for aspect in run.aspects:
        uncompiled = _uncompiled(run, aspect)
        judged["single"][aspect.name] = ([u[0] for u in uncompiled], "given")
        judged["uncompiled"][aspect.name] = ([u[1] for u in uncompiled], "given")
        chosen = compiled.aspects[aspect.name]
        items = corpus_items(run.splits.held_out, aspect)
        found = run.panel.judge(chosen.judge, items, f"{aspect.name}: held-out, compiled")
        judged["compiled"][aspect.name] = (found, chosen.granularity)
    scores = {name: _scores(run, by_aspect) for name, by_aspect in judged.items()}
    options = {"resamples": run.settings.resamples, "seed": run.settings.seed}
    comparison = {"statistic": run.statistic, "level": run.level, **options}
    return HeldOut(
        tables={name: agreement_table(scores[name], **options) for name in COMPARED},
        calls={name: {a: calls_per_item(j) for a, (j, _) in by.items()} for name, by in judged.items()},
        gain=compare(scores["compiled"], scores["single"], **comparison),
        over_uncompiled=compare(scores["compiled"], scores["uncompiled"], **comparison),
        judgements={a: j for a, (j, _) in judged["compiled"].items()},
    )


def _uncompiled(run: Run, aspect: Aspect) -> list[tuple[Judgement, Judgement]]:
    """Single call and debate of each held-out item: the first is the debate's own first turn."""
    judge = start(run.settings)
    items = corpus_items(run.splits.held_out, aspect)
    rounds = judge.rules.rounds
    transcripts = run.panel.converse(judge, items, rounds, f"{aspect.name}: held-out, uncompiled")
    settled = run.panel.settle(judge, items, transcripts) if judge.rules.tie_breaker else transcripts
    return [(judge.verdict(t.until(0), 0), judge.verdict(s, rounds)) for t, s in zip(transcripts, settled, strict=True)]


def _scores(run: Run, judged: Mapping[str, tuple[list[Judgement], Granularity]]) -> dict[str, list[GroupScores]]:
    held_out = run.splits.held_out
    return {aspect.name: group_scores(held_out, aspect, *judged[aspect.name]) for aspect in run.aspects}
