"""Calls in batch jobs: gathered until no new call has come for a while, then one job for each role and round.

The way to the LM when `LMOptions.batch` is set. A job is written down before it is made; its replies go into the
store before it is forgotten. So the next process finds the jobs of one that was stopped, asks for no call twice,
and keeps replies even if their callers no longer wait.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from contextvars import Context
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dspy
import orjson

from debate_judge.programs.lm.batch.jobs import BatchJob, JobBook
from debate_judge.programs.lm.batch.pending import Call, PendingCalls
from debate_judge.programs.lm.batch.progress import about, progress, say
from debate_judge.programs.lm.batch.queue_quota import QueueQuota
from debate_judge.programs.lm.batch.results import OVER, BatchResults, read_file, refusal
from debate_judge.programs.lm.batch.service import ENDPOINT, BatchService
from debate_judge.programs.lm.errors import fatal
from debate_judge.programs.lm.http.chat_completions import body_of
from debate_judge.programs.lm.options import BatchTiming
from debate_judge.programs.lm.reply import Messages, Reply, ReplyStore
from debate_judge.programs.lm.usage import ROUND, Meter

if TYPE_CHECKING:
    from openai.types import Batch

EARLIER = "earlier jobs"
"""Role in the usage counts of replies that an earlier run asked for and no caller of this one waits for."""

_LOG = logging.getLogger(__name__)
_SILENCE = 600.0
"""Seconds after which a line of progress is repeated even if nothing has changed."""
_LOOKS = 4
"""Looks at what was gathered, over the quiet time, before it is sent. One look would take a process that was held up
for a moment, between two calls, for one that has no more calls to make."""


class BatchDispatcher:
    """Makes calls to one model by batch jobs. Belongs to one event loop at a time.

    Args:
        service: Where the jobs go.
        book: Where they are written down.
        store: Takes every reply that arrives.
        meter: Counts the replies that no caller waits for; a caller counts its own.
        pace: How long to gather and to wait.
        model: As DSPy knows it.
    """

    def __init__(
        self, service: BatchService, book: JobBook, *, store: ReplyStore, meter: Meter, pace: BatchTiming, model: str
    ) -> None:
        self._service, self._book, self._store, self._meter, self._pace = service, book, store, meter, pace
        self._model = model
        self._loop: asyncio.AbstractEventLoop | None = None

    async def chat(self, key: str, role: str, messages: Messages, settings: Mapping[str, Any]) -> Reply:
        """Make one call; calls with the same key must not be made at the same time.

        The reply is in the store when this returns.

        Raises:
            dspy.LMError: The call failed for good, or no job can be made or looked at.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._move_to(loop)
        line = _line(key, body_of(self._model, messages, settings))
        call = Call(key, (role, ROUND.get()), line, loop.create_future(), self._waiting.answers)
        self._waiting.add(call)
        if key not in self._taken:
            self._gather(call)
        try:
            return await call.future
        finally:
            self._gathered.pop(key, None)
            self._waiting.drop(call)

    async def aclose(self) -> None:
        """Stop looking at the jobs, which go on at the provider, and close the connections."""
        if self._loop is not asyncio.get_running_loop():
            return
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._jobs:
            names = ", ".join(job.name for job in self._jobs.values())
            say(f"batch jobs go on at the provider: {names}; the same command takes up their replies")
        await self._service.aclose()

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin on a new loop, with the jobs that are at the provider."""
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._looks_left = 0
        self._room = QueueQuota(self._pace.longest_poll)
        self._tasks: set[asyncio.Task[None]] = set()
        self._jobs: dict[str, BatchJob] = {}
        self._waiting = PendingCalls(self._model, self._pace.tries)
        self._gathered: dict[str, Call] = {}
        self._taken: set[str] = set()
        for job in self._book.jobs():
            if (job.endpoint, job.model) == (self._service.address, self._model):
                self._jobs[job.token] = job
                self._taken.update(job.keys)
                self._room.take(job.size)
                say(about(job, "taken up again"))
                self._start(self._take_up(job))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        # In an empty context, because a job serves many debates and must not inherit the settings of one.
        task = asyncio.get_running_loop().create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _gather(self, call: Call) -> None:
        """Put a call into the next job of its role and round."""
        self._gathered[call.key] = call
        self._looks_left = _LOOKS
        if len(self._gathered) >= self._pace.calls:
            self._send(list(self._gathered.values()))
        elif self._timer is None:
            self._look_later()

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._pace.quiet / _LOOKS, self._look)

    def _look(self) -> None:
        """Send what was gathered if nothing has come for several looks in a row; else look again later."""
        self._timer = None
        self._looks_left -= 1
        if self._looks_left > 0:
            self._look_later()
        else:
            self._send(list(self._gathered.values()))

    def _send(self, calls: Iterable[Call]) -> None:
        groups: dict[tuple[str, int], list[Call]] = {}
        for call in calls:
            self._gathered.pop(call.key, None)
            if not call.future.done():
                self._taken.add(call.key)
                groups.setdefault(call.group, []).append(call)
        for group in groups.values():
            for part in self._room.parts(group, self._pace.calls, self._pace.size):
                self._start(self._make(part))

    async def _make(self, calls: list[Call]) -> None:
        """Create a job for these calls and follow it to its end."""
        keys, size = [call.key for call in calls], sum(call.size for call in calls)
        await self._room.enter(size)

        async def begin() -> BatchJob | None:
            # While this job waited for its place, callers may have been cancelled and others have joined them.
            wanted = self._waiting.among(keys)
            return await self._submit(wanted) if wanted else None

        await self._see_through(begin, keys, size)

    async def _take_up(self, job: BatchJob) -> None:
        """Follow a job to its end that another process has created, or was about to create."""

        async def begin() -> BatchJob | None:
            if job.id is not None:
                return job
            batch = await self._service.find(job)
            if batch is None:
                self._strike(job)
                return None
            return self._note(replace(job, id=batch.id))

        await self._see_through(begin, job.keys, job.size)

    async def _see_through(
        self, begin: Callable[[], Awaitable[BatchJob | None]], keys: Collection[str], size: int
    ) -> None:
        again: list[Call] = []
        try:
            job = await begin()
            if job is not None:
                again = await self._finish(job, await self._wait_for(job))
        except Exception as raised:
            error = self._service.error(raised)
            if not fatal(error):
                error = dspy.LMConfigurationError(f"no batch job can be carried out: {error}", model=self._model)
            self._waiting.fail(error)
        finally:
            self._room.leave(size)
            self._taken.difference_update(keys)
        # A caller may have joined a call whose job then brought no answer to it.
        for call in dict.fromkeys([*again, *self._waiting.among(keys)]):
            self._gather(call)

    async def _submit(self, calls: list[Call]) -> BatchJob:
        token, (role, turn) = uuid.uuid4().hex, calls[0].group
        lines = [call.line for call in calls]
        if self._waiting.in_doubt(calls) and len(calls) < self._pace.calls:
            # A call that any model can answer: if it fails as well, the provider is at fault and not these calls.
            text = f"Reply with OK. ({token[:8]})"
            lines.append(_line(token, body_of(self._model, [{"role": "user", "content": text}], {})))
        data = b"".join(lines)
        file = await self._service.upload(data, f"{role}-{turn}-{token[:8]}.jsonl")
        keys = tuple(call.key for call in calls)
        job = BatchJob(token, self._service.address, self._model, role, turn, keys, len(data), time.time())
        batch = await self._service.create(file, self._note(job))
        job = self._note(replace(job, id=batch.id))
        say(about(job, "sent"))
        return job

    async def _wait_for(self, job: BatchJob) -> Batch:
        """Poll a job until it is over."""
        pause, shown, shown_at = self._pace.first_poll, "", 0.0
        while True:
            try:
                batch = await self._service.look(job.id or "")
            except dspy.LMUnsupportedModelError as error:
                raise dspy.LMConfigurationError(
                    f"batch job {job.name} is not known to the account of this key. Use the key that it was made "
                    f"with; or, to ask and pay for its calls again, delete {self._book.place(job)}",
                    model=self._model,
                ) from error
            state = progress(batch)
            if state != shown or time.monotonic() - shown_at > _SILENCE:
                say(about(job, state))
                shown, shown_at = state, time.monotonic()
            if batch.status in OVER:
                return batch
            await asyncio.sleep(pause)
            pause = min(1.5 * pause, self._pace.longest_poll)

    async def _finish(self, job: BatchJob, batch: Batch) -> list[Call]:
        """Store and hand out the answers of a finished job; returns the calls to be made again."""
        if batch.status == "failed":
            return await self._refused(job, batch)
        answers = BatchResults()
        for file in (batch.output_file_id, batch.error_file_id):
            raw = await self._service.download(file) if file else b""
            if raw is None:
                _LOG.warning("a file of batch job %s is gone; its calls are made again", job.name)
            read_file(raw or b"", job, answers)
        self._waiting.answers += answers.given()
        if (control := answers.replies.pop(job.token, None)) is not None:
            self._meter.ask("control")
            self._meter.spend("control", control, batch=True)
        for key, reply in answers.replies.items():
            self._store.put(key, job.role, reply)
            if key not in self._waiting:
                self._meter.spend(EARLIER, reply, batch=True)
        self._strike(job)
        self._room.went_well()
        return self._waiting.hand_out(job, batch.status, answers)

    async def _refused(self, job: BatchJob, batch: Batch) -> list[Call]:
        """Handle a job that the service did not accept; returns the calls to be made again."""
        why = refusal(batch, job)
        self._strike(job)
        say(why.reason)
        if why.queue_full:
            await asyncio.sleep(self._room.refused(job.size, len(job.keys)))
            return self._waiting.among(job.keys)
        if why.error is not None:
            raise why.error
        return self._waiting.turn_away(job, why)

    def _note(self, job: BatchJob) -> BatchJob:
        try:
            self._book.save(job)
        except OSError as error:
            raise dspy.LMConfigurationError(f"a batch job could not be written down: {error}") from error
        self._jobs[job.token] = job
        return job

    def _strike(self, job: BatchJob) -> None:
        self._book.delete(job)
        self._jobs.pop(job.token, None)


def _line(key: str, body: dict[str, Any]) -> bytes:
    """A line of a job's file."""
    return orjson.dumps({"custom_id": key, "method": "POST", "url": ENDPOINT, "body": body}) + b"\n"
