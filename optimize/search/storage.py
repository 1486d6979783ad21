"""How points stand in an Optuna study: parameters, suggestions, finished trials, and where studies are stored."""

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
from debate_judge.optimize.search.points import Point, Reading, Space
from debate_judge.programs.lm.redaction import redact_text
from debate_judge.programs.lm.sql.postgresql import connect, exclusive_lock, sqlalchemy_address, unusable_database

if TYPE_CHECKING:
    import optuna

logger = logging.getLogger(__name__)

FORMAT = 10
"""Of the trials in a storage; raise it when their parameters change, for older storages cannot be continued."""

STUDIES = "studies"
"""The flag that names a database."""

TrialOutcome = Mapping[str, Outcome] | PrunedPoint
"""The result of a point: an outcome for each unit, or the record of its pruning."""


def _choices(space: Space) -> dict[str, tuple[Any, ...]]:
    """Parameter -> its values. Those of a debate stand at the judge's own persona and no Tie-breaker in single calls,
    so that all trials have the same parameters."""
    knowledge = (*space.knowledge, *(v.knowledge for v in space.rewritten))
    personas = (*space.personas, *(v.persona for v in space.rewritten))
    return {
        "rounds": space.rounds,
        "knowledge": tuple(dict.fromkeys(knowledge)),
        "persona": tuple(dict.fromkeys(personas)),
        "reading": (*space.readings, *(["joint"] if space.joint and "joint" not in space.readings else [])),
        "tie_breaker": tuple(dict.fromkeys((False, *space.tie_breakers))),
    }


def params_of(space: Space, point: Point) -> dict[str, Any]:
    """The parameters of a point's trial, but for the granularity."""
    return {name: getattr(point, name) for name in _choices(space)}


def suggest(space: Space, trial: optuna.Trial) -> Point:
    """The point that a trial suggests, with scores as they are given. In a single call nobody hears a persona, and a
    judge whose roles were all rewritten has a Critic of its own."""
    params = {name: trial.suggest_categorical(name, values) for name, values in _choices(space).items()}
    return _point(space, params, space.granularities[0])


def _point(space: Space, params: Mapping[str, Any], granularity: Any) -> Point:
    scorer = next(v for v in space.scorers if v.knowledge == params["knowledge"])
    reading: Reading = params["reading"]
    if not params["rounds"]:
        return Point(scorer.knowledge, scorer.persona, 0, False, granularity, reading)
    rewrites_all_roles = scorer in space.rewritten or params["persona"] not in space.personas
    persona = scorer.persona if rewrites_all_roles else params["persona"]
    # A judge that always has a Tie-breaker has no debate without it.
    tie = params["tie_breaker"] or False not in space.tie_breakers
    return Point(scorer.knowledge, persona, params["rounds"], tie, granularity, reading)


def finished(space: Space, point: Point, outcome: TrialOutcome, price: float) -> optuna.trial.FrozenTrial:
    """The trial of a point: complete, with agreement less the price of its LM calls per item, or pruned."""
    from optuna.distributions import BaseDistribution, CategoricalDistribution
    from optuna.trial import TrialState, create_trial

    choices = {**_choices(space), "granularity": space.granularities}
    distributions: dict[str, BaseDistribution] = {n: CategoricalDistribution(values) for n, values in choices.items()}
    params = {name: getattr(point, name) for name in distributions}
    if isinstance(outcome, PrunedPoint):
        pruned = TrialState.PRUNED
        return create_trial(state=pruned, params=params, distributions=distributions, user_attrs=asdict(outcome))
    agreement, calls = agreement_and_calls(outcome)
    measured: dict[str, Any] = {"agreement": agreement, "lm_calls_per_item": calls} | {
        label: {"agreement": o.agreement, "lm_calls_per_item": o.calls} for label, o in outcome.items()
    }
    return create_trial(
        value=agreement - price * calls, params=params, distributions=distributions, user_attrs=measured
    )


def agreement_and_calls(by_unit: Mapping[str, Outcome]) -> tuple[float, float]:
    """Agreement and LM calls per item, as means over the units."""
    outcomes = by_unit.values()
    return sum(o.agreement for o in outcomes) / len(by_unit), sum(o.calls for o in outcomes) / len(by_unit)


class StoredStudy:
    """Finished trials in a file of Optuna's journal, in a PostgreSQL database, or nowhere.

    Args:
        name: Of the study, which is made if it is absent.
        storage: Its file, the address of a database, or None for no storage.
        space: What its trials chose from.

    Raises:
        InputError: The storage cannot be read or written.
    """

    def __init__(self, name: str, storage: Path | str | None, space: Space) -> None:
        import optuna

        self._space, self._storage = space, storage
        self._study: optuna.Study | None = None
        if storage is not None:
            with _explained(storage), _opened(storage) as opened:
                self._study = optuna.create_study(
                    study_name=name, storage=opened, direction="maximize", load_if_exists=True
                )

    def add(self, point: Point, trial: optuna.trial.FrozenTrial) -> None:
        """Add a trial, unless the study has that of an earlier run, or of another process that compiles the same.

        Raises:
            InputError: The storage cannot be written, e.g. because the disk is full or the server has gone away.
        """
        if self._study is None:
            return
        with _explained(self._storage):
            if point not in self.points():
                self._study.add_trial(trial)

    def points(self) -> list[Point]:
        """The points that the study holds trials of."""
        stored = []
        for trial in [] if self._study is None else self._study.get_trials(deepcopy=False):
            # A record that was changed by hand names no point; its own is added once more.
            with suppress(KeyError, StopIteration, TypeError):
                stored.append(_point(self._space, trial.params, trial.params["granularity"]))
        return stored


@contextmanager
def _opened(storage: Path | str) -> Iterator[optuna.storages.BaseStorage]:
    from optuna.storages import RDBStorage

    if isinstance(storage, Path):
        make_folder(storage.parent, "--store")
        yield _in_file(storage)
        return
    # Two that make the tables at the same moment break each other.
    with exclusive_lock(storage, STUDIES, "tables of studies", "makes the tables of the studies"):
        try:
            # A search may last for hours between two trials: what the server has closed meanwhile is opened again.
            yield RDBStorage(sqlalchemy_address(storage), engine_kwargs={"pool_pre_ping": True})
        except RuntimeError as error:
            raise InputError(
                "the database holds tables of something else, or of another version of Optuna",
                field=STUDIES,
                found=redact_text(storage),
                remedy="give the studies a database of their own",
            ) from error


def _in_file(file: Path) -> optuna.storages.BaseStorage:
    """Optuna's journal. A broken one is set aside: its trials are made again from the stored replies."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    try:
        if not file.exists() or file.read_bytes()[-1:] in (b"", b"\n"):
            return JournalStorage(JournalFileBackend(str(file)))
    except OSError:
        raise
    # Whatever Optuna stumbles over when it reads records that somebody else has written.
    except Exception as error:
        logger.debug("%s: %r", file, error)
    aside = file.with_name(f"{file.name}.broken")
    logger.warning("%s is broken and set aside as %s; its trials are made again from the stored replies", file, aside)
    file.replace(aside)
    return JournalStorage(JournalFileBackend(str(file)))


def require_reachable(storage: Path | str | None) -> None:
    """Refuse a database that cannot be used, before anything is spent.

    Raises:
        InputError: It cannot be reached.
    """
    if isinstance(storage, str):
        connect(storage, STUDIES).close()


@contextmanager
def _explained(storage: Path | str | None) -> Iterator[None]:
    """Turn what Optuna, its file or its database raise into an InputError."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        raise unusable_database(str(storage), STUDIES, error) from error
    except OSError as error:
        raise InputError(
            "the study's file cannot be used",
            file=storage if isinstance(storage, Path) else None,
            field="--store",
            found=error.strerror or str(error),
            remedy="make room, or fix the problem, and run the command again",
        ) from error


_QUIET = threading.RLock()


@contextmanager
def quiet() -> Iterator[None]:
    """Keep back what Optuna would log and warn of."""
    import optuna

    # Searches of folds run in threads, and both settings are the whole process's: each must restore what it has found.
    with _QUIET, warnings.catch_warnings():
        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            optuna.logging.set_verbosity(verbosity)
