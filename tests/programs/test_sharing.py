"""Processes that want the same replies at the same time: each call is made by one of them, whatever becomes of it."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import dspy
import pytest

from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.journal import Journal
from debate_judge.programs.lm.limits.prefix_warmup import PrefixWarmup
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.lm.sharing import claims, segment_index
from tests.programs.engines import OTHER, QUESTION, judge_lm

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


async def turns() -> None:
    """Let every task go as far as it can."""
    for _ in range(50):
        await asyncio.sleep(0)


def key(number: int) -> str:
    return f"{number:032x}"


@pytest.fixture(autouse=True)
def _always_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every miss looks at the other segments."""
    monkeypatch.setattr(segment_index, "_BETWEEN", 0.0)
    monkeypatch.setattr(segment_index, "_SHARE", 0)
    monkeypatch.setattr(claims, "_LONGEST_WAIT", 0.02)


# --- what others append ---


def test_a_reply_of_another_process_is_found_as_soon_as_it_is_put(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as first, closing(Journal(tmp_path)) as second:
        for number in range(3):
            assert second.get(key(number)) is None
            first.put(key(number), "scorer", Reply(f"reply {number}"))
            assert second.get(key(number)) == Reply(f"reply {number}")
        assert second.broken == 0


def test_a_line_that_is_being_written_is_found_when_it_is_whole(tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "a")) as other:
        other.put(key(1), "scorer", Reply("one"))
        other.put(key(2), "scorer", Reply("two"))
    (whole,) = (tmp_path / "a").glob("*.replies")
    content = whole.read_bytes()
    with closing(Journal(tmp_path / "b")) as journal, (tmp_path / "b" / "x.replies").open("ab", buffering=0) as file:
        # As its writer does, for a segment that no process has locked is at rest.
        fcntl.flock(file, fcntl.LOCK_EX)
        for start in range(0, len(content), 20):
            file.write(content[start : start + 20])
            written = content[: start + 20].count(b"\n")
            assert [journal.get(key(n)) is not None for n in (1, 2)] == [written > 0, written > 1]
        assert journal.broken == 0


def test_what_was_given_out_stays_the_same_when_another_process_has_paid_for_it_as_well(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as first, closing(Journal(tmp_path)) as second:
        first.put(key(1), "scorer", Reply("mine"))
        second.put(key(1), "scorer", Reply("theirs"))
        assert first.get(key(2)) is None
        assert first.get(key(1)) == Reply("mine")
        assert second.get(key(1)) == Reply("theirs")


# --- claims ---


def test_a_claim_keeps_out_other_journals_until_it_is_given_up(tmp_path: Path) -> None:
    async def go() -> list[bool]:
        first, second = Journal(tmp_path), Journal(tmp_path)
        found = [await first.claim(key(1)), await second.claim(key(1)), await second.claim(key(2 << 70))]
        first.release(key(1))
        found.append(await second.claim(key(1)))
        # Closing one journal gives up none of the other's claims, though both have one file.
        first.close()
        third = Journal(tmp_path)
        found.append(await third.claim(key(1)))
        second.close()
        found.append(await third.claim(key(1)))
        third.close()
        return found

    assert asyncio.run(go()) == [True, False, True, True, False, True]


def test_a_claim_is_given_up_only_when_the_reply_can_be_found(tmp_path: Path) -> None:
    async def go() -> None:
        first, second = Journal(tmp_path), Journal(tmp_path)
        assert await first.claim(key(1))
        first.put(key(1), "scorer", Reply("one"))
        first.release(key(1))
        # It is written at the end of the turn.
        assert not await second.claim(key(1))
        await asyncio.sleep(0)
        assert await second.claim(key(1))
        assert second.get(key(1)) == Reply("one")
        first.close()
        second.close()

    asyncio.run(go())


def test_without_locks_on_files_every_process_makes_its_own_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", refused)
    lm, engine = judge_lm(store=Journal(tmp_path))
    assert asyncio.run(lm.ask(QUESTION, "scorer")).text == "answer 1"
    assert len(engine.requests) == 1


def test_a_call_that_waits_for_another_process_takes_no_place_and_may_be_cancelled(tmp_path: Path) -> None:
    async def go() -> None:
        other, store = Journal(tmp_path), Journal(tmp_path)
        lm, engine = judge_lm(store=store, concurrency=1)
        assert await other.claim(lm.call_key(QUESTION))
        waiting = [asyncio.create_task(lm.ask(QUESTION, "scorer")) for _ in range(2)]
        await turns()
        assert (await lm.ask(OTHER, "scorer")).text == "answer 1"
        assert lm.caller.limiter.in_flight == 0
        waiting[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        assert not waiting[1].done()
        other.put(lm.call_key(QUESTION), "scorer", Reply("theirs"))
        other.release(lm.call_key(QUESTION))
        assert (await waiting[1]).text == "theirs"
        assert len(engine.requests) == 1
        assert (lm.meter.asked.total(), lm.meter.executed.total()) == (3, 1)
        # The claim went with the wait.
        assert await other.claim(lm.call_key(QUESTION))
        other.close()
        store.close()

    asyncio.run(go())


def test_a_process_that_is_suspended_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "_PATIENCE", 0.0)

    async def go() -> None:
        suspended, store = Journal(tmp_path), Journal(tmp_path)
        lm, _ = judge_lm(store=store)
        assert await suspended.claim(lm.call_key(QUESTION))
        assert (await lm.ask(QUESTION, "scorer")).text == "answer 1"
        assert store.get(lm.call_key(QUESTION)) == suspended.get(lm.call_key(QUESTION))
        assert not await store.claim(lm.call_key(QUESTION))
        suspended.close()
        store.close()

    asyncio.run(go())


def test_processes_with_the_same_calls_share_them_out(tmp_path: Path) -> None:
    async def go() -> None:
        stores = [Journal(tmp_path), Journal(tmp_path)]
        lms = [judge_lm(store=store, concurrency=1) for store in stores]
        for _, engine in lms:
            engine.gate = asyncio.Event()
        asking = [asyncio.create_task(lm.ask(q, "scorer")) for lm, _ in lms for q in (QUESTION, OTHER)]
        await turns()
        # Each has one place: the second process sends the call that the first does not.
        assert [len(engine.requests) for _, engine in lms] == [1, 1]
        for _, engine in lms:
            assert engine.gate is not None
            engine.gate.set()
        await asyncio.gather(*asking)
        assert [len(engine.requests) for _, engine in lms] == [1, 1]
        for store in stores:
            store.close()

    asyncio.run(go())


def test_calls_that_wait_for_their_source_and_for_another_process_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """Two processes ask about two candidates of one source, each beginning with another: each leads with one call."""

    async def asked(lm: JudgeLM, candidates: str) -> list[str]:
        warmup = PrefixWarmup()

        async def one(candidate: str) -> str:
            warmup.begin("The source.", "", candidate)
            return (await lm.ask([{"role": "user", "content": f"The source. {candidate}"}], "scorer")).text

        return await asyncio.gather(*map(one, candidates))

    async def go() -> None:
        stores = [Journal(tmp_path), Journal(tmp_path)]
        lms = [judge_lm(store=store) for store in stores]
        gates = [asyncio.Event() for _ in lms]
        for (_, engine), gate in zip(lms, gates, strict=True):
            engine.gate = gate
        both = [asyncio.create_task(asked(lm, text)) for (lm, _), text in zip(lms, ("ab", "ba"), strict=True)]
        while not all(engine.requests for _, engine in lms):
            await asyncio.sleep(0)
        for gate in gates:
            gate.set()
        first, second = await asyncio.gather(*both)
        assert first == second[::-1]
        assert sum(len(engine.requests) for _, engine in lms) == 2
        for store in stores:
            store.close()

    asyncio.run(go())


def test_calls_of_dspys_own_modules_are_claimed_as_well(tmp_path: Path) -> None:
    async def go() -> None:
        stores = [Journal(tmp_path), Journal(tmp_path)]
        lms = [judge_lm(store=store) for store in stores]
        replies = await asyncio.gather(*(lm.acall("Two and two?") for lm, _ in lms))
        assert replies[0] == replies[1]
        assert sum(len(engine.requests) for _, engine in lms) == 1
        assert sum(lm.meter.executed.total() for lm, _ in lms) == 1
        for store in stores:
            store.close()

    asyncio.run(go())


def test_a_call_that_fails_in_one_process_is_made_by_the_one_that_waited(tmp_path: Path) -> None:
    async def go() -> None:
        stores = [Journal(tmp_path), Journal(tmp_path)]

        def refused(number: int) -> Any:
            raise dspy.lm15.InvalidRequestError("not like this")

        (bad, asked), (good, other) = judge_lm(refused, store=stores[0]), judge_lm(store=stores[1])
        asked.gate = asyncio.Event()
        failing = asyncio.create_task(bad.ask(QUESTION, "scorer"))
        while not asked.requests:
            await asyncio.sleep(0)
        waiting = asyncio.create_task(good.ask(QUESTION, "scorer"))
        await turns()
        assert other.requests == []
        asked.gate.set()
        with pytest.raises(dspy.LMInvalidRequestError):
            await failing
        assert (await waiting).text == "answer 1"
        for store in stores:
            store.close()

    asyncio.run(go())
