"""Held-out scores: each of the compared judges scores the sources that were not used for tuning or choosing."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from debate_judge.data.agreement.decisions import Decided
from debate_judge.data.agreement.raters import RaterAgreement
from debate_judge.data.agreement.results import Agreement
from debate_judge.data.agreement.tables import AgreementTable, Difference, GroupScores
from debate_judge.data.inference.closeness import Closeness
from debate_judge.data.schema import Corpus, Granularity
from debate_judge.optimize.context import CompilePlan, Run
from debate_judge.optimize.search.choice_scores import JOINTLY
from debate_judge.optimize.search.outcomes import SearchResult
from debate_judge.programs.compiled import CompiledJudge, SharedJudge, shared_judges, usual_granularity
from debate_judge.programs.judge import Judge, Judgement, corpus_items
from debate_judge.runs.runner.billing import stage
from debate_judge.runs.runner.runner import group_scores

logger = logging.getLogger(__name__)

COMPARED = ("single", "informed_single", "uncompiled", "compiled")
"""The compared judges: one call of the Scorer; one call of the Scorer with the compiled judge's knowledge of the
raters, which separates the effect of the debate from that of tuning; the untuned debate; the compiled debate. The first
reads each candidate alone, unless the user has set `together`; the second has the reading of the compiled judge; the
third reads alone, or in a light search in the cheapest reading."""

ALONE = "compiled-alone"
"""The compiled judge on each text by itself, if that is to be measured."""

DEV_CUT = "compiled-dev-cut"
"""The compiled judge once more, with decisions at the cut that was best on dev."""


MAPPED = "compiled-mapped"
"""The compiled judge once more, with its scores mapped to the raters' scale."""


HeldOutScores = Mapping[str, Mapping[str, tuple[list[Judgement], Granularity]]]
"""Judge name, of `COMPARED` -> aspect -> its judgements in corpus order, and the granularity of reported scores."""

Scores = Mapping[str, Mapping[str, Sequence[GroupScores]]]
"""Judge name -> aspect -> scores by group."""


@dataclass(frozen=True)
class Proof:
    """One held-out part, and the compared judges' scores on it."""

    plan: CompilePlan
    """The plan of the fold or of the whole compile, whose splits contain the part."""
    judge: CompiledJudge
    """The judge compiled without the part."""
    searches: Mapping[str, SearchResult]
    """Aspect -> the search that chose its judge, which has the scores on dev that cuts are tuned on."""
    scored: HeldOutScores

    @property
    def held_out(self) -> Corpus:
        return self.plan.data.splits.held_out

    @property
    def scores(self) -> dict[str, dict[str, list[GroupScores]]]:
        """Judge name -> aspect -> scores by group."""
        return {
            name: {a.name: group_scores(self.held_out, a, *judged[a.name]) for a in self.plan.data.aspects}
            for name, judged in self.scored.items()
        }


@dataclass(frozen=True, slots=True)
class FoldFigures:
    """The figures of the folds: averages over aspects, in the correlation and at the level to choose by; None if a
    fold's ratings leave it undefined."""

    sources: tuple[int, ...]
    """Number of held-out sources of each fold."""
    compiled: tuple[float | None, ...]
    """Agreement of each fold's compiled judge on its held-out sources."""
    gain: tuple[float | None, ...]
    """That agreement minus the single call's."""


@dataclass(frozen=True)
class ReadAlone:
    """The compiled judge on each text by itself."""

    agreement: Agreement
    """Averaged over aspects, in the objective."""
    change: Difference
    """This minus the compiled judge as it was compiled."""
    calls: float
    """LM calls per item."""


@dataclass(frozen=True)
class HeldOut:
    """The comparison on held-out."""

    tables: Mapping[str, AgreementTable]
    """Judge name, of `COMPARED` -> agreement."""
    calls: Mapping[str, Mapping[str, float]]
    """Judge name -> aspect -> LM calls per item."""
    gain: Difference
    """Compiled minus single call, in the objective, averaged over aspects."""
    gains: Mapping[str, Difference]
    """Aspect -> compiled minus single call, with intervals that hold for all aspects together in 95 % of cases
    (Bonferroni: each has the level 1 - .05 / aspects)."""
    of_knowledge: Difference
    """The single call with the same knowledge and reading minus the single call, averaged over aspects: the effect of
    what was learnt about the raters, and of how candidates are read."""
    over_informed: Difference
    """Compiled minus the single call with the same knowledge, averaged over aspects: the effect of the debate."""
    over_uncompiled: Difference
    """Compiled minus uncompiled, averaged over aspects."""
    judged: Mapping[str, Mapping[str, list[Judgement]]]
    """Judge name, of `COMPARED` -> aspect -> judgements in the order of the measured sources, with folds each by the
    judge of its fold."""
    scores: Scores
    """The same as scores by group."""
    calibrated: Mapping[str, Sequence[GroupScores]]
    """Aspect -> the compiled judge's scores mapped to the raters' scale, with folds by each fold's map; aspects without
    a map are missing."""
    decisions: Mapping[str, Mapping[str, Decided]]
    """Judge name, of `COMPARED` or `DEV_CUT` -> aspect -> decisions, for aspects whose ratings define any."""

    raters: Mapping[str, Mapping[str, RaterAgreement]]
    """Judge name, of `COMPARED` -> aspect -> comparison with single raters; empty if only mean ratings are known."""

    closeness: Mapping[str, Mapping[str, Closeness]]
    """Judge name, of `COMPARED` or `MAPPED` -> aspect or average -> how close its scores are to the ratings; empty for
    judges whose scores are not on the scale."""
    alone: ReadAlone | None = None
    """None where that was not measured."""
    folds: FoldFigures | None = None
    """None for a single split."""

    def judgements(self, judge: str) -> Mapping[str, list[Judgement]]:
        """Aspect -> judgements of a judge of `COMPARED`, in the order of the measured sources."""
        return self.judged[judge]

    def calls_per_item(self, judge: str) -> float:
        by_aspect = self.calls[judge]
        return sum(by_aspect.values()) / len(by_aspect)


def above_zero(figure: Agreement) -> bool:
    """Whether agreement above chance is shown: the interval, or without one the value, is above 0."""
    end = figure.value if figure.low is None else figure.low
    return end is not None and end > 0


def evaluate(run: Run, compiled: CompiledJudge, searches: Mapping[str, SearchResult]) -> Proof:
    """Score held-out with all compared judges.

    Args:
        run: The run, whose plan has the held-out part.
        compiled: The judge that was compiled without it.
        searches: Aspect -> the search that chose its judge.

    Raises:
        dspy.LMError: The LM failed for good.
    """
    plan = run.plan
    logger.info("scoring held-out with single calls, the uncompiled and the compiled judge")
    items = {aspect.name: corpus_items(plan.data.splits.held_out, aspect) for aspect in plan.data.aspects}
    # Copies, because a judge may keep what it has derived, and the plan may be carried out again.
    single, uncompiled = plan.single.deepcopy(), plan.read(plan.readings[0 if plan.breadth.cheap_only else -1])
    chosen = shared_judges({name: compiled.aspects[name].judge for name in items})
    once = [SharedJudge(one.judge.with_debate(rounds=0, tie_breaker=False), one.aspects) for one in chosen]
    # A single call is the first turn of the debate with the same knowledge and reading: it is in the store then, or is
    # shared in flight.
    asked = {
        "uncompiled": shared_judges(dict.fromkeys(items, uncompiled)),
        "single": shared_judges(dict.fromkeys(items, single)),
        "compiled": chosen,
        "informed_single": once,
    }
    if plan.settings.read_alone:
        asked[ALONE] = [SharedJudge(_alone(compiled.aspects[name].judge), (name,)) for name in items]
    found: dict[str, dict[str, tuple[list[Judgement], Granularity]]] = {name: {} for name in asked}
    aspects = plan.data.aspects
    read: dict[str, dict[str, Granularity]] = {
        "uncompiled": {aspect.name: usual_granularity(uncompiled, aspect) for aspect in aspects},
        "single": {aspect.name: usual_granularity(single, aspect) for aspect in aspects},
    }
    own = {name: compiled.aspects[name].granularity for name in items}

    def judged(name: str, one: SharedJudge) -> list[Judgement]:
        label = one.aspects[0] if len(one.aspects) == 1 or plan.settings.shared else JOINTLY
        with stage(f"{label}: held-out"):
            own_items = [item for aspect in one.aspects for item in items[aspect]]
            return run.runner.judge(one.judge, own_items, f"{label}: held-out, {name}")

    passes = [(name, one) for name, judges in asked.items() for one in judges]
    results = run.runner.at_once([partial(judged, name, one) for name, one in passes])
    for (name, one), result in zip(passes, results, strict=True):
        judgements = iter(result)
        for aspect in one.aspects:
            found[name][aspect] = list(islice(judgements, len(items[aspect]))), read.get(name, own)[aspect]
    return Proof(plan, compiled, searches, found)


def _alone(judge: Judge) -> Judge:
    copy = judge.deepcopy()
    copy.together, copy.joint = 0, False
    return copy


def joined_scores(plan: CompilePlan, proofs: Sequence[Proof]) -> dict[str, dict[str, list[GroupScores]]]:
    """The scores of all folds, groups in corpus order."""
    place = {group.id: number for number, group in enumerate(plan.data.corpus.groups)}
    found: dict[str, dict[str, list[GroupScores]]] = {}
    for proof in proofs:
        for name, by_aspect in proof.scores.items():
            for aspect, groups in by_aspect.items():
                found.setdefault(name, {}).setdefault(aspect, []).extend(groups)
    if len(proofs) > 1:
        for by_aspect in found.values():
            for groups in by_aspect.values():
                groups.sort(key=lambda group: place[group.group])
    return found
