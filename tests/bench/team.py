"""How fast replies are stored, claimed and recalled, in SQLite and in a PostgreSQL server of its own.

    python tests/bench/team.py --replies 20000

Prints, for each database, what a claim with its reply and what a recall cost in milliseconds of this process's CPU and
of time, with 128 and with 1 at once.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from time import perf_counter, process_time

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from debate_judge.programs.lm import loop
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.lm.store import SqlStore
from tests.postgresql import PASSWORD, PostgresServer

REPLY = Reply("[[ ## rationale ## ]]\n" + "It names what the source names. " * 40 + "\n[[ ## score ## ]]\n4", 900, 90)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replies", type=int, default=20_000)
    count = parser.parse_args(argv).replies
    with tempfile.TemporaryDirectory(prefix="store-") as folder, PostgresServer() as server:
        os.environ["PGPASSWORD"] = PASSWORD
        for name, address in (("SQLite", None), ("PostgreSQL", server.new_database())):
            with closing(SqlStore(Path(folder) / name, address)) as store:
                # Where the calls of a run are made, too.
                loop.run(_measure(name, store, count))
    return 0


async def _measure(name: str, store: SqlStore, count: int) -> None:
    async def make(key: str) -> None:
        assert await store.get_or_claim(key) is True
        await store.put(key, "scorer", REPLY)

    async def recall(key: str) -> None:
        assert await store.get_or_claim(key) == REPLY

    keys = [f"{number:032x}" for number in range(count)]
    for what, work in (("claimed and stored", make), ("recalled", recall)):
        await _each(f"{name}, {what}", work, keys, 128)
    await _each(f"{name}, recalled", recall, keys[: count // 10], 1)


async def _each(what: str, work: Callable[[str], Awaitable[None]], keys: Sequence[str], at_once: int) -> None:
    async def worker(shared: Iterator[str]) -> None:
        for key in shared:
            await work(key)

    begun, cpu, shared = perf_counter(), process_time(), iter(keys)
    await asyncio.gather(*(worker(shared) for _ in range(at_once)))
    cpu, taken = process_time() - cpu, perf_counter() - begun
    print(f"{what}, {at_once} at once: {1e3 * cpu / len(keys):.3f} ms of CPU, {1e3 * taken / len(keys):.3f} ms each")


if __name__ == "__main__":
    raise SystemExit(main())
