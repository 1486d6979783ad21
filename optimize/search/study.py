"""The search on dev: which variant of the judge, how many rounds, a Tie-breaker or not, which granularity.

One Optuna study with persistent storage and two objectives, dev agreement and LM calls per item, for one aspect or
for several that share a judge. A tuner sees means over training examples; here choices are made on the dev agreement
itself, which without groups is no such mean.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from debate_judge.data.agreement.tables import Level, Statistic, compare
from debate_judge.data.schema import GRANULARITIES
from debate_judge.optimize.search.dev_scores import DevScores, Outcome, Point, Space, agreement_for_choice

if TYPE_CHECKING:
    import optuna

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SearchResult:
    """A finished search."""

    chosen: Outcome
    best: Outcome
    outcomes: tuple[Outcome, ...]
    """Every distinct point that was evaluated, in the order of the study."""
    dev_scores: DevScores
    """What the outcomes were read off."""

    @property
    def front(self) -> list[Outcome]:
        """The Pareto front: no other outcome agrees at least as well for fewer calls."""
        ranked = sorted(self.outcomes, key=lambda o: (o.calls, -o.agreement))
        front: list[Outcome] = []
        for outcome in ranked:
            if not front or outcome.agreement > front[-1].agreement:
                front.append(outcome)
        return front


@dataclass(frozen=True)
class Criterion:
    """What makes one choice better than another."""

    statistic: Statistic
    level: Level
    tolerance: float = 0.02
    """Dev agreement that may be given up for fewer LM calls where the data cannot tell."""


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """How a search goes about it."""

    criterion: Criterion
    trials: int
    """Most distinct points that are evaluated."""
    seed: int
    study: str
    """Name of the Optuna study; it must change whenever the result could."""
    storage: Path | None
    """File of the study; a study that was stopped there goes on where it was. None keeps it in memory."""


class Search(Protocol):
    """Evaluates points of a space and chooses one; calls `on_trial` once with each distinct outcome."""

    def __call__(
        self, dev_scores: DevScores, space: Space, plan: SearchPlan, on_trial: Callable[[Outcome], None]
    ) -> SearchResult: ...


def search(
    dev_scores: DevScores,
    space: Space,
    plan: SearchPlan,
    on_trial: Callable[[Outcome], None] = lambda outcome: None,
) -> SearchResult:
    """Evaluate up to `plan.trials` distinct points and choose one; see `Search`."""
    outcomes: dict[Point, Outcome] = {}
    with _only_process(plan.storage):
        study = _study(plan)
        known = _known_points(study)
        for point in _points_to_try(study, space, plan, known):
            outcomes[point] = evaluate(dev_scores, point, plan.criterion)
            on_trial(outcomes[point])
            # What an earlier run evaluated stands in the study; here it is only read off the same replies again.
            if point not in known:
                study.add_trial(_finished(space, outcomes[point]))
    found = tuple(outcomes.values())
    best = max(found, key=lambda o: (o.agreement, -o.calls))
    return SearchResult(_cheapest_equal(found, best, plan), best, found, dev_scores)


def evaluate(dev_scores: DevScores, point: Point, criterion: Criterion) -> Outcome:
    """What a point does on dev."""
    scores, calls = dev_scores.scores(point)
    return Outcome(point, agreement_for_choice(scores, criterion.statistic, criterion.level), calls, scores)


def _cheapest_equal(found: Sequence[Outcome], best: Outcome, plan: SearchPlan) -> Outcome:
    """The cheapest outcome within one standard error of the best, by paired resampling of the dev groups.

    The one-standard-error rule of Breiman et al. (Classification and Regression Trees, 1984, section 3.4.3):
    what the dev data cannot tell from the best is taken where it is cheaper, and at equal cost where it is plainer.
    A small dev set can tell little, so what may be given up is also bounded by the tolerance.
    """
    criterion = plan.criterion
    for outcome in sorted(found, key=_plainness):
        if outcome is best:
            return best
        difference = compare(
            best.scores,
            outcome.scores,
            statistic=criterion.statistic,
            level=criterion.level,
            resamples=1000,
            seed=plan.seed,
        )
        if difference.value is None or difference.low is None or difference.high is None:
            continue
        # A 95 % interval is about 2 x 1.96 standard errors wide.
        if difference.value <= min(criterion.tolerance, (difference.high - difference.low) / 3.92):
            return outcome
    return best


def _plainness(outcome: Outcome) -> tuple[float, int, float, Point]:
    """Order of preference among equals: fewer calls, then the score as it was given, then what did better."""
    granularity = GRANULARITIES.index(outcome.point.granularity)
    return round(outcome.calls, 9), granularity, -outcome.agreement, outcome.point


FORMAT = 3
"""Of the trials in a storage; raise it when their parameters change, for older storages cannot be continued."""


def _points_to_try(study: optuna.Study, space: Space, plan: SearchPlan, known: Sequence[Point]) -> Iterator[Point]:
    """The points to evaluate, each once; first those of an earlier, stopped run.

    If the budget covers the space, every point is visited, cheapest first. Else half of the budget goes to
    `first_points`, and a TPE sampler spends the rest on the strength of the trials that the study then has.
    """
    import optuna

    points = space.points()
    seen = dict.fromkeys(known)
    yield from known
    for point in first_points(points, plan.trials):
        if point not in seen:
            seen[point] = None
            yield point
    while len(seen) < min(plan.trials, len(points)):
        # Seeded afresh for every trial with the number of points seen, so that a run that was stopped continues exactly
        # as it would have: the state of a sampler is not stored.
        study.sampler = optuna.samplers.TPESampler(
            seed=plan.seed * 100_003 + len(seen), n_startup_trials=5, multivariate=False, constant_liar=False
        )
        asked = study.ask()
        wanted = _suggest(space, asked)
        # The sampler is only asked: a trial that stayed open while its point is evaluated would outlive a kill.
        study.tell(asked, state=optuna.trial.TrialState.FAIL)
        # It may want what was seen. A point is never evaluated twice: the unseen one that is most like it is visited.
        point = min((p for p in points if p not in seen), key=partial(_unlikeness, wanted))
        seen[point] = None
        yield point


def first_points(points: Sequence[Point], trials: int) -> Sequence[Point]:
    """The points that are visited whatever comes of them; a sampler spends what is left of `trials`.

    Every persona at every n, as given and without Tie-breaker, comes first: one debate per persona answers all of them,
    and a sampler that starts from there knows the whole grid that costs least.
    """
    if trials >= len(points):
        return points
    return sorted(points, key=_asks_least)[: max(1, trials // 2)]


def _asks_least(point: Point) -> tuple[bool, int, int]:
    return point.tie_breaker, GRANULARITIES.index(point.granularity), point.rounds


def _unlikeness(wanted: Point, point: Point) -> tuple[int, bool, int]:
    # Among points that differ in as many ways, granularity is kept and n is near: both move the score most smoothly.
    differing = sum(a != b for a, b in zip(astuple(wanted), astuple(point), strict=True))
    return differing, wanted.granularity != point.granularity, abs(wanted.rounds - point.rounds)


def _choices(space: Space, rounds: int) -> dict[str, tuple[Any, ...]]:
    """Parameter -> its values for points of so many rounds; without any, only whose Scorer it is matters."""
    choices: dict[str, tuple[Any, ...]] = {"rounds": space.rounds, "granularity": space.granularities}
    debate = {"persona": space.personas, "tie_breaker": space.tie_breakers}
    return choices | (debate if rounds else {"scorer": space.singles})


def _suggest(space: Space, trial: optuna.Trial) -> Point:
    # A parameter that is suggested twice keeps its value.
    rounds = trial.suggest_categorical("rounds", space.rounds)
    choices = _choices(space, rounds)
    return _point({name: trial.suggest_categorical(name, values) for name, values in choices.items()})


def _point(params: Mapping[str, Any]) -> Point:
    if not params["rounds"]:
        return Point(params["scorer"], 0, False, params["granularity"])
    return Point(params["persona"], params["rounds"], params["tie_breaker"], params["granularity"])


def _finished(space: Space, outcome: Outcome) -> optuna.trial.FrozenTrial:
    import optuna

    values: dict[str, Any] = asdict(outcome.point)
    values["scorer"] = values["persona"]
    distributions: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.CategoricalDistribution(choices)
        for name, choices in _choices(space, outcome.point.rounds).items()
    }
    params = {name: values[name] for name in distributions}
    return optuna.trial.create_trial(
        params=params, distributions=distributions, values=[outcome.agreement, outcome.calls]
    )


@contextmanager
def _only_process(storage: Path | None) -> Iterator[None]:
    """Let one process at a time search in a storage: of two that mix their trials each would choose by chance."""
    from filelock import FileLock, Timeout

    if storage is None:
        yield
        return
    storage.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(storage.with_name(f"{storage.name}.alone"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        logger.info("another process searches with the same settings; waiting until it has ended")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _study(plan: SearchPlan) -> optuna.Study:
    import optuna
    from optuna.storages import InMemoryStorage, JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = InMemoryStorage() if plan.storage is None else JournalStorage(JournalFileBackend(str(plan.storage)))
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(
            study_name=plan.study, storage=storage, directions=["maximize", "minimize"], load_if_exists=True
        )
    finally:
        optuna.logging.set_verbosity(verbosity)


def _known_points(study: optuna.Study) -> list[Point]:
    """The points that an earlier run evaluated, in its order."""
    import optuna

    done = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    return list(dict.fromkeys(_point(trial.params) for trial in done))
