"""Calls in jobs of OpenAI's Batch API: gathered until no new call comes, then one job for each role and round.

A job is recorded before it is created, and its replies are stored before it is forgotten. So the next process finds the
jobs of one that was stopped, pays for no call twice, and keeps replies that nobody waits for any more.
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
from debate_judge.programs.lm.http.address import COMPATIBLE
from debate_judge.programs.lm.http.chat_completions import body_of
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.reply import Messages, Reply, ReplyStore
from debate_judge.programs.lm.sql.tables import BATCH_JOBS
from debate_judge.programs.lm.usage import CALL_TAG, CallTag, Meter

if TYPE_CHECKING:
    from openai.types import Batch

_LOG = logging.getLogger(__name__)

EARLIER = "earlier jobs"
"""Role in the usage counts of replies that an earlier run asked for and no caller of this run waits for."""
MAX_CALLS = 50_000
MAX_BYTES = 200_000_000
"""Of one job, as OpenAI limits them."""
_TRIES = 3
"""Jobs that a call may go out in before it has failed; refused jobs are not counted."""
_BILLING = {"billing_hard_limit_reached", "insufficient_quota", "billing_not_active"}
"""Codes by which a job is refused because the account cannot pay."""


def recorded_jobs(connection: Connection) -> list[BatchJob]:
    """The jobs whose replies are not all in the store yet, the oldest first."""
    records = connection.execute(select(BATCH_JOBS.c.record).order_by(BATCH_JOBS.c.made)).scalars()
    names = [field.name for field in fields(BatchJob)]
    return [BatchJob(**{name: job[name] for name in names}) for job in map(json.loads, records)]


def warn_of_jobs(store: ReplyStore) -> None:
    """Warn that calls about to be made one by one may be part of batch jobs that are already paid for."""
    run_now = getattr(store, "run_now", None)
    if jobs := [] if run_now is None else run_now(recorded_jobs):
        _LOG.warning(
            "%d LM calls of an earlier run are in batch jobs that are still running at the provider; --config "
            "batch=openai waits for their replies, otherwise these calls are made and paid for again",
            sum(len(job.keys) for job in jobs),
        )


@dataclass(slots=True, eq=False)
class _BatchCall:
    """A call whose caller waits for `future`."""

    key: str
    role: str
    round: int
    line: bytes
    """Of a job's file."""
    future: asyncio.Future[Reply]
    failures: int = 0
    """Jobs that have ended without an answer to it."""


class BatchEngine:
    """Makes calls to one model, openai/MODEL, by batch jobs. Belongs to one event loop until it is closed.

    Args:
        model: As DSPy knows it.
        api_base: Address of the service, if it is not OpenAI's own. The key comes from OPENAI_API_KEY.
        options: How long to gather and to wait.
        store: Takes every reply that arrives, and, if it is a database, records the jobs.
        meter: Counts the replies that no caller waits for; a caller counts its own.
        probe: Makes a call that any model can answer, outside of jobs; raises `dspy.LMError` if the provider is down.

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
        self._service = BatchService(api_base or COMPATIBLE["openai"], key, model, options)
        self._model, self._timing = model, options.batch_timing
        self._store, self._meter, self._probe = store, meter, probe
        self._run = getattr(store, "run", None)
        self._reset()

    def _reset(self) -> None:
        self._resumed: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls: dict[str, _BatchCall] = {}
        self._sent: set[str] = set()
        """Keys of the calls that are in jobs; all others are gathered for the next."""
        self._timer: asyncio.TimerHandle | None = None
        self._jobs: dict[str, BatchJob] = {}
        self._unreadable: dict[str, dspy.LMError] = {}
        """Keys of calls in jobs that the key of this process cannot look at -> the error of these calls."""
        self._most_calls = MAX_CALLS
        self._turn: asyncio.Lock | nullcontext[None] = nullcontext()
        """A lock once the account's queue was full, so that a job is created only when the one before is over."""

    async def ask(self, key: str, role: str, messages: Messages, settings: Mapping[str, Any]) -> Reply:
        """Make one call; calls with the same key must not be made at the same time.

        The reply is in the store when this returns.

        Raises:
            dspy.LMError: The call failed for good, or no job can be carried out.
            InputError: The store cannot be written.
        """
        if self._resumed is None:
            self._resumed = asyncio.ensure_future(self._resume())
        await asyncio.shield(self._resumed)
        entry = {"custom_id": key, "method": "POST", "url": ENDPOINT, "body": body_of(self._model, messages, settings)}
        line, future = orjson.dumps(entry) + b"\n", asyncio.get_running_loop().create_future()
        call = self._calls[key] = _BatchCall(key, role, (CALL_TAG.get() or CallTag()).round, line, future)
        try:
            if (reply := await self._store.get(key)) is not None:
                # A job of an earlier process brought it after the caller had looked into the store.
                return reply
            if key in self._unreadable:
                raise self._unreadable[key]
            self._gather()
            return await future
        finally:
            if self._calls.get(key) is call:
                del self._calls[key]

    async def aclose(self) -> None:
        """Stop looking at the jobs, which go on at the provider, and close the connections."""
        if self._timer is not None:
            self._timer.cancel()
        tasks: list[asyncio.Future[None]] = [*self._tasks, *filter(None, [self._resumed])]
        for task in tasks:
            task.cancel()
        for call in self._calls.values():
            call.future.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if jobs := ", ".join(job.id or job.token for job in self._jobs.values()):
            _say(
                f"batch jobs are still running at the provider: {jobs}; run the same command again to collect their "
                f"replies"
            )
        self._reset()
        await self._service.aclose()

    # Calls become jobs.

    def _start(self, work: Awaitable[None], keys: Sequence[str]) -> None:
        """Do what the job of these calls takes; calls that are without an answer then go into the next."""
        self._sent.update(keys)

        async def see_through() -> None:
            try:
                await work
            except Exception as error:
                self._fail(error)
            finally:
                self._sent.difference_update(keys)
            if self._waiting(keys):
                self._gather()

        # In an empty context, because a job serves many debates and must not inherit the settings of one.
        task = asyncio.get_running_loop().create_task(see_through(), context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _fail(self, error: Exception) -> None:
        """End all calls."""
        if not isinstance(error, InputError) and not affects_all_calls(error):
            error = dspy.LMConfigurationError(f"no batch job can be carried out: {error}", model=self._model)
        for call in self._waiting(self._calls):
            call.future.set_exception(error)

    async def _resume(self) -> None:
        """Follow the jobs of earlier processes."""
        for job in [] if self._run is None else await self._run(recorded_jobs):
            if (job.endpoint, job.model) == (self._service.address, self._model):
                self._jobs[job.token] = job
                _say(f"{job}: resumed")
                self._start(self._follow(job), job.keys)

    def _waiting(self, keys: Iterable[str]) -> list[_BatchCall]:
        """The calls with these keys that have no answer yet."""
        calls = (self._calls.get(key) for key in keys)
        return [call for call in calls if call is not None and not call.future.done()]

    def _gather(self) -> None:
        """Have the calls that are in no job sent as soon as no more of them come."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._timing.quiet_period, self._send)

    def _send(self) -> None:
        groups: dict[tuple[str, int], list[_BatchCall]] = {}
        for call in self._waiting(key for key in self._calls if key not in self._sent):
            groups.setdefault((call.role, call.round), []).append(call)
        for part in (part for calls in groups.values() for part in _parts(calls, self._most_calls)):
            keys = tuple(call.key for call in part)
            self._start(self._make(keys), keys)

    async def _make(self, keys: tuple[str, ...]) -> None:
        """Create a job for these calls and follow it to its end."""
        async with self._turn:
            # While this job waited, callers may have been cancelled.
            calls = self._waiting(keys)
            if not calls:
                return
            token, role, turn = uuid.uuid4().hex, calls[0].role, calls[0].round
            data = b"".join(call.line for call in calls)
            file = await self._service.upload(data, f"{role}-{turn}-{token[:8]}.jsonl")
            keys = tuple(call.key for call in calls)
            job = BatchJob(token, self._service.address, self._model, role, turn, keys, time.time())
            await self._record(job)
            job = replace(job, id=(await self._service.create(file, job)).id)
            await self._record(job)
            _say(f"{job}, sent")
            await self._finish(job)

    async def _follow(self, job: BatchJob) -> None:
        """Follow a job to its end that another process has created, or was about to create."""
        if job.id is None:
            batch = await self._service.find(job)
            if batch is None:
                await self._record(job, over=True)
                return
            job = replace(job, id=batch.id)
            await self._record(job)
        await self._finish(job)

    # Jobs end.

    async def _finish(self, job: BatchJob) -> None:
        """Wait for the end of a job, store its answers and hand them out."""
        batch = await self._poll(job)
        if batch is None:
            error = dspy.LMConfigurationError(
                f"batch job {job.id} is not known to the account of this key. Use the key that it was made with; "
                f"or, to ask and pay for its calls again, delete the row with token {job.token!r} from the table "
                "batch_jobs of the store's database",
                model=self._model,
            )
            # It may be a colleague's, who shares the store, and ends this run only if the same calls are wanted.
            del self._jobs[job.token]
            self._unreadable.update(dict.fromkeys(job.keys, error))
            if self._waiting(job.keys):
                raise error
            return
        if batch.status == "failed":
            await self._record(job, over=True)
            await self._refused(job, batch)
            return
        outcomes = await self._service.outcomes(batch)
        replies = {key: reply for key in job.keys if isinstance(reply := outcomes.get(key), Reply)}
        await asyncio.gather(*(self._store.put(key, job.role, reply) for key, reply in replies.items()))
        await self._record(job, over=True)
        self._most_calls = min(2 * self._most_calls, MAX_CALLS)
        for key, reply in replies.items():
            calls = self._waiting([key])
            for call in calls:
                call.future.set_result(reply)
            if not calls:
                self._meter.count_reply(EARLIER, reply, batch=True)
        missing = dspy.LMServerError(f"batch job {job.id} has no answer to this call", model=self._model)
        await self._hand_out({key: outcomes.get(key, missing) for key in job.keys})

    async def _poll(self, job: BatchJob) -> Batch | None:
        """The job as it is when it is over; None if the account of this process does not know it."""
        pause, shown = self._timing.first_poll, ""
        while (batch := await self._service.retrieve(job.id or "")) is not None:
            counts = batch.request_counts
            failed = f", {counts.failed:,} failed" if counts and counts.failed else ""
            state = f"{counts.completed:,} done{failed} ({batch.status})" if counts and counts.total else batch.status
            if state != shown:
                _say(f"{job}, {state}")
                shown = state
            if batch.status in ("completed", "failed", "expired", "cancelled"):
                break
            await asyncio.sleep(pause)
            pause = min(1.5 * pause, self._timing.max_poll)
        return batch

    async def _refused(self, job: BatchJob, batch: Batch) -> None:
        """Handle a job that the service did not accept.

        Raises:
            dspy.LMError: Unless the account's queue was full, which passes.
        """
        errors = (batch.errors.data if batch.errors else None) or []
        reasons = sorted({f"{error.code}: {error.message}" for error in errors})[:3] or ["no reason was given"]
        reason = f"batch job {job.id} was refused: {'; '.join(reasons)}"
        _say(reason)
        codes = {error.code or "" for error in errors}
        if "token_limit_exceeded" in codes:
            # Other jobs fill the account's queue, or this one is too large for it.
            self._most_calls = max(1, len(job.keys) // 2)
            if isinstance(self._turn, nullcontext):
                self._turn = asyncio.Lock()
            await asyncio.sleep(self._timing.max_poll)
        elif codes & _BILLING:
            raise dspy.LMBillingError(reason, model=self._model)
        elif any("model" in code for code in codes):
            raise dspy.LMUnsupportedModelError(reason, model=self._model)
        else:
            raise dspy.LMConfigurationError(reason, model=self._model)

    async def _hand_out(self, outcomes: Outcomes) -> None:
        """Give the errors of a job to the calls for which no other attempt is left.

        Raises:
            dspy.LMError: One that concerns all calls; or nothing was answered, and a direct call is not, either.
        """
        errors = {key: outcome for key, outcome in outcomes.items() if isinstance(outcome, dspy.LMError)}
        given_up: list[_BatchCall] = []
        for call in self._waiting(errors):
            if affects_all_calls(errors[call.key]):
                raise errors[call.key]
            call.failures += 1
            if call.failures >= _TRIES or not dspy.is_retryable_lm_error(errors[call.key]):
                given_up.append(call)
        if given_up and len(errors) == len(outcomes) and all(map(dspy.is_retryable_lm_error, errors.values())):
            # An outage must not look like calls that cannot be answered.
            try:
                await self._probe()
            except Exception as raised:
                error = self._service.error(raised)
                text = f"no call was answered in {_TRIES} batch jobs; the last failure: {errors[given_up[0].key]}"
                down = ProviderDownError(text, model=self._model)
                raise (down if dspy.is_retryable_lm_error(error) else error) from raised
        for call in given_up:
            if not call.future.done():
                call.future.set_exception(errors[call.key])

    async def _record(self, job: BatchJob, *, over: bool = False) -> None:
        """Keep what is known of a job, or forget it when it is over."""

        def work(connection: Connection) -> None:
            connection.execute(delete(BATCH_JOBS).where(BATCH_JOBS.c.token == job.token))
            if not over:
                record = json.dumps(asdict(job))
                connection.execute(insert(BATCH_JOBS).values(token=job.token, made=job.made, record=record))

        self._jobs[job.token] = job
        if self._run is not None:
            await self._run(work)
        if over:
            del self._jobs[job.token]


def _parts(calls: Iterable[_BatchCall], most_calls: int) -> Iterator[list[_BatchCall]]:
    """Split calls so that each part fits into one job."""
    part: list[_BatchCall] = []
    size = 0
    for call in calls:
        if part and (len(part) >= most_calls or size + len(call.line) > MAX_BYTES):
            yield part
            part, size = [], 0
        part.append(call)
        size += len(call.line)
    yield part


def _say(text: str) -> None:
    """Print it at once; a bar that is on the screen stays below it."""
    print(text, file=sys.stderr, flush=True)
