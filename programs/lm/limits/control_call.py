"""A call that any model can answer, for when it is in doubt whether failing calls or the provider are to blame."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import dspy

from debate_judge.programs.lm.errors import BudgetSpentError
from debate_judge.programs.lm.limits.attempts import CallAttempts
from debate_judge.programs.lm.limits.circuit_breaker import CircuitBreaker

SIZE = 100
"""Bytes of a control call, with room to spare."""


class ControlCall:
    """Asks whether the provider is down, once for all calls that are in doubt.

    Args:
        send: Makes the call once and takes its answer in; None where there is no such call.
        breaker: Told when it fails.
    """

    def __init__(self, send: Callable[[], Awaitable[None]] | None, breaker: CircuitBreaker) -> None:
        self._send = send
        self._breaker = breaker
        self._question: asyncio.Task[bool] | None = None

    async def is_down(self, attempts: CallAttempts) -> bool:
        """Whether it is the provider's fault that a call has failed for the last time.

        The breaker alone cannot tell at the end of a run, when all calls that are left may be such that no provider
        could answer them, nor when there are so few calls that an outage has not met enough of them.
        """
        if attempts.others_were_answered and not self._breaker.doubtful:
            return False
        question = self.ask()
        return self._breaker.doubtful if question is None else await asyncio.shield(question)

    def ask(self) -> asyncio.Task[bool] | None:
        """Start the control call unless it is running; None if it could not tell more than is known."""
        if self._send is None or self._breaker.unreachable:
            return None
        if self._question is None or self._question.done():
            self._question = asyncio.create_task(self._fails(self._send))
        return self._question

    async def _fails(self, send: Callable[[], Awaitable[None]]) -> bool:
        try:
            await send()
        except BudgetSpentError:
            # The calls in doubt find that out when they are made again.
            return True
        except dspy.LMError as error:
            if dspy.is_retryable_lm_error(error) or error.status is None:
                self._breaker.confirm()
                return True
        return False
