"""The search on dev: which variant of the judge, how many rounds, a Tie-breaker or not, which granularity.

One Optuna study with persistent storage, agreement against LM calls per item, for one aspect or several that
share a judge. A DSPy optimizer sees means over examples; this is where choices are made on the dev agreement
itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    space: int
    """Number of points there were."""
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


def search(
    dev_scores: DevScores,
    space: Space,
    *,
    criterion: Criterion,
    trials: int,
    seed: int,
    storage: Path,
    study: str,
    on_trial: Callable[[Outcome], None] = lambda outcome: None,
) -> SearchResult:
    """Evaluate up to `trials` distinct points and choose one.

    Args:
        criterion: What is a better choice.
        storage: File of the study; a study that was stopped there goes on where it was.
        study: Name of the study; it must change whenever the result could.
        on_trial: Called once with each distinct outcome.
    """
    outcomes: dict[Point, Outcome] = {}

    def evaluate(point: Point) -> Outcome:
        if point not in outcomes:
            scores, calls = dev_scores.scores(point)
            outcomes[point] = Outcome(
                point, agreement_for_choice(scores, criterion.statistic, criterion.level), calls, scores
            )
            on_trial(outcomes[point])
        return outcomes[point]

    with _alone(storage):
        for point, report in _points_to_try(_study(storage, study), space, trials, seed):
            outcome = evaluate(point)
            report([outcome.agreement, outcome.calls])
    found = tuple(outcomes.values())
    best = max(found, key=lambda o: (o.agreement, -o.calls))
    return SearchResult(_cheapest_equal(found, best, criterion, seed), best, found, len(space.points()), dev_scores)


def _cheapest_equal(found: Sequence[Outcome], best: Outcome, criterion: Criterion, seed: int) -> Outcome:
    """The cheapest outcome within one standard error of the best, by paired resampling of the dev groups.

    The one-standard-error rule of Breiman et al. (Classification and Regression Trees, 1984, section 3.4.3):
    what the dev data cannot tell from the best is taken where it is cheaper, and at equal cost where it is plainer.
    A small dev set can tell little, so what may be given up is also bounded by the tolerance.
    """
    for outcome in sorted(found, key=_plainness):
        if outcome is best:
            return best
        difference = compare(
            best.scores,
            outcome.scores,
            statistic=criterion.statistic,
            level=criterion.level,
            resamples=1000,
            seed=seed,
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

Report = Callable[[Sequence[float]], None]


def _points_to_try(study: optuna.Study, space: Space, trials: int, seed: int) -> Iterator[tuple[Point, Report]]:
    """The points to evaluate, each with where to report its values; first those of an earlier, stopped run.

    If the budget covers the space, every point is visited once, cheapest first. Else half of the budget goes to
    what is read off the debates at no LM call (every persona at every n, as given, without Tie-breaker, come
    first), and a TPE sampler spends the rest. The sampler is seeded afresh for every trial with the
    number of points seen, so a run that was stopped continues exactly as it would have.
    """
    import optuna

    points = space.points()
    budget = min(trials, len(points))
    seen: dict[Point, None] = {}
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,)):
        point = _point(trial.params)
        seen[point] = None
        yield point, _told_before
    for point in first_points(points, trials):
        if point not in seen:
            seen[point] = None
            yield point, partial(_add, study, space, point)
    while len(seen) < budget:
        study.sampler = optuna.samplers.TPESampler(
            seed=seed * 100_003 + len(seen), n_startup_trials=5, multivariate=False, constant_liar=False
        )
        asked = study.ask()
        point = _suggest(space, asked)
        if point in seen:
            # A point is never evaluated twice: the unseen point that is most like it is visited instead.
            study.tell(asked, state=optuna.trial.TrialState.FAIL)
            point = min((p for p in points if p not in seen), key=partial(_unlikeness, point))
            seen[point] = None
            yield point, partial(_add, study, space, point)
        else:
            seen[point] = None
            yield point, partial(_tell, study, asked)


def first_points(points: Sequence[Point], trials: int) -> Sequence[Point]:
    """The points that are visited whatever comes of them; a sampler spends what is left of `trials`."""
    if trials >= len(points):
        return points
    return sorted(points, key=_asks_least)[: max(1, trials // 2)]


def _asks_least(point: Point) -> tuple[bool, int, int]:
    return point.tie_breaker, GRANULARITIES.index(point.granularity), point.rounds


def _unlikeness(wanted: Point, point: Point) -> tuple[int, bool, int]:
    differing = sum(a != b for a, b in zip(astuple(wanted), astuple(point), strict=True))
    return differing, wanted.granularity != point.granularity, abs(wanted.rounds - point.rounds)


def _told_before(values: Sequence[float]) -> None:
    """The study has these values already."""


def _tell(study: optuna.Study, trial: optuna.Trial, values: Sequence[float]) -> None:
    study.tell(trial, values)


def _add(study: optuna.Study, space: Space, point: Point, values: Sequence[float]) -> None:
    study.add_trial(_finished(space, point, values))


def _suggest(space: Space, trial: optuna.Trial) -> Point:
    rounds = trial.suggest_categorical("rounds", space.rounds)
    params: dict[str, Any] = {
        "rounds": rounds,
        "granularity": trial.suggest_categorical("granularity", space.granularities),
    }
    if rounds:
        params["persona"] = trial.suggest_categorical("persona", space.personas)
        params["tie_breaker"] = trial.suggest_categorical("tie_breaker", space.tie_breakers)
    else:
        params["scorer"] = trial.suggest_categorical("scorer", space.singles)
    return _point(params)


def _point(params: Mapping[str, Any]) -> Point:
    if not params["rounds"]:
        return Point(params["scorer"], 0, False, params["granularity"])
    return Point(params["persona"], params["rounds"], params["tie_breaker"], params["granularity"])


def _finished(space: Space, point: Point, values: Sequence[float]) -> optuna.trial.FrozenTrial:
    import optuna

    choices: dict[str, tuple[Any, ...]] = {"rounds": space.rounds, "granularity": space.granularities}
    params: dict[str, Any] = {"rounds": point.rounds, "granularity": point.granularity}
    if point.rounds:
        choices |= {"persona": space.personas, "tie_breaker": space.tie_breakers}
        params |= {"persona": point.persona, "tie_breaker": point.tie_breaker}
    else:
        choices |= {"scorer": space.singles}
        params |= {"scorer": point.persona}
    distributions: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.CategoricalDistribution(c) for name, c in choices.items()
    }
    return optuna.trial.create_trial(params=params, distributions=distributions, values=list(values))


@contextmanager
def _alone(storage: Path) -> Iterator[None]:
    """Let one process at a time search in a storage: of two that mix their trials each would choose by chance."""
    from filelock import FileLock, Timeout

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


def _study(storage: Path, name: str) -> optuna.Study:
    import optuna
    from optuna.storages.journal import JournalFileBackend

    backend = optuna.storages.JournalStorage(JournalFileBackend(str(storage)))
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(
            study_name=name, storage=backend, directions=["maximize", "minimize"], load_if_exists=True
        )
    finally:
        optuna.logging.set_verbosity(verbosity)
    # A kill leaves its trial running for ever in a journal; nobody else works on this study.
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    return study
