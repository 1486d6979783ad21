"""A client of OpenAI's Batch API: upload a file, create a job, find it, poll it, download its answers."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import dspy
import httpx
import orjson
from dspy import lm15
from tenacity import AsyncRetrying, before_sleep_log, retry_if_exception, stop_after_delay

from debate_judge.programs.lm.errors import ProviderDownError, lm_error
from debate_judge.programs.lm.http.address import without_credentials
from debate_judge.programs.lm.http.chat_completions import interpret_error, read_reply
from debate_judge.programs.lm.limits.failures import RetryWait, retry_after
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.reply import Reply

if TYPE_CHECKING:
    # Imported where jobs are made: it takes a second.
    import openai
    from openai.types import Batch

ENDPOINT: Final = "/v1/chat/completions"
"""The endpoint that answers the lines of a file."""

_LOG = logging.getLogger(__name__)
_TOKEN_FIELD = "debate-judge-job"
"""Field of a job's metadata with `BatchJob.token`."""
_REQUEST_TIMEOUT, _FILE_TIMEOUT = 60.0, 3600.0
"""Seconds after which an attempt is given up: a request about jobs, and a file."""
MAX_RESPONSE_BYTES, MAX_LINE_BYTES, MAX_FILE_BYTES = 16 * 2**20, 8 * 2**20, 2048 * 2**20
"""Of a response about jobs, of a line in a file of answers, and of a file, which is read line by line."""

T = TypeVar("T")
Outcomes = dict[str, Reply | dspy.LMError]
"""Key of a call -> its reply or error."""
_Line = tuple[str, str, Reply | dspy.LMError]
"""Key of a call, id of its completion, which must be unique, and the reply or error."""


@dataclass(frozen=True, slots=True)
class BatchJob:
    """The record of a batch job, from just before it is created until its replies are in the store."""

    token: str
    """Our id for it, in its metadata at the provider."""
    endpoint: str
    """Address of the service, without credentials."""
    model: str
    role: str
    round: int
    keys: Sequence[str]
    """Keys of its calls, in the order of the file's lines."""
    made: float
    """Time of creation, in seconds since 1970."""
    id: str | None = None
    """The provider's id; None until the provider has answered."""

    def __str__(self) -> str:
        name = self.id or f"{self.token} (not known to exist)"
        return f"batch job {name}: role {self.role}, round {self.round}, {len(self.keys):,} calls"


class BatchService:
    """The jobs of one account. Its connections belong to one event loop.

    Its methods retry while the service is overloaded or down, for `options.batch_timing.max_outage` seconds, and then
    raise `ProviderDownError`; other errors are raised at once. The client's own retries are off: a job whose response
    got lost would be created and paid for twice, so it is searched for before another attempt.

    Args:
        base_url: Address of the service, up to and including its version.
        key: Sent as a bearer token; None for a server that needs none.
        model: For messages.
        options: Waits and limits.
    """

    def __init__(self, base_url: str, key: str | None, model: str, options: LMOptions) -> None:
        self._base_url, self._key, self._model, self._options = base_url, key, model, options
        self.address = without_credentials(base_url).rstrip("/")

    @cached_property
    def _client(self) -> openai.AsyncOpenAI:
        import openai

        # A redirect could send the texts anywhere; a compressed body may unpack to any size.
        http = openai.DefaultAsyncHttpxClient(
            follow_redirects=False, headers={"Accept-Encoding": "identity"}, event_hooks={"response": [_limit_body]}
        )
        return openai.AsyncOpenAI(
            api_key=self._key or "unused", base_url=self._base_url, max_retries=0, http_client=http
        )

    async def aclose(self) -> None:
        if "_client" in vars(self):
            client = self._client
            del self._client
            await client.close()

    async def upload(self, lines: bytes, name: str) -> str:
        """Send a file of requests, one JSON object a line; returns its id."""

        async def send() -> str:
            file = await self._client.files.create(file=(name, lines, "application/jsonl"), purpose="batch")
            return _validated(file, "id").id

        try:
            return await self._with_retries(send, _FILE_TIMEOUT)
        except dspy.LMUnsupportedModelError as error:
            text = f"{self.address} has no batch service; leave out the setting batch ({error})"
            raise dspy.LMConfigurationError(text, model=self._model) from error

    async def create(self, file: str, job: BatchJob) -> Batch:
        """Create the job, or return it if an earlier attempt has created it although the response got lost."""
        attempts = 0

        async def send() -> Batch:
            nonlocal attempts
            attempts += 1
            if attempts > 1 and (batch := await self._search(job)) is not None:
                return batch
            metadata = {_TOKEN_FIELD: job.token, "role": job.role[:512], "round": str(job.round)}
            return _validated(
                await self._client.batches.create(
                    input_file_id=file, endpoint=ENDPOINT, completion_window="24h", metadata=metadata
                )
            )

        return await self._with_retries(send)

    async def find(self, job: BatchJob) -> Batch | None:
        """The job with this token in its metadata, None if there is none."""
        return await self._with_retries(lambda: self._search(job))

    async def _search(self, job: BatchJob) -> Batch | None:
        async for batch in self._client.batches.list(limit=100):
            if (_validated(batch).metadata or {}).get(_TOKEN_FIELD) == job.token:
                return batch
            if batch.created_at < job.made - 86_400.0:
                # Newest first, so all others are older; the day allows for clocks that differ.
                return None
        return None

    async def retrieve(self, batch_id: str) -> Batch | None:
        """The job in its present state; None if the account of this key has no such job."""

        async def send() -> Batch:
            return _validated(await self._client.batches.retrieve(batch_id))

        try:
            return await self._with_retries(send)
        except dspy.LMUnsupportedModelError:
            # The class for 404.
            return None

    async def outcomes(self, batch: Batch) -> Outcomes:
        """Key of a call -> its reply or error, from the files of a job that has ended; unanswered calls are left out.

        Ambiguous answers are errors: two for one call, or one completion for two calls.
        """
        answers: list[_Line] = []
        for file in filter(None, (batch.output_file_id, batch.error_file_id)):
            try:
                answers += await self._with_retries(partial(self._read_file, file), _FILE_TIMEOUT)
            except dspy.LMUnsupportedModelError:
                # The provider deletes files after some weeks.
                _LOG.warning("a file of batch job %s is gone; its calls are made again", batch.id)
        id_counts = Counter(id_ for key, completion, _ in answers for id_ in (key, completion) if id_)
        message = f"batch job {batch.id} has ambiguous answers, which are not used"
        ambiguous = dspy.LMServerError(message, model=self._model)
        return {
            key: ambiguous if id_counts[key] > 1 or id_counts[completion] > 1 else outcome
            for key, completion, outcome in answers
        }

    async def _read_file(self, file: str) -> list[_Line]:
        answers: list[_Line] = []
        async with self._client.files.with_streaming_response.content(file) as response:
            first = True
            async for line in _lines(response.iter_bytes(65_536)):
                if first and not line.lstrip().startswith(b"{"):
                    # A gateway's page; read as a file without answers, it would cause all calls to be paid for again.
                    raise lm15.ServerError("the batch service's answer is not a file of answers")
                first = False
                try:
                    entry = orjson.loads(line)
                    endpoint_response = entry.get("response") or {}
                    status, body = endpoint_response.get("status_code"), endpoint_response.get("body")
                    completion = str((body or {}).get("id") or "")
                    outcome = self._outcome(status, body, entry.get("error") or {})
                    answers.append((str(entry["custom_id"]), completion, outcome))
                except (ValueError, LookupError, TypeError, AttributeError):
                    _LOG.warning("a line in file %s answers no call", file)
        return answers

    def _outcome(self, status: int | None, body: object, error: dict[str, Any]) -> Reply | dspy.LMError:
        """The reply or error of a line: by status and body of the endpoint's response, or the job's own error."""
        try:
            if not status:
                # Expired, cancelled, or never sent (status 0).
                reason = f"{error.get('code') or 'no response'}: {error.get('message') or 'not answered'}"
                raise lm15.ServerError(reason)
            raw = orjson.dumps(body)
            return read_reply(raw) if 200 <= status < 300 else interpret_error(status, raw[:2000].decode(), None)
        except lm15.LM15Error as raised:
            return lm_error(raised, self._model, self._key)

    def lm_error(self, raised: Exception) -> dspy.LMError:
        """Convert an exception of the client into DSPy's class for it, without the key in the message."""
        import openai

        if isinstance(raised, openai.APIStatusError):
            status, text = raised.response.status_code, raised.response.text[:2000]
            try:
                interpret_error(status, text, retry_after(raised.response.headers))
                # It returned, so a content filter has withheld the file: a retry would not help.
                raised = lm15.InvalidRequestError(f"HTTP {status}: {text[:500]}")
            except lm15.LM15Error as error:
                raised = error
        elif not isinstance(raised, lm15.LM15Error | dspy.LMError):
            raised = lm15.TransportError(f"the batch service does not answer: {raised.__cause__ or raised!r}")
        return lm_error(raised, self._model, self._key)

    async def _with_retries(self, attempt: Callable[[], Awaitable[T]], timeout: float = _REQUEST_TIMEOUT) -> T:
        async def send() -> T:
            try:
                async with asyncio.timeout(timeout):
                    return await attempt()
            except Exception as raised:
                raise self.lm_error(raised) from raised

        retrying = AsyncRetrying(
            retry=retry_if_exception(dspy.is_retryable_lm_error),
            wait=RetryWait(self._options.first_wait, self._options.max_wait),
            stop=stop_after_delay(self._options.batch_timing.max_outage),
            before_sleep=before_sleep_log(_LOG, logging.WARNING),
            reraise=True,
        )
        try:
            return await retrying(send)
        except dspy.LMError as error:
            if not dspy.is_retryable_lm_error(error):
                raise
            text = f"the batch service has not answered in time: {error}"
            raise ProviderDownError(text, model=self._model) from error


def _validated(result: Any, *fields: str) -> Any:
    """The result, if it has the fields: the client builds its objects from any JSON, without validation."""
    if all(isinstance(getattr(result, name, None), str) for name in fields or ("id", "status")):
        return result
    raise lm15.ServerError("the batch service's answer is not a file or a job")


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines that are not blank; one that is too long loses its beginning and so becomes invalid JSON."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in filter(bytes.strip, lines):
            yield line
        if len(rest) > MAX_LINE_BYTES:
            rest = b"{"
    if rest.strip():
        yield rest


async def _limit_body(response: httpx.Response) -> None:
    """Reject a compressed body, and limit the size of any other."""
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise httpx.DecodingError("the answer is compressed, although the request excludes that")
    max_bytes = MAX_FILE_BYTES if response.request.url.path.endswith("/content") else MAX_RESPONSE_BYTES
    response.stream = _LimitedStream(response.stream, max_bytes)  # type: ignore[arg-type]


class _LimitedStream(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, max_bytes: int) -> None:
        self._stream, self._bytes_left = stream, max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._bytes_left -= len(chunk)
            if self._bytes_left < 0:
                raise httpx.ReadError("the answer is too long")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
