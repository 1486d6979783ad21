"""The search: which variant of the judge, how many rounds, a Tie-breaker or not, which granularity.

One Optuna study with persistent storage and two objectives, agreement and LM calls per item, each the mean over
aspects. All aspects are asked about the same points, so that the choice for one can lean on the others (`pooling`);
values of single aspects are attributes of the trials. What costs least is tried first (`course`), then a TPE sampler
spends what is left of the budget. In the end what is best for each aspect is tried in the other reading, where there is
one. Every point that costs no further call is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from debate_judge.optimize.search.choice_scores import ChoiceScores
from debate_judge.optimize.search.course import Breadth, course
from debate_judge.optimize.search.outcomes import Criterion, OnTrial, Outcomes, SearchResult
from debate_judge.optimize.search.points import Point, Probe, Space, probe_of
from debate_judge.optimize.search.storage import finished, known_points, only_process, open_study, suggest

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
    further: Callable[[optuna.Study, Space, int, Sequence[Probe]], Probe | None] | None = None
    """From study, space, seed and what is left to what is tried next, or None to end; by default a TPE sampler."""
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
    """Name of the Optuna study; it must change whenever the result could."""
    storage: Path | None
    """File of the study; a study that was stopped there goes on where it was. None keeps it in memory."""
    strategy: Strategy = field(default_factory=Strategy)


class Search(Protocol):
    """Evaluates points of a space for all units and chooses one for each."""

    def __call__(
        self, units: Mapping[str, ChoiceScores], space: Space, plan: SearchPlan, on_trial: OnTrial
    ) -> dict[str, SearchResult]: ...


def search(
    units: Mapping[str, ChoiceScores],
    space: Space,
    plan: SearchPlan,
    on_trial: OnTrial = lambda point, outcomes: None,
) -> dict[str, SearchResult]:
    """Try what the plan allows and choose a point for each unit.

    Args:
        units: Name -> scores of the aspects that get one judge together.
        space: What may be chosen.
        plan: How much is tried, how it is chosen, where the study is kept.
        on_trial: Is told of every distinct point, once.
    """
    outcomes = Outcomes(units, space, plan.criterion)
    with only_process(plan.storage):
        study = open_study(plan.study, plan.storage)
        known = known_points(space, study)
        for point in _points_to_try(study, outcomes, plan, known):
            found = outcomes.evaluate(point)
            on_trial(point, found)
            # What an earlier run evaluated stands in the study; here it is only read off the same replies again.
            if point not in known:
                study.add_trial(finished(space, point, found))
    return outcomes.results(plan.strategy.chosen(outcomes))


def _points_to_try(
    study: optuna.Study, outcomes: Outcomes, plan: SearchPlan, known: Sequence[Point]
) -> Iterator[Point]:
    """The points to evaluate, each once; first those of an earlier, stopped run."""
    space, strategy = outcomes.space, plan.strategy
    seen = dict.fromkeys(known)
    probed: dict[Probe, None] = {}
    yield from known

    def covered(probe: Probe) -> Iterator[Point]:
        probed[probe] = None
        for point in space.covered(probe):
            if point not in seen:
                seen[point] = None
                yield point

    on_top = 0
    for probe in course(space, plan.breadth, lambda points: strategy.worth(outcomes, points)):
        if probe.variant.reading != space.readings[0]:
            on_top += 1
        elif len(probed) - on_top >= plan.breadth.probes:
            break
        yield from covered(probe)
    # What the sampler of a stopped run asked for, the last of it perhaps not to the end.
    while (begun := _unexplained(space, known, probed)) is not None:
        yield from covered(begun)
    while len(probed) - on_top < plan.breadth.probes and (wanted := _further(study, space, plan, seen)) is not None:
        yield from covered(wanted)
    for probe in _read_again(outcomes, strategy):
        yield from covered(probe)


def _unexplained(space: Space, known: Sequence[Point], probed: Collection[Probe]) -> Probe | None:
    """The probe of the first known point that no probe covers."""
    left = (point for point in known if not any(point in space.covered(probe) for probe in probed))
    return next((_whole(space, point) for point in left), None)


def _further(study: optuna.Study, space: Space, plan: SearchPlan, seen: Collection[Point]) -> Probe | None:
    """What is tried next beyond the course; None where that is nothing."""
    left = [probe for probe in space.probes() if any(point not in seen for point in space.covered(probe))]
    # Seeded afresh every time with the number of points seen, so that a run that was stopped continues exactly as it
    # would have: the state of a sampler is not stored.
    further = plan.strategy.further or _sampled
    return further(study, space, plan.seed * 100_003 + len(seen), left) if left else None


def _read_again(outcomes: Outcomes, strategy: Strategy) -> list[Probe]:
    """What ends a search: the best in the judge's own reading, in the others."""
    space = outcomes.space
    if len(space.readings) < 2:
        return []
    # Sorted, for after a stop they come in another order.
    points = sorted((p for p in outcomes.by_point if p.reading == space.readings[0]), key=space.plainness)
    found = strategy.read_again(outcomes, [p for p in points if p.knowledge not in space.barred])
    return [_whole(space, replace(point, reading=reading)) for reading in space.readings[1:] for point in found]


def _whole(space: Space, point: Point) -> Probe:
    """The probe of a sampler that a point comes from: debates are held to their full length."""
    longest = Probe(point.variant, space.longest if point.rounds else 0)
    return Probe(point.variant, point.rounds, True) if point.tie_breaker else longest


_ASKED = 16
"""Suggestions of the sampler, of which one is tried."""


def _sampled(study: optuna.Study, space: Space, seed: int, left: Sequence[Probe]) -> Probe:
    """What a TPE sampler asks for on the strength of the study's trials (Bergstra et al., Algorithms for
    Hyper-Parameter Optimization, 2011)."""
    import optuna

    # Asked is a copy: a trial that stayed open in the study while its point is evaluated would outlive a kill. It knows
    # of agreement alone, for what a good point costs is weighed by the choice; and each suggestion counts as tried for
    # the next, so that they differ.
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    copy = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=5, constant_liar=True),
    )
    optuna.logging.set_verbosity(verbosity)
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,)):
        copy.add_trial(
            optuna.trial.create_trial(params=trial.params, distributions=trial.distributions, value=trial.values[0])
        )
    wanted = [suggest(space, copy.ask()) for _ in range(_ASKED)]
    # It may want what was seen. Nothing is tried twice: the first that is new is, or what is most like one of them.
    return min(left, key=lambda probe: min((*_unlikeness(point, probe), n) for n, point in enumerate(wanted)))


def _unlikeness(wanted: Point, probe: Probe) -> tuple[int, int]:
    ours, theirs = probe_of(wanted), probe
    differing = sum(a != b for a, b in zip(astuple(ours.variant), astuple(theirs.variant), strict=True))
    differing += ours.tie_breaker != theirs.tie_breaker
    # A debate tells about all of its rounds.
    return differing, abs(ours.rounds - theirs.rounds) if theirs.tie_breaker else max(0, ours.rounds - theirs.rounds)
