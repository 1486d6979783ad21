"""What the actors and the driver of a run tell each other, and who has which share of the budget."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from debate_judge.programs.lm.options import BudgetCaps
from debate_judge.runs.distributed.job import ActorNews
from debate_judge.runs.distributed.out_folder import OutFolder

_ALIVE = 10.0
"""Seconds of silence after which an actor is taken for dead."""


@dataclass(frozen=True)
class RunStatus:
    """What the driver learns from the service."""

    news: Mapping[str, ActorNews]
    """Actor -> its latest."""
    idle: bool
    """Whether all actors that are alive have stopped."""


class RunService:
    """One for all actors of a run.

    Args:
        out: Where it writes down how many shares it has given, for its own restart.
        run: A name that no other run ever has.
        shares: The budget of each actor; empty if the run has no budget.

    Raises:
        InputError: The folder of the results is not there where it has been started.
    """

    def __init__(self, out: OutFolder, run: str, shares: Sequence[BudgetCaps] = ()) -> None:
        # Elsewhere it would not know which shares it has given before a restart.
        out.require_shared()
        self._out, self._state, self._shares = out, f"service-{run}", shares
        state = out.read_state(self._state)
        # A first start has heard all who speak; after another one, those that live have yet to speak again.
        self._complete_at = -math.inf if state is None else time.monotonic() + _ALIVE
        self._given = 0 if state is None else int(state["shares"])
        if state is None:
            out.write_state(self._state, {"shares": 0})
        self._news: dict[str, ActorNews] = {}
        self._heard: dict[str, float] = {}
        self._stopping = False
        self._begun: Counter[str] = Counter()

    def share(self) -> BudgetCaps | None:
        """A share of the budget that no process has had, or None if all are given.

        An actor that was killed may have spent all of its share, so the process that replaces it does not get it again.
        """
        if self._given == len(self._shares):
            return None
        # Written down before it is used: a restart must not give it twice.
        self._given += 1
        self._out.write_state(self._state, {"shares": self._given})
        return self._shares[self._given - 1]

    def begin(self, part: str) -> int:
        """Count that a part is begun; returns how often it was, as far as this start of the service knows."""
        self._begun[part] += 1
        return self._begun[part]

    def tell(self, news: ActorNews) -> bool:
        """Take in news; returns whether the run is to stop."""
        self._news[news.actor] = news
        self._heard[news.actor] = time.monotonic()
        return self._stopping

    def status(self, stop: bool = False) -> RunStatus:
        """What is known of all actors.

        Args:
            stop: Whether they are to stop, from now on.
        """
        self._stopping = self._stopping or stop
        now = time.monotonic()
        silent = now - _ALIVE
        idle = now >= self._complete_at and all(
            one.closed or self._heard[name] < silent for name, one in self._news.items()
        )
        # What a dead actor had begun is begun again by another.
        news = {name: one if self._heard[name] >= silent else replace(one, items=0) for name, one in self._news.items()}
        return RunStatus(news, idle)
