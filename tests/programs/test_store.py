"""The store of replies, in both databases: replies are found by every process, a call is claimed by one; kills, damaged
files, full disks, and folders of older versions."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, insert, select, update

from debate_judge.data.errors import InputError
from debate_judge.programs.lm import loop
from debate_judge.programs.lm import store as sql
from debate_judge.programs.lm.reply import Reply, StoreError, wait_or_claim
from debate_judge.programs.lm.sql.tables import BATCH_JOBS, CLAIMS
from debate_judge.programs.lm.sql.tables import REPLIES as TABLE
from debate_judge.programs.lm.store import FILE, SqlStore
from debate_judge.programs.make_lm import open_replies
from debate_judge.runs import compare
from tests.config_keys import keys
from tests.postgresql import PostgresServer
from tests.stores import REPLIES, count, fill, get, get_all, key, put

Open = Callable[[], SqlStore]
"""Opens a store, as another process would."""


@pytest.fixture(params=["sqlite", "postgresql"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    address = request.getfixturevalue("database") if request.param == "postgresql" else None
    stores: list[SqlStore] = []

    def opening() -> SqlStore:
        # Machines of a team have folders of their own.
        folder = tmp_path / str(len(stores)) if address else tmp_path
        stores.append(SqlStore(folder, address, lm="openai_m", field="replies" if address else "--store"))
        return stores[-1]

    yield opening
    for store in stores:
        store.close()


def test_a_stored_reply_is_found_by_every_process_and_the_first_under_a_key_stays(opened: Open) -> None:
    first, second = opened(), opened()
    fill(first, *REPLIES)
    assert get_all(second, 5) == [*REPLIES, None]
    assert asyncio.run(second.get_or_claim(key(0))) == REPLIES[0]
    put(second, key(1), Reply("second"))
    assert get_all(opened(), 5) == [*REPLIES, None]


def spoil(column: str, value: object) -> Callable[[Connection], None]:
    return lambda c: c.execute(update(TABLE).where(TABLE.c.key == key(0)).values({column: value})) and None


def swap(connection: Connection) -> None:
    for this, other in ((key(0), "x"), (key(1), key(0)), ("x", key(1))):
        connection.execute(update(TABLE).where(TABLE.c.key == this).values(key=other))


@pytest.mark.parametrize(
    "harm",
    [swap, spoil("text", "5"), spoil("output_tokens", 0), spoil("logprobs", "{"), spoil("finish", "x")],
    ids=["swapped", "text", "tokens", "logprobs", "finish"],
)
def test_a_changed_row_is_not_used_and_replaced(
    harm: Callable[[Connection], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(SqlStore(tmp_path)) as store:
        fill(store, *REPLIES)
        store.run_sync(harm)
        assert get(store, key(0)) is None
        assert get(store, key(0)) is None
        assert ["checksum" in record.getMessage() for record in caplog.records] == [True]
        assert asyncio.run(store.get_or_claim(key(0))) is True
        put(store, key(0), REPLIES[0])
    with closing(SqlStore(tmp_path)) as store:
        assert get_all(store, 4)[::3] == REPLIES[::3]


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


def test_many_that_claim_at_once_are_granted_each_call_once(opened: Open) -> None:
    async def go() -> list[list[bool | Reply]]:
        stores = [opened() for _ in range(4)]
        return await asyncio.gather(
            *(asyncio.gather(*(store.get_or_claim(key(number)) for number in range(200))) for store in stores)
        )

    assert [sum(granted) for granted in zip(*asyncio.run(go()), strict=True)] == [1] * 200


@pytest.mark.integration
@pytest.mark.parametrize("run", [asyncio.run, loop.run])
def test_the_claim_of_a_cancelled_caller_is_released(
    opened: Open, run: Callable[[Coroutine[None, None, None]], None]
) -> None:
    """Cancelled before the claim is requested, meanwhile, and at the moment in which it is granted."""

    async def go() -> None:
        first, second = opened(), opened()
        for number in range(200):
            task = asyncio.create_task(first.get_or_claim(key(number)))
            await asyncio.sleep(number % 50 / 20_000)
            task.cancel()
            (taken,) = await asyncio.gather(task, return_exceptions=True)
            if taken is True:
                await first.release(key(number))
            assert await asyncio.wait_for(wait_or_claim(second, key(number)), 10) is None

    run(go())


@pytest.mark.integration
def test_a_store_that_is_closed_holds_no_claim_and_refuses_operations_or_carries_them_out(opened: Open) -> None:
    """No caller waits forever, and what is reported as stored is stored."""

    async def go() -> None:
        store, last = opened(), opened()
        assert await store.get_or_claim(key(9999)) is True
        closer = threading.Thread(target=store.close)
        puts = []
        for number in range(2000):
            puts.append(asyncio.create_task(store.put(key(number), "scorer", REPLIES[0])))
            await asyncio.sleep(0)
            if number == 1000:
                closer.start()
        outcomes = await asyncio.wait_for(asyncio.gather(*puts, return_exceptions=True), 30)
        closer.join()
        assert {type(outcome) for outcome in outcomes} <= {type(None), StoreError}
        assert isinstance(outcomes[-1], StoreError)
        for number, outcome in enumerate(outcomes):
            assert (await last.get(key(number)) is not None) == (outcome is None)
        assert await last.get_or_claim(key(9999)) is True

    asyncio.run(go())


@pytest.mark.parametrize("owner", ["another machine/1/2/3", None])
def test_the_claim_of_an_owner_that_is_gone_is_free(
    owner: str | None, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of another machine when it has expired, that of a process of this machine at once."""
    first, second = opened(), opened()
    mine, place = first._owner, sql._machine_id()
    asyncio.run(first.get_or_claim(key(1)))
    # No process has such a number.
    values = {"owner": owner or f"{place}/{2**22 + 1}/1/x", "expires": second.run_sync(second._now) + 100.0}
    second.run_sync(lambda c: c.execute(update(CLAIMS).where(CLAIMS.c.owner == mine).values(values)) and None)
    if owner:
        assert asyncio.run(second.get_or_claim(key(1))) is False
        second.run_sync(lambda c: c.execute(update(CLAIMS).values(expires=second._now(c) - 1.0)) and None)
    assert asyncio.run(second.get_or_claim(key(1))) is True


def test_a_claim_that_is_held_for_long_is_renewed(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "_RENEWAL_INTERVAL", 0.01)
    store, other = opened(), opened()
    asyncio.run(store.get_or_claim(key(1)))
    other.run_sync(lambda c: c.execute(update(CLAIMS).values(expires=other._now(c) + 1.0)) and None)

    async def renewed() -> None:
        while await other.run(lambda c: c.execute(select(CLAIMS.c.expires)).scalar_one() < other._now(c) + 10.0):
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(renewed(), 30))


def test_a_failed_transaction_is_rolled_back_alone(opened: Open) -> None:
    job = {"token": "t", "made": 1.0, "record": "{}"}

    def fail(connection: Connection) -> None:
        connection.execute(insert(BATCH_JOBS).values(job))
        raise LookupError("not this one")

    async def run() -> None:
        writes = [store.put(key(number), "scorer", REPLIES[0]) for number in (1, 2)]
        *_, error = await asyncio.gather(*writes, store.run(fail), return_exceptions=True)
        assert isinstance(error, LookupError)
        assert await store.get(key(1)) == await store.get(key(2)) == REPLIES[0]

    store = opened()
    asyncio.run(run())
    assert store.run_sync(lambda connection: connection.execute(select(BATCH_JOBS)).all()) == []


def test_a_lost_database_is_an_error_and_works_again_later(
    postgres: PostgresServer, database: str, tmp_path: Path
) -> None:
    with closing(SqlStore(tmp_path, database, field="replies")) as store:
        fill(store, *REPLIES)
        postgres.stop()
        try:
            with pytest.raises(StoreError, match="cannot be used") as caught:
                put(store, key(9), REPLIES[0])
            assert caught.value.field == "replies"
        finally:
            postgres.start()
        put(store, key(9), REPLIES[0])
    with closing(SqlStore(tmp_path, database)) as store:
        assert get_all(store, 10) == [*REPLIES, *[None] * 5, REPLIES[0]]


def test_tables_of_something_else_are_refused(opened: Open) -> None:
    store = opened()
    store.run_sync(lambda c: c.exec_driver_sql("DROP TABLE store_version") and None)
    with pytest.raises(StoreError, match="another program"):
        opened()
    store.run_sync(lambda c: c.exec_driver_sql("CREATE TABLE store_version (version INTEGER)") and None)
    store.run_sync(lambda c: c.exec_driver_sql("INSERT INTO store_version VALUES (99)") and None)
    with pytest.raises(StoreError, match="version 99"):
        opened()


def test_the_replies_of_a_folder_are_imported_into_the_teams_database(tmp_path: Path, database: str) -> None:
    with closing(SqlStore(tmp_path)) as store:
        fill(store, *REPLIES)
    for _ in range(2):
        with closing(SqlStore(tmp_path, database)) as store:
            assert get_all(store, 5) == [*REPLIES, None]
            assert count(store) == 4


def test_replies_of_the_offline_lm_stay_on_the_machine(tmp_path: Path) -> None:
    with closing(open_replies(tmp_path, "offline", "postgresql://judge@127.0.0.1:1/replies")) as store:
        put(store, key(0), REPLIES[0])
    assert count(tmp_path) == 1


ROOT = Path(__file__).parents[2]
_WRITER = """
import asyncio, sys
from pathlib import Path
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.lm.store import SqlStore
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
        assert count(store) in (last + 1, last + 2)


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_processes_may_open_a_new_folder_at_the_same_moment_and_fork_while_it_is_open(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(6)

    def work(number: int) -> None:
        with pytest.raises(StoreError, match="forked"):
            get(store, key(0))
        ready.wait(60)
        with closing(SqlStore(tmp_path / "new")) as new, closing(SqlStore(tmp_path / "open")) as shared:
            put(new, key(number), REPLIES[0])
            put(shared, key(number), REPLIES[0])

    with closing(SqlStore(tmp_path / "open")) as store:
        children = [context.Process(target=work, args=(number,)) for number in range(6)]
        for child in children:
            child.start()
        put(store, key(9), REPLIES[1])
        for child in children:
            child.join()
        assert [child.exitcode for child in children] == [0] * 6
        assert get_all(store, 6) == [REPLIES[0]] * 6
        assert get(store, key(9)) == REPLIES[1]
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
    arguments = [*source, *keys(resamples=100, sources=12)]
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
