"""The search: which variant of the judge, how many rounds, a Tie-breaker or not, which granularity.

One Optuna study with persistent storage and two objectives, agreement and LM calls per item, each the mean over
aspects. All aspects are asked about the same points, so that the choice for one can lean on the others (`pooling`);
values of single aspects are attributes of the trials. What costs least is tried first (`course`), then a TPE sampler
spends what is left of the budget. Every point that costs no further call is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from debate_judge.optimize.search.choice_scores import ChoiceScores
from debate_judge.optimize.search.course import Breadth, course
from debate_judge.optimize.search.outcomes import Criterion, OnTrial, Outcomes, SearchResult
from debate_judge.optimize.search.points import Point, Probe, Space, probe_of
from debate_judge.optimize.search.storage import finished, known_points, only_process, open_study, suggest

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class Strategy:
    """Who decides in a search; an estimate puts bounds in the place of what cannot be known beforehand."""

    worth: Callable[[Outcomes, Sequence[Point]], dict[Point, list[float]]] = Outcomes.worth
    """What is worth a further look."""
    further: Callable[[optuna.Study, Space, int, Sequence[Probe]], Probe | None] | None = None
    """From study, space, seed and what is left to what is tried next, or None to end; by default a TPE sampler."""
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

    for probe in course(space, plan.breadth, lambda points: strategy.worth(outcomes, points)):
        if len(probed) >= plan.breadth.probes:
            return
        yield from covered(probe)
    # What the sampler of a stopped run asked for, the last of it perhaps not to the end.
    for point in known:
        if not any(point in space.covered(probe) for probe in probed):
            yield from covered(_whole(space, point))
    everything = space.probes()
    while len(probed) < plan.breadth.probes:
        left = [probe for probe in everything if any(point not in seen for point in space.covered(probe))]
        # Seeded afresh every time with the number of points seen, so that a run that was stopped continues exactly as
        # it would have: the state of a sampler is not stored.
        further = strategy.further or _sampled
        wanted = further(study, space, plan.seed * 100_003 + len(seen), left) if left else None
        if wanted is None:
            return
        yield from covered(wanted)


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
