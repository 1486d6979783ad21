"""The search: which variant of the judge, how many rounds, a Tie-breaker or not, which granularity.

One Optuna study with persistent storage and two objectives, agreement and LM calls per item, each the mean over
aspects. All aspects are asked about the same points, so that the choice for one can lean on the others (`pooling`);
values of single aspects are attributes of the trials. What costs least is tried first (`course`), then a TPE sampler
spends what is left of the budget. In the end what is best for each aspect is tried in the other reading, where there is
one, and what several aspects have chosen with all aspects in a call (`joint`). Every point that costs no further call
is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from debate_judge.optimize.search.choice_scores import ChoiceScores
from debate_judge.optimize.search.course import Breadth, course
from debate_judge.optimize.search.joint import in_company, joint_probes
from debate_judge.optimize.search.outcomes import Criterion, Outcomes, SearchResult
from debate_judge.optimize.search.points import Point, Probe, Space, probe_of
from debate_judge.optimize.search.race import Challenge, MayWin, block_ends, race, race_order
from debate_judge.optimize.search.storage import (
    Found,
    StillAlone,
    add_trial,
    alone_in,
    finished,
    known_points,
    open_study,
    suggest,
)

if TYPE_CHECKING:
    import optuna


def best_of_each_aspect(outcomes: Outcomes, points: Sequence[Point]) -> list[Point]:
    """Of evaluated points those that are worth the most for an aspect."""
    worth = outcomes.worth(points)
    aspects = range(len(worth[points[0]]))
    return list(dict.fromkeys(max(points, key=lambda point: worth[point][aspect]) for aspect in aspects))


@dataclass(frozen=True)
class Strategy:
    """Who decides in a search; an estimate puts bounds in the place of what cannot be known beforehand."""

    worth: Callable[[Outcomes, Sequence[Point]], dict[Point, list[float]]] = Outcomes.worth
    """What is worth a further look."""
    further: Callable[[Sequence[optuna.trial.FrozenTrial], Space, int, Sequence[Probe]], Probe | None] | None = None
    """From the trials so far, space, seed and what is left to what is tried next, or None to end; by default a TPE
    sampler."""
    read_again: Callable[[Outcomes, Sequence[Point]], list[Point]] = best_of_each_aspect
    """Of the points in the judge's own reading those that are tried in the others."""
    may_win: MayWin = Challenge.may_win
    """Whether a point stays in its race."""
    chosen: Callable[[Outcomes], dict[str, Point]] = Outcomes.chosen
    """The choice for each unit."""


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """How a search goes about it."""

    criterion: Criterion
    breadth: Breadth
    seed: int
    study: str
    """Name of the Optuna study; it must change whenever the result could."""
    storage: Path | str | None
    """File of the study, or address of a PostgreSQL database; a study that was stopped there goes on where it was. None
    keeps it in memory."""
    strategy: Strategy = field(default_factory=Strategy)
    race: bool = True
    """Whether points are dropped that cannot plausibly be chosen; else all are asked about all groups."""


OnTrial = Callable[[Point, Found], None]
"""Is told of every point that was tried, once, with what came of it."""


class Search(Protocol):
    """Evaluates points of a space for all units and chooses one for each."""

    def __call__(
        self, units: Mapping[str, ChoiceScores], space: Space, plan: SearchPlan, on_trial: OnTrial
    ) -> dict[str, SearchResult]: ...


def search(
    units: Mapping[str, ChoiceScores],
    space: Space,
    plan: SearchPlan,
    on_trial: OnTrial = lambda point, found: None,
) -> dict[str, SearchResult]:
    """Try what the plan allows and choose a point for each unit.

    Args:
        units: Name -> scores of the aspects that get one judge together.
        space: What may be chosen.
        plan: How much is tried, how it is chosen, where the study is kept.
        on_trial: Is told of every distinct point, once.
    """
    outcomes = Outcomes(units, space, plan.criterion)
    with alone_in(plan.study, plan.storage) as still_alone:
        _Trying(outcomes, plan, on_trial, open_study(plan.study, plan.storage), still_alone).all()
    return outcomes.results(in_company(outcomes, plan.strategy.chosen(outcomes)))


class _Trying:
    """A search under way.

    A search that was stopped is gone through again from its beginning. Every decision rests on what was found before it
    in this run, and never on what the study holds, so that it is the same again; the replies are kept, and a trial that
    the study holds is not added twice.
    """

    def __init__(
        self, outcomes: Outcomes, plan: SearchPlan, on_trial: OnTrial, study: optuna.Study, still_alone: StillAlone
    ) -> None:
        self._outcomes = outcomes
        self._space = outcomes.space
        self._plan = plan
        self._on_trial = on_trial
        self._study = study
        self._still_alone = still_alone
        self._stored = known_points(outcomes.space, study)
        self._seen: dict[Point, optuna.trial.FrozenTrial] = {}

    def all(self) -> None:
        """Try the course, then what the sampler asks for, then the best in the other readings and jointly."""
        space, plan, strategy = self._space, self._plan, self._plan.strategy
        left = plan.breadth.probes
        for stage in course(space, plan.breadth, self._worth):
            probes = []
            for probe in stage:
                # What is tried in another reading comes on top.
                left -= probe.variant.reading == space.readings[0]
                if left < 0:
                    break
                probes.append(probe)
            self._hear(probes)
            for probe in probes:
                self._try(probe)
            if left < 0:
                break
        while plan.breadth.sampled and left > 0 and (wanted := self._further()) is not None:
            left -= 1
            self._try(wanted)
        for probe in [] if plan.breadth.thrifty else _read_again(self._outcomes, strategy):
            if self._worth_a_debate(probe):
                self._try(probe)
        for probe in joint_probes(self._outcomes, strategy.chosen(self._outcomes)) if space.joint else ():
            self._try(probe)

    def _worth(self, points: Sequence[Point]) -> dict[Point, list[float]]:
        whole = [point for point in points if point in self._outcomes.by_point]
        return self._plan.strategy.worth(self._outcomes, whole)

    def _further(self) -> Probe | None:
        """What is tried next beyond the course; None where that is nothing."""
        new = [p for p in self._space.probes() if any(point not in self._seen for point in self._space.covered(p))]
        left = [probe for probe in new if self._worth_a_debate(probe)]
        # Seeded afresh every time with the number of points seen: the state of a sampler is not stored.
        further = self._plan.strategy.further or _sampled
        seed = self._plan.seed * 100_003 + len(self._seen)
        return further(list(self._seen.values()), self._space, seed, left) if left else None

    def _worth_a_debate(self, probe: Probe) -> bool:
        """Where a single call lost its race in another reading, the same is not debated in it."""
        if not probe.rounds or probe.variant.reading == self._space.readings[0]:
            return True
        way = probe.variant.knowledge, probe.variant.reading
        lost = {(point.knowledge, point.reading) for point in self._outcomes.dropped if not point.rounds}
        return not self._plan.breadth.thrifty and way not in lost

    def _hear(self, probes: Sequence[Probe]) -> None:
        """Have the calls of a stage made at once, as far as it can be told which will be made.

        All probes are asked about the first block of groups, and about the next if they stay in the race against what
        is known before the stage. Nothing is decided here: a probe that loses against another one of its stage was
        asked about some groups for nothing, which is the price of not waiting in line.
        """
        outcomes, plan = self._outcomes, self._plan
        runner = next(iter(outcomes.units.values())).runner
        if not runner.has_to_wait:
            return
        points = {p: new for p in probes if (new := [q for q in self._space.covered(p) if q not in self._seen])}
        if not outcomes.by_point and points:
            # The first probe has no rival, and is asked about all groups.
            outcomes.hear(points.pop(next(iter(points))))
        order = race_order(outcomes.groups, plan.seed)
        for end in block_ends(len(order), plan.criterion.level) if plan.race else [len(order)]:
            asked = frozenset(order[:end])
            outcomes.hear([point for own in points.values() for point in own], asked)
            if outcomes.by_point:
                rivals = {probe: Challenge(outcomes, own) for probe, own in points.items()}
                points = {
                    probe: [point for point in own if plan.strategy.may_win(rivals[probe], point, asked)]
                    for probe, own in points.items()
                }
            elif plan.race:
                break

    def _try(self, probe: Probe) -> None:
        """Evaluate what a probe tells about and was not seen yet, or as much of it as does not lose its race."""
        outcomes, plan = self._outcomes, self._plan
        self._require_alone()
        new = [point for point in self._space.covered(probe) if point not in self._seen]
        dropped = race(outcomes, new, plan.seed, plan.strategy.may_win) if plan.race else {}
        outcomes.dropped |= dropped
        outcomes.hear([point for point in new if point not in dropped])
        for point in new:
            found = dropped[point] if point in dropped else outcomes.evaluate(point)
            self._on_trial(point, found)
            self._seen[point] = finished(self._space, point, found)
            self._require_alone()
            if point not in self._stored:
                add_trial(self._study, self._seen[point], plan.storage)

    def _require_alone(self) -> None:
        """Before a probe costs anything, and before a trial is added."""
        if not self._still_alone():
            self._stored = known_points(self._space, self._study)


def _read_again(outcomes: Outcomes, strategy: Strategy) -> list[Probe]:
    """What ends a search: the best in the judge's own reading, in the others."""
    space = outcomes.space
    if len(space.readings) < 2:
        return []
    points = sorted((p for p in outcomes.by_point if p.reading == space.readings[0]), key=space.plainness)
    found = strategy.read_again(outcomes, [p for p in points if p.knowledge not in space.barred])
    return [_whole(space, replace(point, reading=reading)) for reading in space.readings[1:] for point in found]


def _whole(space: Space, point: Point) -> Probe:
    """The probe of a sampler that a point comes from: debates are held to their full length."""
    longest = Probe(point.variant, space.longest if point.rounds else 0)
    return Probe(point.variant, point.rounds, True) if point.tie_breaker else longest


_ASKED = 16
"""Suggestions of the sampler, of which one is tried."""


def _sampled(trials: Sequence[optuna.trial.FrozenTrial], space: Space, seed: int, left: Sequence[Probe]) -> Probe:
    """What a TPE sampler asks for on the strength of the trials so far (Bergstra et al., Algorithms for
    Hyper-Parameter Optimization, 2011)."""
    import optuna

    # Asked is a study of its own: a trial that stayed open while its point is evaluated would outlive a kill. It knows
    # of agreement alone, for what a good point costs is weighed by the choice; and each suggestion counts as tried for
    # the next, so that they differ. What was dropped it is told to be pruned, which it takes for worse than the rest.
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    copy = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=5, constant_liar=True),
    )
    optuna.logging.set_verbosity(verbosity)
    for trial in trials:
        known: dict[str, Any] = {"params": trial.params, "distributions": trial.distributions, "state": trial.state}
        copy.add_trial(optuna.trial.create_trial(value=trial.values[0] if trial.values else None, **known))
    wanted = [suggest(space, copy.ask()) for _ in range(_ASKED)]
    # It may want what was seen. Nothing is tried twice: the first that is new is, or what is most like one of them.
    return min(left, key=lambda probe: min((*_unlikeness(point, probe), n) for n, point in enumerate(wanted)))


def _unlikeness(wanted: Point, probe: Probe) -> tuple[int, int]:
    ours, theirs = probe_of(wanted), probe
    differing = sum(a != b for a, b in zip(astuple(ours.variant), astuple(theirs.variant), strict=True))
    differing += ours.tie_breaker != theirs.tie_breaker
    # A debate tells about all of its rounds.
    return differing, abs(ours.rounds - theirs.rounds) if theirs.tie_breaker else max(0, ours.rounds - theirs.rounds)
