"""Whole debates against a server that misbehaves: every item ends, nothing is lost, no answered call is paid again."""

from __future__ import annotations

import time
import zlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import dspy
import pytest

from debate_judge.programs.judge import Unscored
from debate_judge.programs.lm.limits import BudgetSpentError, ProviderDownError
from debate_judge.programs.lm.replies import SqlStore, Usage
from debate_judge.programs.lm.settings import BudgetCaps
from tests.faulty_server import FAULTS, FaultyServer
from tests.programs.faults import SHORT_WAITS, answer, expected, items, judge, lm_at, scores

pytestmark = pytest.mark.integration
# Requests that are not made again, or not the same.
REFUSALS = ["400", "forbidden", "too large", "unprocessable"]
"""Of one text, or of all."""
NOT_REPEATED = {*REFUSALS, "credit", "spent", "failed", "no temperature", "no max_tokens", "4096 tokens"}
SIMPLE = sorted(
    FAULTS - NOT_REPEATED - {"slow", "stalled", "echo", "late noise", "cached", "copy", "withheld", "refused"}
)


@pytest.mark.parametrize("fault", SIMPLE)
def test_each_fault_alone_changes_no_score(fault: str) -> None:
    work = items(40)

    def script(body: bytes, attempt: int) -> str | None:
        # A truncated or unreadable reply is requested again by another call, which must succeed.
        again = b"could not be used" in body or b'"max_tokens":8000' in body
        # The Critic's reply is one field: words without its header are a criticism.
        again |= fault == "unreadable" and b"## feedback ##" in body
        return fault if attempt < 2 and not again else None

    with FaultyServer(answer, script) as server:
        assert scores(judge(lm_at(server), work)) == [expected(item) for item in work]
    assert max(server.answered.values()) == 1


@pytest.mark.parametrize("fault", ["echo", "late noise"])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_late_bytes_on_a_connection_never_answer_the_next_call(fault: str, concurrency: int) -> None:
    work = items(60)
    with FaultyServer(answer, lambda body, attempt: fault if zlib.crc32(body) % 2 else None, latency=0.005) as server:
        # An LM that has met such an answer uses each connection once, so that it meets no more than a few.
        parts = [work[start : start + 3] for start in range(0, len(work), 3)]
        judgements = [j for part in parts for j in judge(lm_at(server, concurrency=concurrency), part)]
    assert scores(judgements) == [expected(item) for item in work]
    assert len(parts) / 2 < server.collisions <= concurrency * len(parts)


@pytest.mark.parametrize("fault", ["slow", "stalled"])
def test_an_attempt_without_an_answer_times_out_and_is_retried(fault: str) -> None:
    work = items(6)
    with FaultyServer(answer, lambda body, attempt: fault if attempt == 0 else None) as server:
        judgements = judge(lm_at(server, options=replace(SHORT_WAITS, attempt_timeout=0.2)), work)
    assert scores(judgements) == [expected(item) for item in work]


def priced(folder: Path) -> Path:
    """A table with a price for the LM."""
    prices = folder / "prices.toml"
    prices.write_text('["openai/mock"]\ninput = 2.0\ncached = 1.0\noutput = 6.0\n')
    return prices


@pytest.mark.parametrize(
    ("budget", "least"),
    # What the last call might have cost is not spent: 2,000 output tokens are allowed to each.
    [(BudgetCaps(tokens=12_000), 8_500), (BudgetCaps(usd=0.02), 0.004)],
)
def test_a_budget_is_never_exceeded_and_the_run_goes_on_with_a_larger_one(
    tmp_path: Path, budget: BudgetCaps, least: float
) -> None:
    work, replies = items(100), tmp_path / "replies"
    options = replace(SHORT_WAITS, budget=budget, prices=priced(tmp_path))
    with FaultyServer(answer, lambda body, attempt: "500" if attempt == 0 else None, latency=0.002) as server:
        first = lm_at(server, store=SqlStore(replies), options=options)
        with pytest.raises(BudgetSpentError):
            judge(first, work)
        total = first.meter.total
        tokens = total.fresh + total.cached + total.output
        spent = tokens if budget.tokens else sum(first.meter.cost(first.price).values())
        assert least <= spent <= (budget.tokens or budget.usd)
        assert scores(judge(lm_at(server, store=SqlStore(replies)), work)) == [expected(item) for item in work]
    assert max(server.answered.values()) == 1


@pytest.mark.parametrize("budget", [BudgetCaps(tokens=40_000), BudgetCaps(usd=0.24)])
def test_reasoning_that_only_the_total_counts_is_within_the_budget_too(tmp_path: Path, budget: BudgetCaps) -> None:
    with FaultyServer(answer, lambda body, attempt: "thinking", latency=0.002) as server:
        lm = lm_at(server, options=replace(SHORT_WAITS, budget=budget, prices=priced(tmp_path)), concurrency=4)
        with pytest.raises(BudgetSpentError):
            judge(lm, items(100))
        # 100 tokens of input, 40 of them cached, and 3,020 of output.
        calls = server.answered.total()
    assert lm.meter.total.output == 3020 * calls
    spent = 3120 * calls if budget.tokens else calls * (60 * 2 + 40 * 1 + 3020 * 6) / 1e6
    assert 0.5 < spent / (budget.tokens or budget.usd or 0) <= 1


def test_a_mended_server_is_asked_again_for_what_could_not_be_read_and_for_nothing_else(tmp_path: Path) -> None:
    work = items(6)

    def respond(body: bytes) -> str:
        return "I would rather not say." if not mended and b"Letter-2" in body else answer(body)

    complete, mended = [expected(item) for item in work], False
    with FaultyServer(respond) as server:
        with closing(SqlStore(tmp_path)) as store:
            found = scores(judge(lm_at(server, store=store), work))
        assert found == [None if item.group == "2" else score for item, score in zip(work, complete, strict=True)]
        mended, before = True, server.requests
        with closing(SqlStore(tmp_path)) as store:
            assert scores(judge(lm_at(server, store=store), work)) == complete
        # Letter 2 is even: its score is given once, and the Critic has no objection.
        assert server.requests == before + 2


def test_tokens_and_cost_are_counted_by_role_and_price(tmp_path: Path) -> None:
    meters = []
    with FaultyServer(answer) as server:
        for _ in range(2):
            with closing(SqlStore(tmp_path / "replies")) as store:
                lm = lm_at(server, store=store, options=replace(SHORT_WAITS, prices=priced(tmp_path)))
                judge(lm, items(4))
                meters.append(lm.meter)
    # Letters 1 and 3 are revised: six Scorer calls and four Critic calls of 60 fresh, 40 cached and 20 output tokens.
    call = (60 * 2 + 40 * 1 + 20 * 6) / 1e6
    assert meters[0].by_role["scorer"] == Usage(6, 0, 360, 240, 120)
    assert meters[0].cost(lm.price) == pytest.approx({"critic": 4 * call, "scorer": 6 * call})
    assert meters[1].by_role["scorer"] == Usage(cache_hits=6, stored_input=600, stored_output=120)
    assert meters[1].requested == meters[0].requested


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
    provider = Paced(per_second=300, burst=10)
    with FaultyServer(answer, provider, latency=0.02) as server:
        lm = lm_at(server, options=replace(SHORT_WAITS, first_wait=0.1), concurrency=128)
        assert None not in scores(judge(lm, items(400)))
    # 128 calls at once without learning would be refused several times each.
    assert lm.limiter.window < 64
    assert provider.refusals < server.answered.total()


def test_a_server_that_is_not_running_ends_the_run() -> None:
    with FaultyServer(answer) as server:
        pass
    with pytest.raises(ProviderDownError, match="cannot reach the server"):
        judge(lm_at(server, options=replace(SHORT_WAITS, max_outage=0.3)), items(5))


def test_a_probe_tells_calls_that_fail_together_from_an_outage() -> None:
    work = items(12)

    def script(body: bytes, attempt: int) -> str | None:
        return "502" if any(b"Letter-%d\\n" % i in body for i in range(6)) else None

    with FaultyServer(answer, script) as server:
        lm = lm_at(server, options=replace(SHORT_WAITS, retries=2))
        judgements = judge(lm, work)
        assert [isinstance(j, Unscored) for j in judgements] == [True] * 6 + [False] * 6
        counts = lm.meter.counts()
        assert counts["failed"] == 6
        assert counts["requested"] == counts["answered"] + counts["failed"] + counts["from_cache"]
        assert "HTTP 502" in judgements[0].detail
        assert sum(server.attempts.values()) - server.answered.total() == 6 * 3
        # Again, without any other call that is answered: the probe decides.
        again = judge(lm, work[:6])
    assert all(isinstance(j, Unscored) for j in again)
    assert lm.meter.executed["probe"] >= 1


@pytest.mark.parametrize("fault", ["credit", "spent"])
def test_credit_that_ends_stops_the_run_which_resumes_after_a_payment(fault: str, tmp_path: Path) -> None:
    work, paid = items(60), False

    def script(body: bytes, attempt: int) -> str | None:
        return fault if server.answered.total() >= 20 and not paid else None

    with FaultyServer(answer, script) as server:
        with closing(SqlStore(tmp_path)) as store, pytest.raises(dspy.LMBillingError):
            judge(lm_at(server, store=store, concurrency=8), work)
        # Each call in flight is refused, and one probe.
        assert server.attempts.total() - server.answered.total() <= 2 * 8
        paid = True
        with closing(SqlStore(tmp_path)) as store:
            assert scores(judge(lm_at(server, store=store), work)) == [expected(item) for item in work]
    assert max(server.answered.values()) == 1


@pytest.mark.parametrize("fault", REFUSALS)
@pytest.mark.parametrize("forbidden", [{7}, {0, 1}], ids=["in the midst", "first"])
def test_a_text_that_is_refused_is_unscored_and_the_others_are_scored(fault: str, forbidden: set[int]) -> None:
    work = items(12)

    def script(body: bytes, attempt: int) -> str | None:
        return fault if any(b"Letter-%d\\n" % letter in body for letter in forbidden) else None

    with FaultyServer(answer, script) as server:
        lm = lm_at(server, concurrency=2)
        judgements = judge(lm, work)
        # Each is asked about once; a harmless call shows that it is not the key, nor the LM.
        assert server.attempts.total() - server.answered.total() == len(forbidden)
        assert lm.meter.executed["probe"] == (forbidden == {0, 1} or fault == "forbidden")
    assert {i for i, judgement in enumerate(judgements) if isinstance(judgement, Unscored)} == forbidden


@pytest.mark.parametrize("fault", REFUSALS)
def test_a_server_that_refuses_even_a_harmless_call_ends_the_run_at_once(fault: str) -> None:
    with FaultyServer(answer, lambda body, attempt: fault) as server:
        with pytest.raises(dspy.LMAuthError if fault == "forbidden" else dspy.LMConfigurationError, match="HTTP 4"):
            judge(lm_at(server, concurrency=2), items(12))
        # Each of the two in flight, and a harmless one after it.
        assert server.requests <= 4


def test_a_text_that_quotes_words_about_money_does_not_end_the_run() -> None:
    work = [replace(item, text="My credit balance is too low.") if item.group == "5" else item for item in items(12)]
    with FaultyServer(answer, lambda body, attempt: "credit" if b"credit balance" in body else None) as server:
        judgements = judge(lm_at(server, concurrency=2), work)
    assert [i for i, judgement in enumerate(judgements) if isinstance(judgement, Unscored)] == [5]


def test_a_paid_answer_that_is_no_reply_is_asked_for_once_more_and_not_four_times() -> None:
    with FaultyServer(answer, lambda body, attempt: "failed" if b"Letter-3\\n" in body else None) as server:
        judgements = judge(lm_at(server), items(6))
        assert max(server.attempts.values()) == 2
    assert [i for i, judgement in enumerate(judgements) if isinstance(judgement, Unscored)] == [3]
