"""Whole debates against a server that misbehaves: every item ends, nothing is lost, no answered call is paid again."""

from __future__ import annotations

import os
import random
import time
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from debate_judge.programs.judge import Unscored, Verdict
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.errors import BudgetSpentError
from debate_judge.programs.lm.options import BudgetCaps
from debate_judge.programs.lm.store import SqlStore
from tests.faulty_server import FaultyServer
from tests.programs.faults import SHORT_WAITS, answer, expected, items, judge, lm_at
from tests.stores import count

pytestmark = pytest.mark.integration

FAILING = ("429", "429 wait", "500", "502", "503", "dropped", "cut", "garbage", "page", "empty")
SLOW = ("slow", "stalled")
HARMLESS = ("twice", "mislabelled", "long", "unreadable")
NOISY = ("noise",)
COLLIDING = ("echo", "late noise")
"""Answers whose aftermath may meet the next call on the same connection, which must then be made again."""

SEED = os.environ.get("FAULTS_SEED", "").encode()
"""Selects another mix of faults, to repeat the long test with many."""


def mixed(body: bytes, attempt: int) -> str | None:
    """Up to three faults before a call succeeds; one call in 200 never does, one in 200 is withheld."""
    rng = random.Random(body + SEED)
    fate = rng.random()
    if fate < 0.005:
        return rng.choice(("500", "dropped", "garbage"))
    if fate < 0.01:
        return rng.choice(("withheld", "refused"))
    faults = rng.choices((*FAILING, *HARMLESS), k=rng.choices((0, 1, 2, 3), (70, 20, 7, 3))[0])
    # An answer ends the call, so no fault after it would be reached.
    return faults[attempt] if attempt < len(faults) else None


def test_400_items_under_a_random_mix_of_faults(tmp_path: Path) -> None:
    work = items(400)
    gone = iter([True])

    def script(body: bytes, attempt: int) -> str | None:
        if server.requests > 500 and next(gone, False):
            server.leave_for(1.0)
        return mixed(body, attempt)

    store = SqlStore(tmp_path)
    with FaultyServer(answer, script) as server:
        lm = lm_at(server, store=store)
        judgements = judge(lm, work)
    unscored = [j for j in judgements if isinstance(j, Unscored)]
    # One unreadable or truncated reply is requested again; that call has its own faults, sometimes the same.
    assert (
        {"lm error", "refused"}
        <= {j.reason for j in unscored}
        <= {"lm error", "refused", "unreadable reply", "truncated"}
    )
    for item, judgement in zip(work, judgements, strict=True):
        if isinstance(judgement, Verdict):
            assert judgement.score == expected(item)
    # One call in a hundred dooms its item; an item takes 2.5 calls on average.
    assert 3 < len(unscored) < 25
    assert max(server.answered.values()) == 1
    # The numbers of answered, counted and stored calls are equal.
    controls = lm.meter.executed["probe"]
    assert lm.meter.executed.total() == server.answered.total() == count(store) + controls


@pytest.mark.parametrize("fault", [*FAILING, *HARMLESS, *NOISY])
def test_each_fault_alone_changes_no_score(fault: str) -> None:
    work = items(40)

    def script(body: bytes, attempt: int) -> str | None:
        # A truncated or unreadable reply is requested again by another call, which must succeed.
        again = b"could not be used" in body or b'"max_tokens":8000' in body
        return fault if attempt < 2 and not again else None

    with FaultyServer(answer, script) as server:
        judgements = judge(lm_at(server), work)
    assert [j.score for j in judgements if isinstance(j, Verdict)] == [expected(item) for item in work]
    # An answer in one packet with something else is an incomplete response, and requested again.
    assert max(server.answered.values()) == (3 if fault == "noise" else 1)


@pytest.mark.parametrize("fault", COLLIDING)
@pytest.mark.parametrize("concurrency", [1, 4])
def test_late_bytes_on_a_connection_never_answer_the_next_call(fault: str, concurrency: int) -> None:
    work = items(60)
    with FaultyServer(answer, lambda body, attempt: fault if zlib.crc32(body) % 2 else None, latency=0.005) as server:
        # An LM that has met such an answer uses each connection once, so that it meets no more than a few.
        parts = [work[start : start + 3] for start in range(0, len(work), 3)]
        judgements = [j for part in parts for j in judge(lm_at(server, concurrency=concurrency), part)]
    assert [j.score for j in judgements if isinstance(j, Verdict)] == [expected(item) for item in work]
    assert len(parts) / 2 < server.collisions <= concurrency * len(parts)


@pytest.mark.parametrize("fault", SLOW)
def test_an_attempt_without_an_answer_times_out_and_is_retried(fault: str) -> None:
    work = items(6)
    with FaultyServer(answer, lambda body, attempt: fault if attempt == 0 else None) as server:
        judgements = judge(lm_at(server, options=replace(SHORT_WAITS, attempt_timeout=0.2)), work)
    assert [j.score for j in judgements if isinstance(j, Verdict)] == [expected(item) for item in work]


@pytest.mark.parametrize("fault", ["withheld", "refused"])
def test_a_filtered_reply_is_a_reason_of_its_own_and_not_retried(fault: str) -> None:
    with FaultyServer(answer, lambda body, attempt: fault) as server:
        judgements = judge(lm_at(server), items(3))
    assert [j.reason for j in judgements if isinstance(j, Unscored)] == ["refused"] * 3
    assert server.requests == 3


def spent(lm: JudgeLM) -> dict[str, float]:
    price = lm.price
    cost = sum(lm.meter.cost(price).values()) if price else 0.0
    return {
        "calls": lm.meter.executed.total(),
        "tokens": lm.meter.input_tokens + lm.meter.output_tokens,
        "usd": cost,
    }


@pytest.mark.parametrize(
    ("budget", "caps"),
    [
        (BudgetCaps(calls=77), {"calls": 77}),
        (BudgetCaps(tokens=12_000), {"tokens": 12_000}),
        (BudgetCaps(usd=0.02), {"usd": 0.02}),
        (BudgetCaps(calls=40, tokens=12_000, usd=1.0), {"calls": 40}),
    ],
)
def test_a_budget_is_never_exceeded_and_the_run_goes_on_with_a_larger_one(
    tmp_path: Path, budget: BudgetCaps, caps: dict[str, float]
) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('["openai/mock"]\ninput = 2.0\ncached = 1.0\noutput = 6.0\n')
    work = items(100)
    replies = tmp_path / "replies"
    with FaultyServer(answer, lambda body, attempt: "500" if attempt == 0 else None, latency=0.002) as server:
        first = lm_at(server, store=SqlStore(replies), options=replace(SHORT_WAITS, budget=budget, prices=prices))
        with pytest.raises(BudgetSpentError):
            judge(first, work)
        used = spent(first)
        for name, cap in caps.items():
            # The last call that might have exceeded the cap was not made: 2,000 output tokens are allowed to each.
            reserve = {"calls": 0, "tokens": 3500, "usd": 0.016}[name]
            assert cap - reserve <= used[name] <= cap
        judgements = judge(lm_at(server, store=SqlStore(replies)), work)
    assert [j.score for j in judgements if isinstance(j, Verdict)] == [expected(item) for item in work]
    assert max(server.answered.values()) == 1


def test_tokens_and_cost_are_counted_by_role_and_price(tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("[mock]\ninput = 10.0\ncached = 1.0\noutput = 100.0\n")
    work = items(4)
    with FaultyServer(answer) as server:
        options = replace(SHORT_WAITS, prices=prices)
        store = SqlStore(tmp_path / "replies")
        first = lm_at(server, store=store, options=options)
        judge(first, work)
        store.close()
        second = lm_at(server, store=SqlStore(tmp_path / "replies"), options=options)
        judge(second, work)
    # Letters 1 and 3 are revised: six Scorer calls and four Critic calls of 60 fresh, 40 cached and 20 output tokens.
    scorer = first.meter.tokens["scorer"]
    assert (scorer.fresh, scorer.cached, scorer.output, scorer.stored) == (360, 240, 120, 0)
    assert first.price is not None
    assert first.meter.cost(first.price) == pytest.approx(
        {"critic": 4 * (60 * 10 + 40 * 1 + 20 * 100) / 1e6, "scorer": 6 * (60 * 10 + 40 * 1 + 20 * 100) / 1e6}
    )
    again = second.meter.tokens["scorer"]
    assert (again.fresh, again.cached, again.output, again.stored) == (0, 0, 0, 720)
    assert second.meter.requested == first.meter.requested
    assert not second.meter.executed


class Paced:
    """A script of a provider that allows so many requests a second."""

    def __init__(self, per_second: float, burst: int) -> None:
        self.per_second, self.level, self.burst = per_second, float(burst), burst
        self.at: float | None = None
        self.refusals = 0

    def __call__(self, body: bytes, attempt: int) -> str | None:
        now = time.monotonic()
        if self.at is not None:
            self.level = min(self.burst, self.level + (now - self.at) * self.per_second)
        self.at = now
        if self.level >= 1:
            self.level -= 1
            return None
        self.refusals += 1
        return "429"


def test_the_concurrency_learns_what_the_provider_allows() -> None:
    work = items(400)
    provider = Paced(per_second=300, burst=10)
    with FaultyServer(answer, provider, latency=0.02) as server:
        lm = lm_at(server, options=replace(SHORT_WAITS, first_wait=0.1), concurrency=128)
        judgements = judge(lm, work)
    assert all(isinstance(j, Verdict) for j in judgements)
    assert lm.recorded_engine.limiter.window < 64
    # 128 calls at once without learning would be refused several times each.
    assert provider.refusals < server.answered.total()


def test_a_limit_per_minute_avoids_429s() -> None:
    work = items(60)
    provider = Paced(per_second=200, burst=4)
    with FaultyServer(answer, provider) as server:
        lm = lm_at(server, options=replace(SHORT_WAITS, rpm=150 * 60.0))
        judgements = judge(lm, work)
    assert all(isinstance(j, Verdict) for j in judgements)
    # The client's own burst is a second's worth, more than this provider takes at once, so only later ones count.
    assert provider.refusals <= 150
