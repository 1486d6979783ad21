"""The search: Optuna suggests knowledge of the raters, reading, persona, n and Tie-breaker, and prunes.

One Optuna study for all aspects: every trial is asked about the same points, so that the choice for one aspect can lean
on the others (`pooling`). Its value is the agreement, the mean over aspects, less `PRICE` for each LM call per item.
The starting points come first: single calls with every kind of knowledge, debates without any and with the best kinds,
one round with every other persona, and the Tie-breaker after a round of the best debate. The sampler (TPE) suggests the
others, some at a time.

Trials are evaluated on blocks of sources that double in size. After each block a trial reports its value on every
source and aspect, and Optuna's Wilcoxon pruner compares these with the same sources and aspects of the best trial. A
debate of n rounds contains every shorter one, and every granularity is a rounding of finished scores, so these are
trials of their own at no LM call. What all aspects have chosen is in the end tried in one call (`joint`).

A search that was stopped is carried out again from the stored replies, at no cost: nothing is decided by what a kill
has left behind in the stored study, which holds every finished trial for `optuna-dashboard`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    joint_points,
    keep_shareable,
)
from debate_judge.optimize.search.points import JudgeVariant, Point, Space
from debate_judge.optimize.search.storage import StoredStudy, TrialOutcome, finished, params_of, quiet, suggest

if TYPE_CHECKING:
    import optuna

PRICE = 0.001
"""Agreement that an LM call per item has to be worth. Of equal scores, those that take more calls fall behind."""

AT_ONCE = 4
"""Suggestions of the sampler that are evaluated at the same time."""

_FALLS_BEHIND = 0.05
"""Significance of the one-sided Wilcoxon test by which a trial is pruned."""

_NOT_AHEAD = 0.25
"""The same for a more expensive reading, which takes many times the calls: weaker evidence is enough to prune."""

_SUGGESTIONS = 32
"""Suggestions of the sampler, none of which is new, after which the simplest remaining point is tried."""

_FIRST_BLOCK = {"summary": 3, "sample": 50}
"""Groups of the first block. At sample level a group is one candidate, and a correlation needs many."""

_MIN_PART = {"summary": 1, "sample": 10}
"""Groups that a reported value is about, at least."""

_SLOW = range(8, 14)
"""Numbers of values for which SciPy's Wilcoxon test enumerates all signs at ties (0.4 s for 12); they are avoided."""

_ENOUGH = 16
"""Number of values that is used in place of one in `_SLOW`."""

_MAX_PARTS = 200
"""Reported values of a trial and aspect, at most."""

_STARTS = 12
"""Usual number of starting points, for estimates of the work."""

_MIN_TRIALS_FOR_IMPORTANCES = 8
"""Least number of completed trials for parameter importances."""


@dataclass(frozen=True)
class Breadth:
    """How much of a space is tried."""

    kinds: int
    """Kinds of knowledge that the starting points debate with, the judge without any among them."""
    suggestions: int
    """What the sampler may suggest beyond the starting points."""
    candidates: int
    """Candidates of each aspect that are chosen by, at most."""
    trials: int = 1_000_000
    """Single calls, debates and Tie-breakers that are tried altogether, at most. Those in another reading than the
    judge's own come on top, at a share of the calls, and so do the joint ones."""
    new_debates: bool = True
    """Whether the sampler may suggest debates that were not held yet; else only Tie-breakers for those that were."""
    cheap_only: bool = False
    """Whether in the more expensive reading only the untuned single call is tried, which held-out asks for anyway."""

    @property
    def about(self) -> int:
        """Trials that are usual."""
        return min(self.trials, _STARTS + self.suggestions)


BREADTHS: Mapping[str, Breadth] = MappingProxyType(
    {
        "light": Breadth(kinds=2, suggestions=2, candidates=512, new_debates=False, cheap_only=True),
        "medium": Breadth(kinds=3, suggestions=20, candidates=2048),
        "heavy": Breadth(kinds=99, suggestions=80, candidates=1_000_000),
    }
)
"""Effort -> how much is tried."""


def breadth_of(effort: str, trials: int | None) -> Breadth:
    """How much is tried at an effort, or as many trials as the user wants."""
    broad = BREADTHS[effort]
    return broad if trials is None else replace(broad, trials=trials, suggestions=trials, new_debates=True)


def best_of_each_aspect(outcomes: Outcomes, points: Sequence[Point]) -> list[Point]:
    """Of evaluated points those that are worth the most for an aspect."""
    worth = outcomes.worth(points)
    aspects = range(len(worth[points[0]]))
    return list(dict.fromkeys(max(points, key=lambda point: worth[point][aspect]) for aspect in aspects))


def best_first(outcomes: Outcomes, scorers: Sequence[JudgeVariant]) -> list[JudgeVariant]:
    """The variants by the best that each has done so far; those of which all was pruned come last."""
    agreements = {
        point: sum(outcome.agreement for outcome in by_unit.values()) / len(by_unit)
        for point, by_unit in outcomes.by_point.items()
    }

    def best(scorer: JudgeVariant) -> float:
        return max((value for point, value in agreements.items() if point.variant == scorer), default=float("-inf"))

    return sorted(scorers, key=lambda scorer: -best(scorer))


def _tpe(seed: int) -> optuna.samplers.BaseSampler:
    """Bergstra et al., Algorithms for Hyper-Parameter Optimization, 2011."""
    from optuna.samplers import TPESampler

    return TPESampler(seed=seed, n_startup_trials=5, constant_liar=True)


def _wilcoxon(*, expensive: bool) -> optuna.pruners.BasePruner:
    from optuna.pruners import WilcoxonPruner

    with quiet():
        return WilcoxonPruner(p_threshold=_NOT_AHEAD if expensive else _FALLS_BEHIND)


@dataclass(frozen=True)
class Strategy:
    """The decisions of a search; an estimate replaces those that cannot be known beforehand by bounds."""

    pruner: Callable[..., optuna.pruners.BasePruner] = _wilcoxon
    """By `expensive`: whether trials in a more expensive reading than the judge's own are pruned by it."""
    suggested: Callable[[Sequence[Point]], Sequence[Point]] | None = None
    """From what is left to what is tried next, in place of the sampler."""
    scorers: Callable[[Outcomes, Sequence[JudgeVariant]], list[JudgeVariant]] = best_first
    """The order in which debates with kinds of knowledge are tried."""
    read_again: Callable[[Outcomes, Sequence[Point]], list[Point]] = best_of_each_aspect
    """Of the points in the judge's own reading those that are tried in the others."""
    chosen: Callable[[Outcomes], dict[str, Point]] = Outcomes.chosen
    """The choice for each unit."""


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """How a search goes about it."""

    criterion: Criterion
    breadth: Breadth
    seed: int
    study: str
    """Name of the stored study; it must change whenever the result could."""
    storage: Path | str | None
    """File of the stored study, or address of a PostgreSQL database. None stores nothing."""
    strategy: Strategy = field(default_factory=Strategy)


OnTrial = Callable[[Point, TrialOutcome], None]
"""Called once for every point that was tried, with its outcome."""


StudyMaker = Callable[[Mapping[str, ChoiceScores], Space, SearchPlan, OnTrial], "Study"]
"""`Study`, or what an estimate puts in its place."""


class Study:
    """A search: Optuna's study, the values that its trials report, and the points that were seen.

    The `units` are scores by the name of the aspects that get one judge together; `on_trial` is called with every
    distinct point, once.
    """

    def __init__(
        self,
        units: Mapping[str, ChoiceScores],
        space: Space,
        plan: SearchPlan,
        on_trial: OnTrial = lambda point, outcome: None,
    ) -> None:
        self._outcomes = outcomes = Outcomes(units, space, plan.criterion)
        self._space = space
        self._plan = plan
        self._on_trial = on_trial
        with quiet():
            self._stored = StoredStudy(plan.study, plan.storage, outcomes.space)
        self._optuna = _in_memory()
        self._pruners = {expensive: plan.strategy.pruner(expensive=expensive) for expensive in (False, True)}
        self._order = asking_order(outcomes.groups, plan.seed)
        self._aspects = sum(len(scores.aspects) for scores in outcomes.units.values())
        self._ends = block_ends(len(self._order), plan.criterion.level, self._aspects)
        self._parts = _parts(self._order, plan.criterion.level)
        self._suggestions = 0
        self._trials: dict[Point, optuna.Trial] = {}
        """Of every point that was tried, with its scores as they are given."""
        self._reported: dict[Point, dict[int, float]] = {}
        """Point -> step -> value; a step is a part of the groups and an aspect."""

    def optimize(self) -> None:
        """Try the starting points, then what the sampler suggests, then the best in the other readings and jointly.

        Raises:
            InputError: The study cannot be stored.
            dspy.LMError: The LM failed for good.
        """
        space, breadth, strategy = self._space, self._plan.breadth, self._plan.strategy
        left = breadth.trials
        for start in self._starts():
            own_reading = [point for point in start if point.reading == space.readings[0]]
            others = [point for point in start if point not in own_reading]
            self._try([*own_reading[:left], *others])
            left = max(0, left - len(own_reading))
        left = min(left, breadth.suggestions)
        while left > 0 and (suggested := self._suggested(min(left, AT_ONCE))):
            self._try(suggested)
            left -= len(suggested)
        if not breadth.cheap_only:
            self._try([point for point in self._read_again() if self._worth_a_debate(point)])
        self._try(joint_points(self._outcomes, strategy.chosen(self._outcomes)) if space.joint else [])

    def results(self) -> dict[str, SearchResult]:
        """The finished search for each unit, with the point that is chosen for it."""
        chosen = keep_shareable(self._outcomes, self._plan.strategy.chosen(self._outcomes))
        return self._outcomes.results(chosen, self._importances())

    def _starts(self) -> Iterator[list[Point]]:
        space, breadth = self._space, self._plan.breadth
        plain, *learnt = space.scorers
        # It is asked about everything: all others are compared with it.
        yield [space.point(plain, 0)]
        again = space.in_other_readings(*([plain] if breadth.cheap_only else space.scorers))
        yield [space.point(scorer, 0) for scorer in (*learnt, *again)]
        # What was learnt shows in a debate that argues from it more than in a single call: some is always tried.
        scorers = [plain, *self._plan.strategy.scorers(self._outcomes, learnt)[: max(1, breadth.kinds - 1)]]
        yield [point for scorer in scorers for point in space.debates(scorer, space.longest)]
        argued = [
            scorer
            for scorer in scorers
            if scorer not in space.rewritten and scorer.knowledge not in space.not_exportable
        ]
        best = self._plan.strategy.scorers(self._outcomes, argued[breadth.cheap_only and len(argued) > 1 :])[0]
        others = [replace(best, persona=persona) for persona in space.personas[1:]]
        shortest = min((n for n in space.rounds if n), default=0)
        yield [point for other in others for point in space.debates(other, shortest)] if shortest else []
        if shortest and space.tie_breakers == (False, True):
            # It stands for all further rounds at a fraction of their calls.
            debated = {point.variant: None for point in self._outcomes.by_point if point.rounds}
            tried = [v for v in debated if v.reading == space.readings[0] and v.knowledge not in space.not_exportable]
            yield [space.point(v, shortest, True) for v in self._plan.strategy.scorers(self._outcomes, tried)[:1]]

    def _suggested(self, most: int) -> list[Point]:
        """What is tried next; nothing if all was seen."""
        given = [point for point in self._space.points() if point.granularity == self._space.granularities[0]]
        new = [point for point in given if point not in self._trials and self._worth_a_debate(point)]
        if not self._plan.breadth.new_debates:
            debated = {(point.variant, point.rounds) for point in self._outcomes.by_point if point.rounds}
            new = [point for point in new if (point.variant, point.rounds) in debated]
        if (instead := self._plan.strategy.suggested) is not None:
            return list(instead(new))[:most]
        suggested: list[Point] = []
        for _ in range(_SUGGESTIONS):
            if len(suggested) == min(most, len(new)):
                break
            # A sampler of its own for each suggestion: the result depends on the trials so far and on no other state.
            self._optuna.sampler = _tpe(self._plan.seed * 100_003 + self._suggestions)
            self._suggestions += 1
            trial = self._optuna.ask()
            point = suggest(self._space, trial)
            if point in new and point not in self._trials:
                self._trials[point] = trial
                suggested.append(point)
            else:
                self._tell(trial, None, "FAIL")
        return suggested or new[:1]

    def _worth_a_debate(self, point: Point) -> bool:
        """Where a single call was pruned in another reading, the same is not debated in it."""
        if not point.rounds or point.reading == self._space.readings[0]:
            return True
        lost = {(pruned.knowledge, pruned.reading) for pruned in self._outcomes.dropped if not pruned.rounds}
        return not self._plan.breadth.cheap_only and (point.knowledge, point.reading) not in lost

    def _read_again(self) -> list[Point]:
        """The best in the judge's own reading, in the others."""
        outcomes, space = self._outcomes, self._space
        if len(space.readings) < 2:
            return []
        points = sorted((p for p in outcomes.by_point if p.reading == space.readings[0]), key=space.complexity)
        chosen = self._plan.strategy.read_again(
            outcomes, [p for p in points if p.knowledge not in space.not_exportable]
        )
        return [self._whole(replace(point, reading=reading)) for reading in space.readings[1:] for point in chosen]

    # Trials.

    def _whole(self, point: Point) -> Point:
        """The point that is asked about for this one: debates are held to their full length."""
        rounds = self._space.longest if point.rounds and not point.tie_breaker else point.rounds
        return replace(point, rounds=rounds, granularity=self._space.granularities[0])

    def _lengths(self, point: Point) -> list[Point]:
        """The points that are read off a point's debates, as they are given; what asks most comes first."""
        return [
            covered for covered in self._space.covered(point) if covered.granularity == self._space.granularities[0]
        ]

    def _try(self, points: Iterable[Point]) -> None:
        """Evaluate points and what is read off them, at the same time, or as much of it as is not pruned."""
        outcomes, alive = self._outcomes, list[list[Point]]()
        begun: set[Point] = set()
        for new_point in points:
            pending = [p for p in self._lengths(new_point) if p not in self._reported and p not in begun]
            begun.update(pending)
            for point in pending:
                if point not in self._trials:
                    self._optuna.enqueue_trial(params_of(self._space, point))
                    self._trials[point] = self._optuna.ask()
                    suggest(self._space, self._trials[point])
            alive.append(pending)
        # The first trial has nothing to fall behind.
        for end in self._ends[:-1] if outcomes.by_point else []:
            outcomes.prefetch([point for pending in alive for point in pending], frozenset(self._order[:end]))
            for pending in alive:
                for point in pending:
                    self._report(point, end)
                # A debate is held as long as it may win; what is read off it on the way costs nothing.
                while pending and self._falls_behind(pending[0]):
                    self._pruned(pending.pop(0), end)
        outcomes.prefetch([point for pending in alive for point in pending])
        for pending in alive:
            for point in pending:
                self._complete(point)

    def _falls_behind(self, point: Point) -> bool:
        self._optuna.pruner = self._pruners[point.reading not in (self._space.readings[0], "joint")]
        return len(self._reported[point]) not in _SLOW and self._trials[point].should_prune()

    def _report(self, point: Point, end: int) -> None:
        """Report the value on each of the first groups, as far as the point may be judged by them."""
        reported = self._reported.setdefault(point, {})
        # Of an earlier block all parts were reported.
        begin = max(reported, default=-1) // self._aspects + 1
        for step, value in self._values(point, begin, end).items():
            reported[step] = value
            self._trials[point].report(value, step)

    def _values(self, point: Point, begin: int, end: int) -> dict[int, float]:
        """Step -> agreement less the price, in each whole part, from the `begin`-th on, of the first `end` groups."""
        outcomes, only = self._outcomes, frozenset(self._order[:end])
        every = end == len(self._order)
        by_step: dict[int, float] = {}
        number = 0
        for scores in outcomes.units.values():
            by_aspect, calls = scores.scores(point, only=None if every else only)
            for aspect, groups in by_aspect.items():
                parts = takewhile(only.issuperset, self._parts[begin:])
                for place, values in enumerate(self._by_part(aspect, groups, parts), start=begin):
                    if values:
                        by_step[place * self._aspects + number] = sum(values) / len(values) - PRICE * calls
                number += 1
        return dict(sorted(by_step.items()))

    def _by_part(
        self, aspect: str, groups: Sequence[GroupScores], parts: Iterable[Sequence[str]]
    ) -> Iterator[list[float]]:
        """What the groups of each part contribute to the agreement."""
        if self._plan.criterion.level == "summary":
            known = self._outcomes.by_group(aspect, groups)
            for part in parts:
                yield [known[name] for name in part if name in known]
            return
        by_id = {group.group: group for group in groups}
        for part in parts:
            yield list(self._outcomes.by_group(aspect, [by_id[name] for name in part if name in by_id]).values())

    def _complete(self, point: Point) -> None:
        outcomes = self._outcomes
        outcomes_of_point = outcomes.evaluate(point)
        self._report(point, len(self._order))
        self._fill_in(point)
        value = sum(o.agreement - PRICE * o.calls for o in outcomes_of_point.values()) / len(outcomes_of_point)
        self._tell(self._trials[point], value, "COMPLETE")
        for granularity in self._space.granularities:
            read = replace(point, granularity=granularity)
            self._keep(read, outcomes.evaluate(read))

    def _fill_in(self, point: Point) -> None:
        """Report for groups that the point may not be judged by what the untuned judge does there, and by how much the
        point differs from it elsewhere: who is compared with this trial needs all steps."""
        untuned = self._outcomes.untuned(point)
        if untuned is None:
            return
        base, reported = self._reported[untuned], self._reported[point]
        known = reported.keys() & base.keys()
        gain = sum(reported[step] - base[step] for step in known) / len(known) if known else 0.0
        for step in sorted(base.keys() - reported.keys()):
            reported[step] = base[step] + gain
            self._trials[point].report(reported[step], step)

    def _pruned(self, point: Point, end: int) -> None:
        reported = self._reported[point]
        best = self._optuna.best_trial.intermediate_values
        common = reported.keys() & best.keys()
        behind = sum(reported[step] - best[step] for step in common) / len(common)
        self._tell(self._trials[point], None, "PRUNED")
        for granularity in self._space.granularities:
            read = replace(point, granularity=granularity)
            self._outcomes.dropped[read] = PrunedPoint(end, len(self._order), behind)
            self._keep(read, self._outcomes.dropped[read])

    def _tell(self, trial: optuna.Trial, value: float | None, state: str) -> None:
        from optuna.trial import TrialState

        self._optuna.tell(trial, value, TrialState[state])

    def _keep(self, point: Point, outcome: TrialOutcome) -> None:
        self._on_trial(point, outcome)
        self._stored.add(point, finished(self._space, point, outcome, PRICE))

    def _importances(self) -> dict[str, float]:
        """Parameter -> its share in what makes trials differ; empty where too few were completed to tell.

        PED-ANOVA (Watanabe et al., PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in Arbitrary Subspaces,
        IJCAI 2023).
        """
        import optuna

        complete = self._optuna.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
        if len(complete) < _MIN_TRIALS_FOR_IMPORTANCES or len({trial.value for trial in complete}) < 2:
            return {}
        varied = [name for name, value in complete[0].params.items() if any(t.params[name] != value for t in complete)]
        with quiet():
            return dict(optuna.importance.get_param_importances(self._optuna, params=varied))


def asking_order(groups: Iterable[str], seed: int) -> list[str]:
    """The different groups in the order in which they are asked about."""
    return sorted(
        set(groups), key=lambda name: hashlib.blake2b(f"{seed}\0{name}".encode("utf-8", "surrogatepass")).digest()
    )


def block_ends(groups: int, level: Level, aspects: int) -> list[int]:
    """How many groups have been asked about after each block; the last is all of them."""
    ends, end = [], _FIRST_BLOCK[level]
    while end < groups:
        if level == "summary" and end * aspects in _SLOW:
            end = -(-_ENOUGH // aspects)
        ends.append(end)
        end *= 2
    return [*ends, groups] if not ends or ends[-1] < groups else [*ends[:-1], groups]


def _parts(order: Sequence[str], level: Level) -> list[Sequence[str]]:
    """The groups that each reported value is about."""
    size = max(_MIN_PART[level], -(-len(order) // _MAX_PARTS))
    return [order[begin : begin + size] for begin in range(0, len(order), size)]


def _in_memory() -> optuna.Study:
    import optuna

    with quiet():
        return optuna.create_study(direction="maximize")
