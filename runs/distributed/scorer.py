"""Scores parts in one process, with the judge loaded once and a share of the limits."""

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
from debate_judge.programs.lm.errors import BudgetSpentError, describe
from debate_judge.programs.lm.options import BudgetCaps
from debate_judge.runs.distributed.job import ActorNews, MeterCopy, PartDone, ScoringJob, Service, unpacked
from debate_judge.runs.distributed.parts import PartRows, ScoringPart
from debate_judge.runs.export.folder import open_judge
from debate_judge.runs.export.intervals import fitted_intervals
from debate_judge.runs.runner.streaming import group_items, score_of
from debate_judge.runs.scoring.output import RowTotals
from debate_judge.runs.scoring.rows import extra_fields
from debate_judge.runs.scoring.uncertainty import RowIntervals, interval_fields

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
        share = "of the share of one actor: " if isinstance(error, BudgetSpentError) else ""
        return LM_FAILED, share + describe(error, spec)
    return (INPUT_FAILED, f"error: {error}") if isinstance(error, (InputError, OSError)) else None


def _share(service: Service) -> BudgetCaps:
    share = service.share()
    if share is None:
        raise BudgetSpentError(
            "the next call might exceed the budget: an actor was killed and may have spent all of its share"
        )
    return share


class PartScorer:
    """Scores parts, several at a time where it is called from several threads.

    Args:
        job: What to score with.
        service: Of the run.

    Raises:
        BudgetSpentError: All shares of the budget were given to processes before this one.
        InputError: The folder of the results is not on this machine, or the judge cannot be loaded.
    """

    def __init__(self, job: ScoringJob, service: Service) -> None:
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
        job.out.require_shared()
        sys.path += [place for place in job.path if place not in sys.path]
        self._job, self._service = job, service
        export, options = unpacked(job)
        if job.budgeted:
            options = replace(options, budget=_share(service))
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
        self.id = uuid.uuid4().hex
        self._lm = self._judge.lm
        self._aspects = self._judge.choose(job.aspects)
        judges = [self._judge.compiled.aspects[name].judge for name in job.aspects]
        self._extra = extra_fields(judges, mapped=job.scale == "raters") + interval_fields(job.interval, job.abstain)
        fitted = {} if job.interval is None else fitted_intervals(export.manifest, self._aspects, job.interval)
        self._spans = RowIntervals(fitted, job.abstain)
        self._items = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._closed = threading.Event()
        threading.Thread(target=self._tell, name="part-news", daemon=True).start()

    def score(self, part: ScoringPart) -> PartDone:
        """Score a part and write it; a failure that concerns all parts is told and not raised."""
        done = PartDone(
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
            return done
        if self._stopping.is_set():
            return done
        if self._service.begin(part.name) > _TRIES:
            groups = pickle.loads(part.groups)
            return replace(done, given_up=f"part {part.name}, groups {groups[0].id!r} to {groups[-1].id!r}")
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
        return PartDone(part.slice, part.name, part.size, rows, failure=failure, actor=self.id, meter=meter)

    def _score(self, part: ScoringPart) -> RowTotals:
        rows = PartRows(self._job.out.suffix, self._extra)
        begun = 0
        try:
            for item, judgement in self._judge.stream(self._items_of(part)):
                score = score_of(self._judge.compiled, item, judgement, self._job.scale)
                rows.add(item, self._spans.applied(item, score))
                begun += 1
                with self._lock:
                    self._items += 1
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
            # A service that does not answer is about to come back, or the run is over and this process about to end.
            with suppress(Exception):
                if self._service.tell(self._news()):
                    self._stopping.set()
            self._stopping.wait(_BEAT)
        try:
            self._judge.close()
            with suppress(Exception):
                self._service.tell(self._news(closed=True))
        finally:
            self._closed.set()

    def _news(self, closed: bool = False) -> ActorNews:
        meter = MeterCopy.of(self._lm.meter)
        return ActorNews(self.id, meter, self._items, os.getpid(), closed)
