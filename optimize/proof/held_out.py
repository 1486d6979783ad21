"""The held-out evidence: each compared judge scores, once, the sources that nothing was chosen on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from debate_judge.data.agreement.decisions import Decided
from debate_judge.data.agreement.raters import RaterAgreement
from debate_judge.data.agreement.results import Agreement
from debate_judge.data.agreement.tables import AgreementTable, Difference, GroupScores
from debate_judge.data.schema import Corpus, Granularity
from debate_judge.optimize.context import CompilePlan, Run
from debate_judge.optimize.search.choice_scores import JOINTLY
from debate_judge.optimize.search.outcomes import SearchResult
from debate_judge.programs.compiled import CompiledJudge, SharedJudge, shared_judges, usual_granularity
from debate_judge.programs.judge import Judgement, corpus_items
from debate_judge.runs.runner.billing import stage
from debate_judge.runs.runner.runner import group_scores

COMPARED = ("single", "informed_single", "uncompiled", "compiled")
"""One call of the Scorer; one call of the Scorer that knows of the raters what the compiled judge knows, so that what
the debate adds is told apart from what was learnt; the debate as it comes; the debate as compiled. The first reads
every candidate alone, unless the user has all of them read side by side; the second reads as the compiled one does; the
third alone, or where a light search is to spare calls in the cheapest reading."""

DEV_CUT = "compiled-dev-cut"
"""The compiled judge once more, its scores turned into decisions at the cut that was best on dev."""


HeldOutScores = Mapping[str, Mapping[str, tuple[list[Judgement], Granularity]]]
"""Judge name, of `COMPARED` -> aspect -> its judgements in corpus order, and the granularity that they are read in."""

Scores = Mapping[str, Mapping[str, Sequence[GroupScores]]]
"""Judge name -> aspect -> scores by group."""


@dataclass(frozen=True)
class Proof:
    """One held-out part, and what the compared judges made of it."""

    plan: CompilePlan
    """Its splits have the part; of a fold or of the whole compile."""
    judge: CompiledJudge
    """As compiled without the part."""
    searches: Mapping[str, SearchResult]
    """Aspect -> the search that chose its judge; scores of dev are read off it, for the cut."""
    scored: HeldOutScores
    repeat: int = 0

    @property
    def held_out(self) -> Corpus:
        return self.plan.data.splits.held_out

    @property
    def scores(self) -> dict[str, dict[str, list[GroupScores]]]:
        """As `Scores`."""
        return {
            name: {a.name: group_scores(self.held_out, a, *judged[a.name]) for a in self.plan.data.aspects}
            for name, judged in self.scored.items()
        }


@dataclass(frozen=True, slots=True)
class FoldFigures:
    """What differs between the folds of one repeat; averages over aspects, at the level and in the correlation that
    are chosen by, None where a fold's ratings do not tell."""

    sources: tuple[int, ...]
    """Of each fold."""
    compiled: tuple[float | None, ...]
    """Agreement of each fold's compiled judge on its held-out sources."""
    gain: tuple[float | None, ...]
    """The same minus that of the single call."""
    whole: float | None
    """Agreement of the compiled judges on all sources of the repeat."""


@dataclass(frozen=True)
class HeldOut:
    """What the compared judges did on held-out."""

    tables: Mapping[str, AgreementTable]
    """Judge name, of `COMPARED` -> agreement."""
    calls: Mapping[str, Mapping[str, float]]
    """Judge name -> aspect -> LM calls per item."""
    gain: Difference
    """Compiled minus single call, in the objective, averaged over aspects."""
    gains: Mapping[str, Difference]
    """The same, aspect by aspect, with intervals that hold for all aspects together in 95 % of cases: each is one of
    1 - .05 / aspects (Bonferroni)."""
    over_informed: Difference
    """Compiled minus the single call that knows the same, likewise: what the debate adds."""
    over_uncompiled: Difference
    """Compiled minus uncompiled, likewise."""
    judged: Mapping[str, Mapping[str, list[Judgement]]]
    """Judge name, of `COMPARED` -> aspect -> judgements of the measured sources in their order; with folds those of the
    first repeat, each by the judge of its fold."""
    scores: Scores
    """The same as scores, which agreement was computed from."""
    calibrated: Mapping[str, Sequence[GroupScores]]
    """Aspect -> the compiled judge's scores on the raters' scale, with folds by the map of each; without aspects for
    which a judge has none."""
    decisions: Mapping[str, Mapping[str, Decided]]
    """Judge name, of `COMPARED` or `DEV_CUT` -> aspect -> decisions, where the corpus calls for any."""

    raters: Mapping[str, Mapping[str, RaterAgreement]]
    """Judge name, of `COMPARED` -> aspect -> how it stands beside single raters; empty where only means are known."""

    folds: tuple[FoldFigures, ...] = ()
    """By repeat; empty for a single split."""

    def judgements(self, judge: str) -> Mapping[str, list[Judgement]]:
        """Aspect -> judgements of a judge of `COMPARED`, in the order of the measured sources."""
        return self.judged[judge]

    def calls_per_item(self, judge: str) -> float:
        by_aspect = self.calls[judge]
        return sum(by_aspect.values()) / len(by_aspect)


def above_zero(figure: Agreement) -> bool:
    """Whether agreement above chance is shown: the interval lies above 0, or without an interval the value does."""
    end = figure.value if figure.low is None else figure.low
    return end is not None and end > 0


def score_held_out(run: Run, compiled: CompiledJudge) -> HeldOutScores:
    """Let the two single calls, the uncompiled and the compiled judge score held-out.

    Raises:
        dspy.LMError: The LM failed for good.
    """
    plan = run.plan
    found: dict[str, dict[str, tuple[list[Judgement], Granularity]]] = {name: {} for name in COMPARED}
    items = {aspect.name: corpus_items(plan.data.splits.held_out, aspect) for aspect in plan.data.aspects}
    # Copies, for a judge may keep what it has derived, and the plan may be carried out again.
    single, uncompiled = plan.single.deepcopy(), plan.read(plan.readings[0 if plan.breadth.thrifty else -1])
    chosen = shared_judges({name: compiled.aspects[name].judge for name in items})
    once = [SharedJudge(one.judge.with_debate(rounds=0, tie_breaker=False), one.aspects) for one in chosen]
    # A single call is the first turn of the debate that knows the same and reads alike: none is made twice for it.
    asked = {
        "uncompiled": shared_judges(dict.fromkeys(items, uncompiled)),
        "single": shared_judges(dict.fromkeys(items, single)),
        "compiled": chosen,
        "informed_single": once,
    }
    aspects = plan.data.aspects
    read: dict[str, dict[str, Granularity]] = {
        "uncompiled": {aspect.name: usual_granularity(uncompiled, aspect) for aspect in aspects},
        "single": {aspect.name: usual_granularity(single, aspect) for aspect in aspects},
    }
    own = {name: compiled.aspects[name].granularity for name in items}
    for name, judges in asked.items():
        for one in judges:
            label = one.aspects[0] if len(one.aspects) == 1 or plan.settings.shared else JOINTLY
            with stage(f"{label}: held-out"):
                told = [item for aspect in one.aspects for item in items[aspect]]
                judgements = iter(run.runner.judge(one.judge, told, f"{label}: held-out, {name}"))
            for aspect in one.aspects:
                found[name][aspect] = list(islice(judgements, len(items[aspect]))), read.get(name, own)[aspect]
    return found


def by_repeat(proofs: Sequence[Proof]) -> list[list[Proof]]:
    """The proofs of each repeat."""
    return [[p for p in proofs if p.repeat == number] for number in sorted({p.repeat for p in proofs})]


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
