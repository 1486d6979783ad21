"""How fast replies are stored, claimed and recalled, in SQLite and in a PostgreSQL server of its own.

    python -m tests.bench.team --replies 20000

Prints, for each database, what a claim with its reply and what a recall cost in milliseconds of this process's CPU and
of time, with 128 and with 1 at once.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from time import perf_counter, process_time

from debate_judge.programs.lm import loop
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.lm.store import SqlStore
from tests.bench.harness import Row, parser_of, publish
from tests.postgresql import PASSWORD, PostgresServer

REPLY = Reply("[[ ## rationale ## ]]\n" + "It names what the source names. " * 40 + "\n[[ ## score ## ]]\n4", 900, 90)


async def measured(name: str, store: SqlStore, count: int) -> list[Row]:
    async def make(key: str) -> None:
        assert await store.get_or_claim(key) is True
        await store.put(key, "scorer", REPLY)

    async def recall(key: str) -> None:
        assert await store.get_or_claim(key) == REPLY

    keys = [f"{number:032x}" for number in range(count)]
    steps = (
        ("claimed and stored", make, keys, 128),
        ("recalled", recall, keys, 128),
        ("recalled", recall, keys[::10], 1),
    )
    rows: list[Row] = []
    for what, work, some, at_once in steps:
        cpu, taken = await _each(work, some, at_once)
        rows.append({"database": name, "what": what, "at once": at_once, "CPU ms": cpu, "ms": taken})
    return rows


async def _each(work: Callable[[str], Awaitable[None]], keys: Sequence[str], at_once: int) -> tuple[float, float]:
    async def worker(shared: Iterator[str]) -> None:
        for key in shared:
            await work(key)

    begun, cpu, shared = perf_counter(), process_time(), iter(keys)
    await asyncio.gather(*(worker(shared) for _ in range(at_once)))
    return 1e3 * (process_time() - cpu) / len(keys), 1e3 * (perf_counter() - begun) / len(keys)


def main(argv: Sequence[str] | None = None) -> int:
    given = parser_of(__doc__, of_data=False, replies=20_000).parse_args(argv)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="store-") as folder, PostgresServer() as server:
        os.environ["PGPASSWORD"] = PASSWORD
        for name, address in (("SQLite", None), ("PostgreSQL", server.new_database())):
            with closing(SqlStore(Path(folder) / name, address)) as store:
                # Where the calls of a run are made, too.
                rows += loop.run(measured(name, store, given.replies))
    publish(rows, given.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
