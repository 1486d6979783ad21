"""OpenAI's Batch API: upload a file, create a job, find it again, look at it, download its answers."""

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
from debate_judge.programs.lm.http.chat_completions import read_reply, refused
from debate_judge.programs.lm.limits.failures import RetryWait, retry_after
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.reply import Reply

if TYPE_CHECKING:
    # Imported where jobs are made: it takes a second.
    import openai
    from openai.types import Batch

ENDPOINT: Final = "/v1/chat/completions"
"""Which of the provider's endpoints answers the lines of a file."""

_LOG = logging.getLogger(__name__)
_TOKEN = "debate-judge-job"
"""Our name for a job, in its metadata."""
_ANSWER, _FILE = 60.0, 3600.0
"""Seconds after which an attempt is given up: a question about jobs, and a file."""
LONGEST_ANSWER, LONGEST_LINE, LONGEST_FILE = 16 * 2**20, 8 * 2**20, 2048 * 2**20
"""Bytes of an answer about jobs, of a line in a file of answers, and of a file, which is read line by line."""

T = TypeVar("T")
Outcomes = dict[str, Reply | dspy.LMError]
"""Key of a call -> its reply or error."""
_Answer = tuple[str, str, Reply | dspy.LMError]
"""Key of a call, id of the completion, which no other call's may have, and the reply or error."""


@dataclass(frozen=True, slots=True)
class BatchJob:
    """One batch job, from just before it is created until its replies are in the store."""

    token: str
    """Our name for it, which is in its metadata at the provider."""
    endpoint: str
    """Address of the service, without credentials."""
    model: str
    role: str
    round: int
    keys: Sequence[str]
    """Keys of its calls, in the order of the file's lines."""
    made: float
    """When, in seconds since 1970."""
    id: str | None = None
    """The provider's name for it; None until the provider has answered."""

    def __str__(self) -> str:
        name = self.id or f"{self.token} (not known to exist)"
        return f"batch job {name}: role {self.role}, round {self.round}, {len(self.keys):,} calls"


class BatchService:
    """The jobs of one account. Its connections belong to one event loop.

    Its methods repeat what fails while the service is too busy or down, for `options.batch_pace.patience` seconds, and
    then raise `ProviderDownError`; any other `dspy.LMError` at once. The client's own retries are off: a job that was
    created although the answer got lost would be paid twice, so it is searched for before another attempt.

    Args:
        base_url: Address of the service, up to and including its version.
        key: Sent as a bearer token; None for a server that wants none.
        model: For messages.
        options: Waits and patience.
    """

    def __init__(self, base_url: str, key: str | None, model: str, options: LMOptions) -> None:
        self._base_url, self._key, self._model, self._options = base_url, key, model, options
        self.address = without_credentials(base_url).rstrip("/")

    @cached_property
    def _client(self) -> openai.AsyncOpenAI:
        import openai

        # A redirect would take the texts along, wherever it leads; what is compressed may be of any size.
        http = openai.DefaultAsyncHttpxClient(
            follow_redirects=False, headers={"Accept-Encoding": "identity"}, event_hooks={"response": [_bound]}
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

        async def once() -> str:
            file = await self._client.files.create(file=(name, lines, "application/jsonl"), purpose="batch")
            return _checked(file, "id").id

        try:
            return await self._patiently(once, _FILE)
        except dspy.LMUnsupportedModelError as error:
            text = f"{self.address} has no batch service; leave the setting batch away ({error})"
            raise dspy.LMConfigurationError(text, model=self._model) from error

    async def create(self, file: str, job: BatchJob) -> Batch:
        """Create the job, or return it if an earlier attempt created it although no answer came."""
        attempts = 0

        async def once() -> Batch:
            nonlocal attempts
            attempts += 1
            if attempts > 1 and (batch := await self._search(job)) is not None:
                return batch
            metadata = {_TOKEN: job.token, "role": job.role[:512], "round": str(job.round)}
            return _checked(
                await self._client.batches.create(
                    input_file_id=file, endpoint=ENDPOINT, completion_window="24h", metadata=metadata
                )
            )

        return await self._patiently(once)

    async def find(self, job: BatchJob) -> Batch | None:
        """The job with this token in its metadata, None if there is none."""
        return await self._patiently(lambda: self._search(job))

    async def _search(self, job: BatchJob) -> Batch | None:
        async for batch in self._client.batches.list(limit=100):
            if (_checked(batch).metadata or {}).get(_TOKEN) == job.token:
                return batch
            if batch.created_at < job.made - 86_400.0:
                # They come newest first, so the rest is older still; a day allows for clocks that differ.
                return None
        return None

    async def retrieve(self, identity: str) -> Batch | None:
        """The job in its present state; None if the account of this key has no such job."""

        async def once() -> Batch:
            return _checked(await self._client.batches.retrieve(identity))

        try:
            return await self._patiently(once)
        except dspy.LMUnsupportedModelError:
            # That is what 404 means for a call.
            return None

    async def outcomes(self, batch: Batch) -> Outcomes:
        """Key of a call -> its reply or error, from the files of a job that is over; unanswered calls are left out.

        Answers that cannot be told apart are errors: two to one call, or one completion for two calls.
        """
        answers: list[_Answer] = []
        for file in filter(None, (batch.output_file_id, batch.error_file_id)):
            try:
                answers += await self._patiently(partial(self._read, file), _FILE)
            except dspy.LMUnsupportedModelError:
                # The provider deletes it after some weeks.
                _LOG.warning("a file of batch job %s is gone; its calls are made again", batch.id)
        names = Counter(name for key, completion, _ in answers for name in (key, completion) if name)
        text = f"batch job {batch.id} has answers that cannot be told apart; they are not used"
        confused = dspy.LMServerError(text, model=self._model)
        return {
            key: confused if names[key] > 1 or names[completion] > 1 else outcome
            for key, completion, outcome in answers
        }

    async def _read(self, file: str) -> list[_Answer]:
        answers: list[_Answer] = []
        async with self._client.files.with_streaming_response.content(file) as response:
            first = True
            async for line in _lines(response.iter_bytes(65_536)):
                if first and not line.lstrip().startswith(b"{"):
                    # A gateway's page. Read as a file without answers, it would have all calls paid again.
                    raise lm15.ServerError("the batch service's answer is not a file of answers")
                first = False
                try:
                    entry = orjson.loads(line)
                    answer = entry.get("response") or {}
                    completion = str((answer.get("body") or {}).get("id") or "")
                    outcome = self._outcome(answer.get("status_code"), answer.get("body"), entry.get("error") or {})
                    answers.append((str(entry["custom_id"]), completion, outcome))
                except (ValueError, LookupError, TypeError, AttributeError):
                    _LOG.warning("a line in file %s answers no call", file)
        return answers

    def _outcome(self, status: int | None, body: object, error: dict[str, Any]) -> Reply | dspy.LMError:
        """What a line says: status and body of the endpoint's answer, or the job's own error."""
        try:
            if not status:
                # Expired, cancelled, or never sent (status 0).
                reason = f"{error.get('code') or 'no response'}: {error.get('message') or 'not answered'}"
                raise lm15.ServerError(reason)
            raw = orjson.dumps(body)
            return read_reply(raw) if 200 <= status < 300 else refused(status, raw[:2000].decode(), None)
        except lm15.LM15Error as raised:
            return lm_error(raised, self._model, self._key)

    def error(self, raised: Exception) -> dspy.LMError:
        """Convert what the client raised into DSPy's classes, without the key in the message."""
        import openai

        if isinstance(raised, openai.APIStatusError):
            status, text = raised.response.status_code, raised.response.text[:2000]
            try:
                refused(status, text, retry_after(raised.response.headers))
                # It returned because a content filter withheld the file, which no other attempt would change.
                raised = lm15.InvalidRequestError(f"HTTP {status}: {text[:500]}")
            except lm15.LM15Error as error:
                raised = error
        elif not isinstance(raised, lm15.LM15Error | dspy.LMError):
            raised = lm15.TransportError(f"the batch service does not answer: {raised.__cause__ or raised!r}")
        return lm_error(raised, self._model, self._key)

    async def _patiently(self, attempt: Callable[[], Awaitable[T]], seconds: float = _ANSWER) -> T:
        async def once() -> T:
            try:
                async with asyncio.timeout(seconds):
                    return await attempt()
            except Exception as raised:
                raise self.error(raised) from raised

        retrying = AsyncRetrying(
            retry=retry_if_exception(dspy.is_retryable_lm_error),
            wait=RetryWait(self._options.first_wait, self._options.max_wait),
            stop=stop_after_delay(self._options.batch_timing.max_outage),
            before_sleep=before_sleep_log(_LOG, logging.WARNING),
            reraise=True,
        )
        try:
            return await retrying(once)
        except dspy.LMError as error:
            if not dspy.is_retryable_lm_error(error):
                raise
            text = f"the batch service has not answered in time: {error}"
            raise ProviderDownError(text, model=self._model) from error


def _checked(answer: Any, *fields: str) -> Any:
    """The answer, if it has what it must: the client builds its objects from any JSON, without validation."""
    if all(isinstance(getattr(answer, name, None), str) for name in fields or ("id", "status")):
        return answer
    raise lm15.ServerError("the batch service's answer is not a file or a job")


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines that are not blank; one that is too long loses its beginning, so that it is no JSON."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in filter(bytes.strip, lines):
            yield line
        if len(rest) > LONGEST_LINE:
            rest = b"{"
    if rest.strip():
        yield rest


async def _bound(response: httpx.Response) -> None:
    """Have a body refused that is compressed, or larger than any that the service sends."""
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise httpx.DecodingError("the answer is compressed, which was not asked for")
    longest = LONGEST_FILE if response.request.url.path.endswith("/content") else LONGEST_ANSWER
    response.stream = _BoundedStream(response.stream, longest)  # type: ignore[arg-type]


class _BoundedStream(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, longest: int) -> None:
        self._stream, self._left = stream, longest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._left -= len(chunk)
            if self._left < 0:
                raise httpx.ReadError("the answer is too long")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
