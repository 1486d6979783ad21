"""Handling of failed calls: wait and retry, fail the item, or end the run.

A refusal that may concern all calls or one text alone (no credit, access forbidden) is confirmed by the probe below.

There is one rule for outages. If any call was answered between the last two failures of a call, its failures are its
own. If none was, one minimal call (the probe) that any model can answer is sent, and no other call meanwhile. If the
probe is answered, the calls failed by themselves. If it fails, the provider is down, and the probe is repeated for
`LMOptions.max_outage` seconds. Once it is answered, the failed calls start over; otherwise the run ends, to be resumed
without paying for finished calls again.
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

from debate_judge.programs.lm.errors import (
    MISMATCHED,
    NOT_LISTENING,
    ProviderDownError,
    affects_all_calls,
    is_retryable,
    lm_error,
)
from debate_judge.programs.lm.options import LMOptions

_LOG = logging.getLogger(__name__)

_MIN_RETRY_AFTER = 0.1
"""Seconds; a shorter Retry-After is obeyed after the first failure only; later the usual wait applies."""
_MAX_DOUBLINGS = 30
_MAX_DOUBLINGS_429 = 3
"""After a 429, where the limiter slows all calls down anyway."""
_MAX_PROBE_WAIT = 10.0

OVERLOAD_STATUSES = (429, 503, 529)
"""HTTP statuses of a server that wants fewer requests."""


class RetryWait:
    """Seconds until the next attempt: Retry-After, else exponential backoff with jitter. Also a wait for `tenacity`.

    Args:
        first: Seconds after the first failure, doubled for each further one, plus random jitter of up to `first`.
        max_wait: Maximum of that, and of Retry-After.
    """

    def __init__(self, first: float, max_wait: float) -> None:
        self._first, self._max_wait = first, max_wait

    def __call__(self, state: RetryCallState) -> float:
        return self.seconds(state.outcome.exception() if state.outcome else None, state.attempt_number)

    def seconds(self, error: BaseException | None, failures: int) -> float:
        """Seconds to wait after `failures` failures, the latest of which is `error`."""
        if getattr(error, "provider_code", None) == MISMATCHED:
            # It says nothing about the provider.
            return 0.0
        requested = getattr(error, "retry_after", None)
        if requested is not None and (requested >= _MIN_RETRY_AFTER or failures == 1):
            requested = min(requested, self._max_wait)
            # Never less than Retry-After, which would only be refused again.
            return float(requested + random.uniform(0.0, min(self._first, 0.1 * requested + 0.1)))
        max_doublings = _MAX_DOUBLINGS_429 if getattr(error, "status", None) == 429 else _MAX_DOUBLINGS
        wait: float = min(self._max_wait, self._first * 2 ** min(failures - 1, max_doublings))
        return wait + random.uniform(0.0, self._first)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by Retry-After, or by OpenAI's header in milliseconds; None if neither can be read.

    Args:
        headers: With names in lower case, or a mapping that ignores case.
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
    """Tells outages of a model's provider from calls that fail by themselves. Belongs to one event loop.

    Args:
        model: For messages.
        options: Waits and `max_outage`.
        probe: Makes the minimal call once; raises its error.
    """

    def __init__(self, model: str, options: LMOptions, probe: Callable[[], Awaitable[None]]) -> None:
        self._model, self._options, self._probe = model, options, probe
        self.responses = 0
        """Number of responses so far to any call, error statuses included."""
        self.answered = False
        """Whether any call got a reply, so that the key and the model are known to work."""
        self._probing: asyncio.Task[bool] | None = None

    async def wait_for_probe(self) -> None:
        """Wait while a probe is running.

        Raises:
            ProviderDownError: The provider is down.
        """
        if self._probing is not None:
            await asyncio.shield(self._probing)

    async def was_down(self) -> bool:
        """Probe the provider: True if it was down and answers again, False if it was not down.

        Raises:
            ProviderDownError: It stays down.
            lm15.LM15Error: It refuses the probe for a reason that holds for all calls, such as a key without credit.
        """
        if self._probing is None:
            self._probing = asyncio.create_task(self._probe_until_answered())
            self._probing.add_done_callback(self._on_probe_done)
        return await asyncio.shield(self._probing)

    def _on_probe_done(self, probing: asyncio.Task[bool]) -> None:
        self._probing = None
        if not probing.cancelled():
            # Otherwise asyncio would log the exception of a task that nothing awaits any more.
            probing.exception()

    async def _probe_until_answered(self) -> bool:
        start, wait = time.monotonic(), self._options.first_wait
        was_down = False
        while True:
            try:
                await self._probe()
            except lm15.LM15Error as error:
                if affects_all_calls(error):
                    raise
                if not is_retryable(error):
                    # The provider answers, if only by an error.
                    return was_down
                elapsed = time.monotonic() - start
                # A provider that has never answered is not waited for, unless it says that it is overloaded.
                max_outage = self._options.max_outage if self.responses or error.status in OVERLOAD_STATUSES else 0.0
                if elapsed + wait > max_outage:
                    raise self._provider_down_error(error, elapsed) from error
                if not was_down:
                    reason = error.message[:200]
                    _LOG.warning("%s does not respond (%s); calls are paused until it does", self._model, reason)
            else:
                if was_down:
                    _LOG.warning("%s responds again after %.0f s", self._model, time.monotonic() - start)
                return was_down
            was_down = True
            await asyncio.sleep(wait)
            wait = min(2 * wait, _MAX_PROBE_WAIT)

    def _provider_down_error(self, error: lm15.LM15Error, seconds: float) -> ProviderDownError:
        not_listening = error.provider_code == NOT_LISTENING and not self.responses
        last = lm_error(error, self._model).message[:500]
        return ProviderDownError(
            f"no call was answered for {seconds:.0f} s; the last failure: {last}",
            model=self._model,
            status=error.status,
            provider_code=NOT_LISTENING if not_listening else None,
        )
