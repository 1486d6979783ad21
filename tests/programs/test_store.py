"""The store of replies: they are found by every process, a call is claimed by one; kills, damaged files, full disks."""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from debate_judge.data.errors import InputError
from debate_judge.programs.lm import replies as sql
from debate_judge.programs.lm.replies import FILE, Reply, SqlStore, StoreError, wait_or_claim
from debate_judge.runs import compare
from tests.config_keys import keys
from tests.stores import REPLIES, count, fill, get, get_all, key, put

Open = Callable[[], SqlStore]
"""Opens a store, as another process would."""


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    stores: list[SqlStore] = []

    def opening() -> SqlStore:
        stores.append(SqlStore(tmp_path))
        return stores[-1]

    yield opening
    for store in stores:
        store.close()


def change(folder: Path, statement: str, *values: object) -> None:
    """Change the file of an open store, as another program would."""
    with closing(sqlite3.connect(folder / FILE)) as database, database:
        database.execute(statement, values)


def test_a_stored_reply_is_found_by_every_process_and_the_first_under_a_key_stays(opened: Open) -> None:
    first, second = opened(), opened()
    fill(first, *REPLIES)
    assert get_all(second, 5) == [*REPLIES, None]
    assert asyncio.run(second.get_or_claim(key(0))) == REPLIES[0]
    put(second, key(1), Reply("second"))
    assert get_all(opened(), 5) == [*REPLIES, None]


SWAP = [("UPDATE replies SET key = ? WHERE key = ?", new, old) for new, old in (("x", key(0)), (key(0), key(1)))]


@pytest.mark.parametrize(
    "harm",
    [
        SWAP,
        *(
            [(f"UPDATE replies SET {column} = ? WHERE key = ?", value, key(0))]
            for column, value in (("text", "5"), ("logprobs", "{"), ("role", b"5"))
        ),
    ],
    ids=["swapped", "text", "logprobs", "bytes"],
)
def test_a_changed_row_is_not_used_and_replaced(
    harm: list[tuple[str, object, object]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(SqlStore(tmp_path)) as store:
        fill(store, *REPLIES)
        for statement in harm:
            change(tmp_path, *statement)
        assert get(store, key(0)) is None
        assert get(store, key(0)) is None
        assert ["checksum" in record.getMessage() for record in caplog.records] == [True]
        assert asyncio.run(store.get_or_claim(key(0))) is True
        put(store, key(0), REPLIES[0])
    with closing(SqlStore(tmp_path)) as store:
        assert get_all(store, 4)[::3] == REPLIES[::3]


def test_a_reply_that_could_not_be_used_stays_until_the_store_is_opened_again(tmp_path: Path) -> None:
    for _ in range(2):
        with closing(SqlStore(tmp_path)) as store:
            assert get(store, key(0)) is None
            fill(store, *REPLIES)
            asyncio.run(store.discard(key(0)))
            assert get_all(store, 4) == REPLIES


def test_a_claim_excludes_others_until_the_reply_comes_or_it_is_released(opened: Open) -> None:
    async def go() -> None:
        first, second = opened(), opened()
        assert await first.get_or_claim(key(1)) is True
        assert await first.get_or_claim(key(2)) is True
        assert await second.get_or_claim(key(1)) is False
        assert await second.get(key(1)) is None
        waiting = asyncio.create_task(wait_or_claim(second, key(1)))
        await asyncio.sleep(0.05)
        await first.put(key(1), "scorer", REPLIES[0])
        assert await waiting == REPLIES[0]
        await first.release(key(2))
        assert await wait_or_claim(second, key(2)) is None
        assert await first.get_or_claim(key(2)) is False

    asyncio.run(go())


def test_a_store_that_is_closed_holds_no_claim_and_refuses_operations(opened: Open) -> None:
    async def go() -> None:
        store, other = opened(), opened()
        assert await store.get_or_claim(key(1)) is True
        store.close()
        store.close()
        with pytest.raises(StoreError, match="closed"):
            await store.put(key(1), "scorer", REPLIES[0])
        assert await other.get_or_claim(key(1)) is True

    asyncio.run(go())


@pytest.mark.parametrize("owner", ["another machine/1/2/3", None])
def test_the_claim_of_an_owner_that_is_gone_is_free(owner: str | None, opened: Open, tmp_path: Path) -> None:
    """That of another machine when it has expired, that of a process of this machine at once."""
    first, second = opened(), opened()
    asyncio.run(first.get_or_claim(key(1)))
    # No process has such a number.
    change(tmp_path, "UPDATE claims SET owner = ?", owner or f"{platform.node()}/{2**22 + 1}/1/x")
    if owner:
        assert asyncio.run(second.get_or_claim(key(1))) is False
        change(tmp_path, "UPDATE claims SET expires = ?", time.time() - 1.0)
    assert asyncio.run(second.get_or_claim(key(1))) is True


def test_a_claim_that_is_held_for_long_is_renewed(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "_RENEWAL_INTERVAL", 0.01)
    asyncio.run(opened().get_or_claim(key(1)))
    change(tmp_path, "UPDATE claims SET expires = ?", time.time() + 1.0)
    deadline = time.monotonic() + 30
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        while database.execute("SELECT expires FROM claims").fetchone()[0] < time.time() + 10.0:
            assert time.monotonic() < deadline
            time.sleep(0.01)


ROOT = Path(__file__).parents[2]
_WRITER = """
import asyncio, sys
from pathlib import Path
from debate_judge.programs.lm.replies import Reply
from debate_judge.programs.lm.replies import SqlStore
store = SqlStore(Path(sys.argv[1]))
async def go():
    assert await store.get_or_claim("f" * 32) is True
    for number in range(1_000_000):
        await store.put(f"{number:032x}", "scorer", Reply("x" * (number % 5000)))
        print(number, flush=True)
asyncio.run(go())
"""


@pytest.mark.integration
def test_a_killed_process_leaves_every_reply_that_it_was_given_and_no_claim(tmp_path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    last = 0
    while last < 300:
        last = int(writer.stdout.readline())
    with closing(SqlStore(tmp_path)) as store:
        assert asyncio.run(store.get_or_claim("f" * 32)) is False
        os.kill(writer.pid, signal.SIGKILL)
        written = writer.stdout.read().splitlines(keepends=True)
        # Not even waited for by its parent.
        assert asyncio.run(asyncio.wait_for(wait_or_claim(store, "f" * 32), 5)) is None
        writer.wait()
        last = int(([f"{last}\n"] + [line for line in written if line.endswith("\n")])[-1])
        assert get_all(store, last + 1) == [Reply("x" * (number % 5000)) for number in range(last + 1)]
        # Of the reply that was being put there may be all or nothing.
        assert count(tmp_path) in (last + 1, last + 2)


@pytest.mark.integration
def test_processes_may_open_a_new_folder_at_the_same_moment(tmp_path: Path) -> None:
    script = f"""
import asyncio, sys
from pathlib import Path
from debate_judge.programs.lm.replies import Reply
from debate_judge.programs.lm.replies import SqlStore
print("ready", flush=True)
input()
store = SqlStore(Path({str(tmp_path / "new")!r}))
asyncio.run(store.put(sys.argv[1], "scorer", Reply("4")))
"""
    children = [
        subprocess.Popen([sys.executable, "-c", script, key(n)], cwd=ROOT, stdin=PIPE, stdout=PIPE) for n in range(6)
    ]
    for child in children:
        assert child.stdout.readline() == b"ready\n"
    for child in children:
        child.stdin.write(b"\n")
        child.stdin.flush()
    for child in children:
        child.communicate(timeout=60)
    assert [child.returncode for child in children] == [0] * 6
    assert count(tmp_path / "new") == 6


@pytest.mark.parametrize(
    "content", [b"not a database, but long enough to be looked at " * 100, b"SQLite format 3\0" + bytes(5000)]
)
def test_a_file_that_is_damaged_or_of_something_else_is_refused_and_left_alone(content: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(InputError, match=r"not a database|malformed") as caught:
        SqlStore(tmp_path)
    assert (caught.value.file, caught.value.field) == (str(tmp_path / FILE), "--store")
    assert (tmp_path / FILE).read_bytes() == content


def test_a_disk_that_fills_up_ends_the_run_which_resumes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = ["--data", "sample", "--aspects", "coherence", "--store", str(tmp_path)]
    arguments = [*source, *keys(sources=12)]
    connect = sqlite3.connect

    def small(*given: Any, **options: Any) -> sqlite3.Connection:
        opened = connect(*given, **options)
        opened.execute("PRAGMA max_page_count=20")
        return opened

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", small)
        assert compare.main(arguments) == 2
    message = capsys.readouterr().err
    assert "disk is full" in message
    assert "field '--store'" in message
    assert "Traceback" not in message
    assert compare.main(arguments) == 0
