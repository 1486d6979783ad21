"""Scores parts in one process, with the judge loaded once and a share of the account."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import dspy

from debate_judge.data.errors import InputError
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.errors import describe
from debate_judge.programs.lm.lending.lease import Lease
from debate_judge.runs.distributed.job import Account, ActorNews, MeterCopy, PartDone, ScoringJob, unpacked
from debate_judge.runs.distributed.parts import PartRows, ScoringPart
from debate_judge.runs.export.folder import open_judge
from debate_judge.runs.runner.streaming import group_items, score_of, window
from debate_judge.runs.scoring.outage_guard import OutageError, OutageGuard
from debate_judge.runs.scoring.output import RowTotals
from debate_judge.runs.scoring.rows import extra_fields

INPUT_FAILED, LM_FAILED = 2, 3
"""Exit codes, as of `score`."""
_TRIES = 4
"""Times that a part is begun. Ray gives it to another process as often as one ends over it."""
_BEAT = 1.0
"""Seconds between two pieces of news."""


def failure_of(error: Exception, spec: str) -> tuple[int, str] | None:
    """Exit code and message of an error that ends the run in order; None for any other.

    Args:
        error: What was raised.
        spec: Of the LM.
    """
    if isinstance(error, dspy.LMError):
        return LM_FAILED, describe(error, spec)
    if isinstance(error, OutageError):
        remedy = "mend it and run the same command again; what was answered is kept and not paid again"
        return LM_FAILED, f"error: the LM failed: {error}\n  remedy:   {remedy}"
    return (INPUT_FAILED, f"error: {error}") if isinstance(error, (InputError, OSError)) else None


class PartScorer:
    """Scores parts, several at a time where it is called from several threads.

    Args:
        job: What to score with.
        account: The ledger's service.

    Raises:
        InputError: The folder of the results is not on this machine, or the judge cannot be loaded.
    """

    def __init__(self, job: ScoringJob, account: Account) -> None:
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
        job.out.require_shared()
        sys.path += [place for place in job.path if place not in sys.path]
        self._job, self._account = job, account
        export, options = unpacked(job)
        self._judge = open_judge(
            export,
            lm=job.lm,
            api_base=job.api_base,
            concurrency=job.concurrency,
            store=Path(job.store),
            replies=job.replies,
            options=options,
            max_tokens=job.max_tokens,
        )
        self.lessee = uuid.uuid4().hex
        self._lease = Lease(self.lessee, account.exchange)
        self._lm = self._judge.lm
        self._lm.caller.join(self._lease)
        self._aspects = self._judge.choose(job.aspects)
        judges = [self._judge.compiled.aspects[name].judge for name in job.aspects]
        self._extra = extra_fields(judges, mapped=job.scale == "raters")
        self._items = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._closed = threading.Event()
        threading.Thread(target=self._tell, name="part-news", daemon=True).start()

    def score(self, part: ScoringPart) -> PartDone:
        """Score a part and write it; a failure that concerns all parts is told and not raised."""
        told = PartDone(
            part.slice,
            part.name,
            part.size,
            part.standing,
            errors=tuple(part.errors),
            unread=part.unread,
            notes=tuple(part.notes),
            parts=part.parts,
        )
        if not part.groups:
            return told
        if self._stopping.is_set():
            return told
        if self._account.begin(part.name) > _TRIES:
            groups = pickle.loads(part.groups)
            return replace(told, given_up=f"part {part.name}, groups {groups[0].id!r} to {groups[-1].id!r}")
        rows, failure = None, None
        try:
            rows = self._score(part)
        except CancelledError:
            # The judge was closed, as it is where the run is to stop.
            pass
        except Exception as error:
            failure = failure_of(error, self._job.lm or self._lm.model)
            # A closed judge takes no further item.
            if failure is None and not self._stopping.is_set():
                raise
        meter = MeterCopy.of(self._lm.meter)
        return PartDone(part.slice, part.name, part.size, rows, failure=failure, lessee=self.lessee, meter=meter)

    def _score(self, part: ScoringPart) -> RowTotals:
        rows = PartRows(self._job.out.suffix, self._extra)
        guard = OutageGuard(rows, window(self._lm), self._job.patient)
        begun = 0
        try:
            for item, judgement in self._judge.stream(self._items_of(part)):
                score = score_of(self._judge.compiled, item, judgement, self._job.scale)
                guard.add(item, score)
                begun += 1
                with self._lock:
                    self._items += 1
            guard.finish()
            self._job.out.write_part(part.name, rows.encoded())
        finally:
            with self._lock:
                self._items -= begun
        return rows.tally

    def _items_of(self, part: ScoringPart) -> Iterator[Item]:
        for group in pickle.loads(part.groups):
            yield from group_items(self._judge.task, group, self._aspects)

    def close(self) -> None:
        """Take no further part, and wait until what is in flight has been answered and kept."""
        self._stopping.set()
        self._closed.wait()

    def _tell(self) -> None:
        while not self._stopping.is_set():
            # A ledger that does not answer is about to come back, or the run is over and this process about to end.
            with suppress(Exception):
                if self._account.tell(self._news()):
                    self._stopping.set()
            self._stopping.wait(_BEAT)
        try:
            self._judge.close()
            with suppress(Exception):
                self._account.settle(self._lease.report(last=True))
                self._account.tell(self._news(closed=True))
        finally:
            self._closed.set()

    def _news(self, closed: bool = False) -> ActorNews:
        meter = MeterCopy.of(self._lm.meter)
        return ActorNews(self.lessee, meter, self._items, os.getpid(), closed)
