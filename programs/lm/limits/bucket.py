"""A token bucket: how fast requests, or the tokens of their texts, may follow one another."""

from __future__ import annotations

import math
import time

_INSTANT = 1e-6
"""Seconds below which a wait counts as none."""


class Bucket:
    """At most `per_minute` units in any minute.

    Args:
        per_minute: The limit.
        burst: Units that may go at once after a pause.
    """

    def __init__(self, per_minute: float, burst: float) -> None:
        self._level, self._at = math.inf, time.monotonic()
        self.change(per_minute, burst)

    def change(self, per_minute: float, burst: float) -> None:
        """Hold another limit from now on, with what is left of the one before."""
        # A bucket that holds b and fills at r lets through b - 1 + 60 r whole units a minute at most.
        self._burst = min(max(1.0, burst), per_minute) if per_minute >= 1 else 1.0
        self._rate = (per_minute - self._burst + 1.0 if per_minute >= 1 else per_minute) / 60.0
        self._level = min(self._level, self._burst)

    @property
    def level(self) -> float:
        """What may be taken at once, as of the last `wait`."""
        return self._level

    def wait(self, now: float, amount: float) -> float:
        """Seconds until `amount` may be taken; a call larger than the bucket goes when it is full."""
        if now > self._at:
            self._level = min(self._burst, self._level + (now - self._at) * self._rate)
            self._at = now
        seconds = (min(amount, self._burst) - self._level) / self._rate
        # A wait that the clock can hardly measure might end before any time has passed, again and again.
        return seconds if seconds > _INSTANT else 0.0

    def take(self, amount: float) -> None:
        """Take `amount`, or give back a negative one; the level may fall below zero, then others wait longer."""
        self._level = min(self._burst, self._level - amount)
