"""From `--batch openai` and an LM's spec to the line that its calls take."""

from __future__ import annotations

import os

import dspy

from data.errors import InputError
from programs.batch_book import book_of
from programs.batch_line import BatchLine
from programs.batch_service import BatchService
from programs.calls import ReplyStore
from programs.engines import COMPATIBLE
from programs.lm_options import LMOptions
from programs.meter import Meter


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


def line_for(spec: str, api_base: str | None, options: LMOptions, store: ReplyStore, meter: Meter) -> BatchLine:
    """The line for openai/MODEL; the key comes from OPENAI_API_KEY.

    Raises:
        dspy.LMNotConfiguredError: There is no key, and the address is OpenAI's own.
    """
    key = os.environ.get("OPENAI_API_KEY")
    if not key and api_base is None:
        raise dspy.LMNotConfiguredError("--batch openai needs a key: set OPENAI_API_KEY", model=spec)
    address = api_base or os.environ.get("OPENAI_API_BASE") or COMPATIBLE["openai"]
    service = BatchService(address, key or "unused", spec, options)
    return BatchLine(service, book_of(store), store=store, meter=meter, pace=options.batch_pace, model=spec)
