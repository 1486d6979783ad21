"""OpenAI's Batch API: a file goes up, a job is made, looked at and found again, and its answers come down.

The client's own retries are off. Making a job is not safe to repeat blindly (one that was made although its answer
got lost would be paid twice), so between two attempts the job is looked for by its token; and an outage must be
told from a refusal in the same classes as everywhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import dspy
from dspy import lm15

from debate_judge.programs.lm.address import without_credentials
from debate_judge.programs.lm.batch.jobs import BatchJob
from debate_judge.programs.lm.errors import ProviderDownError, lm_error
from debate_judge.programs.lm.http.chat_completions import refused
from debate_judge.programs.lm.limits.retries import Backoff, Patience, retry, retry_after
from debate_judge.programs.lm.options import LMOptions

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types import Batch

ENDPOINT: Final = "/v1/chat/completions"
"""Which of the provider's endpoints answers the lines of a file."""

_LOG = logging.getLogger(__name__)
_TOKEN = "debate-judge-job"
_DAY = 86_400.0
_STALLED = 60.0
"""Seconds without a byte after which a question about jobs is given up; files may take the client's ten minutes."""
_UNSEEN = 5
"""Times that a file which has just gone up may be unknown: the service does not see it everywhere at once."""

T = TypeVar("T")


class BatchService:
    """Jobs of one account. Its connections belong to one event loop.

    Every method waits out refusals for being too fast and outages, and raises `dspy.LMError` for the rest:
    `ProviderDownError` when nothing was answered for `options.batch_pace.patience`.

    Args:
        base_url: Address of the service, up to and including its version.
        key: Sent as a bearer token; None for a server that wants none.
        model: For messages.
        options: Waits and patience.
    """

    def __init__(self, base_url: str, key: str | None, model: str, options: LMOptions) -> None:
        self._base_url, self._key, self._model, self._options = base_url, key, model, options
        self.address = without_credentials(base_url).rstrip("/")
        """To know its jobs by; nothing secret."""
        self._made: AsyncOpenAI | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def _client(self) -> AsyncOpenAI:
        loop = asyncio.get_running_loop()
        if self._made is None or self._loop is not loop:
            from openai import AsyncOpenAI

            self._made = AsyncOpenAI(api_key=self._key or "unused", base_url=self._base_url, max_retries=0)
            self._loop = loop
        return self._made

    async def aclose(self) -> None:
        client, self._made = self._made, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.close()

    async def upload(self, lines: bytes, name: str) -> str:
        """Send a file of requests, one JSON object a line; returns its id."""

        async def once() -> str:
            file = await self._client.files.create(file=(name, lines, "application/jsonl"), purpose="batch")
            return _text(getattr(file, "id", None))

        try:
            return await self._patiently(once)
        except dspy.LMUnsupportedModelError as error:
            raise dspy.LMConfigurationError(
                f"{self.address} has no batch service; leave --batch away ({error})", model=self._model
            ) from error

    async def create(self, file: str, job: BatchJob) -> Batch:
        """Make the job; if an earlier attempt made it after all, return that one."""
        attempts = 0

        async def once() -> Batch:
            nonlocal attempts
            attempts += 1
            if attempts > 1 and (found := await self._search(job)) is not None:
                return found
            try:
                made = await self._client.batches.create(
                    input_file_id=file,
                    endpoint=ENDPOINT,
                    completion_window="24h",
                    metadata={_TOKEN: job.token, "role": job.role[:512], "round": str(job.round)},
                    timeout=_STALLED,
                )
            except Exception as error:
                if attempts <= _UNSEEN and getattr(error, "status_code", None) in (400, 404) and _unseen(str(error)):
                    raise lm15.ServerError(f"the file is not there yet: {error}") from error
                raise
            return _batch(made)

        return await self._patiently(once)

    async def find(self, job: BatchJob) -> Batch | None:
        """The job that bears this token, if it was ever made."""
        return await self._patiently(lambda: self._search(job))

    async def _search(self, job: BatchJob) -> Batch | None:
        async for batch in self._client.batches.list(limit=100, timeout=_STALLED):
            if (_batch(batch).metadata or {}).get(_TOKEN) == job.token:
                return batch
            if batch.created_at < job.made - _DAY:
                # They come newest first; no two clocks differ by a day.
                return None
        return None

    async def look(self, identity: str) -> Batch:
        """The job as it stands now."""

        async def once() -> Batch:
            return _batch(await self._client.batches.retrieve(identity, timeout=_STALLED))

        return await self._patiently(once)

    async def download(self, file: str) -> bytes | None:
        """A file of answers; None where it is gone, as files are after some weeks."""

        async def once() -> bytes | None:
            try:
                content: bytes = (await self._client.files.content(file)).content
            except Exception as error:
                if getattr(error, "status_code", None) in (404, 410):
                    return None
                raise
            if content.strip() and not content.lstrip().startswith(b"{"):
                # The page of some gateway; taken for answers, it would have them all asked again.
                raise lm15.ServerError("the batch service's answer is not a file of answers")
            return content

        return await self._patiently(once)

    def error(self, raised: Exception) -> dspy.LMError:
        """What the client raised, in the classes that everything else here knows; without the key."""
        from openai import APIConnectionError, APIStatusError

        try:
            if isinstance(raised, APIStatusError):
                response = raised.response
                refused(response.status_code, response.text[:2000], retry_after(response.headers))
                # A file was filtered like a text; nothing here can mend that.
                raise lm15.InvalidRequestError(f"HTTP {response.status_code}: {response.text[:500]}")
            if isinstance(raised, (APIConnectionError, TimeoutError)):
                cause = raised.__cause__ or raised
                raise lm15.TransportError(f"cannot reach the batch service: {cause!s}")
            if isinstance(raised, ValueError) and not isinstance(raised, lm15.LM15Error):
                raise lm15.ServerError(f"the batch service's answer cannot be read: {raised!s}")
        except lm15.LM15Error as error:
            return lm_error(error, self._model, self._key)
        return raised if isinstance(raised, dspy.LMError) else lm_error(raised, self._model, self._key)

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat `attempt` while the service is too busy or down, up to the limit of `options.batch_pace.patience`."""
        options = self._options
        patience = Patience(Backoff(options.first_wait, options.longest_wait), seconds=options.batch_pace.patience)

        async def wait_after(raised: Exception) -> float:
            error = self.error(raised)
            if not dspy.is_retryable_lm_error(error):
                raise error from raised
            wait = patience.wait(error.retry_after)
            if wait is None:
                raise ProviderDownError(
                    f"the batch service has not answered for {patience.elapsed:.0f} s; the last failure: {error}",
                    model=self._model,
                ) from raised
            if patience.failures == 1:
                _LOG.warning("the batch service does not answer as it should, trying again: %s", str(error)[:200])
            return wait

        return await retry(attempt, wait_after)


def _batch(answer: Any) -> Batch:
    """The answer, if it is a job: the client builds its objects out of whatever has come."""
    with contextlib.suppress(AttributeError):
        if (
            isinstance(answer.id, str)
            and isinstance(answer.status, str)
            and isinstance(answer.created_at, (int, float))
        ):
            batch: Batch = answer
            return batch
    raise lm15.ServerError("the batch service's answer is not a job")


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise lm15.ServerError("the batch service's answer is not a file")
    return value


def _unseen(message: str) -> bool:
    lowered = message.lower()
    return "file" in lowered and any(words in lowered for words in ("cannot find", "no such", "not found"))
