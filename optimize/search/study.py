"""The search: Optuna suggests knowledge about the raters, persona, n and Tie-breaker, and prunes.

One Optuna study for all aspects: a trial evaluates its point on every aspect, so that the choice for one can borrow
strength from the others (`pooling`). Its value is the agreement, the mean over aspects, less `CALL_PENALTY` for each LM
call per item. The starting points come first: single calls with every kind of knowledge, debates without any and with
the best kinds, one round with every other persona, and the Tie-breaker after a round of the best debate. The sampler
(TPE) suggests the others, `SUGGESTION_BATCH` at a time.

Trials are evaluated on blocks of sources that double in size. After each block a trial reports its value on every
source and aspect, and Optuna's Wilcoxon pruner compares these with the same sources and aspects of the best trial. A
debate of n rounds contains every shorter one, and every granularity is a rounding of finished scores, so these are
trials of their own at no LM call.

A search that was stopped is repeated from the stored replies, at no cost. The stored study decides nothing, since a
kill may leave it incomplete; it holds every finished trial for `optuna-dashboard`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from debate_judge.data.agreement.tables import GroupScores, Level
from debate_judge.optimize.search.choice_scores import ChoiceScores
from debate_judge.optimize.search.outcomes import (
    Criterion,
    Outcomes,
    PrunedPoint,
    SearchResult,
)
from debate_judge.optimize.search.points import JudgeVariant, Point, SearchSpace
from debate_judge.optimize.search.storage import (
    StoredStudy,
    TrialOutcome,
    finished_trial,
    params_of,
    silenced_optuna,
    suggest,
)

if TYPE_CHECKING:
    import optuna

CALL_PENALTY = 0.001
"""What a trial's value loses for each LM call per item, so that of equal scores those that take fewer calls win."""

SUGGESTION_BATCH = 4
"""Suggestions of the sampler that are evaluated together."""

_P_THRESHOLD = 0.05
"""Significance level of the one-sided Wilcoxon test that prunes a trial."""

_MAX_ASKS = 32
"""Most suggestions that the sampler is asked for per batch; if none is new, the simplest remaining point is tried."""

_FIRST_BLOCK_SIZE = {"summary": 3, "sample": 50}
"""Groups in the first block. At sample level a group is one candidate, and a correlation needs many."""

_MIN_CHUNK_SIZE = {"summary": 1, "sample": 10}
"""Least number of groups of a chunk. A trial reports one value for each chunk and aspect."""

_SLOW_SAMPLE_SIZES = range(8, 14)
"""Sample sizes at which SciPy's Wilcoxon test, if there are ties, enumerates all signs (0.4 s for 12); avoided."""

_FAST_SAMPLE_SIZE = 16
"""Sample size in place of one in `_SLOW_SAMPLE_SIZES`."""

_MAX_CHUNKS = 200
"""Most values that a trial reports for an aspect."""

_TYPICAL_STARTING_POINTS = 12
"""Typical number of starting points, for the progress bar."""


@dataclass(frozen=True)
class SearchLimits:
    """How much of a search space is tried."""

    knowledge_kinds: int
    """Most kinds of knowledge, none included, that the starting points hold debates with."""
    suggestions: int
    """Most points that the sampler suggests, beyond the starting points."""
    candidates: int
    """Most rated candidates of each aspect that the choice is made by."""
    trials: int = 1_000_000
    """Most single calls, debates and Tie-breakers that are tried altogether."""
    new_debates: bool = True
    """Whether the sampler may suggest debates that were not held yet; else only Tie-breakers for those that were."""
    informed_personas: bool = False
    """Whether other personas are tried only with knowledge, if there is any."""

    @property
    def expected_trials(self) -> int:
        return min(self.trials, _TYPICAL_STARTING_POINTS + self.suggestions)


SEARCH_LIMITS: Mapping[str, SearchLimits] = MappingProxyType(
    {
        "light": SearchLimits(
            knowledge_kinds=2, suggestions=2, candidates=512, new_debates=False, informed_personas=True
        ),
        "medium": SearchLimits(knowledge_kinds=3, suggestions=20, candidates=2048),
        "heavy": SearchLimits(knowledge_kinds=99, suggestions=80, candidates=1_000_000),
    }
)
"""Effort -> how much is tried."""


def search_limits(effort: str, trials: int | None) -> SearchLimits:
    """The limits of an effort, or with the number of trials that the user sets."""
    limits = SEARCH_LIMITS[effort]
    return limits if trials is None else replace(limits, trials=trials, suggestions=trials, new_debates=True)


def rank_variants(outcomes: Outcomes, variants: Sequence[JudgeVariant]) -> list[JudgeVariant]:
    """The variants by the best agreement of each so far; those whose points were all pruned come last."""
    agreements = {
        point: sum(outcome.agreement for outcome in by_unit.values()) / len(by_unit)
        for point, by_unit in outcomes.by_point.items()
    }

    def best_agreement(variant: JudgeVariant) -> float:
        return max((value for point, value in agreements.items() if point.variant == variant), default=float("-inf"))

    return sorted(variants, key=lambda variant: -best_agreement(variant))


def _tpe_sampler(seed: int) -> optuna.samplers.BaseSampler:
    """Bergstra et al., Algorithms for Hyper-Parameter Optimization, 2011."""
    from optuna.samplers import TPESampler

    return TPESampler(seed=seed, n_startup_trials=5, constant_liar=True)


def _wilcoxon_pruner() -> optuna.pruners.BasePruner:
    from optuna.pruners import WilcoxonPruner

    with silenced_optuna():
        return WilcoxonPruner(p_threshold=_P_THRESHOLD)


@dataclass(frozen=True)
class Strategy:
    """The decisions of a search. An estimate puts bounds in place of those that cannot be known in advance."""

    pruner: Callable[[], optuna.pruners.BasePruner] = _wilcoxon_pruner
    next_points: Callable[[Sequence[Point]], Sequence[Point]] | None = None
    """From the points that remain to those that are tried next, in place of the sampler."""
    rank_variants: Callable[[Outcomes, Sequence[JudgeVariant]], list[JudgeVariant]] = rank_variants
    """The order in which debates with kinds of knowledge are tried."""
    choose: Callable[[Outcomes], dict[str, Point]] = Outcomes.choose
    """The choice for each unit."""


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """The settings of a search."""

    criterion: Criterion
    limits: SearchLimits
    seed: int
    study_name: str
    """Name of the stored study; it must change whenever the result could."""
    storage: Path | None
    """File of the stored study, or None to store nothing."""
    strategy: Strategy = field(default_factory=Strategy)


OnTrial = Callable[[Point, TrialOutcome], None]
"""Called once for every point that was tried, with its outcome."""

StudyFactory = Callable[[Mapping[str, ChoiceScores], SearchSpace, SearchSettings, OnTrial], "Study"]
"""`Study`, or what an estimate puts in its place."""


class Study:
    """A search: an Optuna study in memory, the values that its trials report, and the points that were evaluated.

    `units` has the scores of each unit, the aspects that share a judge, by its name; `on_trial` is called once for
    every point that was tried.
    """

    def __init__(
        self,
        units: Mapping[str, ChoiceScores],
        space: SearchSpace,
        settings: SearchSettings,
        on_trial: OnTrial = lambda point, outcome: None,
    ) -> None:
        self._outcomes = outcomes = Outcomes(units, space, settings.criterion)
        self._space = space
        self._settings = settings
        self._on_trial = on_trial
        with silenced_optuna():
            self._stored = StoredStudy(settings.study_name, settings.storage, outcomes.space)
        self._optuna = _in_memory_study(settings.strategy.pruner())
        self._group_order = shuffled_groups(outcomes.groups, settings.seed)
        self._aspect_count = sum(len(scores.aspects) for scores in outcomes.units.values())
        self._block_ends = block_ends(len(self._group_order), settings.criterion.level, self._aspect_count)
        self._chunks = _chunks(self._group_order, settings.criterion.level)
        self._suggestions = 0
        self._trials: dict[Point, optuna.Trial] = {}
        """Trials of the points that were tried, with unrounded scores."""
        self._reported: dict[Point, dict[int, float]] = {}
        """Point -> step -> value; a step stands for a chunk of the groups and an aspect."""

    def optimize(self) -> None:
        """Try the starting points, then what the sampler suggests.

        Raises:
            InputError: The study cannot be stored.
            dspy.LMError: The LM failed for good.
        """
        limits = self._settings.limits
        remaining = limits.trials
        for batch in self._starting_points():
            self._evaluate(batch[:remaining])
            remaining = max(0, remaining - len(batch))
        remaining = min(remaining, limits.suggestions)
        while remaining > 0 and (points := self._next_points(min(remaining, SUGGESTION_BATCH))):
            self._evaluate(points)
            remaining -= len(points)

    def results(self) -> dict[str, SearchResult]:
        """The finished search for each unit, with its chosen point."""
        return self._outcomes.results(self._settings.strategy.choose(self._outcomes))

    def _starting_points(self) -> Iterator[list[Point]]:
        space, limits, rank = (
            self._space,
            self._settings.limits,
            partial(self._settings.strategy.rank_variants, self._outcomes),
        )
        untuned, *learnt = space.scorer_variants
        # It is never pruned: all others are compared with it.
        yield [space.point(untuned, 0)]
        yield [space.point(variant, 0) for variant in learnt]
        # Knowledge adds more to a debate, which argues from it, than to a single call: the best kind is always tried.
        variants = [untuned, *rank(learnt)[: max(1, limits.knowledge_kinds - 1)]]
        yield [point for variant in variants for point in space.debate_points(variant, space.max_rounds)]
        # A rewritten judge takes no other persona.
        adaptable = [v for v in variants if v not in space.rewritten]
        informed = adaptable[1:] if limits.informed_personas else []
        best = rank(informed or adaptable)[0]
        others = [replace(best, persona=persona) for persona in space.personas[1:]]
        shortest = min((n for n in space.rounds if n), default=0)
        yield [point for other in others for point in space.debate_points(other, shortest)] if shortest else []
        if shortest and space.tie_breakers == (False, True):
            # A Tie-breaker ends the debate as further rounds would, for a fraction of their calls.
            debated = dict.fromkeys(p.variant for p in self._outcomes.by_point if p.rounds)
            yield [space.point(v, shortest, True) for v in rank(list(debated))[:1]]

    def _next_points(self, limit: int) -> list[Point]:
        """The points that are tried next; none if all were tried."""
        unrounded = [point for point in self._space.points() if point.granularity == self._space.unrounded]
        new = [point for point in unrounded if point not in self._trials]
        if not self._settings.limits.new_debates:
            debated = {(point.variant, point.rounds) for point in self._outcomes.by_point if point.rounds}
            new = [point for point in new if (point.variant, point.rounds) in debated]
        if (override := self._settings.strategy.next_points) is not None:
            return list(override(new))[:limit]
        suggested: list[Point] = []
        for _ in range(_MAX_ASKS):
            if len(suggested) == min(limit, len(new)):
                break
            # A new sampler for each suggestion: the result depends on the trials so far and on no other state.
            self._optuna.sampler = _tpe_sampler(self._settings.seed * 100_003 + self._suggestions)
            self._suggestions += 1
            trial = self._optuna.ask()
            point = suggest(self._space, trial)
            if point in new and point not in self._trials:
                self._trials[point] = trial
                suggested.append(point)
            else:
                self._tell(trial, None, "FAIL")
        return suggested or new[:1]

    def _unrounded_points(self, point: Point) -> list[Point]:
        """The points derived from this one without rounding; the first makes the most calls."""
        return [p for p in self._space.derived_points(point) if p.granularity == self._space.unrounded]

    def _evaluate(self, points: Iterable[Point]) -> None:
        """Evaluate points and those derived from them, block by block, until they are pruned or complete."""
        outcomes, unpruned = self._outcomes, list[list[Point]]()
        queued: set[Point] = set()
        for new_point in points:
            pending = [p for p in self._unrounded_points(new_point) if p not in self._reported and p not in queued]
            queued.update(pending)
            for point in pending:
                if point not in self._trials:
                    self._optuna.enqueue_trial(params_of(self._space, point))
                    self._trials[point] = self._optuna.ask()
                    suggest(self._space, self._trials[point])
            unpruned.append(pending)
        # The first trial has no other to be compared with.
        for end in self._block_ends[:-1] if outcomes.by_point else []:
            outcomes.prefetch([point for pending in unpruned for point in pending], frozenset(self._group_order[:end]))
            for pending in unpruned:
                for point in pending:
                    self._report(point, end)
                # Pruning the longest debate leaves the shorter ones derived from it, which take fewer calls.
                while pending and self._should_prune(pending[0]):
                    self._prune(pending.pop(0), end)
        outcomes.prefetch([point for pending in unpruned for point in pending])
        for pending in unpruned:
            for point in pending:
                self._complete(point)

    def _should_prune(self, point: Point) -> bool:
        return len(self._reported[point]) not in _SLOW_SAMPLE_SIZES and self._trials[point].should_prune()

    def _report(self, point: Point, end: int) -> None:
        """Report the values on the chunks of the first `end` groups, without groups that the judge was tuned on."""
        reported = self._reported.setdefault(point, {})
        # The chunks of earlier blocks were reported.
        begin = max(reported, default=-1) // self._aspect_count + 1
        for step, value in self._step_values(point, begin, end).items():
            reported[step] = value
            self._trials[point].report(value, step)

    def _step_values(self, point: Point, begin: int, end: int) -> dict[int, float]:
        """Step -> agreement less the call penalty, on the full chunks of the first `end` groups, from `begin` on."""
        outcomes, group_ids = self._outcomes, frozenset(self._group_order[:end])
        all_groups = end == len(self._group_order)
        by_step: dict[int, float] = {}
        aspect_number = 0
        for scores in outcomes.units.values():
            by_aspect, calls = scores.scores(point, None if all_groups else group_ids)
            for aspect, groups in by_aspect.items():
                chunks = takewhile(group_ids.issuperset, self._chunks[begin:])
                for chunk_number, values in enumerate(self._chunk_values(aspect, groups, chunks), start=begin):
                    if values:
                        step = chunk_number * self._aspect_count + aspect_number
                        by_step[step] = sum(values) / len(values) - CALL_PENALTY * calls
                aspect_number += 1
        return dict(sorted(by_step.items()))

    def _chunk_values(
        self, aspect: str, groups: Sequence[GroupScores], chunks: Iterable[Sequence[str]]
    ) -> Iterator[list[float]]:
        """What the groups of each chunk contribute to the agreement."""
        if self._settings.criterion.level == "summary":
            by_group = self._outcomes.group_values(aspect, groups)
            for chunk in chunks:
                yield [by_group[name] for name in chunk if name in by_group]
            return
        by_id = {group.group: group for group in groups}
        for chunk in chunks:
            yield list(self._outcomes.group_values(aspect, [by_id[name] for name in chunk if name in by_id]).values())

    def _complete(self, point: Point) -> None:
        outcomes = self._outcomes
        outcomes_of_point = outcomes.evaluate(point)
        self._report(point, len(self._group_order))
        self._impute_missing_steps(point)
        value = sum(o.agreement - CALL_PENALTY * o.calls for o in outcomes_of_point.values()) / len(outcomes_of_point)
        self._tell(self._trials[point], value, "COMPLETE")
        for granularity in self._space.granularities:
            rounded = replace(point, granularity=granularity)
            self._record(rounded, outcomes.evaluate(rounded))

    def _impute_missing_steps(self, point: Point) -> None:
        """Report steps without a value, whose groups the judge was tuned on, so that trials can be compared on all
        steps: the untuned judge's value there plus the mean difference from it on the other steps."""
        untuned = self._outcomes.untuned_counterpart(point)
        if untuned is None:
            return
        untuned_values, reported = self._reported[untuned], self._reported[point]
        common = reported.keys() & untuned_values.keys()
        gain = sum(reported[step] - untuned_values[step] for step in common) / len(common) if common else 0.0
        for step in sorted(untuned_values.keys() - reported.keys()):
            reported[step] = untuned_values[step] + gain
            self._trials[point].report(reported[step], step)

    def _prune(self, point: Point, end: int) -> None:
        reported = self._reported[point]
        best = self._optuna.best_trial.intermediate_values
        common = reported.keys() & best.keys()
        difference = sum(reported[step] - best[step] for step in common) / len(common)
        self._tell(self._trials[point], None, "PRUNED")
        for granularity in self._space.granularities:
            rounded = replace(point, granularity=granularity)
            self._outcomes.pruned[rounded] = PrunedPoint(end, len(self._group_order), difference)
            self._record(rounded, self._outcomes.pruned[rounded])

    def _tell(self, trial: optuna.Trial, value: float | None, state: str) -> None:
        from optuna.trial import TrialState

        self._optuna.tell(trial, value, TrialState[state])

    def _record(self, point: Point, outcome: TrialOutcome) -> None:
        self._on_trial(point, outcome)
        self._stored.add(point, finished_trial(self._space, point, outcome, CALL_PENALTY))


def shuffled_groups(groups: Iterable[str], seed: int) -> list[str]:
    """The groups without repetition, in a random order that depends on names and seed alone."""
    return sorted(
        set(groups), key=lambda name: hashlib.blake2b(f"{seed}\0{name}".encode("utf-8", "surrogatepass")).digest()
    )


def block_ends(groups: int, level: Level, aspects: int) -> list[int]:
    """Number of groups that have been scored after each block; the last is all of them."""
    ends, end = [], _FIRST_BLOCK_SIZE[level]
    while end < groups:
        if level == "summary" and end * aspects in _SLOW_SAMPLE_SIZES:
            end = -(-_FAST_SAMPLE_SIZE // aspects)
        ends.append(end)
        end *= 2
    return [*ends, groups] if not ends or ends[-1] < groups else [*ends[:-1], groups]


def _chunks(order: Sequence[str], level: Level) -> list[Sequence[str]]:
    """The chunks of the groups, each of which gives one reported value for each aspect."""
    size = max(_MIN_CHUNK_SIZE[level], -(-len(order) // _MAX_CHUNKS))
    return [order[begin : begin + size] for begin in range(0, len(order), size)]


def _in_memory_study(pruner: optuna.pruners.BasePruner) -> optuna.Study:
    import optuna

    with silenced_optuna():
        return optuna.create_study(direction="maximize", pruner=pruner)
