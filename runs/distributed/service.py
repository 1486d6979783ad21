"""The ledger of a run as a service: what actors and the driver ask it, and what survives its restart."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from debate_judge.programs.lm.lending.ledger import AccountLedger
from debate_judge.programs.lm.lending.messages import NONE, Amounts, LeaseGrant, LeaseReport
from debate_judge.programs.lm.limits.provider_limits import RateLimits
from debate_judge.programs.lm.options import LMOptions
from debate_judge.runs.distributed.job import ActorNews
from debate_judge.runs.distributed.out_folder import OutFolder

_ALIVE = 10.0
"""Seconds of silence after which an actor is taken for dead."""


@dataclass(frozen=True)
class AccountStatus:
    """What the driver is told."""

    news: Mapping[str, ActorNews]
    """Lessee -> its latest."""
    paid: Amounts
    refusals: int
    down: bool
    """Whether the provider answers no call of an actor that is alive."""
    resting: bool
    """Whether all actors that are alive have stopped."""


class AccountService:
    """One account for all actors of a run.

    Args:
        out: Where it writes down what it has promised, for its own restart.
        run: A name that no other run ever has.
        options: Limits and budget of the account.
        usual: Its provider's usual limits.

    Raises:
        InputError: The folder of the results is not there where it has been started.
    """

    def __init__(self, out: OutFolder, run: str, options: LMOptions, usual: RateLimits) -> None:
        # Elsewhere it would find no promises of an earlier start.
        out.require_shared()
        self._out, self._state = out, f"ledger-{run}"
        state = out.read_state(self._state)
        # A first start has heard all who speak; after another one, those that live have yet to speak again.
        self._complete_at = -math.inf if state is None else time.monotonic() + _ALIVE
        calls, tokens, usd = (state or {}).get("promised", NONE)
        if state is None:
            out.write_state(self._state, {"promised": NONE})
        self._ledger = AccountLedger(
            options.budget,
            RateLimits(options.rpm, options.tpm),
            usual,
            promised=(calls, tokens, usd),
            keep=lambda promised: out.write_state(self._state, {"promised": promised}),
        )
        self._news: dict[str, ActorNews] = {}
        self._heard: dict[str, float] = {}
        self._refusals: dict[str, int] = {}
        self._down: dict[str, float] = {}
        """Lessee -> when it has said that the provider does not answer."""
        self._stopping = False
        self._begun: Counter[str] = Counter()

    def exchange(self, report: LeaseReport) -> LeaseGrant:
        """See `AccountLedger.exchange`."""
        self._refusals[report.lessee] = report.refusals
        self._down.pop(report.lessee, None)
        if report.down:
            self._down[report.lessee] = time.monotonic()
        return self._ledger.exchange(report)

    def begin(self, part: str) -> int:
        """Count that a part is begun; returns how often it was, as far as this start of the ledger knows."""
        self._begun[part] += 1
        return self._begun[part]

    def tell(self, news: ActorNews) -> bool:
        """Take in news; returns whether the run is to stop."""
        self._news[news.lessee] = news
        self._heard[news.lessee] = time.monotonic()
        return self._stopping

    def status(self, stop: bool = False) -> AccountStatus:
        """What is known of all actors.

        Args:
            stop: Whether they are to stop, from now on.
        """
        self._stopping = self._stopping or stop
        now = time.monotonic()
        silent = now - _ALIVE
        resting = now >= self._complete_at and all(
            one.closed or self._heard[name] < silent for name, one in self._news.items()
        )
        down = any(told > silent for told in self._down.values())
        # What a dead actor had begun is begun again by another.
        news = {name: one if self._heard[name] >= silent else replace(one, items=0) for name, one in self._news.items()}
        return AccountStatus(news, self._ledger.paid, sum(self._refusals.values()), down, resting)
