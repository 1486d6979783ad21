"""Several judges on the same items: scores, agreement, paired differences, and which of them differ significantly."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TypeVar

from tqdm import tqdm

from debate_judge.data.agreement.tables import (
    LEVELS,
    AgreementTable,
    Difference,
    GroupScores,
    Level,
    Statistic,
    agreement_table,
    compare,
    correct,
)
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Corpus
from debate_judge.programs.judge import Item, Judgement, Unscored, corpus_items
from debate_judge.programs.lm.prices import Price
from debate_judge.runs.comparison.entrants import Entrant
from debate_judge.runs.runner.billing import JudgeUsage
from debate_judge.runs.runner.pairs import Pair, pairs_of
from debate_judge.runs.runner.runner import JudgeRunner, calls_per_item, group_scores
from debate_judge.runs.runner.shared_pass import PassJob, run_together

T = TypeVar("T")

AVERAGE = "average"
"""The column beside the aspects."""

Scores = Mapping[str, Sequence[GroupScores]]
"""Aspect -> the scores of one judge."""


@dataclass(frozen=True)
class EvalSetup:
    """The groups and aspects that all judges score, and the statistics they are compared by."""

    corpus: Corpus
    aspects: tuple[Aspect, ...]
    level: Level
    statistics: tuple[Statistic, ...]
    """Shown in this order; intervals, differences and marks refer to the first."""
    resamples: int = 10_000
    seed: int = 0
    """Of the resampling."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The aspects, and `AVERAGE` where there are several: one aspect is its own."""
        names = tuple(a.name for a in self.aspects)
        return names if len(names) == 1 else (*names, AVERAGE)

    def agreement(self, scores: Scores, levels: Sequence[Level] | None = None) -> AgreementTable:
        """Agreement at the given levels, by default at the one that is shown."""
        levels = (self.level,) if levels is None else levels
        return agreement_table(scores, resamples=self.resamples, seed=self.seed, levels=levels)

    def difference(self, a: Scores, b: Scores) -> Difference:
        """Agreement of `a` minus that of `b`, paired."""
        return compare(a, b, statistic=self.statistics[0], level=self.level, resamples=self.resamples, seed=self.seed)


@dataclass(frozen=True)
class EntrantScores:
    """The scores of one entrant, before agreement is computed from them."""

    scores: Scores
    calls: float | None = None
    """LM calls per item, executed or not; None for scores from a file."""
    usage: JudgeUsage | None = None
    """Tokens of these calls; None for scores from a file."""
    items: int = 0
    """Number of distinct items that `usage` covers."""
    unscored: Mapping[str, int] = field(default_factory=dict)
    """Reason -> number of items without a score."""
    note: str | None = None
    """A remark for the legend of the table."""

    def noted(self, note: str | None) -> EntrantScores:
        """The same with a note, if there is one."""
        return replace(self, note=note or self.note)

    def usd_per_thousand(self, price: Price | None) -> float | None:
        """US dollars for a thousand items if this judge ran alone; None where the price is unknown."""
        if price is None or self.usage is None or not self.items:
            return None
        return 1000 * self.usage.usd(price) / self.items


@dataclass(frozen=True)
class JudgeResult:
    """One row of the table."""

    name: str
    entry: EntrantScores
    table: AgreementTable
    usd: float | None
    """US dollars for a thousand items."""

    def to_json(self) -> dict[str, object]:
        entry = self.entry
        usage, items = entry.usage, max(1, entry.items)
        tokens = None if usage is None else {k: getattr(usage, k) / items for k in ("fresh", "cached", "output")}
        return {
            "agreement": self.table.to_json(),
            "lm_calls_per_item": entry.calls,
            "tokens_per_item": tokens,
            "usd_per_1000_items": self.usd,
            "unscored": dict(entry.unscored),
            "note": entry.note,
        }


@dataclass(frozen=True)
class Comparison:
    """All entrants on one corpus."""

    setup: EvalSetup
    results: tuple[JudgeResult, ...]
    baseline: str
    differences: Mapping[str, Difference]
    """Entrant -> its difference to the baseline in the first statistic, averaged over aspects."""
    corrected: Mapping[str, float]
    """Entrant -> p-value of that difference, corrected for the number of comparisons (Holm)."""
    best: Mapping[str, str | None]
    """Aspect, or `AVERAGE` -> the entrant that differs from every other one, or None."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Entrant -> why it has no row."""

    def to_json(self) -> dict[str, object]:
        differences = {name: {**asdict(d), "p_corrected": self.corrected[name]} for name, d in self.differences.items()}
        return {
            "judges": {s.name: s.to_json() for s in self.results},
            "level": self.setup.level,
            "statistics": list(self.setup.statistics),
            "baseline": self.baseline,
            "differences": differences,
            "best": dict(self.best),
            "failed": dict(self.failed),
        }


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


def compare_all(
    setup: EvalSetup,
    entries: Mapping[str, EntrantScores],
    *,
    baseline: str,
    price: Price | None = None,
    failed: Mapping[str, str] | None = None,
    progress: bool = False,
) -> Comparison:
    """Agreement of each entrant, its paired difference to the baseline with corrected p-values, and the best.

    Args:
        setup: What was compared on.
        entries: Entrant -> its scores.
        baseline: The entrant that the others are compared with; without an entry there are no differences.
        price: Of the LM, where it is known.
        failed: Entrant -> why it has no entry.
        progress: Whether to show progress on stderr once it takes longer than two seconds.
    """
    columns = setup.columns
    base = entries.get(baseline)
    others = [name for name in entries if base is not None and name != baseline]
    steps = len(entries) + len(others) + len(columns)
    shown = progress and sys.stderr is not None
    with tqdm(total=steps, desc="intervals", unit="table", file=sys.stderr, delay=2, disable=not shown) as bar:

        def step(found: T) -> T:
            bar.update()
            return found

        results = tuple(
            JudgeResult(name, entry, step(setup.agreement(entry.scores, LEVELS)), _usd(entry, price))
            for name, entry in entries.items()
        )
        differences = {name: step(setup.difference(entries[name].scores, base.scores)) for name in others if base}
        best = {column: step(_best(setup, results, column)) for column in columns}
    corrected = dict(zip(differences, correct([d.p_value for d in differences.values()]), strict=True))
    best.setdefault(AVERAGE, best[columns[0]])
    return Comparison(setup, results, baseline, differences, corrected, best, dict(failed or {}))


def _best(setup: EvalSetup, results: Sequence[JudgeResult], column: str) -> str | None:
    """The entrant that differs significantly from every other one in a column (p < 0.05, Holm), or None."""
    statistic = setup.statistics[0]

    def value(result: JudgeResult) -> float | None:
        table = result.table.average if column == AVERAGE else result.table.aspects[column]
        return table[setup.level][statistic].value

    def scores(result: JudgeResult) -> Scores:
        return result.entry.scores if column == AVERAGE else {column: result.entry.scores[column]}

    ranked = sorted((s for s in results if value(s) is not None), key=lambda s: -(value(s) or 0.0))
    if len(ranked) < 2:
        return None
    first, others = ranked[0], ranked[1:]
    p_values = [setup.difference(scores(first), scores(other)).p_value for other in others]
    return first.name if all(p < 0.05 for p in correct(p_values)) else None


def _entry(
    setup: EvalSetup, entrant: Entrant, found: Mapping[str, list[Judgement]], usage: JudgeUsage, different: int
) -> EntrantScores:
    scores = {
        a.name: group_scores(setup.corpus, a, found[a.name], entrant.aspects[a.name].granularity) for a in setup.aspects
    }
    everything = [judgement for judgements in found.values() for judgement in judgements]
    reasons = Counter(j.reason for j in everything if isinstance(j, Unscored))
    return EntrantScores(scores, calls_per_item(everything), usage, different, dict(sorted(reasons.items())))


def _usd(entry: EntrantScores, price: Price | None) -> float | None:
    return 0.0 if entry.calls == 0 else entry.usd_per_thousand(price)


def problem(error: Exception) -> str:
    """An error in one line."""
    return " ".join(str(error).split())
