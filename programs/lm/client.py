"""The LM that all roles ask: a `dspy.LM` whose engine records replies and keeps within limits."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

import dspy
from dspy.lm15 import Request, Response

from debate_judge.data.errors import InputError
from debate_judge.programs.lm import loop
from debate_judge.programs.lm.engine import RecordedEngine, Transport
from debate_judge.programs.lm.http.address import destination
from debate_judge.programs.lm.local_engine import LocalEngine
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.reply import InMemoryStore, Reply, ReplyStore
from debate_judge.programs.lm.usage import Meter

if TYPE_CHECKING:
    from debate_judge.programs.lm.batch.engine import BatchEngine


class JudgeLM(dspy.LM):
    """A `dspy.LM` with a store of replies, limits and accounts. Make one with `make_lm`.

    A call with a tag (`programs.lm.usage.CallTag`) is made and stored once; without one, equal requests are new
    samples.

    Args:
        model: Model string as DSPy knows it.
        engine: Makes one attempt at a call, asynchronously.
        endpoint: Where the calls go, so that two servers with one model name never share replies.
        store: Replies already paid for; in memory by default.
        concurrency: Most calls in flight.
        options: Pace, retries, budget.
        price: Of the model, where it is known.
    """

    def __init__(
        self,
        model: str,
        *,
        engine: Transport,
        endpoint: str = "",
        store: ReplyStore | None = None,
        concurrency: int = 16,
        options: LMOptions | None = None,
        price: Price | None = None,
        **kwargs: Any,
    ) -> None:
        logging.getLogger("dspy.clients.lm").addFilter(_is_needed)
        self.recorded = RecordedEngine(
            model, endpoint, engine, InMemoryStore() if store is None else store,
            concurrency=concurrency, options=options or LMOptions(), price=price,
            warmup=not isinstance(engine, LocalEngine),
        )  # fmt: skip
        self.endpoint, self.price, self.concurrency = endpoint, price, concurrency
        self._seconds: list[JudgeLM] = []
        # DSPy's own cache and retries stay off: the engine does their work.
        super().__init__(
            model,
            engine=_SynchronousEngine(self.recorded),
            async_engine=self.recorded,
            num_retries=0,
            cache=False,
            **kwargs,
        )
        self.recorded.defaults = {name: value for name, value in self.kwargs.items() if value is not None}

    def __deepcopy__(self, memo: dict[int, Any]) -> JudgeLM:
        # Optimizers copy programs together with what they hold; connections and counters are not copied.
        return self

    @property
    def store(self) -> ReplyStore:
        """Where its replies are kept."""
        return self.recorded.store

    @property
    def meter(self) -> Meter:
        """Counts its calls and tokens, with those of the other LM of its run."""
        return self.recorded.meter

    @property
    def batches(self) -> BatchEngine | None:
        """Where its calls go in batch jobs, if they do."""
        return self.recorded.batches

    @property
    def destination(self) -> str | None:
        """Where the calls go, for people; None where nothing leaves the process."""
        return None if isinstance(self.recorded.transport, LocalEngine) else destination(self.model, self.endpoint)

    def sharing(self, first: JudgeLM, role: str) -> JudgeLM:
        """Make this LM, before its first call, the second one of the run of `first`: they share counts and budget.

        Args:
            first: The LM of the run.
            role: What the accounts call the calls of DSPy's own modules to this one.
        """
        self.recorded.share(first.recorded, role, self.price)
        self.meter.prices[role] = self.price
        first._seconds.append(self)
        return self

    def without_batches(self) -> JudgeLM:
        """The same LM, with the same store, counts and limits, whose calls go out at once and in no batch job."""
        return self._variant(self.recorded.variant(batches=None))

    def another_sample(self, number: int, temperature: float) -> JudgeLM:
        """The same LM, limiter, budget and store, whose calls are not those of any other number.

        The number goes into the identity of the calls and not into the calls; an LM without a temperature (reasoning
        models, the offline LM) is given none.
        """
        # Not the tag's sample: a judge that samples by itself uses it, and its samples would be the same each time.
        engine = self.recorded.variant(endpoint=f"{self.recorded.endpoint} repeat {number}")
        return self._variant(engine, **({} if self.kwargs.get("temperature") is None else {"temperature": temperature}))

    def _variant(self, engine: RecordedEngine, **settings: Any) -> JudgeLM:
        variant: JudgeLM = self.copy(engine=_SynchronousEngine(engine), async_engine=engine, **settings)
        variant.recorded = engine
        return variant

    async def once(self, key: str, role: str, find: Callable[[], Awaitable[Reply]]) -> Reply:
        """What is stored under `key`, or what `find` returns: called once for all that ask, in other processes too."""
        return await self.recorded.once(key, role, find)

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

    async def aclose(self, *, drain: bool = True) -> None:
        """End all calls and close the connections, those of the second LM included.

        Args:
            drain: Whether to wait for the answers that are on their way: they are paid for.
        """
        for lm in (self, *self._seconds):
            await lm.recorded.aclose(drain=drain)


class _SynchronousEngine:
    """DSPy's synchronous engine of a `JudgeLM`: the same calls, for threads that wait for them."""

    def __init__(self, engine: RecordedEngine) -> None:
        self._engine = engine

    def complete(self, request: Request) -> Response:
        try:
            return loop.run(self._engine.complete(request))
        except CancelledError:
            raise dspy.LMUnexpectedError("the run ended before the call was answered") from None


def _unwrapped(error: dspy.LMUnexpectedError) -> Exception:
    """What the user can correct, e.g. a full disk, which DSPy takes for an error of the engine; else the error."""
    return error.__cause__ if isinstance(error.__cause__, InputError) else error


def _is_needed(record: logging.LogRecord) -> bool:
    """Whether to show a warning of DSPy's; one tells the user to raise a limit that the engine raises by itself."""
    return "response was truncated" not in record.getMessage()
