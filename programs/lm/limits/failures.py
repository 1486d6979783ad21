"""Handling of failed calls: wait and retry, fail the item, or end the run.

There is one rule for outages. If any call was answered since a call's last failure but one, the call is to blame for
its failures. If none was, one small call that any model can answer is made for all calls in doubt, while no other is
sent. If it is answered, the calls failed by themselves. If it fails, the provider is down: it is repeated for as long
as a run waits for a provider. If it is answered then, the calls in doubt start over; if not, the run ends, to be
resumed without paying for finished calls again.
"""

from __future__ import annotations

import asyncio
import email.utils
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping

from dspy import lm15
from tenacity import RetryCallState

from debate_judge.programs.lm.errors import NOT_LISTENING, STRAY, ProviderDownError, lm_error, retryable
from debate_judge.programs.lm.options import LMOptions

_LOG = logging.getLogger(__name__)

_AT_ONCE = 0.1
"""Seconds of Retry-After below which it asks for no wait at all; a call that is refused again waits all the same."""
_DOUBLINGS = 30
_DOUBLINGS_REFUSED = 3
"""After refusals for being too fast: the limiter slows down, and a call that waits long misses a turn."""
_LONGEST_PROBE_WAIT = 10.0

OVERLOADED = (429, 503, 529)
"""Statuses by which servers ask to be asked less."""


class RetryWait:
    """Seconds until the next attempt: what the server asks for, else longer each time. Also a wait for `tenacity`.

    Args:
        first: Seconds after the first failure, doubled for each further one; up to as many more by chance.
        longest: Cap on that, and on what a server asks for.
    """

    def __init__(self, first: float, longest: float) -> None:
        self._first, self._longest = first, longest

    def __call__(self, state: RetryCallState) -> float:
        return self.seconds(state.outcome.exception() if state.outcome else None, state.attempt_number)

    def seconds(self, error: BaseException | None, failures: int) -> float:
        """Seconds after the latest error of so many."""
        if getattr(error, "provider_code", None) == STRAY:
            # It says nothing about the provider.
            return 0.0
        requested = getattr(error, "retry_after", None)
        if requested is not None and (requested >= _AT_ONCE or failures == 1):
            requested = min(requested, self._longest)
            # Never less than was asked for, which would only be refused again.
            return float(requested + random.uniform(0.0, min(self._first, 0.1 * requested + 0.1)))
        most = _DOUBLINGS_REFUSED if getattr(error, "status", None) == 429 else _DOUBLINGS
        wait: float = min(self._longest, self._first * 2 ** min(failures - 1, most))
        return wait + random.uniform(0.0, self._first)


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


class OutageWatch:
    """Watches the answers to all calls to one model. Belongs to one event loop.

    Args:
        model: For messages.
        options: The waits and the patience.
        probe: Makes the small call once; raises what it failed with.
    """

    def __init__(self, model: str, options: LMOptions, probe: Callable[[], Awaitable[None]]) -> None:
        self._model, self._options, self._probe = model, options, probe
        self.answers = 0
        """Answers so far, to any call; a refusal of what was asked is one."""
        self._probing: asyncio.Task[bool] | None = None

    async def wait(self) -> None:
        """Wait while a probe is being made.

        Raises:
            ProviderDownError: The provider is down.
        """
        if self._probing is not None:
            await asyncio.shield(self._probing)

    async def was_down(self) -> bool:
        """Whether the provider was down and answers again; False: it answers at once, and was not down.

        Raises:
            ProviderDownError: It stays down.
        """
        if self._probing is None:
            self._probing = asyncio.create_task(self._until_answered())
            self._probing.add_done_callback(self._ended)
        return await asyncio.shield(self._probing)

    def _ended(self, probing: asyncio.Task[bool]) -> None:
        self._probing = None
        if not probing.cancelled():
            # Possibly nothing awaits it any more; without this asyncio would print its error.
            probing.exception()

    async def _until_answered(self) -> bool:
        start, wait = time.monotonic(), self._options.first_wait
        was_down = False
        while True:
            try:
                await self._probe()
            except lm15.LM15Error as error:
                if not retryable(error):
                    # The provider answers, if only to refuse.
                    return was_down
                elapsed = time.monotonic() - start
                # Where nothing has ever been answered, nobody waits for it to come back, but if it asks for time.
                patience = self._options.patience if self.answers or error.status in OVERLOADED else 0.0
                if elapsed + wait > patience:
                    raise self._down(error, elapsed) from error
                if not was_down:
                    why = error.message[:200]
                    _LOG.warning("%s does not respond (%s); calls are paused until it does", self._model, why)
            else:
                if was_down:
                    _LOG.warning("%s responds again after %.0f s", self._model, time.monotonic() - start)
                return was_down
            was_down = True
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LONGEST_PROBE_WAIT)

    def _down(self, error: lm15.LM15Error, seconds: float) -> ProviderDownError:
        absent = error.provider_code == NOT_LISTENING and not self.answers
        last = lm_error(error, self._model).message[:500]
        return ProviderDownError(
            f"no call was answered for {seconds:.0f} s; the last failure: {last}",
            model=self._model,
            status=error.status,
            provider_code=NOT_LISTENING if absent else None,
        )
