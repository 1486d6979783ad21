"""Makes calls in jobs of OpenAI's Batch API: collects calls until no new one comes; one job for each role and round.

A job is recorded before it is created, and its replies are stored before its record is deleted. So the next process
finds the jobs of one that was stopped, pays for no call twice, and stores also replies that no caller waits for.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from contextvars import Context
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import dspy
import orjson
from sqlalchemy import Connection, delete, insert, select

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.batch.service import ENDPOINT, BatchJob, BatchService, Outcomes
from debate_judge.programs.lm.errors import ProviderDownError, affects_all_calls
from debate_judge.programs.lm.http.address import OPENAI_COMPATIBLE
from debate_judge.programs.lm.http.chat_completions import request_body
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.reply import Messages, Reply, ReplyStore
from debate_judge.programs.lm.sql.tables import BATCH_JOBS
from debate_judge.programs.lm.usage import CALL_TAG, CallTag, Meter

if TYPE_CHECKING:
    from openai.types import Batch

_LOG = logging.getLogger(__name__)

EARLIER_JOBS = "earlier jobs"
"""Role in the usage accounts of replies that an earlier run requested and no caller of this run waits for."""
MAX_CALLS = 50_000
MAX_BYTES = 200_000_000
"""OpenAI's limits on one job."""
_MAX_JOBS_PER_CALL = 3
"""Number of jobs after which a call without an answer has failed; rejected jobs do not count."""
_BILLING_CODES = {"billing_hard_limit_reached", "insufficient_quota", "billing_not_active"}
"""Codes of jobs that are rejected because the account cannot pay."""


def recorded_jobs(connection: Connection) -> list[BatchJob]:
    """The jobs whose replies are not all in the store yet, oldest first."""
    records = connection.execute(select(BATCH_JOBS.c.record).order_by(BATCH_JOBS.c.made)).scalars()
    names = [field.name for field in fields(BatchJob)]
    return [BatchJob(**{name: job[name] for name in names}) for job in map(json.loads, records)]


def warn_of_running_jobs(store: ReplyStore) -> None:
    """Warn before direct calls that the same calls may be in batch jobs that are paid for already."""
    run_sync = getattr(store, "run_sync", None)
    if jobs := [] if run_sync is None else run_sync(recorded_jobs):
        _LOG.warning(
            "%d LM calls of an earlier run are in batch jobs that are still running at the provider; --config "
            "batch=openai waits for their replies, otherwise these calls are made and paid for again",
            sum(len(job.keys) for job in jobs),
        )


@dataclass(slots=True, eq=False)
class _BatchCall:
    """A call whose caller awaits `future`."""

    key: str
    role: str
    round: int
    line: bytes
    """Its line in a job's file."""
    future: asyncio.Future[Reply]
    failures: int = 0
    """Number of jobs that ended without an answer to it."""


class BatchEngine:
    """Makes calls to one model, openai/MODEL, in batch jobs. Belongs to one event loop until it is closed.

    Args:
        model: Model string as DSPy knows it.
        api_base: Address of the service, if it is not OpenAI's own. The key comes from OPENAI_API_KEY.
        options: When to send, poll and give up.
        store: Stores every reply and, if it is a database, the records of the jobs.
        meter: Counts the replies that no caller waits for; callers count their own.
        probe: Makes a direct call that any model can answer; raises `dspy.LMError` if the provider is down.

    Raises:
        dspy.LMNotConfiguredError: There is no key, and the address is OpenAI's own.
    """

    def __init__(
        self, model: str, api_base: str | None, options: LMOptions, store: ReplyStore, meter: Meter,
        probe: Callable[[], Awaitable[object]],
    ) -> None:  # fmt: skip
        key = (os.environ.get("OPENAI_API_KEY") or "").strip() or None
        if key is None and api_base is None:
            raise dspy.LMNotConfiguredError("--config batch=openai needs a key: set OPENAI_API_KEY", model=model)
        self._service = BatchService(api_base or OPENAI_COMPATIBLE["openai"], key, model, options)
        self._model, self._batch_timing = model, options.batch_timing
        self._store, self._meter, self._probe = store, meter, probe
        self._run_in_store = getattr(store, "run", None)
        self._reset()

    def _reset(self) -> None:
        self._resuming: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls: dict[str, _BatchCall] = {}
        self._sent_keys: set[str] = set()
        """Keys of the calls that are in jobs; all others go into the next job."""
        self._timer: asyncio.TimerHandle | None = None
        self._jobs: dict[str, BatchJob] = {}
        self._inaccessible: dict[str, dspy.LMError] = {}
        """Key of a call in a job that this process's API key cannot access -> its error."""
        self._max_calls = MAX_CALLS
        self._job_lock: asyncio.Lock | nullcontext[None] = nullcontext()
        """A lock once the account's queue was full: a job is then created only when the one before has ended."""

    async def call(self, key: str, role: str, messages: Messages, settings: Mapping[str, Any]) -> Reply:
        """Make one call; calls with the same key must not be made at the same time.

        The reply is in the store when this returns.

        Raises:
            dspy.LMError: The call failed for good, or no job can be run.
            InputError: The store cannot be written.
        """
        if self._resuming is None:
            self._resuming = asyncio.ensure_future(self._resume())
        await asyncio.shield(self._resuming)
        entry = {
            "custom_id": key,
            "method": "POST",
            "url": ENDPOINT,
            "body": request_body(self._model, messages, settings),
        }
        line, future = orjson.dumps(entry) + b"\n", asyncio.get_running_loop().create_future()
        call = self._calls[key] = _BatchCall(key, role, (CALL_TAG.get() or CallTag()).round, line, future)
        try:
            if (reply := await self._store.get(key)) is not None:
                # A job of an earlier process has stored it since the caller's lookup.
                return reply
            if key in self._inaccessible:
                raise self._inaccessible[key]
            self._send_later()
            return await future
        finally:
            if self._calls.get(key) is call:
                del self._calls[key]

    async def aclose(self) -> None:
        """Stop polling the jobs, which keep running at the provider, and close the connections."""
        if self._timer is not None:
            self._timer.cancel()
        tasks: list[asyncio.Future[None]] = [*self._tasks, *filter(None, [self._resuming])]
        for task in tasks:
            task.cancel()
        for call in self._calls.values():
            call.future.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if jobs := ", ".join(job.id or job.token for job in self._jobs.values()):
            _print_status(
                f"batch jobs are still running at the provider: {jobs}; run the same command again to collect their "
                f"replies"
            )
        self._reset()
        await self._service.aclose()

    # --- from calls to jobs ---

    def _start_job(self, work: Awaitable[None], keys: Sequence[str]) -> None:
        """Run `work`, the job of these calls, as a task; calls without an answer afterwards go into the next job."""
        self._sent_keys.update(keys)

        async def run() -> None:
            try:
                await work
            except Exception as error:
                self._fail(error)
            finally:
                self._sent_keys.difference_update(keys)
            if self._pending(keys):
                self._send_later()

        # In an empty context, because a job serves many debates and must not inherit the context variables of one.
        task = asyncio.get_running_loop().create_task(run(), context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _fail(self, error: Exception) -> None:
        """Fail all pending calls."""
        if not isinstance(error, InputError) and not affects_all_calls(error):
            error = dspy.LMConfigurationError(f"no batch job can be run: {error}", model=self._model)
        for call in self._pending(self._calls):
            call.future.set_exception(error)

    async def _resume(self) -> None:
        """Resume the jobs of earlier processes."""
        for job in [] if self._run_in_store is None else await self._run_in_store(recorded_jobs):
            if (job.endpoint, job.model) == (self._service.address, self._model):
                self._jobs[job.token] = job
                _print_status(f"{job}: resumed")
                self._start_job(self._resume_job(job), job.keys)

    def _pending(self, keys: Iterable[str]) -> list[_BatchCall]:
        """The calls with these keys that have no answer yet."""
        calls = (self._calls.get(key) for key in keys)
        return [call for call in calls if call is not None and not call.future.done()]

    def _send_later(self) -> None:
        """Send the calls that are in no job once no new ones have come for the quiet period."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._batch_timing.quiet_period, self._send)

    def _send(self) -> None:
        groups: dict[tuple[str, int], list[_BatchCall]] = {}
        for call in self._pending(key for key in self._calls if key not in self._sent_keys):
            groups.setdefault((call.role, call.round), []).append(call)
        for chunk in (chunk for calls in groups.values() for chunk in _split(calls, self._max_calls)):
            keys = tuple(call.key for call in chunk)
            self._start_job(self._run_job(keys), keys)

    async def _run_job(self, keys: tuple[str, ...]) -> None:
        """Create a job for these calls and wait for its end."""
        async with self._job_lock:
            # Meanwhile callers may have been cancelled.
            calls = self._pending(keys)
            if not calls:
                return
            token, role, round_number = uuid.uuid4().hex, calls[0].role, calls[0].round
            data = b"".join(call.line for call in calls)
            file = await self._service.upload(data, f"{role}-{round_number}-{token[:8]}.jsonl")
            keys = tuple(call.key for call in calls)
            job = BatchJob(token, self._service.address, self._model, role, round_number, keys, time.time())
            await self._record(job)
            job = replace(job, id=(await self._service.create(file, job)).id)
            await self._record(job)
            _print_status(f"{job}, sent")
            await self._collect(job)

    async def _resume_job(self, job: BatchJob) -> None:
        """Wait for the end of a job that another process has created, or was about to create."""
        if job.id is None:
            batch = await self._service.find(job)
            if batch is None:
                await self._record(job, ended=True)
                return
            job = replace(job, id=batch.id)
            await self._record(job)
        await self._collect(job)

    # --- from jobs to replies ---

    async def _collect(self, job: BatchJob) -> None:
        """Wait for the end of a job, store its replies and deliver them."""
        batch = await self._poll(job)
        if batch is None:
            error = dspy.LMConfigurationError(
                f"batch job {job.id} is not known to the account of this key. Use the key that it was made with; "
                f"or, to ask and pay for its calls again, delete the row with token {job.token!r} from the table "
                "batch_jobs of the store's database",
                model=self._model,
            )
            # The store may be shared, and the job a colleague's: it ends this run only if its calls are pending here.
            del self._jobs[job.token]
            self._inaccessible.update(dict.fromkeys(job.keys, error))
            if self._pending(job.keys):
                raise error
            return
        if batch.status == "failed":
            await self._record(job, ended=True)
            await self._on_rejected(job, batch)
            return
        outcomes = await self._service.outcomes(batch)
        replies = {key: reply for key in job.keys if isinstance(reply := outcomes.get(key), Reply)}
        await asyncio.gather(*(self._store.put(key, job.role, reply) for key, reply in replies.items()))
        await self._record(job, ended=True)
        self._max_calls = min(2 * self._max_calls, MAX_CALLS)
        for key, reply in replies.items():
            calls = self._pending([key])
            for call in calls:
                call.future.set_result(reply)
            if not calls:
                self._meter.count_reply(EARLIER_JOBS, reply, batch=True)
        missing = dspy.LMServerError(f"batch job {job.id} has no answer to this call", model=self._model)
        await self._deliver_errors({key: outcomes.get(key, missing) for key in job.keys})

    async def _poll(self, job: BatchJob) -> Batch | None:
        """The job when it has ended; None if the account of this process has no such job."""
        wait, last_state = self._batch_timing.first_poll, ""
        while (batch := await self._service.retrieve(job.id or "")) is not None:
            counts = batch.request_counts
            failed = f", {counts.failed:,} failed" if counts and counts.failed else ""
            state = f"{counts.completed:,} done{failed} ({batch.status})" if counts and counts.total else batch.status
            if state != last_state:
                _print_status(f"{job}, {state}")
                last_state = state
            if batch.status in ("completed", "failed", "expired", "cancelled"):
                break
            await asyncio.sleep(wait)
            wait = min(1.5 * wait, self._batch_timing.max_poll)
        return batch

    async def _on_rejected(self, job: BatchJob, batch: Batch) -> None:
        """Handle a job that the service has rejected.

        Raises:
            dspy.LMError: Unless the account's queue was full, which is temporary.
        """
        errors = (batch.errors.data if batch.errors else None) or []
        reasons = sorted({f"{error.code}: {error.message}" for error in errors})[:3] or ["no reason was given"]
        reason = f"batch job {job.id} was refused: {'; '.join(reasons)}"
        _print_status(reason)
        codes = {error.code or "" for error in errors}
        if "token_limit_exceeded" in codes:
            # The account's queue is full of other jobs, or this one is too large for it.
            self._max_calls = max(1, len(job.keys) // 2)
            if isinstance(self._job_lock, nullcontext):
                self._job_lock = asyncio.Lock()
            await asyncio.sleep(self._batch_timing.max_poll)
        elif codes & _BILLING_CODES:
            raise dspy.LMBillingError(reason, model=self._model)
        elif any("model" in code for code in codes):
            raise dspy.LMUnsupportedModelError(reason, model=self._model)
        else:
            raise dspy.LMConfigurationError(reason, model=self._model)

    async def _deliver_errors(self, outcomes: Outcomes) -> None:
        """Deliver the errors of a job to the calls that are not retried.

        Raises:
            dspy.LMError: An error affects all calls; or nothing was answered, and neither is the probe.
        """
        errors = {key: outcome for key, outcome in outcomes.items() if isinstance(outcome, dspy.LMError)}
        failed: list[_BatchCall] = []
        for call in self._pending(errors):
            if affects_all_calls(errors[call.key]):
                raise errors[call.key]
            call.failures += 1
            if call.failures >= _MAX_JOBS_PER_CALL or not dspy.is_retryable_lm_error(errors[call.key]):
                failed.append(call)
        if failed and len(errors) == len(outcomes) and all(map(dspy.is_retryable_lm_error, errors.values())):
            # Tell an outage from calls that cannot be answered.
            try:
                await self._probe()
            except Exception as raised:
                error = self._service.lm_error(raised)
                last = errors[failed[0].key]
                text = f"no call was answered in {_MAX_JOBS_PER_CALL} batch jobs; the last failure: {last}"
                down = ProviderDownError(text, model=self._model)
                raise (down if dspy.is_retryable_lm_error(error) else error) from raised
        for call in failed:
            if not call.future.done():
                call.future.set_exception(errors[call.key])

    async def _record(self, job: BatchJob, *, ended: bool = False) -> None:
        """Store the record of a job, or delete it if the job has ended."""

        def write(connection: Connection) -> None:
            connection.execute(delete(BATCH_JOBS).where(BATCH_JOBS.c.token == job.token))
            if not ended:
                record = json.dumps(asdict(job))
                connection.execute(insert(BATCH_JOBS).values(token=job.token, made=job.made, record=record))

        self._jobs[job.token] = job
        if self._run_in_store is not None:
            await self._run_in_store(write)
        if ended:
            del self._jobs[job.token]


def _split(calls: Iterable[_BatchCall], max_calls: int) -> Iterator[list[_BatchCall]]:
    """Split calls into chunks that fit into one job each."""
    chunk: list[_BatchCall] = []
    size = 0
    for call in calls:
        if chunk and (len(chunk) >= max_calls or size + len(call.line) > MAX_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(call)
        size += len(call.line)
    yield chunk


def _print_status(text: str) -> None:
    """Print to stderr; a progress bar on the screen stays below it."""
    print(text, file=sys.stderr, flush=True)
