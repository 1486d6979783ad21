"""The search: one Optuna study over knowledge about the raters, persona, n and Tie-breaker, for all aspects.

A trial evaluates its point on every aspect, so that the choice for one can borrow strength from the others (`pooling`).
Its value is the agreement, the mean over aspects, less `CALL_PENALTY` for each LM call per item. The starting points
are enqueued; the sampler (TPE) suggests at least a third of the trials. A debate reports its gain over the best single
call twice before it is held on all sources: on two fifths of train, where it is pruned unless it gains as much as the
best third of the starting points, and on train, where it is pruned if it loses by more than `_MAX_LOSS`. Folds with the
same train part thus prune alike, and ask about the same. A debate of n rounds contains every shorter one, and every
granularity is a rounding of finished scores: these are read off without an LM call, and may be chosen, too.

A search that was stopped is repeated from the stored replies, at no cost, and its study is written anew; it is there
for `optuna-dashboard`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from debate_judge.data.agreement.decisions import AbsoluteScale, Objective
from debate_judge.data.agreement.figures import Floats, GroupScores
from debate_judge.data.errors import InputError, make_folder
from debate_judge.data.schema import Level
from debate_judge.optimize.search.choice_scores import ChoiceScores
from debate_judge.optimize.search.points import LEARNT, Point, SearchSpace
from debate_judge.optimize.search.pooling import EvaluatedPoints, choose_points, group_values
from debate_judge.programs.debate.prompts import TWO_BRIEFS
from debate_judge.programs.lm.limits import TooManyUnscoredError
from debate_judge.runs.runner.runner import require_scored

if TYPE_CHECKING:
    import optuna

CALL_PENALTY = 0.001
"""What a trial's value loses for each LM call per item, so that of equal scores those that take fewer calls win."""

_MIN_SCREEN: Mapping[Level, int] = MappingProxyType({"summary": 3, "sample": 30, "system": 3})
"""Fewest sources that a trial is pruned by. At sample level a correlation needs many."""

_PRUNED_SHARE = 2 / 3
"""Share of the starting debates that are pruned on the first screen; what is suggested must beat these, too."""

_MAX_LOSS = 0.02
"""What a debate may lose against the best single call on train, and still be held on all sources."""


@dataclass(frozen=True)
class SearchLimits:
    """How much of a search space is tried."""

    candidates: int
    """Most rated candidates of each aspect that the choice is made by."""
    suggestions: int = 0
    """Trials that the sampler suggests; at least half as many as there are starting points."""
    all_personas: bool = True
    """Whether every persona is tried; else the default one and, with what was learnt, the one that argues both sides
    and the learnt one, and a Tie-breaker."""
    trials: int | None = None
    """Most trials altogether."""

    def searched(self, space: SearchSpace) -> SearchSpace:
        """The part of a space that is searched."""
        default, *others = space.personas
        kept = [persona for persona in others if self.all_personas or persona in (TWO_BRIEFS.name, LEARNT)]
        return replace(space, personas=(default, *kept), untuned_variants=self.all_personas)

    def starting_points(self, space: SearchSpace) -> list[Point]:
        """The starting points that are tried."""
        points = self.searched(space).starting_points()
        return points if self.trials is None else points[: self.trials - self.trials // 3]

    def trials_after(self, starting_points: int) -> int:
        """How many trials the sampler suggests after so many starting points."""
        if self.trials is not None:
            return self.trials - starting_points
        return max(self.suggestions, -(-starting_points // 2))


SEARCH_LIMITS: Mapping[str, SearchLimits] = MappingProxyType(
    {
        "light": SearchLimits(512, 4, all_personas=False),
        "medium": SearchLimits(2048, 20),
        "heavy": SearchLimits(1_000_000, 80),
    }
)
"""Effort -> how much is tried."""


@dataclass(frozen=True)
class Criterion:
    """What points are chosen by."""

    objective: Objective
    level: Level
    max_unscored: float = 1.0
    """Share of the texts that a judge may leave without a score; trials that leave more have failed."""
    absolute_scales: Mapping[str, AbsoluteScale] = field(default_factory=dict)
    """Aspect -> what absolute agreement is measured against; empty where the objective is a correlation."""


@dataclass(frozen=True)
class Outcome:
    """Agreement and calls of a point on train and dev, in one aspect."""

    point: Point
    agreement: float
    """Biased upwards for the chosen point, which is the best of many."""
    calls: float
    """LM calls per item, whether or not they had to be made."""
    scores: Sequence[GroupScores]
    values: Floats
    """Agreement in each group (`pooling.group_values`)."""

    @property
    def value(self) -> float:
        """What a trial maximizes."""
        return self.agreement - CALL_PENALTY * self.calls


@dataclass(frozen=True)
class SearchResult:
    """The result of a search for one aspect."""

    chosen: Outcome
    outcomes: tuple[Outcome, ...]
    """Every distinct point that was evaluated on all groups, in the order of the study."""
    scores: ChoiceScores
    """The scores that the outcomes were computed from."""
    states: Mapping[str, int] = field(default_factory=dict)
    """State of a trial -> number of trials: COMPLETE, PRUNED, FAIL."""

    @property
    def front(self) -> list[Outcome]:
        """The Pareto front: no other outcome agrees at least as well for fewer calls."""
        front: list[Outcome] = []
        for outcome in sorted(self.outcomes, key=lambda o: (o.calls, -o.agreement)):
            if not front or outcome.agreement > front[-1].agreement:
                front.append(outcome)
        return front


OnTrial = Callable[[Point, Mapping[str, Outcome]], None]
"""Called for every point that was evaluated, with its outcome in each aspect."""


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """The settings of a search."""

    criterion: Criterion
    limits: SearchLimits
    seed: int
    study_name: str = "search"
    storage: Path | None = None
    """The file of the study; None to keep it in memory."""
    pruner: optuna.pruners.BasePruner | None = None
    """In place of the threshold."""
    at_most: bool = False
    """For an estimate: nothing is pruned, the longest debates are suggested, and the most expensive is chosen."""


class Search:
    """A search: an Optuna study, and the outcomes of the points that were evaluated.

    Args:
        aspects: Name -> the scores of each point in this aspect.
        space: What is tried.
        settings: How.
        on_trial: Called for every point that was evaluated.
    """

    def __init__(
        self,
        aspects: Mapping[str, ChoiceScores],
        space: SearchSpace,
        settings: SearchSettings,
        on_trial: OnTrial = lambda point, outcomes: None,
    ) -> None:
        self.aspects, self._settings, self._on_trial = aspects, settings, on_trial
        self.space = settings.limits.searched(space)
        self.outcomes: dict[Point, dict[str, Outcome]] = {}
        """Outcome by aspect of the points that were evaluated on all groups."""
        self.states: dict[str, int] = {}
        self._failure: TooManyUnscoredError | None = None
        self._singles = [point for point in self.space.starting_points() if not point.rounds]
        self._untuned = self._singles[0]

    def optimize(self) -> None:
        """Try the starting points, then what the sampler suggests.

        Raises:
            InputError: The study cannot be stored.
            dspy.LMError: The LM failed for good.
        """
        import optuna

        # A failed trial is told below; Optuna would print the traceback of each.
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        settings, limits = self._settings, self._settings.limits
        starts = limits.starting_points(self.space)
        suggestions = limits.trials_after(len(starts))
        if settings.at_most:
            costliest = sorted(self.space.points(), key=lambda point: (-point.rounds, not point.tie_breaker))
            starts += [point for point in costliest if point.granularity == starts[0].granularity][: 2 * suggestions]
            suggestions = 0
            self._ask(starts)
        else:
            self._ask(self._singles)
            self._ask(starts, self._first_screen)
        # The first suggestions are random, so that n varies.
        tpe = optuna.samplers.TPESampler(seed=settings.seed, n_startup_trials=len(starts) + min(10, suggestions))
        least_gains = (self._least_gain(starts), -_MAX_LOSS)
        try:
            study = optuna.create_study(
                study_name=settings.study_name,
                storage=None if settings.storage is None else _new_storage(settings.storage),
                direction="maximize",
                sampler=tpe,
                pruner=settings.pruner or optuna.pruners.ThresholdPruner(lower=0.0),
            )
            for point in starts:
                # A parameter without effect at this point may have a value that no trial suggests.
                given = ((name, getattr(point, name), values) for name, values in self.space.parameters.items())
                study.enqueue_trial({name: value if value in values else values[0] for name, value, values in given})
            objective = partial(self._objective, least_gains=least_gains)
            study.optimize(objective, len(starts) + suggestions, catch=TooManyUnscoredError)
            for trial in study.get_trials(deepcopy=False):
                self.states[trial.state.name] = self.states.get(trial.state.name, 0) + 1
        except OSError as error:
            raise InputError(
                "the study's file cannot be used",
                file=settings.storage,
                field="--store",
                found=error.strerror or str(error),
                remedy="make room, or fix the problem, and run the command again",
            ) from error

    def results(self) -> dict[str, SearchResult]:
        """For each aspect the finished search, with its choice by partial pooling.

        Raises:
            TooManyUnscoredError: Every judge leaves too many texts without a score.
        """
        if not self.outcomes and self._failure is not None:
            raise self._failure
        chosen = self._choice(sorted(self.outcomes, key=self.space.complexity))
        return {
            aspect: SearchResult(
                self.outcomes[self._unrounded(chosen[aspect], scores)][aspect],
                tuple(by_aspect[aspect] for by_aspect in self.outcomes.values()),
                scores,
                self.states,
            )
            for aspect, scores in self.aspects.items()
        }

    def _choice(self, points: Sequence[Point]) -> dict[str, Point]:
        """For each aspect the choice among evaluated points, the simplest first, by partial pooling."""
        outcomes = {aspect: [self.outcomes[point][aspect] for point in points] for aspect in self.aspects}
        if self._settings.at_most:
            return {aspect: max(row, key=lambda outcome: outcome.calls).point for aspect, row in outcomes.items()}
        evaluated = EvaluatedPoints(
            [np.array([outcome.values for outcome in row]) for row in outcomes.values()],
            np.array([[outcome.calls for outcome in row] for row in outcomes.values()]),
        )
        return {aspect: points[n] for aspect, n in zip(outcomes, choose_points(evaluated), strict=True)}

    def _unrounded(self, point: Point, scores: ChoiceScores) -> Point:
        """The same point without rounding, if rounding changes nothing in this aspect: the pooled choice between both
        then rests on the other aspects."""
        given = replace(point, granularity="given")
        return given if given in self.outcomes and scores.granularity(given) == scores.granularity(point) else point

    def _objective(self, trial: optuna.Trial, least_gains: Sequence[float]) -> float:
        from optuna import TrialPruned

        point = self.space.point(
            {name: trial.suggest_categorical(name, values) for name, values in self.space.parameters.items()}
        )
        if point.rounds and point not in self.outcomes:
            for step, (screen, least_gain) in enumerate(zip(self._screens(point), least_gains, strict=False)):
                trial.report(self._gain(point, screen) - least_gain, step)
                if trial.should_prune():
                    raise TrialPruned
        self._ask([point])
        for derived in self.space.derived_points(point):
            if derived not in self.outcomes:
                self.outcomes[derived] = self._evaluate(derived)
                self._on_trial(derived, self.outcomes[derived])
        outcomes = self.outcomes[point]
        trial.set_user_attr("agreement", fmean(o.agreement for o in outcomes.values()))
        trial.set_user_attr("lm_calls_per_item", fmean(o.calls for o in outcomes.values()))
        trial.set_user_attr("agreement_by_aspect", {aspect: o.agreement for aspect, o in outcomes.items()})
        return fmean(o.value for o in outcomes.values())

    def _screens(self, point: Point) -> list[frozenset[str]]:
        """The groups that a trial is pruned by, one step after the other: of train as far as its judges may be measured
        there, else of all. Fewer steps if there are few groups."""
        if self._settings.at_most:
            return []
        parts = [scores.parts_of(point.variant) for scores in self.aspects.values()]
        groups = shuffled((group for part in parts for group in part), self._settings.seed)
        in_train = {group for part in parts for group, name in part.items() if name == "train"}
        groups.sort(key=lambda group: group not in in_train)
        least, most = _MIN_SCREEN[self._settings.criterion.level], len(in_train) or len(groups)
        sizes = dict.fromkeys((max(least, 2 * most // 5), max(least, most)))
        return [frozenset(groups[:size]) for size in sizes if size < len(groups)]

    def _first_screen(self, point: Point) -> frozenset[str] | None:
        return next(iter(self._screens(point)), None)

    def _gain(self, point: Point, screen: Collection[str]) -> float:
        """How much more a point is worth on a screen than the best single call that scores enough."""
        gain = math.inf
        worth = fmean(o.value for o in self._evaluate(point, screen).values())
        for single in self._singles:
            with suppress(TooManyUnscoredError):
                gain = min(gain, worth - fmean(o.value for o in self._evaluate(single, screen).values()))
        return gain

    def _least_gain(self, starts: Sequence[Point]) -> float:
        """The gain below which debates are pruned on the first screen."""
        gains = []
        for point in starts:
            # What leaves too much unscored is told by its trial.
            with suppress(TooManyUnscoredError):
                if point.rounds and (screen := self._first_screen(point)):
                    gains.append(self._gain(point, screen))
        return float(np.quantile(gains, _PRUNED_SHARE)) if gains else 0.0

    def _ask(self, points: Iterable[Point], groups: Callable[[Point], Collection[str] | None] | None = None) -> None:
        """Make concurrently the LM calls that these points still need, for all aspects, on all or these groups."""
        by_variant: dict[object, list[Point]] = {}
        # The longest debate of a variant comes first: it contains the others.
        for point in sorted(points, key=lambda point: -point.rounds):
            by_variant.setdefault(point.variant, []).append(point)

        def ask(scores: ChoiceScores, points: Sequence[Point]) -> None:
            for point in points:
                scores.scores(point, groups and groups(point))

        jobs = [partial(ask, scores, points) for points in by_variant.values() for scores in self.aspects.values()]
        next(iter(self.aspects.values())).runner.run_concurrently(jobs)

    def _evaluate(self, point: Point, groups: Collection[str] | None = None) -> dict[str, Outcome]:
        """The outcome of a point in each aspect, on these groups, by default on all.

        Raises:
            TooManyUnscoredError: The judge leaves too many texts without a score.
        """
        outcomes = {}
        for aspect, scores in self.aspects.items():
            scored, calls = scores.scores(point, groups)
            if any(score is None for group in scored for score in group.scores):
                self._require_scored(aspect, point, groups)
            values = self._values(aspect, scored, groups, point)
            outcomes[aspect] = Outcome(point, float(values.mean()), calls, scored, values)
        return outcomes

    def _values(
        self, aspect: str, scored: Sequence[GroupScores], groups: Collection[str] | None, point: Point
    ) -> Floats:
        """Agreement by group. For groups that the judge was tuned on it is imputed: the untuned single call's agreement
        there plus the mean difference from it on the other groups."""
        measured = self.group_values(aspect, scored)
        all_groups, _ = self.aspects[aspect].scores(self._untuned, groups)
        if len(scored) == len(all_groups):
            return np.array(list(measured.values()) or [0.0])
        ids = {group.group for group in scored}
        base = self.group_values(aspect, [group for group in all_groups if group.group in ids])
        gain = fmean(measured.values()) - fmean(base.values()) if measured and base else 0.0
        everywhere = self.group_values(aspect, all_groups)
        if self._settings.criterion.level == "sample":
            # Values of blocks, which are not those of single groups.
            return np.array([value + gain for value in everywhere.values()])
        return np.array([measured.get(name, value + gain) for name, value in everywhere.items()])

    def _require_scored(self, aspect: str, point: Point, groups: Collection[str] | None) -> None:
        judgements = [j for j in self.aspects[aspect].judgements(point, groups) if j is not None]
        try:
            require_scored(judgements, self._settings.criterion.max_unscored, f"train and dev items ({aspect})")
        except TooManyUnscoredError as error:
            self._failure = self._failure or error
            raise

    def group_values(self, aspect: str, groups: Sequence[GroupScores]) -> dict[str, float]:
        """What each group contributes to the agreement (`pooling.group_values`)."""
        criterion = self._settings.criterion
        return group_values(groups, criterion.objective, criterion.level, criterion.absolute_scales.get(aspect))


def shuffled(names: Iterable[str], seed: int) -> list[str]:
    """The names without repetition, in a random order that depends on names and seed alone."""
    return sorted(
        set(names), key=lambda name: hashlib.blake2b(f"{seed}\0{name}".encode("utf-8", "surrogatepass")).digest()
    )


def _new_storage(file: Path) -> optuna.storages.BaseStorage:
    """Optuna's journal in a new file. One process at a time has the same compile, so that an old one is in no use."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    make_folder(file.parent, "--store")
    for path in (file, Path(f"{file}.lock")):
        path.unlink(missing_ok=True)
    return JournalStorage(JournalFileBackend(str(file)))
