"""One pass in which several judges score the same items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect
from debate_judge.programs.judge import Item, Judgement, Unscored, corpus_items
from debate_judge.runs.comparison.entrants import Entrant
from debate_judge.runs.comparison.results import EntrantScores, EvalSetup
from debate_judge.runs.runner.billing import JudgeUsage
from debate_judge.runs.runner.pairs import Pair, pairs_of
from debate_judge.runs.runner.runner import JudgeRunner, calls_per_item, group_scores
from debate_judge.runs.runner.shared_pass import PassJob, run_together


def score_all(
    runner: JudgeRunner, setup: EvalSetup, entrants: Sequence[Entrant], *, progress: bool = True
) -> tuple[dict[str, EntrantScores], dict[str, str]]:
    """Score all candidates with all entrants in one pass.

    Args:
        runner: Its LM's store must be a `runs.runner.billing.UsageByJudge`, or nothing is charged.
        setup: What is scored.
        entrants: The judges.
        progress: Whether to show progress on stderr.

    Returns:
        Entrant -> its scores, and entrant -> why it cannot score anything at all.

    Raises:
        dspy.LMError: The LM failed for good; what was answered is in its store.
        InputError: No entrant can score anything.
    """
    usages = {c.name: JudgeUsage() for c in entrants}
    work = [(c, a) for c in entrants for a in setup.aspects]
    jobs = [_job(setup, c, a, usages[c.name]) for c, a in work]
    done = run_together(runner, jobs, "judges", progress=progress)
    if entrants and len(done.failed) == len(entrants):
        raise next(iter(done.failed.values()))
    found: dict[str, dict[str, list[Judgement]]] = {c.name: {} for c in entrants}
    different = dict.fromkeys(found, 0)
    for (c, a), judgements in zip(work, done.results, strict=True):
        found[c.name][a.name] = [one for together in judgements for one in together]
        different[c.name] += len({item.key for item in corpus_items(setup.corpus, a)})
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


def _job(setup: EvalSetup, entrant: Entrant, aspect: Aspect, usage: JudgeUsage) -> PassJob[tuple[Judgement, ...]]:
    """One question per item, or per pair of candidates where the judge compares and all candidates come in pairs."""
    judge = entrant.aspects[aspect.name].judge
    items = corpus_items(setup.corpus, aspect)

    async def alone(item: Item) -> tuple[Judgement, ...]:
        return (await judge.judge(item),)

    async def together(pair: Pair) -> tuple[Judgement, ...]:
        rounds = judge.debate_config.rounds
        both = await judge.converse_pair(pair.first, pair.second, rounds)
        return tuple(judge.verdict(transcript, rounds) for transcript in both)

    couples = pairs_of(items) if judge.compares else []
    return PassJob(entrant.name, together, couples, usage) if couples else PassJob(entrant.name, alone, items, usage)


def _entry(
    setup: EvalSetup, entrant: Entrant, found: Mapping[str, list[Judgement]], usage: JudgeUsage, different: int
) -> EntrantScores:
    scores = {
        a.name: group_scores(setup.corpus, a, found[a.name], entrant.aspects[a.name].granularity) for a in setup.aspects
    }
    everything = [judgement for judgements in found.values() for judgement in judgements]
    reasons = Counter(j.reason for j in everything if isinstance(j, Unscored))
    return EntrantScores(scores, calls_per_item(everything), usage, different, dict(sorted(reasons.items())))


def problem(error: Exception) -> str:
    """An error in one line."""
    return " ".join(str(error).split())
