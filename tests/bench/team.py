"""How fast replies reach a team's database and come back; a PostgreSQL server is started beside.

    python tests/bench/team.py --replies 10000

Prints how long `--replies` replies take to be put and to be in the database, how many a second another machine recalls
with 1,000, 16 and 1 items at once, how many a machine recalls from its own store, and what a miss and a look at what
other processes of the machine have written take.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from time import perf_counter

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from debate_judge.programs.lm.journal import Journal
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.lm.sharing.team_replies import TeamReplies
from debate_judge.programs.make_lm import open_replies
from tests.postgresql import PASSWORD, PostgresServer

REPLY = Reply("[[ ## rationale ## ]]\n" + "It names what the source names. " * 10 + "\n[[ ## score ## ]]\n4", 900, 90)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replies", type=int, default=10_000)
    given = parser.parse_args(argv)
    keys = [f"{number:032x}" for number in range(given.replies)]
    with tempfile.TemporaryDirectory(prefix="team-") as folder, PostgresServer() as server:
        os.environ["PGPASSWORD"] = PASSWORD
        database = server.new_database()
        asyncio.run(_put(Path(folder) / "first", database, keys))
        third = len(keys) // 3
        for number, at_once in enumerate((1000, 16, 1)):
            part = keys[number * third : (number + 1) * third][: third // (10 if at_once == 1 else 1)]
            asyncio.run(_recall(Path(folder) / f"other-{number}", database, part, at_once))
        with closing(Journal(Path(folder) / "first")) as journal:
            _each("recalled from the own store", keys, journal.get)
            _each("a miss", [f"{number:032x}" for number in range(10**9, 10**9 + 10_000)], journal.get)
            asyncio.run(_look(journal))
    return 0


def _store(folder: Path, database: str) -> TeamReplies:
    store = open_replies(folder, "openai/m", database)
    assert isinstance(store, TeamReplies)
    return store


async def _put(folder: Path, database: str, keys: Sequence[str]) -> None:
    begun = perf_counter()
    with closing(_store(folder, database)) as store:
        for key in keys:
            store.put(key, "scorer", REPLY)
        store.flush()
        print(f"{len(keys):,} replies: put in {perf_counter() - begun:.1f} s", end="")
        with psycopg.connect(database, autocommit=True) as connection:
            while connection.execute("SELECT count(*) FROM debate_replies").fetchone() != (len(keys),):
                await asyncio.sleep(0.01)
    print(f", in the database after {perf_counter() - begun:.1f} s")


async def _recall(folder: Path, database: str, keys: Sequence[str], at_once: int) -> None:
    with closing(_store(folder, database)) as store:
        gate = asyncio.Semaphore(at_once)

        async def fetch(key: str) -> None:
            async with gate:
                assert await store.fetch(key) is not None

        begun = perf_counter()
        await asyncio.gather(*map(fetch, keys))
        print(f"recalled from the database, {at_once:,} at once: {len(keys) / (perf_counter() - begun):,.0f} a second")


def _each(what: str, keys: Sequence[str], get: Callable[[str], Reply | None]) -> None:
    begun = perf_counter()
    for key in keys:
        get(key)
    taken = perf_counter() - begun
    print(f"{what}: {len(keys) / taken:,.0f} a second, {1e6 * taken / len(keys):.0f} µs each")


async def _look(journal: Journal) -> None:
    keys = [f"{number:032x}" for number in range(10**9, 10**9 + 2_000)]
    begun = perf_counter()
    for key in keys:
        assert await journal.claim(key)
        journal.release(key)
    print(f"a claim with its look at what others have written: {1e3 * (perf_counter() - begun) / len(keys):.2f} ms")


if __name__ == "__main__":
    raise SystemExit(main())
