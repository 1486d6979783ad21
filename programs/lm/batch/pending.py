"""The calls whose callers wait for batch jobs, and what each of them gets when its job is over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

import dspy

from debate_judge.programs.lm.batch.jobs import BatchJob
from debate_judge.programs.lm.batch.results import BatchResults, Refusal
from debate_judge.programs.lm.errors import ProviderDownError, fatal
from debate_judge.programs.lm.reply import Reply


@dataclass(slots=True, eq=False)
class Call:
    """A call whose caller waits for `future`."""

    key: str
    group: tuple[str, int]
    """Role and round."""
    line: bytes
    """Of a job's file."""
    future: asyncio.Future[Reply]
    seen: int
    """Answers that the provider had given to any call when this one was made."""
    tries: int = 0
    """Jobs that have ended without an answer to it."""

    @property
    def size(self) -> int:
        return len(self.line)


class PendingCalls:
    """The calls that wait, by key.

    Args:
        model: For messages.
        tries: Jobs that a call may go out in.
    """

    def __init__(self, model: str, tries: int) -> None:
        self._model, self._tries = model, tries
        self._calls: dict[str, Call] = {}
        self.answers = 0
        """Answers so far, to any call, final errors included."""

    def __contains__(self, key: str) -> bool:
        return key in self._calls

    def add(self, call: Call) -> None:
        self._calls[call.key] = call

    def drop(self, call: Call) -> None:
        """Forget a call whose caller no longer waits."""
        if self._calls.get(call.key) is call:
            del self._calls[call.key]

    def among(self, keys: Iterable[str]) -> list[Call]:
        """The calls with these keys that have no answer yet."""
        found = (self._calls.get(key) for key in keys)
        return [call for call in found if call is not None and not call.future.done()]

    def in_doubt(self, calls: Iterable[Call]) -> bool:
        """Whether one of these calls goes out for the last time, and no call was answered since its first time."""
        return any(c.tries and c.tries == self._tries - 1 and c.seen == self.answers for c in calls)

    def fail(self, error: dspy.LMError) -> None:
        """Let all calls fail with `error`, which any of them would meet as well."""
        for call in self.among(list(self._calls)):
            call.future.set_exception(error)

    def hand_out(self, job: BatchJob, state: str, answers: BatchResults) -> list[Call]:
        """Give each caller its answer from a finished job; returns the calls to be made again.

        Raises:
            dspy.LMError: A failure that no other call could escape.
        """
        again: list[Call] = []
        for call in self.among(job.keys):
            reply = answers.replies.get(call.key)
            if reply is not None:
                call.future.set_result(reply)
                continue
            error = answers.errors.get(call.key) or dspy.LMServerError(
                f"batch job {job.name} is {state} and has no answer to this call", model=self._model
            )
            call.tries += 1
            if fatal(error):
                raise error
            passing = dspy.is_retryable_lm_error(error)
            if passing and call.tries < self._tries:
                again.append(call)
            elif passing and call.seen == self.answers:
                raise ProviderDownError(
                    f"no call was answered in {call.tries} batch jobs; the last failure: {error}", model=self._model
                )
            else:
                call.future.set_exception(error)
        return again

    def turn_away(self, job: BatchJob, why: Refusal) -> list[Call]:
        """Let the calls fail whose lines were the reason for the refusal of a job; returns the other calls."""
        for call in self.among(job.keys):
            call.tries += 1
            wrong = why.lines.get(call.key)
            if wrong is not None or call.tries >= self._tries:
                call.future.set_exception(dspy.LMInvalidRequestError(wrong or why.reason, model=self._model))
        return self.among(job.keys)
