"""What a process that shares an account says to its ledger, and what it is answered.

A report carries totals, never differences, so that one that is made twice changes nothing; what was lent to a process
that never reports again counts as spent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from debate_judge.programs.lm.limits.provider_limits import NO_LIMIT, RateLimits

Amounts = tuple[float, float, float]
"""Calls, tokens, US dollars."""

NONE: Amounts = (0.0, 0.0, 0.0)
UNCAPPED: Amounts = (math.inf, math.inf, math.inf)

BEAT = 0.5
"""Seconds between two reports of a process that wants nothing."""


@dataclass(frozen=True, slots=True)
class LeaseReport:
    """What a process says to the ledger."""

    lessee: str
    leased: Amounts = NONE
    """Of the budget, as it was told last; less where it gives back what it does not need."""
    paid: Amounts = NONE
    held: Amounts = NONE
    """Reserved for calls in flight."""
    first: Amounts = NONE
    """What the call that waits longest may take of the budget at most."""
    wanted: Amounts = NONE
    """The same for all waiting calls that have a place."""
    requests: float = 0.0
    """Requests that are wanted now."""
    tokens: float = 0.0
    first_tokens: float = 0.0
    """Of them, those of the call that waits longest."""
    pace: RateLimits = NO_LIMIT
    """As the provider's answers name it."""
    refusals: int = 0
    """Met so far, and timeouts."""
    window: float = 1.0
    """Share of its concurrency that the process has open, as refusals have left it."""
    pause: float = 0.0
    """Seconds from now that the provider has asked to wait."""
    down: bool = False
    """Whether the provider answers no call of this process."""


@dataclass(frozen=True, slots=True)
class LeaseGrant:
    """What the ledger answers."""

    leased: Amounts = UNCAPPED
    """Of the budget, all in all; infinite where it has no cap."""
    give_back: bool = False
    """Whether others need what this process does not."""
    spent: str = ""
    """Set where the budget has nothing left for the first waiting call: what was used of each cap."""
    requests: float = math.inf
    """Further ones; infinite where they are not limited."""
    tokens: float = math.inf
    wait: float = BEAT
    """Seconds until it is worth asking again."""
    refusals: int = 0
    """Met by all others so far."""
    window: float = 1.0
    """What those that were refused just now have open at most."""
    pause: float = 0.0
    """Seconds that the provider has asked another process to wait."""
    down: bool = False
    """Whether the provider does not answer another process."""


def total(*amounts: Amounts) -> Amounts:
    calls, tokens, usd = (sum(values) for values in zip(NONE, *amounts, strict=True))
    return calls, tokens, usd


def each(choose: Callable[[float, float], float], one: Amounts, other: Amounts) -> Amounts:
    """`choose` of the two amounts of each kind."""
    calls, tokens, usd = (choose(a, b) for a, b in zip(one, other, strict=True))
    return calls, tokens, usd
