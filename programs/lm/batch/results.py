"""What the files and the state of a finished batch job say about each of its calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dspy
import orjson
from dspy import lm15

from debate_judge.programs.lm.batch.jobs import BatchJob
from debate_judge.programs.lm.errors import lm_error
from debate_judge.programs.lm.http.chat_completions import read_reply, refused
from debate_judge.programs.lm.reply import Reply

if TYPE_CHECKING:
    from openai.types import Batch

OVER = ("completed", "failed", "expired", "cancelled")
"""States that a job does not leave."""

_QUEUE_FULL = "token_limit_exceeded"
_BILLING = ("billing_hard_limit_reached", "insufficient_quota", "billing_not_active")


@dataclass(slots=True)
class BatchResults:
    """Key of a call -> its outcome; a key in neither mapping was not answered."""

    replies: dict[str, Reply] = field(default_factory=dict)
    errors: dict[str, dspy.LMError] = field(default_factory=dict)

    def given(self) -> int:
        """Calls that were answered at all, if only to be refused for good."""
        return len(self.replies) + sum(not dspy.is_retryable_lm_error(error) for error in self.errors.values())


def read_file(raw: bytes, job: BatchJob, into: BatchResults) -> None:
    """Read a file of answers, whose lines come in any order.

    A line is {"custom_id", "response": {"status_code", "body"} or null, "error": {"code", "message"} or null}; an
    error of the endpoint is in the response's body, one of the job in `error`. Other lines, and lines about calls of
    other jobs, are skipped; of two lines about one call the first counts.
    """
    # A call of no debate, which tells an outage, goes by the job's own name.
    known = {*job.keys, job.token}
    for line in raw.split(b"\n"):
        try:
            entry = orjson.loads(line)
            key = entry["custom_id"]
        except (ValueError, LookupError, TypeError):
            continue
        if not isinstance(key, str) or key not in known:
            continue
        known.discard(key)
        try:
            into.replies[key] = _reply(entry)
        except lm15.LM15Error as error:
            into.errors[key] = lm_error(error, job.model)


def _reply(entry: Mapping[str, Any]) -> Reply:
    response, error = entry.get("response"), entry.get("error")
    status = response.get("status_code") if isinstance(response, dict) else None
    if not isinstance(status, int) or status < 100 or not isinstance(response, dict):
        # Expired, cancelled, or never sent (status 0): there was no answer.
        told = error if isinstance(error, dict) else {}
        raise lm15.ServerError(f"{told.get('code') or 'no response'}: {told.get('message') or 'not answered'}")
    body = orjson.dumps(response.get("body"))
    return read_reply(body) if 200 <= status < 300 else refused(status, body[:2000].decode(errors="replace"), None)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job was not taken."""

    reason: str
    queue_full: bool
    """Whether more tokens wait at the provider than the account may have there."""
    lines: Mapping[str, str]
    """Key of a call -> what is wrong with its line."""
    error: dspy.LMError | None
    """What no other job could escape, where that is the reason."""


def refusal(batch: Batch, job: BatchJob) -> Refusal:
    """Read the errors of a job in state `failed`: each has a code, a message, and a line, from 1, or none."""
    found = (batch.errors.data if batch.errors else None) or []
    codes = [e.code or "" for e in found]
    reason = "; ".join(sorted({f"{e.code}: {e.message}" for e in found})[:3]) or "no reason was given"
    reason = f"batch job {job.name} was refused: {reason}"
    lines = {
        job.keys[e.line - 1]: f"{e.code}: {e.message}"
        for e in found
        if e.line is not None and 1 <= e.line <= len(job.keys)
    }
    error: dspy.LMError | None = None
    if any(code in _BILLING for code in codes):
        error = dspy.LMBillingError(reason, model=job.model)
    elif any("model" in code and code != "model_mismatch" for code in codes):
        error = dspy.LMUnsupportedModelError(reason, model=job.model)
    elif not lines:
        error = dspy.LMConfigurationError(reason, model=job.model)
    full = _QUEUE_FULL in codes
    return Refusal(reason, full, lines, None if full else error)
