"""Real processes that want the same replies at the same time."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.lm.store import SqlStore
from debate_judge.programs.make_lm import make_lm
from tests.faulty_server import FaultyServer
from tests.programs.engines import reply_to

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


def answer(body: bytes) -> str:
    found = re.search(rb"Question (\d+)", body)
    return f"answer {found[1].decode()}" if found else "none"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    with FaultyServer(answer, latency=0.02) as server:
        yield server


def in_process(work: Callable[[Connection], None]) -> tuple[Any, Connection]:
    """Run `work` in a forked process, with one end of a pipe; returns the process and the other end."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=work, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def ask_all(url: str, folder: Path, numbers: list[int], told: Connection) -> None:
    """Ask about these numbers when the word comes, and send back the texts and how many calls were made."""

    async def go() -> tuple[list[str], int]:
        with closing(SqlStore(folder)) as store:
            lm = make_lm("openai/m", api_base=url, store=store, concurrency=4)
            questions = [[{"role": "user", "content": f"Question {number}"}] for number in numbers]
            told.send("ready")
            told.recv()
            texts = [reply.text for reply in await asyncio.gather(*(reply_to(lm, q) for q in questions))]
            await lm.aclose()
            return texts, lm.meter.executed.total()

    told.send(asyncio.run(go()))


def test_processes_that_ask_the_same_at_once_pay_once(server: FaultyServer, tmp_path: Path) -> None:
    orders = [list(range(40)), list(range(40)), list(range(39, -1, -1))]
    asking = [in_process(lambda told, o=order: ask_all(server.url, tmp_path, o, told)) for order in orders]  # type: ignore[misc]
    assert [told.recv() for _, told in asking] == ["ready"] * 3
    for _, told in asking:
        told.send("go")
    found = [told.recv() for _, told in asking]
    for process, _ in asking:
        process.join()
    assert [texts for texts, _ in found] == [[f"answer {number}" for number in order] for order in orders]
    assert set(server.answered.values()) == {1}
    assert sum(made for _, made in found) == 40


def asks_and_tells_when_it_waits(url: str, folder: Path, told: Connection) -> None:
    """Ask one question; say so when the call waits for another process."""
    take = SqlStore.take

    async def telling(self: SqlStore, key: str) -> Reply | bool:
        answer = await take(self, key)
        if answer is False:
            told.send("waiting")
            SqlStore.take = take  # type: ignore[method-assign]
        return answer

    SqlStore.take = telling  # type: ignore[method-assign]
    ask_all(url, folder, [1], told)


def test_the_call_of_a_process_that_is_killed_is_made_by_the_one_that_waited(
    server: FaultyServer, tmp_path: Path
) -> None:
    # The first is not answered before the test is over.
    asked = threading.Event()

    def script(body: bytes, attempt: int) -> str | None:
        asked.set()
        return None if attempt else "slow"

    server.script = script
    holder, first = in_process(lambda told: ask_all(server.url, tmp_path, [1], told))
    first.recv(), first.send("go")
    assert asked.wait(60)
    waiter, second = in_process(lambda told: asks_and_tells_when_it_waits(server.url, tmp_path, told))
    second.recv(), second.send("go")
    assert second.recv() == "waiting"
    assert server.requests == 1
    os.kill(holder.pid, signal.SIGKILL)
    assert second.recv() == (["answer 1"], 1)
    holder.join(), waiter.join()
    assert server.requests == 2
