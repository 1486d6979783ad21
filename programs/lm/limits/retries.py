"""Repeating what failed: one loop, one rule for how long to wait, one reading of Retry-After.

What is worth another attempt, and for how long, is the business of those who ask: direct calls have a circuit breaker
(`programs.lm.limits.caller`), the batch service and the web search have a limit on time or attempts (`Patience`).
"""

from __future__ import annotations

import asyncio
import email.utils
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

_DOUBLINGS = 30
"""Beyond which the longest wait holds anyway, and a float would overflow in the end."""


async def retry(attempt: Callable[[], Awaitable[T]], wait_after: Callable[[Exception], Awaitable[float]]) -> T:
    """Make attempts until one succeeds.

    Args:
        attempt: Makes one; may be cancelled at any time.
        wait_after: Returns the seconds to wait after an error, or raises what the call has failed with.
    """
    while True:
        try:
            return await attempt()
        except Exception as error:
            wait = await wait_after(error)
        if wait > 0:
            await asyncio.sleep(wait)


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before the next attempt.

    Args:
        first: Seconds after the first failure, doubled for each further one, give or take half.
        longest: Cap on that, and on what a server asks for.
        jitter: Of the waits.
    """

    first: float
    longest: float
    # It keeps calls that failed together from coming back together; no result depends on it.
    jitter: random.Random = field(default_factory=random.Random, compare=False)

    def wait(self, failures: int, asked: float | None = None) -> float:
        """Seconds to wait after the first failure and `failures` more, or what the server has `asked` for."""
        if asked is not None:
            asked = min(asked, self.longest)
            # Never less than was asked for, which would only be refused again.
            return asked + self.jitter.uniform(0.0, min(self.first, 0.1 * asked + 0.1))
        return min(self.first * 2.0 ** min(failures, _DOUBLINGS), self.longest) * self.jitter.uniform(0.5, 1.5)


class Patience:
    """Counts the failures of one call and says how long to wait, until it is over.

    Args:
        backoff: The waits.
        seconds: From the first failure, after which no further attempt is made.
        attempts: Most attempts.
    """

    def __init__(self, backoff: Backoff, *, seconds: float = math.inf, attempts: float = math.inf) -> None:
        self._backoff, self._seconds, self._attempts = backoff, seconds, attempts
        self._since: float | None = None
        self.failures = 0

    @property
    def elapsed(self) -> float:
        """Seconds since the first failure."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    def wait(self, asked: float | None = None) -> float | None:
        """Take in a failure: seconds until the next attempt, None if there is none."""
        self.failures += 1
        if self._since is None:
            # Not from the start of the call: an upload may well take longer than a short patience, and fail once.
            self._since = time.monotonic()
        if self.failures >= self._attempts or self.elapsed >= self._seconds:
            return None
        return self._backoff.wait(self.failures - 1, asked)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by Retry-After, or by the header in milliseconds that OpenAI sends; None if neither can be read.

    Args:
        headers: By name in lower case, or in any case where the mapping ignores it.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) / unit
        except ValueError:
            try:
                seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
            except (ValueError, OverflowError, TypeError, LookupError):
                continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None
