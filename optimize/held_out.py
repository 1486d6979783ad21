"""The held-out evidence: each compared judge scores, once, the sources that nothing was chosen on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from debate_judge.data.agreement.decisions import Decided, decide, with_tuned_threshold
from debate_judge.data.agreement.raters import RaterAgreement, beside_raters
from debate_judge.data.agreement.results import Agreement
from debate_judge.data.agreement.tables import AgreementTable, Difference, GroupScores, agreement_table, compare
from debate_judge.data.schema import Granularity
from debate_judge.optimize.context import CompileData, CompilePlan, Run
from debate_judge.optimize.search.choice_scores import JOINTLY
from debate_judge.optimize.search.outcomes import SearchResult
from debate_judge.programs.compiled import CompiledJudge, SharedJudge, shared_judges, usual_granularity
from debate_judge.programs.judge import Judgement, corpus_items
from debate_judge.runs.reports.raters import several_raters
from debate_judge.runs.runner.billing import stage
from debate_judge.runs.runner.runner import calls_per_item, group_scores, require_scored

COMPARED = ("single", "informed_single", "uncompiled", "compiled")
"""One call of the Scorer; one call of the Scorer that knows of the raters what the compiled judge knows, so that what
the debate adds is told apart from what was learnt; the debate as it comes; the debate as compiled. The first reads
every candidate alone, unless the user has all of them read side by side; the second reads as the compiled one does; the
third alone, or where a light search is to spare calls in the cheapest reading."""

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
    gains: Mapping[str, Difference]
    """The same, aspect by aspect."""
    over_informed: Difference
    """Compiled minus the single call that knows the same, likewise: what the debate adds."""
    over_uncompiled: Difference
    """Compiled minus uncompiled, likewise."""
    scored: HeldOutScores
    """What agreement was computed from."""
    scores: Mapping[str, Mapping[str, Sequence[GroupScores]]]
    """The same as scores: judge name, of `COMPARED` -> aspect -> groups in corpus order."""
    decisions: Mapping[str, Mapping[str, Decided]]
    """Judge name, of `COMPARED` or `DEV_CUT` -> aspect -> decisions, where the corpus calls for any."""

    raters: Mapping[str, Mapping[str, RaterAgreement]]
    """Judge name, of `COMPARED` -> aspect -> how it stands beside single raters; empty where only means are known."""

    def judgements(self, judge: str) -> dict[str, list[Judgement]]:
        """Aspect -> judgements of a judge of `COMPARED`, in corpus order."""
        return {aspect: found for aspect, (found, _) in self.scored[judge].items()}

    def calls_per_item(self, judge: str) -> float:
        by_aspect = self.calls[judge]
        return sum(by_aspect.values()) / len(by_aspect)


def above_zero(figure: Agreement) -> bool:
    """Whether agreement above chance is shown: the interval lies above 0, or without an interval the value does."""
    end = figure.value if figure.low is None else figure.low
    return end is not None and end > 0


HeldOutScores = Mapping[str, Mapping[str, tuple[list[Judgement], Granularity]]]
"""Judge name, of `COMPARED` -> aspect -> its judgements in corpus order, and the granularity that they are read in."""


def score_held_out(run: Run, compiled: CompiledJudge) -> HeldOutScores:
    """Let the two single calls, the uncompiled and the compiled judge score held-out.

    Raises:
        dspy.LMError: The LM failed for good.
    """
    plan = run.plan
    found: dict[str, dict[str, tuple[list[Judgement], Granularity]]] = {name: {} for name in COMPARED}
    items = {aspect.name: corpus_items(plan.data.splits.held_out, aspect) for aspect in plan.data.aspects}
    # Copies, for a judge may keep what it has derived, and the plan may be carried out again.
    thrifty = not plan.breadth.debates_otherwise
    single, uncompiled = plan.single.deepcopy(), plan.read(plan.readings[0 if thrifty else -1])
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


def compare_held_out(plan: CompilePlan, scored: HeldOutScores, searches: Mapping[str, SearchResult]) -> HeldOut:
    """Agreement of the compared judges, and the compiled one's gain.

    Args:
        plan: Of the compile.
        scored: What `score_held_out` found.
        searches: Aspect -> the search that chose its judge; scores of dev are read off it, for the cut.

    Raises:
        InputError: The compiled judge left too many items without a score.
    """
    settings = plan.settings
    require_scored(
        [j for found, _ in scored["compiled"].values() for j in found], settings.max_unscored, "held-out items"
    )
    scores = {name: _scores(plan.data, by_aspect) for name, by_aspect in scored.items()}
    versus = partial(
        compare,
        statistic=plan.statistic,
        level=plan.data.level,
        resamples=settings.resamples,
        seed=settings.seed,
    )
    return HeldOut(
        tables={
            name: agreement_table(scores[name], resamples=settings.resamples, seed=settings.seed) for name in COMPARED
        },
        calls={name: {a: calls_per_item(j) for a, (j, _) in by.items()} for name, by in scored.items()},
        gain=versus(scores["compiled"], scores["single"]),
        gains={
            aspect: versus({aspect: own}, {aspect: scores["single"][aspect]})
            for aspect, own in scores["compiled"].items()
        },
        over_informed=versus(scores["compiled"], scores["informed_single"]),
        over_uncompiled=versus(scores["compiled"], scores["uncompiled"]),
        scored=scored,
        scores=scores,
        decisions=_decisions(plan, scores, searches),
        raters=_beside_raters(plan, scores),
    )


def _beside_raters(
    plan: CompilePlan, scores: Mapping[str, Mapping[str, Sequence[GroupScores]]]
) -> dict[str, dict[str, RaterAgreement]]:
    if not several_raters(scores["compiled"]):
        return {}
    at = partial(
        beside_raters,
        statistic=plan.statistic,
        level=plan.data.level,
        on_scale=plan.judge.on_scale,
        resamples=plan.settings.resamples,
        seed=plan.settings.seed,
    )
    return {name: {aspect: at(groups) for aspect, groups in scores[name].items()} for name in COMPARED}


def _decisions(
    plan: CompilePlan, scores: Mapping[str, Mapping[str, Sequence[GroupScores]]], searches: Mapping[str, SearchResult]
) -> dict[str, dict[str, Decided]]:
    """Decisions at the fixed threshold, and the compiled judge's at the cut of dev where that is another one."""
    questions = plan.data.questions
    at = partial(decide, resamples=plan.settings.resamples, seed=plan.settings.seed)
    found = {"single": at(scores["single"], questions)}
    for name in COMPARED[1:]:
        found[name] = at(scores[name], questions, on_scale=plan.judge.on_scale)
    dev = {group.id for group in plan.data.splits.dev.groups}
    cut = {
        name: with_tuned_threshold(question, [g for g in searches[name].chosen.scores[name] if g.group in dev], "dev")
        for name, question in questions.items()
    }
    cut = {name: question for name, question in cut.items() if question != questions[name]}
    found[DEV_CUT] = at(scores["compiled"], cut)
    return {name: by_aspect for name, by_aspect in found.items() if by_aspect}


def _scores(
    data: CompileData, judged: Mapping[str, tuple[list[Judgement], Granularity]]
) -> dict[str, list[GroupScores]]:
    held_out = data.splits.held_out
    return {aspect.name: group_scores(held_out, aspect, *judged[aspect.name]) for aspect in data.aspects}
