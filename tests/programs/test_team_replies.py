"""Replies in a PostgreSQL database: shared by machines, with nothing paid twice and nothing lost when it goes away."""

from __future__ import annotations

import asyncio
import logging
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import dspy
import psycopg
import pytest

from debate_judge.data.errors import InputError
from debate_judge.programs.hallucination.web_search import SearchProvider, kept
from debate_judge.programs.lm.journal import Journal
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.lm.sharing import claims, database_link
from debate_judge.programs.lm.sharing.database import connect
from debate_judge.programs.lm.sharing.database_link import DatabaseLink
from debate_judge.programs.lm.sharing.team_replies import TeamReplies
from debate_judge.programs.make_lm import open_replies
from tests.postgresql import PostgresServer
from tests.programs.engines import OTHER, QUESTION, judge_lm

REPLIES = [
    Reply("[[ ## score ## ]]\n4", 120, 7, 64, "stop", ((("4", -0.1), ("5", -2.5)),)),
    Reply("", 0, 0, 0, "content_filter"),
    Reply('tab\tquote" backslash\\ return\r\nnull\0 line\u2028separator\x85', 1, 2, 0, "length"),
    Reply("Grüße, 世界 🎭", 3, 4),
]


def key(number: int) -> str:
    return f"{number:032x}"


def opened(folder: Path, database: str) -> TeamReplies:
    store = open_replies(folder, "openai/m", database)
    assert isinstance(store, TeamReplies)
    return store


async def claimed(store: TeamReplies) -> None:
    """Claim the key 1, which its holder is about to give up."""
    for _ in range(10_000):
        if await store.claim(key(1)):
            return
    pytest.fail("the claim was not given up")


async def put_all(journal: Journal, count: int) -> None:
    for number in range(count):
        journal.put(key(number), "scorer", REPLIES[0])


def stored(database: str) -> int:
    with psycopg.connect(database) as connection:
        (count,) = connection.execute("SELECT count(*) FROM debate_replies").fetchone() or (0,)
        return int(count)


@pytest.fixture
def machines(tmp_path: Path, database: str) -> Iterator[tuple[TeamReplies, TeamReplies]]:
    """Two folders, as of two machines, on one database."""
    with closing(opened(tmp_path / "a", database)) as first, closing(opened(tmp_path / "b", database)) as second:
        yield first, second


def test_what_one_machine_puts_another_fetches(machines: tuple[TeamReplies, TeamReplies], tmp_path: Path) -> None:
    first, second = machines
    for number, reply in enumerate(REPLIES):
        first.put(key(number), "scorer", reply)
    first.close()

    async def go() -> None:
        assert [second.get(key(n)) for n in range(4)] == [None] * 4
        assert await asyncio.gather(*(second.fetch(key(n)) for n in range(5))) == [*REPLIES, None]
        # What was fetched is there without asking again.
        assert [second.get(key(n)) for n in range(4)] == REPLIES

    asyncio.run(go())
    second.close()
    with closing(Journal(tmp_path / "b")) as journal:
        assert [journal.get(key(n)) for n in range(4)] == REPLIES


def test_a_claim_keeps_other_machines_out_until_its_reply_is_there(machines: tuple[TeamReplies, TeamReplies]) -> None:
    first, second = machines

    async def go() -> None:
        assert await first.claim(key(1))
        assert not await second.claim(key(1))
        assert await second.claim(key(2 << 70))
        first.put(key(1), "scorer", REPLIES[0])
        first.release(key(1))
        await claimed(second)
        assert second.get(key(1)) == REPLIES[0]

    asyncio.run(go())


def test_a_claim_goes_with_the_connection_of_its_holder(machines: tuple[TeamReplies, TeamReplies]) -> None:
    first, second = machines

    async def go() -> None:
        assert await first.claim(key(1))
        assert not await second.claim(key(1))
        first.close()
        # The server takes a moment to see it.
        await claimed(second)

    asyncio.run(go())


def test_a_claim_that_is_cancelled_before_it_is_granted_is_given_up(
    machines: tuple[TeamReplies, TeamReplies],
) -> None:
    first, second = machines

    async def go() -> None:
        claiming = asyncio.create_task(first.claim(key(1)))
        await asyncio.sleep(0)
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        await claimed(second)

    asyncio.run(go())


def test_two_machines_that_ask_the_same_pay_once(
    machines: tuple[TeamReplies, TeamReplies], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "_LONGEST_WAIT", 0.02)

    async def go() -> None:
        lms = [judge_lm(store=store) for store in machines]
        asked = await asyncio.gather(*(lm.ask(q, "scorer") for lm, _ in lms for q in (QUESTION, OTHER)))
        assert asked[:2] == asked[2:]
        assert sum(len(engine.requests) for _, engine in lms) == 2
        assert sum(lm.meter.executed.total() for lm, _ in lms) == 2

    asyncio.run(go())


def test_evidence_that_one_machine_has_found_is_that_of_all(machines: tuple[TeamReplies, TeamReplies]) -> None:
    class Counting(SearchProvider):
        name, searches = "counting", 0

        async def snippets(self, query: str, limit: int) -> list[str]:
            self.searches += 1
            return [f"{query} {self.searches}"]

    search = Counting()

    async def found(store: TeamReplies) -> list[str]:
        with dspy.context(lm=judge_lm(store=store)[0]):
            return await kept(search, "who", 3)

    assert [asyncio.run(found(store)) for store in machines] == [["who 1"], ["who 1"]]


def test_what_the_folder_had_before_is_sent(tmp_path: Path, database: str) -> None:
    with closing(Journal(tmp_path)) as journal:
        for number in range(2500):
            journal.put(key(number), "scorer", Reply(f"reply {number}"))
    opened(tmp_path, database).close()
    assert stored(database) == 2500
    opened(tmp_path, database).close()
    assert stored(database) == 2500


def test_what_is_still_to_be_sent_takes_a_few_bytes_a_reply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process queues the whole folder when it begins, which may hold millions."""
    monkeypatch.setattr(database_link.table, "open_table", lambda address, named: None)
    monkeypatch.setattr(DatabaseLink, "_run", lambda self: None)
    with closing(Journal(tmp_path)) as journal:
        asyncio.run(put_all(journal, 5000))
        tracemalloc.start()
        try:
            link = DatabaseLink("", "", "", journal.record, journal.keys())
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert link.close() == 5000
    assert held / 5000 < 16


def test_while_the_database_is_away_calls_go_on_and_what_they_brought_is_sent_when_it_is_back(
    postgres: PostgresServer,
    machines: tuple[TeamReplies, TeamReplies],
    database: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(database_link, "_FIRST_PAUSE", 0.01)
    first, _ = machines

    async def go() -> None:
        lm, engine = judge_lm(store=first)
        await lm.ask(QUESTION, "scorer")
        postgres.stop()
        try:
            assert (await lm.ask(OTHER, "scorer")).text == "answer 2"
            assert len(engine.requests) == 2
        finally:
            postgres.start()

    with caplog.at_level(logging.WARNING):
        asyncio.run(go())
        first.close()
    assert "the run goes on without it" in caplog.text
    assert stored(database) == 2


def test_what_could_not_be_sent_is_sent_by_the_next_run(
    postgres: PostgresServer, tmp_path: Path, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(tmp_path, database)
    postgres.stop()
    try:
        for number, reply in enumerate(REPLIES):
            store.put(key(number), "scorer", reply)
        store.close()
    finally:
        postgres.start()
    assert "4 replies are not in the database yet" in caplog.text
    opened(tmp_path, database).close()
    assert stored(database) == 4


def test_the_server_looks_after_machines_that_have_vanished(database: str) -> None:
    """By its own TCP, or it would keep their claims and locks for hours."""
    with closing(connect(database, "test")) as connection:
        rows = connection.execute("SELECT name, setting::int FROM pg_settings WHERE name LIKE 'tcp_%'").fetchall()
    seen = {name.removeprefix("tcp_"): value for name, value in rows}
    assert 0 < seen["keepalives_idle"] + seen["keepalives_interval"] * seen["keepalives_count"] <= 40
    assert 0 < seen["user_timeout"] <= 40_000


# --- addresses ---


def test_a_server_that_cannot_be_reached_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        open_replies(tmp_path, "openai/m", "postgresql://judge@127.0.0.1:1/replies")
    assert "127.0.0.1" in str(caught.value)
    assert "remedy:" in str(caught.value)


def test_a_password_in_the_flag_is_refused_and_one_in_the_environment_is_told_to_no_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = "postgresql://judge:Sesame-9417@127.0.0.1:1/replies"
    with pytest.raises(InputError, match="a password stands in the address") as caught:
        open_replies(tmp_path, "openai/m", address)
    assert "Sesame" not in str(caught.value)
    with pytest.raises(InputError, match="a password stands in the address"):
        open_replies(tmp_path, "openai/m", "postgresql://127.0.0.1:1/replies?user=judge&password=Sesame-9417")
    monkeypatch.setenv("DEBATE_REPLIES", address)
    with pytest.raises(InputError) as caught:
        open_replies(tmp_path, "openai/m")
    assert "Sesame" not in str(caught.value)
    assert "DEBATE_REPLIES" in str(caught.value)


@pytest.mark.parametrize("address", ["mysql://judge@127.0.0.1/replies", "replies.db", "postgresql://[::1/replies"])
def test_what_is_no_address_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not the address of a PostgreSQL database"):
        open_replies(tmp_path, "openai/m", address)


def test_replies_of_the_offline_lm_stay_on_the_machine(tmp_path: Path) -> None:
    with closing(open_replies(tmp_path, "offline", "postgresql://judge@127.0.0.1:1/replies")) as store:
        assert isinstance(store, Journal)
