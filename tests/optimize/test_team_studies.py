"""Studies in a PostgreSQL database: resumed on another machine, or beside another process of the team."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable

import optuna
import psycopg
import pytest

from debate_judge.data.errors import InputError
from debate_judge.optimize.search.outcomes import SearchResult
from debate_judge.optimize.search.points import Point
from debate_judge.programs.lm.sql.postgresql import sqlalchemy_address
from tests.optimize.searches import FakeScores, limits_of, run_search
from tests.postgresql import PostgresServer

NINE_TRIALS = limits_of(3)


def varied_noise(point: object) -> float:
    return 0.5 + zlib.crc32(str(point).encode()) % 7 / 3


@pytest.fixture(scope="module")
def straight() -> SearchResult:
    return run_search(FakeScores(varied_noise), None, NINE_TRIALS)


def figures_of(found: SearchResult) -> list[object]:
    return [found.chosen.point, *((o.point, o.agreement, o.calls) for o in found.outcomes)]


class Meanwhile(FakeScores):
    """Does something before it scores the third point."""

    def __init__(self, done: Callable[[], object]) -> None:
        super().__init__(varied_noise)
        self._done = done

    def prefetch(self, points: Iterable[Point], group_ids: Collection[str] | None = None) -> None:
        for point in points:
            if len(self.asked) == 2 and point not in self.asked:
                self._done()
            super().prefetch([point], group_ids)


def stored(database: str) -> int:
    return len(optuna.load_study(study_name="s", storage=sqlalchemy_address(database)).get_trials())


def test_a_search_that_was_stopped_goes_on_from_the_database(database: str, straight: SearchResult) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_search(FakeScores(varied_noise, stop_at=2), database, NINE_TRIALS)
    assert figures_of(run_search(FakeScores(varied_noise), database, NINE_TRIALS)) == figures_of(straight)
    assert stored(database) == len(straight.outcomes)


@pytest.mark.integration
def test_a_search_whose_connection_was_lost_goes_on_beside_another_process(
    postgres: PostgresServer, database: str, straight: SearchResult
) -> None:
    def interlude() -> None:
        postgres.stop()
        postgres.start()
        assert figures_of(run_search(FakeScores(varied_noise), database, NINE_TRIALS)) == figures_of(straight)

    assert figures_of(run_search(Meanwhile(interlude), database, NINE_TRIALS)) == figures_of(straight)
    assert stored(database) == len(straight.outcomes)


@pytest.mark.integration
def test_a_database_that_goes_away_in_the_middle_ends_the_search_with_a_message(
    postgres: PostgresServer, database: str, straight: SearchResult
) -> None:
    try:
        with pytest.raises(InputError, match="database cannot be used") as caught:
            run_search(Meanwhile(postgres.stop), database, NINE_TRIALS)
    finally:
        postgres.start()
    assert "field 'studies'" in str(caught.value)
    assert "it resumes" in str(caught.value)
    assert figures_of(run_search(FakeScores(varied_noise), database, NINE_TRIALS)) == figures_of(straight)


def test_a_database_of_something_else_is_refused(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num varchar(32) PRIMARY KEY)")
        connection.execute("INSERT INTO alembic_version VALUES ('1bd49d398cd2')")
    with pytest.raises(InputError, match="a database of their own"):
        run_search(FakeScores(varied_noise), database, NINE_TRIALS)
