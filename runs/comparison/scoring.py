"""One pass in which several judges score the same items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from debate_judge.data.errors import InputError
from debate_judge.programs.compiled import SharedGrouping, grouped_by_aspect
from debate_judge.programs.judge import Judge, Judgement, Unscored, corpus_items
from debate_judge.runs.comparison.entrants import Entrant
from debate_judge.runs.comparison.results import EntrantScores, EvalSetup
from debate_judge.runs.runner.billing import JudgeUsage
from debate_judge.runs.runner.runner import JudgeRunner, calls_per_item, group_scores
from debate_judge.runs.runner.shared_pass import PassJob, run_together


def score_all(
    runner: JudgeRunner, setup: EvalSetup, entrants: Sequence[Entrant]
) -> tuple[dict[str, EntrantScores], dict[str, str]]:
    """Score all candidates with all entrants in one pass.

    Args:
        runner: Its LM's store must be a `runs.runner.billing.UsageByJudge`, or nothing is charged.
        setup: What is scored.
        entrants: The judges.

    Returns:
        Entrant -> its scores, and entrant -> why it cannot score anything at all.

    Raises:
        dspy.LMError: The LM failed for good; what was answered is in its store.
        InputError: No entrant can score anything.
    """
    usages = {c.name: JudgeUsage() for c in entrants}
    items = {a.name: corpus_items(setup.corpus, a) for a in setup.aspects}
    work = [(c, asked) for c in entrants for asked in grouped_by_aspect(_judges(c), items)]
    jobs = [_job(c, asked, usages[c.name]) for c, asked in work]
    done = run_together(runner, jobs, "judges")
    if entrants and len(done.failed) == len(entrants):
        raise next(iter(done.failed.values()))
    found: dict[str, dict[str, list[Judgement]]] = {c.name: {} for c in entrants}
    different = dict.fromkeys(found, 0)
    for (c, asked), judgements in zip(work, done.results, strict=True):
        found[c.name] |= asked.by_aspect(judgements) if judgements else {name: [] for name in asked.aspects}
        different[c.name] += len({item.key for name in asked.aspects for item in items[name]})
    entries = {
        c.name: _entry(setup, c, found[c.name], usages[c.name], different[c.name])
        for c in entrants
        if c.name not in done.failed
    }
    for name, entry in entries.items():
        entries[name] = entry.noted(_nothing(found[name]))
    if entries and all(entry.note for entry in entries.values()):
        name, first = next(iter(entries.items()))
        raise InputError(f"no judge could score anything; {name} {first.note}")
    return entries, {name: problem(error) for name, error in done.failed.items()}


def _nothing(found: Mapping[str, Sequence[Judgement]]) -> str | None:
    """Why an entrant has no score at all, by its first item; None where it has some."""
    everything = [judgement for judgements in found.values() for judgement in judgements]
    unscored = [judgement for judgement in everything if isinstance(judgement, Unscored)]
    if not unscored or len(unscored) < len(everything):
        return None
    return f"scored nothing: {unscored[0].detail}"


def _judges(entrant: Entrant) -> dict[str, Judge]:
    return {name: one.judge for name, one in entrant.aspects.items()}


def _job(entrant: Entrant, asked: SharedGrouping, usage: JudgeUsage) -> PassJob[Sequence[Judgement]]:
    return PassJob(entrant.name, lambda table: asked.judge.judge(table.items), asked.grouping.tables, usage)


def _entry(
    setup: EvalSetup, entrant: Entrant, found: Mapping[str, list[Judgement]], usage: JudgeUsage, different: int
) -> EntrantScores:
    scores = {
        a.name: group_scores(setup.corpus, a, found[a.name], entrant.aspects[a.name].granularity) for a in setup.aspects
    }
    everything = [judgement for judgements in found.values() for judgement in judgements]
    reasons = Counter(j.reason for j in everything if isinstance(j, Unscored))
    together = max((j.transcript.together for j in everything), default=1)
    joint = max((j.transcript.joint for j in everything), default=1)
    calls, unscored = calls_per_item(everything), {str(reason): n for reason, n in sorted(reasons.items())}
    on_scale = all(one.judge.on_scale for one in entrant.aspects.values())
    return EntrantScores(
        scores, calls, usage, different, unscored, together=together, joint=joint, judgements=found, on_scale=on_scale
    )


def problem(error: Exception) -> str:
    """An error in one line."""
    return " ".join(str(error).split())
