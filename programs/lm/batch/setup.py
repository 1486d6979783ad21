"""From `--batch openai` and an LM's spec to the line that its calls take."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

import dspy

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.address import COMPATIBLE
from debate_judge.programs.lm.batch.dispatcher import BatchDispatcher
from debate_judge.programs.lm.batch.jobs import BatchJob, book_of
from debate_judge.programs.lm.batch.service import BatchService
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.reply import ReplyStore
from debate_judge.programs.lm.usage import Meter

_LOG = logging.getLogger(__name__)


def require_batchable(spec: str) -> None:
    """Refuse an LM that OpenAI's Batch API does not have.

    Raises:
        InputError: The spec has another provider than `openai`, or none.
    """
    if spec.partition("/")[0] != "openai" or "/" not in spec:
        raise InputError(
            f"{spec} cannot be asked in batch jobs",
            field="--batch",
            expected="--lm openai/MODEL with --batch openai",
            found=spec,
            remedy="leave --batch away, or choose such an LM",
        )


def _warn_of(jobs: Sequence[BatchJob]) -> None:
    """Warn that calls about to be made one by one may be part of batch jobs that are already paid for."""
    if jobs:
        _LOG.warning(
            "%d LM calls of an earlier run are in batch jobs that go on at the provider; only with --batch openai are "
            "their replies waited for, otherwise these calls are made and paid again",
            sum(len(job.keys) for job in jobs),
        )


def line_for(
    spec: str, api_base: str | None, options: LMOptions, store: ReplyStore, meter: Meter
) -> BatchDispatcher | None:
    """The line for openai/MODEL, None where no batch jobs are wanted; the key comes from OPENAI_API_KEY.

    Raises:
        dspy.LMNotConfiguredError: There is no key, and the address is OpenAI's own.
    """
    book = book_of(store)
    if options.batch is None:
        _warn_of(book.jobs())
        return None
    key = os.environ.get("OPENAI_API_KEY")
    if not key and api_base is None:
        raise dspy.LMNotConfiguredError("--batch openai needs a key: set OPENAI_API_KEY", model=spec)
    service = BatchService(api_base or COMPATIBLE["openai"], key or None, spec, options)
    return BatchDispatcher(service, book, store=store, meter=meter, pace=options.batch_pace, model=spec)
