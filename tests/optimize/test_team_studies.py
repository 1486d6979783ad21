"""Studies in a PostgreSQL database: resumed on another machine, and worked on by one process of the team at a time."""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from types import SimpleNamespace

import optuna
import psycopg
import pytest

from debate_judge.data.errors import InputError
from debate_judge.optimize import compile as command
from debate_judge.optimize.search.outcomes import SearchResult
from debate_judge.optimize.search.points import Point
from debate_judge.programs.lm.sql.postgresql import DatabaseLock, database_address, sqlalchemy_address
from tests.optimize.searches import Fake, breadth, run
from tests.optimize.small_corpus import small_corpus
from tests.postgresql import PostgresServer

BROAD = breadth(3)


def varied(point: object) -> float:
    return 0.5 + zlib.crc32(str(point).encode()) % 7 / 3


@pytest.fixture(scope="module")
def straight() -> SearchResult:
    return run(Fake(varied), None, BROAD)


def told(found: SearchResult) -> list[object]:
    return [found.chosen.point, *((o.point, o.agreement, o.calls) for o in found.outcomes)]


def test_a_search_that_was_stopped_goes_on_from_the_database(database: str, straight: SearchResult) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(Fake(varied, stop_at=2), database, BROAD)
    resumed = Fake(varied)
    assert told(run(resumed, database, BROAD)) == told(straight)
    trials = optuna.load_study(study_name="s", storage=sqlalchemy_address(database)).get_trials()
    assert len(trials) == len(straight.outcomes)
    assert told(run(Fake(varied), database, BROAD)) == told(straight)
    assert len(optuna.load_study(study_name="s", storage=sqlalchemy_address(database)).get_trials()) == len(trials)


def study_lock(database: str) -> DatabaseLock:
    return DatabaseLock(database, "test", "study s")


def test_a_study_that_another_process_works_on_is_waited_for_until_that_one_is_gone(
    database: str, straight: SearchResult, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("debate_judge.programs.lm.sql.postgresql._POLL", 0.01)
    holder = study_lock(database)
    assert holder.acquire()
    found: list[SearchResult] = []
    waits = threading.Event()

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            waits.set()

    handler = Told()
    name = "debate_judge.programs.lm.sql.postgresql"
    logging.getLogger(name).addHandler(handler)
    try:
        with caplog.at_level(logging.INFO, logger=name):
            searching = threading.Thread(target=lambda: found.append(run(Fake(varied), database, BROAD)))
            searching.start()
            assert waits.wait(60)
            assert found == []
            # As when its process is killed: the server ends its session.
            holder.release()
            searching.join(60)
    finally:
        logging.getLogger(name).removeHandler(handler)
    assert told(found[0]) == told(straight)
    assert "judge on 127.0.0.1 compiles the same; waiting until it has ended" in caplog.text


def restart(postgres: PostgresServer) -> None:
    postgres.stop()
    postgres.start()


class Meanwhile(Fake):
    """Does something before it scores the third point."""

    def __init__(self, done: Callable[[], object]) -> None:
        super().__init__(varied)
        self._done = done

    def hear(self, points: Iterable[Point], only: Collection[str] | None = None) -> None:
        for point in points:
            if len(self.asked) == 2 and point not in self.asked:
                self._done()
            super().hear([point], only)


def test_a_database_that_goes_away_in_the_middle_ends_the_search_with_a_message(
    postgres: PostgresServer, database: str, straight: SearchResult
) -> None:
    try:
        with pytest.raises(InputError, match="the database cannot be used") as caught:
            run(Meanwhile(postgres.stop), database, BROAD)
    finally:
        postgres.start()
    assert "field '--studies'" in str(caught.value)
    assert "goes on from there" in str(caught.value)
    assert told(run(Fake(varied), database, BROAD)) == told(straight)


def test_a_search_whose_connection_was_lost_ends_and_goes_on_by_the_same_command(
    postgres: PostgresServer, database: str, straight: SearchResult
) -> None:
    """Another process may have had the study meanwhile."""

    def interlude() -> None:
        restart(postgres)
        assert told(run(Fake(varied), database, BROAD)) == told(straight)

    with pytest.raises(InputError, match="the database cannot be used"):
        run(Meanwhile(interlude), database, BROAD)
    assert told(run(Fake(varied), database, BROAD)) == told(straight)
    trials = optuna.load_study(study_name="s", storage=sqlalchemy_address(database)).get_trials()
    assert len(trials) == len(straight.outcomes)


def test_a_database_that_goes_away_while_a_study_is_waited_for_is_told(
    postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = study_lock(database)
    assert holder.acquire()
    monkeypatch.setattr(
        "debate_judge.programs.lm.sql.postgresql.time", SimpleNamespace(sleep=lambda seconds: postgres.stop())
    )
    try:
        with pytest.raises(InputError, match="the database cannot be used") as caught:
            run(Fake(varied), database, BROAD)
    finally:
        postgres.start()
    assert "field '--studies'" in str(caught.value)


def test_a_database_of_something_else_is_refused(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num varchar(32) PRIMARY KEY)")
        connection.execute("INSERT INTO alembic_version VALUES ('1bd49d398cd2')")
    with pytest.raises(InputError, match="a database of their own"):
        run(Fake(varied), database, BROAD)


def test_a_database_that_cannot_be_reached_ends_a_compile_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    address = "postgresql://judge@127.0.0.1:1/studies"
    data = ["--data", str(small_corpus(tmp_path, groups=8, candidates=3)), "--aspects", "coherence", "--folds", "1"]
    assert command.main([*data, "--studies", address]) == 2
    told = capsys.readouterr().err
    assert "field '--studies'" in told
    assert "remedy:" in told
    assert not Path("runs/store/replies").exists()


def test_a_password_in_the_address_of_the_studies_is_refused() -> None:
    with pytest.raises(InputError, match="a password stands in the address"):
        database_address("postgresql://judge:Sesame-9417@h/studies", "--studies", "DEBATE_STUDIES")
