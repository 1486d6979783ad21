"""How points stand in an Optuna study: parameters, trials, the file, and the lock on it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import make_folder
from debate_judge.optimize.search.outcomes import Dropped, Outcome
from debate_judge.optimize.search.points import Point, Reading, Space
from debate_judge.programs.lm.redaction import clean_text
from debate_judge.programs.lm.sql.postgresql import connect, only_holder, sqlalchemy_address, unreachable

if TYPE_CHECKING:
    import optuna

logger = logging.getLogger(__name__)

FORMAT = 9
"""Of the trials in a storage; raise it when their parameters change, for older storages cannot be continued."""

JOINT = "joint"
"""Parameter of the points that are tried with all aspects in a call."""


def _choices(space: Space, rounds: int) -> dict[str, tuple[Any, ...]]:
    """Parameter -> its values for points of so many rounds; without any, Critic and Tie-breaker never speak."""
    knowledge = (*space.knowledge, *(v.knowledge for v in space.rewritten))
    personas = (*space.personas, *(v.persona for v in space.rewritten))
    choices: dict[str, tuple[Any, ...]] = {"rounds": space.rounds, "granularity": space.granularities}
    choices |= {"knowledge": tuple(dict.fromkeys(knowledge)), "reading": space.readings}
    debate = {"persona": tuple(dict.fromkeys(personas)), "tie_breaker": space.tie_breakers}
    return choices | (debate if rounds else {})


def suggest(space: Space, trial: optuna.Trial) -> Point:
    # A parameter that is suggested twice keeps its value.
    rounds = trial.suggest_categorical("rounds", space.rounds)
    choices = _choices(space, rounds)
    return _point(space, {name: trial.suggest_categorical(name, values) for name, values in choices.items()})


def _point(space: Space, params: Mapping[str, Any]) -> Point:
    head = next(v for v in space.heads if v.knowledge == params["knowledge"])
    persona, tie = params.get("persona", head.persona), params.get("tie_breaker", False)
    reading: Reading = "joint" if JOINT in params else params["reading"]
    return Point(params["knowledge"], persona, params["rounds"], tie, params["granularity"], reading)


Found = Mapping[str, Outcome] | Dropped
"""What came of a point: an outcome for each unit, or why it was not asked about all groups."""


def finished(space: Space, point: Point, found: Found) -> optuna.trial.FrozenTrial:
    """The trial of a point: complete, with agreement and LM calls per item, or pruned."""
    import optuna

    choices = _choices(space, point.rounds)
    distributions = {name: optuna.distributions.CategoricalDistribution(values) for name, values in choices.items()}
    params = {name: getattr(point, name) for name in distributions}
    if point.reading not in space.readings:
        # A parameter of its own, which no sampler asks for: joint points are tried in the end, by what was chosen.
        params |= {"reading": space.readings[0], JOINT: True}
        distributions[JOINT] = optuna.distributions.CategoricalDistribution((False, True))
    known: dict[str, Any] = {"params": params, "distributions": distributions}
    if isinstance(found, Dropped):
        attributes = {"groups": found.groups, "of": found.of, "behind": dict(found.behind)}
        return optuna.trial.create_trial(state=optuna.trial.TrialState.PRUNED, user_attrs=attributes, **known)
    outcomes = found.values()
    means = [sum(o.agreement for o in outcomes) / len(found), sum(o.calls for o in outcomes) / len(found)]
    by_unit = {label: {"agreement": o.agreement, "lm_calls_per_item": o.calls} for label, o in found.items()}
    return optuna.trial.create_trial(values=means, user_attrs=by_unit, **known)


STUDIES = "--studies"
"""The flag that names a database."""


StillAlone = Callable[[], bool]
"""Makes sure that no other process works with a study; False if one may have done so for a while."""


@contextmanager
def alone_in(name: str, storage: Path | str | None) -> Iterator[StillAlone]:
    """Let one process at a time work with a study, on whatever machine of a team it runs; the others wait.

    What is yielded is to be called before anything is added to the study: a database that was away has freed it.

    Args:
        name: Of the study.
        storage: Its file, or the address of a PostgreSQL database, which frees the study when its process is gone.

    Raises:
        InputError: The place cannot be written, or the database cannot be used.
    """
    if isinstance(storage, str):
        with only_holder(storage, STUDIES, f"study {name}", "compiles the same") as lock, _explained(storage):
            yield lock.keep
    else:
        with only_process(storage):
            yield lambda: True


@contextmanager
def _explained(address: str) -> Iterator[None]:
    """Turn what Optuna and its database raise, e.g. because the server has gone away, into an InputError."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        raise unreachable(address, STUDIES, error) from error


def require_reachable(storage: Path | str | None) -> None:
    """Refuse a database that cannot be used, before anything is spent.

    Raises:
        InputError: It cannot be reached.
    """
    if isinstance(storage, str):
        connect(storage, STUDIES).close()


@contextmanager
def only_process(file: Path | None) -> Iterator[None]:
    """Let one process at a time work with a file, or with what it stands for; the others wait.

    Two that mixed their trials in one study would each choose by chance, and two compiles of the same judge on the same
    data would write the same files.

    Raises:
        InputError: The place cannot be written.
    """
    from filelock import FileLock, Timeout

    if file is None:
        yield
        return
    make_folder(file.parent, "--store")
    lock = FileLock(file.with_name(f"{file.name}.alone"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        logger.info("another process compiles the same; waiting until it has ended")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def open_study(name: str, storage: Path | str | None) -> optuna.Study:
    """The study of this name, which goes on where it was if its storage has it.

    Args:
        name: Of the study.
        storage: Its file, the address of a PostgreSQL database, or None for one in memory.

    Raises:
        InputError: The storage cannot be read or written.
    """
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with _opened(storage) as opened:
            return optuna.create_study(
                study_name=name, storage=opened, directions=["maximize", "minimize"], load_if_exists=True
            )
    finally:
        optuna.logging.set_verbosity(verbosity)


@contextmanager
def _opened(storage: Path | str | None) -> Iterator[optuna.storages.BaseStorage]:
    from optuna.storages import InMemoryStorage

    if isinstance(storage, str):
        # Two that make the tables at the same moment break each other.
        with only_holder(storage, STUDIES, "tables of studies", "makes the tables of the studies"):
            yield _in_database(storage)
    else:
        yield InMemoryStorage() if storage is None else _in_file(storage)


def _in_file(file: Path) -> optuna.storages.BaseStorage:
    """Optuna's journal. A broken one is set aside: its trials are made again from the stored replies.

    Raises:
        InputError: The file cannot be read or written.
    """
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    def opened() -> JournalStorage:
        return JournalStorage(JournalFileBackend(str(file)))

    with _usable(file):
        torn = file.exists() and file.read_bytes()[-1:] not in (b"", b"\n")
    try:
        if not torn:
            with _usable(file):
                return opened()
    except InputError:
        raise
    # Whatever Optuna stumbles over when it reads records that somebody else has written.
    except Exception as error:
        logger.debug("%s: %r", file, error)
    aside = file.with_name(f"{file.name}.broken")
    logger.warning("%s is broken and set aside as %s; its trials are made again from the stored replies", file, aside)
    with _usable(file):
        file.replace(aside)
        return opened()


def add_trial(study: optuna.Study, trial: optuna.trial.FrozenTrial, storage: Path | str | None) -> None:
    """Add a finished trial to a study that `storage` holds.

    Raises:
        InputError: Its file cannot be written, e.g. because the disk is full.
    """
    if isinstance(storage, Path):
        with _usable(storage):
            study.add_trial(trial)
    else:
        study.add_trial(trial)


@contextmanager
def _usable(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            "the study's file cannot be used",
            file=file,
            field="--store",
            found=error.strerror or str(error),
            remedy="make room, or fix the problem, and run the command again",
        ) from error


def _in_database(address: str) -> optuna.storages.BaseStorage:
    from optuna.storages import RDBStorage

    try:
        # A search may last for hours between two trials: what the server has closed meanwhile is opened again.
        return RDBStorage(sqlalchemy_address(address), engine_kwargs={"pool_pre_ping": True})
    except RuntimeError as error:
        raise InputError(
            "the database holds tables of something else, or of another version of Optuna",
            field=STUDIES,
            found=clean_text(address),
            remedy="give the studies a database of their own",
        ) from error


def known_points(space: Space, study: optuna.Study) -> set[Point]:
    """The points that an earlier run evaluated or dropped."""
    found = set()
    for trial in study.get_trials(deepcopy=False):
        # A record that was changed by hand names no point; its own is added once more.
        with suppress(KeyError, StopIteration, TypeError):
            if trial.state.is_finished():
                found.add(_point(space, trial.params))
    return found
