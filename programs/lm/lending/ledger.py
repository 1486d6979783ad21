"""Lends one account to many processes: requests and tokens of each minute, and a budget that is never exceeded.

Budget: a process holds what it was lent until it has paid it or gives it back, so that what all of them hold and have
paid never passes the caps. A process that falls silent keeps what it was lent: it may have spent it. What is promised
is written down before it is lent, in steps of a fiftieth of each cap; a ledger that starts again takes all of that for
spent, but for what the living tell that they hold.

Pace: one bucket for all. A process asks for what it can send at once, and forgets what it did not use.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from debate_judge.programs.lm.lending.messages import (
    BEAT,
    NONE,
    UNCAPPED,
    Amounts,
    LeaseGrant,
    LeaseReport,
    each,
    total,
)
from debate_judge.programs.lm.limits.bucket import Bucket
from debate_judge.programs.lm.limits.provider_limits import NO_LIMIT, RateLimits
from debate_judge.programs.lm.options import BudgetCaps

_ALIVE = 10.0
"""Seconds of silence after which a process is taken for dead."""
_STEP = 0.02
"""Share of a cap by which promises grow."""
_LEAST_WAIT, _WAIT_EACH = 0.05, 0.005
"""Seconds between two reports of one process: at least, and for each process that there is."""
_LATE = 0.5
"""Seconds that a request may come later than it was lent; the pace leaves room for them."""
_DUST = 1e-9


@dataclass
class _Lessee:
    """A process as it was last heard of."""

    report: LeaseReport
    seen: float
    leased: Amounts = NONE
    paused_until: float = 0.0
    refused_at: float = -math.inf


class AccountLedger:
    """The account.

    Args:
        caps: Of the budget.
        own: Limits that the user has set; the provider's hold where these are None.
        usual: Limits to begin with, until the provider names its own.
        promised: What an earlier ledger of this run has written down.
        keep: Writes down what is promised; called before anything of it is lent.
        clock: Seconds.
    """

    def __init__(
        self,
        caps: BudgetCaps,
        own: RateLimits = NO_LIMIT,
        usual: RateLimits = NO_LIMIT,
        *,
        promised: Amounts = NONE,
        keep: Callable[[Amounts], None] = lambda promised: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        calls, tokens, usd = (math.inf if cap is None else float(cap) for cap in (caps.calls, caps.tokens, caps.usd))
        self._caps: Amounts = (calls, tokens, usd)
        self._capped = bool(caps)
        self._own, self._usual = own, usual
        self._named = self._pace = NO_LIMIT
        self._promised = self._lost = promised
        """`_lost` is of the promises of an earlier ledger what no living process has told of."""
        self._keep = keep
        self._clock = clock
        self._began = clock()
        self._lessees: dict[str, _Lessee] = {}
        self._requests: Bucket | None = None
        self._tokens: Bucket | None = None
        self._wanted_until = 0.0
        """Until when processes are asked to give back what they do not need."""
        self._heed(NO_LIMIT)

    @property
    def paid(self) -> Amounts:
        """By all processes, as far as they have told."""
        return total(*(one.report.paid for one in self._lessees.values()))

    def exchange(self, report: LeaseReport) -> LeaseGrant:
        """Take in a report, and lend."""
        now = self._clock()
        lessee = self._lessees.get(report.lessee)
        if lessee is None:
            lessee = self._lessees[report.lessee] = _Lessee(LeaseReport(report.lessee), now)
            self._lost = each(max, NONE, each(lambda lost, told: lost - told, self._lost, report.leased))
        if report.refusals > lessee.report.refusals:
            lessee.refused_at = now
        # What was told long ago may no longer hold: only news of a process changes the limits of all.
        if report.pace != lessee.report.pace:
            self._heed(report.pace)
        lessee.report, lessee.seen, lessee.leased = report, now, report.leased
        lessee.paused_until = now + report.pause if report.pause else 0.0
        # The budget first: what cannot be paid needs no place in this minute.
        spent = self._lend(lessee, now) if self._capped else ""
        requests, tokens, wait = (0.0, 0.0, BEAT) if spent else self._permit(report, now)
        others = [one for one in self._lessees.values() if one is not lessee]
        living = [one for one in others if now - one.seen < _ALIVE]
        return LeaseGrant(
            leased=lessee.leased if self._capped else UNCAPPED,
            give_back=now < self._wanted_until,
            spent=spent,
            requests=math.inf if self._requests is None else requests,
            tokens=math.inf if self._tokens is None else tokens,
            wait=max(_LEAST_WAIT, _WAIT_EACH * len(living), min(wait, BEAT)),
            refusals=sum(one.report.refusals for one in others),
            window=min((one.report.window for one in others if now - one.refused_at < 4 * BEAT), default=1.0),
            pause=max((one.paused_until - now for one in others), default=0.0),
            down=any(one.report.down for one in living),
        )

    def _lend(self, lessee: _Lessee, now: float) -> str:
        """Lend of the budget; returns what was used of it where nothing is left for the first waiting call."""
        report = lessee.report
        slack = each(lambda leased, used: leased - used, report.leased, total(report.paid, report.held))
        lacking = each(lambda need, own: max(0.0, need - max(0.0, own)), report.first, slack)
        if not any(amount > _DUST for amount in lacking):
            lacking = NONE
        free = self._free()
        if any(need > left + _DUST for need, left in zip(lacking, free, strict=True)):
            self._wanted_until = now + 4 * BEAT
            return "" if self._may_come_back(lessee, lacking, free, now) else self._spent()
        further = each(lambda want, own: max(0.0, want - max(0.0, own)), report.wanted, slack)
        if any(further):
            share = 2 * max(1, len(self._lessees))
            lent = each(min, further, each(lambda left, _: left / share, free, NONE))
            lessee.leased = total(lessee.leased, each(max, lacking, lent))
            self._promise()
        return ""

    def _free(self) -> Amounts:
        lent = total(self._lost, *(one.leased for one in self._lessees.values()))
        return each(lambda cap, used: cap - used, self._caps, lent)

    def _may_come_back(self, lessee: _Lessee, lacking: Amounts, free: Amounts, now: float) -> bool:
        """Whether the living hold something that they may not need in the end."""
        if self._lost != NONE and now - self._began < 4 * BEAT:
            # The living have not all told yet what they hold.
            return True
        for one in self._lessees.values():
            held = one.report.held
            if one is not lessee:
                alive = now - one.seen < _ALIVE
                held = each(lambda leased, paid: leased - paid, one.leased, one.report.paid) if alive else NONE
            short = zip(held, lacking, free, strict=True)
            if any(unpaid > _DUST for unpaid, need, left in short if need > left + _DUST):
                return True
        return False

    def _promise(self) -> None:
        lent = each(lambda cap, left: cap - left if cap < math.inf else 0.0, self._caps, self._free())
        if any(now > before for now, before in zip(lent, self._promised, strict=True)):
            ahead = each(lambda cap, used: min(cap, used + _STEP * cap) if cap < math.inf else 0.0, self._caps, lent)
            self._keep(each(max, ahead, self._promised))
            self._promised = each(max, ahead, self._promised)

    def _spent(self) -> str:
        (calls, tokens, usd), caps = self.paid, self._caps
        lines = [f"{calls:,.0f} of {caps[0]:,.0f} calls"] if caps[0] < math.inf else []
        lines += [f"{tokens:,.0f} of {caps[1]:,.0f} tokens"] if caps[1] < math.inf else []
        lines += [f"${usd:.4f} of ${caps[2]:g}"] if caps[2] < math.inf else []
        return ", ".join(lines)

    def _heed(self, pace: RateLimits) -> None:
        """Keep to the limits that the provider names, except where the user has set their own."""
        self._named = RateLimits(pace.rpm or self._named.rpm, pace.tpm or self._named.tpm)
        rpm = self._own.rpm or self._named.rpm or self._usual.rpm
        tpm = self._own.tpm or self._named.tpm or self._usual.tpm
        if rpm != self._pace.rpm:
            self._requests = _bucket(rpm, self._requests)
        if tpm != self._pace.tpm:
            self._tokens = _bucket(tpm, self._tokens)
        self._pace = RateLimits(rpm, tpm)

    def _permit(self, report: LeaseReport, now: float) -> tuple[float, float, float]:
        """Requests and tokens for now, and the seconds until there may be more."""
        if report.requests <= 0:
            return 0.0, 0.0, BEAT
        wait = 0.0 if self._requests is None else self._requests.wait(now, 1.0)
        if self._tokens is not None and report.first_tokens > 0:
            wait = max(wait, self._tokens.wait(now, report.first_tokens))
        if wait > 0:
            return 0.0, 0.0, wait
        requests, tokens = report.requests, report.tokens
        if self._requests is not None:
            requests = min(requests, max(1.0, float(int(self._requests.level))))
            self._requests.take(requests)
        if self._tokens is not None:
            tokens = min(tokens, max(report.first_tokens, self._tokens.level))
            self._tokens.take(tokens)
        return requests, tokens, 0.0


def _bucket(per_minute: float | None, before: Bucket | None) -> Bucket | None:
    """A bucket of another limit, with what is left in the one before."""
    if per_minute is None:
        return None
    kept = per_minute * 60 / (60 + _LATE)
    if before is not None:
        before.change(kept, kept / 60)
        return before
    bucket = Bucket(kept, kept / 60)
    # A ledger that starts again does not know what this minute has had.
    bucket.take(bucket.level)
    return bucket
