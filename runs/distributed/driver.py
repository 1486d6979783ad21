"""Watches a distributed run from its beginning to its end, or to an end in order where it has to stop."""

from __future__ import annotations

import pickle
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator

from debate_judge.runs.distributed.job import PartDone
from debate_judge.runs.distributed.out_folder import OutFolder
from debate_judge.runs.distributed.progress import RunTotals
from debate_judge.runs.distributed.service import RunStatus
from debate_judge.runs.flags.parser import RESUMES
from debate_judge.runs.scoring.rows import PROVIDER_FAILED
from debate_judge.runs.scoring.settings import EXIT_INPUT

_POLL = 0.5
"""Seconds between two questions to the service."""
_SILENCE = 120.0
"""Seconds after which a service that does not answer is taken for lost; Ray restarts one within some seconds."""
_GRACE = 60.0
"""Seconds that actors have to finish what is in flight, once the run is to stop."""
_LOST = (
    f"error: the service of the run has not answered for {_SILENCE:.0f} s, and no actor may go on without it\n"
    f"  remedy:   see in Ray's logs why it does not start again, and {RESUMES}"
)


class RunDriver:
    """Takes in what the actors say.

    Args:
        out: The folder of the results.
        totals: Where it is counted.
        ask: Asks the service; tells it whether to stop all actors.
    """

    def __init__(self, out: OutFolder, totals: RunTotals, ask: Callable[[bool], RunStatus | None]) -> None:
        self._out, self._totals, self._ask = out, totals, ask
        self._found: queue.Queue[PartDone | BaseException | None] = queue.Queue()
        self._ended = threading.Event()
        self._heard = time.monotonic()

    def run(self, done: Iterator[bytes]) -> None:
        """Follow the pipeline until it ends, or until a failure that concerns all parts has stopped it.

        Raises:
            KeyboardInterrupt: The user stopped it; the actors have finished what was in flight, or had their time to.
        """
        thread = threading.Thread(target=self._pump, args=(done,), name="parts-done", daemon=True)
        thread.start()
        try:
            while self._step(stop=False):
                if self._totals.failure is not None:
                    self._stop()
                    return
        except KeyboardInterrupt:
            print("stopping: what is in flight is waited for; once more to stop at once", file=sys.stderr)
            self._stop()
            raise
        finally:
            self._ended.set()
            # The pipeline ends its actors when its iterator is closed, which the thread does.
            thread.join(timeout=_POLL * 10)

    def _pump(self, done: Iterator[bytes]) -> None:
        """Read the pipeline, in a thread of its own: an interrupt must not tear it down at once."""
        try:
            for one in done:
                self._found.put(pickle.loads(one))
                if self._ended.is_set():
                    break
            self._found.put(None)
        except BaseException as error:
            self._found.put(error)
        finally:
            close = getattr(done, "close", None)
            if close is not None:
                close()

    def _step(self, stop: bool) -> bool:
        """Take in what there is; returns whether the pipeline goes on."""
        until = time.monotonic() + _POLL
        while (left := until - time.monotonic()) > 0:
            try:
                found = self._found.get(timeout=left)
            except queue.Empty:
                break
            if found is None:
                self._look(stop)
                return False
            if isinstance(found, BaseException):
                raise found
            self._take(found)
        self._look(stop)
        return True

    def _take(self, done: PartDone) -> None:
        for error in done.errors:
            print(f"error: {error}", file=sys.stderr)
        whole = self._totals.add(done)
        if whole is not None and not PROVIDER_FAILED & whole.unscored.keys():
            self._out.finish_slice(done.slice, self._totals.parts(done.slice), whole)

    def _look(self, stop: bool) -> bool:
        """Ask the service; returns whether all actors have stopped."""
        status = self._ask(stop)
        if status is None:
            if time.monotonic() - self._heard > _SILENCE and self._totals.failure is None:
                self._totals.failure = EXIT_INPUT, _LOST
            return False
        self._heard = time.monotonic()
        self._totals.hear(status.news.values())
        return status.idle

    def _stop(self) -> None:
        until = time.monotonic() + _GRACE
        while time.monotonic() < until and self._step(stop=True):
            if self._look(stop=True):
                # What they have said last.
                self._step(stop=True)
                return
