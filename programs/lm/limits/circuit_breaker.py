"""Tells an outage of the provider from calls that fail by themselves, and how to probe for its end."""

from __future__ import annotations

import logging
import time

import dspy

from debate_judge.programs.lm.errors import NOT_LISTENING, UNREACHABLE, ProviderDownError
from debate_judge.programs.lm.options import LMOptions

_LOG = logging.getLogger(__name__)

_CALLERS = 3
"""Calls that must have failed in a row before it can be the provider: one or two may be to blame themselves."""
_QUIET = 1.0
"""Seconds that the failures in a row must span at least, and two first waits: what fails but once has come back by
then, so that a hiccup met by all calls together is no outage."""
_LONGEST_PROBE = 10.0
_START = 20.0
"""Seconds of patience with an address that never answered: the server is not running, or the address is wrong."""
_START_HERE = 0.4
"""The same for a port of this machine that refuses: less than a first wait, so that the second attempt is the last."""


class CircuitBreaker:
    """Watches the failures of all calls.

    A streak is the failures since the last answer to any call. Rate-limit refusals (429) are part of it, because no
    call makes progress while they last, but they do not open the breaker: the limiter deals with them.
    """

    def __init__(self, model: str, options: LMOptions) -> None:
        self._model = model
        self._options = options
        self.open = False
        """Whether calls are held back."""
        self.answers = 0
        """Answers so far, to any call."""
        self.outages = 0
        """Streaks that were certainly the provider's fault."""
        self._present = False
        """Whether the provider's address has ever answered, if only with an error."""
        self._not_listening = False
        """Whether a port of this machine has refused a connection."""
        self._reset()

    def _reset(self) -> None:
        self._since: float | None = None
        self._failures = 0
        self._callers: set[int] = set()
        self.unreachable = False
        """Whether a connection could not be made during this streak."""
        self.confirmed = False
        """Whether a control call, for which no item can be to blame, has failed during this streak."""
        self._interval = self._options.probe
        self._held_at = 0.0

    @property
    def doubtful(self) -> bool:
        """Whether this streak says more about the provider than about the calls in it."""
        return self.unreachable or self.confirmed or len(self._callers) >= _CALLERS

    @property
    def suspicious(self) -> bool:
        """Whether calls should slow down: the streak is long as well."""
        return self.doubtful and self._failures >= self._options.failures

    def confirm(self) -> None:
        """Take in that the control call has failed as well."""
        if self._since is not None and not self.confirmed:
            self.confirmed = True
            self.outages += 1

    def answered(self) -> bool:
        """Take in an answer to any call; returns whether it ended an outage."""
        self.answers += 1
        if self._since is None:
            return False
        was_open, self.open = self.open, False
        if was_open:
            _LOG.warning("%s answers again after %.0f s", self._model, time.monotonic() - self._since)
        self._reset()
        return was_open

    def failed(self, error: dspy.LMError, caller: int, sent: float) -> float | None:
        """Take in a failure after which another attempt may succeed.

        Args:
            error: The failure.
            caller: Which call met it.
            sent: When the attempt was made, on the clock of `time.monotonic`.

        Returns:
            Seconds to hold all calls back from now on, or None for no change.

        Raises:
            ProviderDownError: The streak has lasted longer than `options.patience`.
        """
        now = time.monotonic()
        if self._since is None:
            self._since = now
        if len(self._callers) < _CALLERS:
            self._callers.add(caller)
        limited = isinstance(error, dspy.LMRateLimitError)
        self._failures += not limited
        self._not_listening |= error.provider_code == NOT_LISTENING
        self.unreachable |= error.provider_code in (UNREACHABLE, NOT_LISTENING)
        self._present |= error.status is not None
        silent = now - self._since
        if self.doubtful and silent >= self._patience():
            raise self._down(error, silent)
        if not self.open:
            if limited or not self.suspicious or silent < max(_QUIET, 2 * self._options.first_wait):
                return None
            self.open = True
            _LOG.warning(
                "%s does not answer (%d failures in a row, the last: %s); calls are held back, one is sent now and "
                "then to see",
                self._model,
                self._failures,
                _brief(error),
            )
        elif sent < self._held_at:
            # It was in flight when calls were held back, so it is no probe and says nothing new.
            return None
        else:
            self._interval = min(2 * self._interval, max(_LONGEST_PROBE, self._options.probe))
        self._held_at = now
        return self._interval

    def _patience(self) -> float:
        patience = self._options.patience
        if not self.unreachable or self.answers or self._present:
            return patience
        return min(patience, _START_HERE if self._not_listening else _START)

    def _down(self, error: dspy.LMError, silent: float) -> ProviderDownError:
        return ProviderDownError(
            f"no call was answered for {silent:.0f} s; the last failure: {_brief(error)}",
            model=self._model,
            status=error.status,
            provider_code=NOT_LISTENING if self._not_listening and not self._present else None,
        )


def _brief(error: dspy.LMError) -> str:
    text = str(error).partition("\n")[0]
    return text if len(text) <= 200 else text[:199] + "…"
