"""The LM of all roles: a `dspy.LM` whose engine stores replies and keeps within limits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import CancelledError
from typing import Any

import dspy
from dspy.lm15 import Request, Response

from debate_judge.data.errors import InputError
from debate_judge.programs.lm import loop
from debate_judge.programs.lm.engine import RecordedEngine, Transport
from debate_judge.programs.lm.http.address import destination
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.reply import InMemoryStore, LocalTransport, Reply, ReplyStore
from debate_judge.programs.lm.usage import Meter


class JudgeLM(dspy.LM):
    """A `dspy.LM` with a store of replies, limits and usage accounts. Make one with `make_lm`.

    A call with a tag (`programs.lm.usage.CallTag`) is made and stored once; without one, equal requests are new
    samples.

    Args:
        model: Model string as DSPy knows it.
        transport: Makes one attempt at a call, asynchronously.
        endpoint: Address of the server, so that two servers with one model name never share replies.
        store: Stores replies; in memory by default.
        concurrency: Maximum number of calls in flight.
        options: Limits, retries, budget.
        price: Of the model, if it is known.
    """

    def __init__(
        self,
        model: str,
        *,
        transport: Transport,
        endpoint: str = "",
        store: ReplyStore | None = None,
        concurrency: int = 16,
        options: LMOptions | None = None,
        price: Price | None = None,
        **kwargs: Any,
    ) -> None:
        logging.getLogger("dspy.clients.lm").addFilter(_keep_warning)
        self.recorded_engine = RecordedEngine(
            model, endpoint, transport, InMemoryStore() if store is None else store,
            concurrency=concurrency, options=options or LMOptions(), price=price,
            warmup=not isinstance(transport, LocalTransport),
        )  # fmt: skip
        self.endpoint, self.price, self.concurrency = endpoint, price, concurrency
        self._second_lms: list[JudgeLM] = []
        # DSPy's own cache and retries are off: the engine has both.
        super().__init__(
            model,
            engine=_SynchronousEngine(self.recorded_engine),
            async_engine=self.recorded_engine,
            num_retries=0,
            cache=False,
            **kwargs,
        )
        self.recorded_engine.probe_settings = {name: value for name, value in self.kwargs.items() if value is not None}

    def __deepcopy__(self, memo: dict[int, Any]) -> JudgeLM:
        # Optimizers deep-copy programs; connections and counters must not be copied.
        return self

    @property
    def store(self) -> ReplyStore:
        """The store of its replies."""
        return self.recorded_engine.store

    @property
    def meter(self) -> Meter:
        """Counts its calls and tokens, together with those of the second LM of its run."""
        return self.recorded_engine.meter

    @property
    def destination(self) -> str | None:
        """A message that says where the calls go; None if they are answered inside the process."""
        is_local = isinstance(self.recorded_engine.transport, LocalTransport)
        return None if is_local else destination(self.model, self.endpoint)

    def share_run(self, first: JudgeLM, role: str) -> JudgeLM:
        """Before the first call: make this the second LM of the run of `first`, with the same accounts and budget.

        Args:
            first: The LM of the run.
            role: Role of the calls of DSPy's own modules to this LM, in the usage accounts.
        """
        self.recorded_engine.share_run(first.recorded_engine, role, self.price)
        self.meter.prices[role] = self.price
        first._second_lms.append(self)
        return self

    def share_budget(self, first: JudgeLM) -> None:
        """Before the first call: spend from the budget of `first`, so that the cap is one for both."""
        self.recorded_engine.share_budget(first.recorded_engine, self.price)

    async def discard(self, keys: Iterable[str]) -> None:
        """Forget replies that could not be used, so that the next run asks again: the server may have been mended."""
        for key in keys:
            await self.store.discard(key)

    async def get_or_create(self, key: str, role: str, create: Callable[[], Awaitable[Reply]]) -> Reply:
        """The reply stored under `key`, else that of `create`, which one caller of all processes executes."""
        return await self.recorded_engine.get_or_create(key, role, create)

    async def acall(self, *arguments: Any, **keywords: Any) -> Any:
        try:
            return await super().acall(*arguments, **keywords)
        except dspy.LMUnexpectedError as error:
            raise _unwrapped(error) from None

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        try:
            return super().__call__(*arguments, **keywords)
        except dspy.LMUnexpectedError as error:
            raise _unwrapped(error) from None

    @property
    def calls_in_flight(self) -> int:
        """Number of requests without an answer, those of the second LM included."""
        return sum(lm.recorded_engine.calls_in_flight for lm in (self, *self._second_lms))

    async def aclose(self, *, for_good: bool = False) -> None:
        """End all calls and close the connections, those of the second LM included. The replies to requests that were
        sent are waited for: they are paid for.

        Args:
            for_good: Whether later calls are refused: threads of DSPy's optimizers outlive an interrupt.
        """
        await asyncio.gather(*(lm.recorded_engine.aclose(for_good=for_good) for lm in (self, *self._second_lms)))


class _SynchronousEngine:
    """DSPy's synchronous engine of a `JudgeLM`: blocks the calling thread until the asynchronous one has replied."""

    def __init__(self, engine: RecordedEngine) -> None:
        self._engine = engine

    def complete(self, request: Request) -> Response:
        try:
            return loop.run(self._engine.complete(request))
        except CancelledError:
            raise dspy.LMUnexpectedError("the run ended before the call was answered") from None


def _unwrapped(error: dspy.LMUnexpectedError) -> Exception:
    """The `InputError` behind an error, e.g. of a full disk, which DSPy wraps as an unexpected one; else the error."""
    return error.__cause__ if isinstance(error.__cause__, InputError) else error


def _keep_warning(record: logging.LogRecord) -> bool:
    """Whether to show a warning of DSPy's: not the advice to raise `max_tokens`, which the engine does by itself."""
    return "response was truncated" not in record.getMessage()
