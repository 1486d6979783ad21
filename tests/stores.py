"""Stores of replies for tests without an event loop."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from debate_judge.programs.lm.replies import FILE, Reply, ReplyStore

REPLIES = [
    Reply("[[ ## score ## ]]\n4", 120, 7, 64, "stop"),
    Reply("", 0, 0, 0, "content_filter"),
    Reply('tab\tquote" backslash\\ return\r\nnull\0 line\u2028separator\x85', 1, 2, 0, "length"),
    Reply("Grüße, 世界 🎭 é é", 3, 4, 0, "odd \0 finish \ud800", ((("4", -0.1), ("5", -2.5)), (("\n\0", -0.01),))),
]


def key(number: int) -> str:
    return f"{number:032x}"


def get(store: ReplyStore, key: str) -> Reply | None:
    return asyncio.run(store.get(key))


def get_all(store: ReplyStore, count: int) -> list[Reply | None]:
    """The replies under the keys 0, 1, ..."""

    async def go() -> list[Reply | None]:
        return list(await asyncio.gather(*(store.get(key(number)) for number in range(count))))

    return asyncio.run(go())


def put(store: ReplyStore, key: str, reply: Reply) -> None:
    asyncio.run(store.put(key, "scorer", reply))


def fill(store: ReplyStore, *replies: Reply) -> None:
    """Put the replies under the keys 0, 1, ..."""

    async def go() -> None:
        await asyncio.gather(*(store.put(key(number), "scorer", reply) for number, reply in enumerate(replies)))

    asyncio.run(go())


def count(folder: Path) -> int:
    """How many replies the store in a folder holds."""
    with closing(sqlite3.connect(folder / FILE)) as database:
        (number,) = database.execute("SELECT count(*) FROM replies").fetchone()
    return int(number)
