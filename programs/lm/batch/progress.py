"""Lines of progress about batch jobs, on stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from debate_judge.programs.lm.batch.jobs import BatchJob

if TYPE_CHECKING:
    from openai.types import Batch


def about(job: BatchJob, state: str) -> str:
    """A line about a job."""
    return f"batch job {job.name}: role {job.role}, round {job.round}, {len(job.keys):,} calls, {state}"


def progress(batch: Batch) -> str:
    """How far a job is."""
    counts = batch.request_counts
    if counts is None or not counts.total:
        return batch.status
    failed = f", {counts.failed:,} failed" if counts.failed else ""
    state = "" if batch.status == "in_progress" else f" ({batch.status})"
    return f"{counts.completed:,} done{failed}{state}"


def say(text: str) -> None:
    """Tell it at once; a bar that is on the screen stays below it."""
    if sys.stderr is not None:
        print(text, file=sys.stderr, flush=True)
