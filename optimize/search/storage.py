"""Points as trials of an Optuna study: parameters, suggestions, finished trials, and where studies are stored."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import make_folder
from debate_judge.optimize.search.outcomes import Outcome, PrunedPoint
from debate_judge.optimize.search.points import Point, SearchSpace

if TYPE_CHECKING:
    import optuna

logger = logging.getLogger(__name__)

FORMAT_VERSION = 10
"""Version of the stored trials; raise it when their parameters change, because older storages cannot be continued."""

TrialOutcome = Mapping[str, Outcome] | PrunedPoint
"""The result of a point: an outcome for each unit, or the record of its pruning."""


def _parameter_values(space: SearchSpace) -> dict[str, tuple[Any, ...]]:
    """Parameter -> its values. All trials have the same parameters: a single call has the default persona and no
    Tie-breaker."""
    knowledge = (*space.knowledge, *(v.knowledge for v in space.rewritten))
    personas = (*space.personas, *(v.persona for v in space.rewritten))
    return {
        "rounds": space.rounds,
        "knowledge": tuple(dict.fromkeys(knowledge)),
        "persona": tuple(dict.fromkeys(personas)),
        "tie_breaker": tuple(dict.fromkeys((False, *space.tie_breakers))),
    }


def params_of(space: SearchSpace, point: Point) -> dict[str, Any]:
    """The parameters of a point's trial, without the granularity."""
    return {name: getattr(point, name) for name in _parameter_values(space)}


def suggest(space: SearchSpace, trial: optuna.Trial) -> Point:
    """The unrounded point that a trial suggests. Parameters without effect are ignored: persona and Tie-breaker of a
    single call, and the persona of a judge whose roles were all rewritten."""
    params = {name: trial.suggest_categorical(name, values) for name, values in _parameter_values(space).items()}
    return _point(space, params, space.unrounded)


def _point(space: SearchSpace, params: Mapping[str, Any], granularity: Any) -> Point:
    scorer = next(v for v in space.scorer_variants if v.knowledge == params["knowledge"])
    if not params["rounds"]:
        return Point(scorer.knowledge, scorer.persona, 0, False, granularity)
    rewrites_all_roles = scorer in space.rewritten or params["persona"] not in space.personas
    persona = scorer.persona if rewrites_all_roles else params["persona"]
    # A judge that always has a Tie-breaker has no debate without it.
    tie_breaker = params["tie_breaker"] or False not in space.tie_breakers
    return Point(scorer.knowledge, persona, params["rounds"], tie_breaker, granularity)


def finished_trial(
    space: SearchSpace, point: Point, outcome: TrialOutcome, call_penalty: float
) -> optuna.trial.FrozenTrial:
    """The trial of a point: complete, with agreement less the penalty for its LM calls per item, or pruned."""
    from optuna.distributions import BaseDistribution, CategoricalDistribution
    from optuna.trial import TrialState, create_trial

    values = {**_parameter_values(space), "granularity": space.granularities}
    distributions: dict[str, BaseDistribution] = {
        name: CategoricalDistribution(choices) for name, choices in values.items()
    }
    params = {name: getattr(point, name) for name in distributions}
    if isinstance(outcome, PrunedPoint):
        pruned = TrialState.PRUNED
        return create_trial(state=pruned, params=params, distributions=distributions, user_attrs=asdict(outcome))
    agreement, calls = agreement_and_calls(outcome)
    measured: dict[str, Any] = {"agreement": agreement, "lm_calls_per_item": calls} | {
        label: {"agreement": o.agreement, "lm_calls_per_item": o.calls} for label, o in outcome.items()
    }
    return create_trial(
        value=agreement - call_penalty * calls, params=params, distributions=distributions, user_attrs=measured
    )


def agreement_and_calls(by_unit: Mapping[str, Outcome]) -> tuple[float, float]:
    """Agreement and LM calls per item, as means over the units."""
    outcomes = by_unit.values()
    return sum(o.agreement for o in outcomes) / len(by_unit), sum(o.calls for o in outcomes) / len(by_unit)


class StoredStudy:
    """Finished trials in a file of Optuna's journal, or nowhere.

    Args:
        name: Of the study, which is created if it is absent.
        storage: Its file, or None for no storage.
        space: The search space of its trials.

    Raises:
        InputError: The storage cannot be read or written.
    """

    def __init__(self, name: str, storage: Path | None, space: SearchSpace) -> None:
        import optuna

        self._space, self._storage = space, storage
        self._study: optuna.Study | None = None
        if storage is not None:
            with _as_input_errors(storage):
                self._study = optuna.create_study(
                    study_name=name, storage=_journal_storage(storage), direction="maximize", load_if_exists=True
                )

    def add(self, point: Point, trial: optuna.trial.FrozenTrial) -> None:
        """Add the trial of a point, unless an earlier run, or another process with the same compile, has added it.

        Raises:
            InputError: The storage cannot be written, e.g. because the disk is full.
        """
        if self._study is None:
            return
        with _as_input_errors(self._storage):
            if point not in self.points():
                self._study.add_trial(trial)

    def points(self) -> list[Point]:
        """The points that the study holds trials of."""
        stored = []
        for trial in [] if self._study is None else self._study.get_trials(deepcopy=False):
            # A record that was changed by hand is no point, and the trial is added once more.
            with suppress(KeyError, StopIteration, TypeError):
                stored.append(_point(self._space, trial.params, trial.params["granularity"]))
        return stored


def _journal_storage(file: Path) -> optuna.storages.BaseStorage:
    """Optuna's journal. A broken file is renamed, and its trials are repeated from the stored replies."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    make_folder(file.parent, "--store")
    try:
        if not file.exists() or file.read_bytes()[-1:] in (b"", b"\n"):
            return JournalStorage(JournalFileBackend(str(file)))
    except OSError:
        raise
    # Optuna raises errors of many types on records that are not its own.
    except Exception as error:
        logger.debug("%s: %r", file, error)
    renamed = file.with_name(f"{file.name}.broken")
    logger.warning("%s is broken and set aside as %s; its trials are made again from the stored replies", file, renamed)
    file.replace(renamed)
    return JournalStorage(JournalFileBackend(str(file)))


@contextmanager
def _as_input_errors(storage: Path | None) -> Iterator[None]:
    """Raise errors of the study's file as an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(
            "the study's file cannot be used",
            file=storage,
            field="--store",
            found=error.strerror or str(error),
            remedy="make room, or fix the problem, and run the command again",
        ) from error


_SILENCE_LOCK = threading.RLock()


@contextmanager
def silenced_optuna() -> Iterator[None]:
    """Suppress Optuna's log messages and warnings."""
    import optuna

    # Searches of folds run in threads, and both settings are global: one thread at a time sets and restores them.
    with _SILENCE_LOCK, warnings.catch_warnings():
        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            optuna.logging.set_verbosity(verbosity)
