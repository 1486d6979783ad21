"""OpenAI's Batch API: upload a file, create a job, look at it, find it again, download its answers.

The client's own retries are off: creating a job is not safe to repeat blindly (a job that was created although the
answer got lost would be paid twice), so before each further attempt the job is searched for by its token. And outages
and refusals are to raise the same classes as everywhere else.
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
"""Attempts for which a file that was just uploaded may be unknown: the service is eventually consistent."""

T = TypeVar("T")


class BatchService:
    """Jobs of one account. Its connections belong to one event loop.

    Every method waits while the service is down or asks to be asked less, and raises `dspy.LMError` for all else:
    `ProviderDownError` after `options.batch_pace.patience` seconds without an answer.

    Args:
        base_url: Address of the service, up to and including its version.
        key: Sent as a bearer token; None for a server that wants none.
        model: For messages.
        options: Waits and patience.
    """

    def __init__(self, base_url: str, key: str | None, model: str, options: LMOptions) -> None:
        self._base_url, self._key, self._model, self._options = base_url, key, model, options
        self.address = without_credentials(base_url).rstrip("/")
        """Identifies its jobs on disk; without credentials."""
        self._made: AsyncOpenAI | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def _client(self) -> AsyncOpenAI:
        loop = asyncio.get_running_loop()
        if self._made is None or self._loop is not loop:
            from openai import AsyncOpenAI, DefaultAsyncHttpxClient

            # A redirect would take the texts along, wherever it leads.
            client = DefaultAsyncHttpxClient(follow_redirects=False)
            key = self._key or "unused"
            self._made = AsyncOpenAI(api_key=key, base_url=self._base_url, max_retries=0, http_client=client)
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
        """Create the job, or return it if an earlier attempt created it although no answer came."""
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
        """The job with this token in its metadata, None if there is none."""
        return await self._patiently(lambda: self._search(job))

    async def _search(self, job: BatchJob) -> Batch | None:
        async for batch in self._client.batches.list(limit=100, timeout=_STALLED):
            if (_batch(batch).metadata or {}).get(_TOKEN) == job.token:
                return batch
            if batch.created_at < job.made - _DAY:
                # They come newest first, so the rest is older still; a day allows for clocks that differ.
                return None
        return None

    async def look(self, identity: str) -> Batch:
        """The job in its present state."""

        async def once() -> Batch:
            return _batch(await self._client.batches.retrieve(identity, timeout=_STALLED))

        return await self._patiently(once)

    async def download(self, file: str) -> bytes | None:
        """A file of answers; None if the provider has deleted it, which it does after some weeks."""

        async def once() -> bytes | None:
            try:
                content: bytes = (await self._client.files.content(file)).content
            except Exception as error:
                if getattr(error, "status_code", None) in (404, 410):
                    return None
                raise
            if content.strip() and not content.lstrip().startswith(b"{"):
                # A gateway's error page. Read as a file without answers, it would have all calls made and paid again.
                raise lm15.ServerError("the batch service's answer is not a file of answers")
            return content

        return await self._patiently(once)

    def error(self, raised: Exception) -> dspy.LMError:
        """Convert what the client raised into DSPy's classes, without the key in the message."""
        from openai import APIConnectionError, APIStatusError

        try:
            if isinstance(raised, APIStatusError):
                response = raised.response
                refused(response.status_code, response.text[:2000], retry_after(response.headers))
                # It returned because a content filter withheld the file, which no other attempt would change.
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
    """The answer, if it is a job: the client builds its objects from any JSON, without validation."""
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
