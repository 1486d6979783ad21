"""Starts or joins Ray, and assigns units to actors until all are done, with progress on stderr."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from debate_judge.data.errors import InputError, install_hint
from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.usage import Meter, Usage
from debate_judge.runs.distributed.actor import ActorReport, ScoringActor, ScoringJob, UnitResult
from debate_judge.runs.distributed.units import Unit
from debate_judge.runs.flags.parser import EXIT_INPUT, EXIT_LM, RESUME_HINT
from debate_judge.runs.runner.progress import ProgressDisplay
from debate_judge.runs.scoring.output import RowTotals

_UNITS_PER_ACTOR = 2
"""Units that an actor scores at once: calls of the next one keep it busy while the last items of one finish."""
_MAX_ATTEMPTS = 4
"""Attempts at a unit during which the process died, before the unit is given up."""
_GRACE_PERIOD = 60.0
"""Seconds for actors to finish calls in flight when the run stops."""
_MAX_RAY_STARTS = 5
"""Attempts to start Ray on this machine."""


def require_ray() -> Any:
    """Import Ray, or raise an error that says how to install it."""
    # Before the import: Ray reads it there.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Its native code would log to the terminal.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        import ray
    except ImportError as error:
        raise InputError(
            "the engine ray is not installed", field="--engine", found=str(error), remedy=install_hint("ray")
        ) from None
    return ray


@contextmanager
def cluster(address: str | None, actors: int) -> Iterator[Any]:
    """The module `ray`, connected to the cluster at `address`, to the running one, or to one started for `actors`.

    Raises:
        InputError: There is none at the address, or it has failed.
    """
    ray = require_ray()
    if ray.is_initialized():
        yield ray
        return
    settings: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        # Without an address Ray would join the cluster that the environment names, or one that runs on this machine.
        settings |= {"address": "local", "num_cpus": actors, "include_dashboard": False}
    _init(ray, settings, 1 if address else _MAX_RAY_STARTS)
    try:
        yield ray
    except ray.exceptions.RayError as error:
        raise InputError(
            "Ray has failed",
            field="--engine",
            # Its last line is the error that was raised in an actor.
            found=str(error).strip().rpartition("\n")[2],
            remedy=f"repair the cluster and {RESUME_HINT}",
        ) from error
    finally:
        ray.shutdown()


def _init(ray: Any, settings: dict[str, Any], attempts: int) -> None:
    for attempts_left in reversed(range(attempts)):
        try:
            ray.init(**settings)
            return
        # Any error may come, a bare Exception among them where a busy machine was too slow.
        except Exception as error:
            ray.shutdown()
            if not attempts_left:
                raise InputError(
                    "Ray cannot be started" if settings["address"] == "local" else "Ray cannot be joined",
                    field="address",
                    found=str(error),
                    remedy="check that `ray status` knows the cluster, and that the versions of Ray are the same",
                ) from error


def add_rows(totals: RowTotals, unit: RowTotals) -> None:
    """Add the counts of another unit."""
    totals.rows += unit.rows
    totals.existing += unit.existing
    totals.unscored.update(unit.unscored)
    for reason, example in unit.examples.items():
        totals.examples[reason] = totals.examples.get(reason) or example


@dataclass
class RunTotals:
    """The progress of all actors; `sizes` has the bytes of each unit that is to be scored."""

    sizes: Mapping[str, int]
    rows: RowTotals = field(default_factory=RowTotals)
    """Rows of all finished units, those of earlier runs included."""
    meters: dict[str, Meter] = field(default_factory=dict)
    """Actor -> its latest counts; those of a dead actor are kept."""
    reported: set[str] = field(default_factory=set)
    """Messages about the reading that were printed."""
    unreadable: int = 0
    """Records of the input that could not be read."""
    failure: tuple[int, str] | None = None
    given_up: list[str] = field(default_factory=list)
    """Units at which the process died in every attempt."""
    finished: set[str] = field(default_factory=set)
    in_progress: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """Actor -> unit in progress -> items scored."""

    def add(self, result: UnitResult) -> list[str]:
        """Count the result of a unit; returns the messages to print about it."""
        self.failure = self.failure or result.failure
        if result.rows is not None:
            self.finished.add(result.unit)
            add_rows(self.rows, result.rows)
        # All units of a table after a bad row report that row.
        repeated = self.reported.intersection(result.errors)
        self.unreadable += result.unreadable - len(repeated)
        new = [text for text in (*result.errors, result.notes) if text and text not in self.reported]
        self.reported.update(new)
        return [text if text == result.notes else f"error: {text}" for text in new]

    def report(self, actor: str, report: ActorReport) -> None:
        """Record the progress of an actor."""
        self.meters[actor], self.in_progress[actor] = report.meter, report.items

    @property
    def items(self) -> int:
        """Items that this run has scored, those of unfinished units included."""
        counts = [count for units in self.in_progress.copy().values() for count in units.items()]
        return self.rows.rows - self.rows.existing + sum(items for name, items in counts if name not in self.finished)

    @property
    def share(self) -> float:
        """Share of the bytes of this run that are in finished units."""
        return sum(self.sizes[name] for name in self.finished) / max(1, sum(self.sizes.values()))

    def meter(self) -> Meter:
        """The counts of all actors together."""
        requested, executed, accounts = Counter[str](), Counter[str](), dict[tuple[str, int], Usage]()
        for actor_meter in self.meters.copy().values():
            requested.update(actor_meter.requested)
            executed.update(actor_meter.executed)
            for key, tokens in actor_meter.accounts.items():
                accounts[key] = accounts.get(key, Usage()) + tokens
        return Meter(requested, executed, accounts)


class DistributedProgress(ProgressDisplay):
    """The progress of a run on many machines."""

    def __init__(self, totals: RunTotals, price: Price | None) -> None:
        super().__init__()
        self._totals, self._price = totals, price

    @property
    def share(self) -> float | None:
        return self._totals.share or None

    def summary(self) -> str:
        totals = self._totals
        rows, meter, share = totals.rows, totals.meter(), self.share
        speed = totals.items / max(1e-9, self.clock() - self.started)
        parts = [f"{totals.items:,} items scored, {speed:,.1f} a second"]
        if rows.existing:
            parts.append(f"{rows.existing:,} were already present")
        if rows.unscored:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in rows.unscored.most_common(3))
            parts.append(f"unscored: {reasons}")
        calls = f"{meter.executed.total():,} LM calls"
        if self._price is not None and (usd := sum(meter.cost(self._price).values())):
            calls += f", ${usd:.2f}"
        parts.append(calls)
        if share is not None and 0.02 <= share < 0.99:
            parts.append(f"about {100 * share:.0f} % done, {self.time_left(share)}")
        return " · ".join(parts)


@dataclass(eq=False)
class _Actor:
    name: str
    job: ScoringJob
    handle: Any
    active: int = 0
    """Number of units in progress."""
    suspect: bool = False
    """Whether the process died in an earlier attempt at one of them."""
    reporting: bool = False


class UnitDriver:
    """Assigns units to actors, one job per actor, and records results in `totals`."""

    def __init__(self, ray: Any, jobs: Sequence[ScoringJob], units: Sequence[Unit], totals: RunTotals) -> None:
        self._ray, self._totals = ray, totals
        self._replaces_actors = not any(job.options.budget for job in jobs)
        """Whether a dead actor is replaced; not with a budget, because it may have spent its share."""
        self._stopping = False
        self._queue = deque(units)
        self._attempts: Counter[str] = Counter()
        self._deaths = 0
        """Actors that died since the last finished unit."""
        self._awaited: dict[Any, tuple[_Actor, Unit | None]] = {}
        """Ray reference -> actor, and its unit; None for a report."""
        self._started = 0
        self._actors = [self._start(job) for job in jobs]

    def run(self) -> None:
        """Assign units until all are done, or until a failure that concerns all of them stops the run.

        After an interrupt the actors finish what is in flight.
        """
        try:
            # Awaited units count, too: the actor may die, and the unit is then assigned again.
            while self._totals.failure is None and (self._queue or any(unit for _, unit in self._awaited.values())):
                self._assign_units()
                self._wait(timeout=1.0)
        except KeyboardInterrupt:
            print("stopping: waiting for calls in flight; press Ctrl-C again to stop at once", file=sys.stderr)
            self._stop()
            raise
        else:
            self._stop()
        finally:
            for actor in self._actors:
                # If the cluster has failed, its own error is being raised.
                with suppress(self._ray.exceptions.RayError, RuntimeError):
                    self._ray.kill(actor.handle)

    def _start(self, job: ScoringJob) -> _Actor:
        self._started += 1
        # Actors mostly wait for the LM, so that there may be more of them than CPUs.
        remote = self._ray.remote(ScoringActor).options(
            num_cpus=0, scheduling_strategy="SPREAD", max_concurrency=_UNITS_PER_ACTOR + 2
        )
        return _Actor(f"actor {self._started}", job, remote.remote(job))

    def _assign_units(self) -> None:
        for limit in range(1, _UNITS_PER_ACTOR + 1):
            for actor in self._actors:
                # A unit that may have killed an actor gets one to itself, so that it takes no other unit down.
                suspect = bool(self._queue) and self._attempts[self._queue[0].name] > 0
                if self._queue and actor.active < limit and not (actor.active and (suspect or actor.suspect)):
                    actor.active, actor.suspect = actor.active + 1, suspect
                    unit = self._queue.popleft()
                    self._awaited[actor.handle.score.remote(unit)] = actor, unit
        for actor in self._actors:
            if not actor.reporting:
                actor.reporting = True
                self._awaited[actor.handle.report.remote()] = actor, None

    def _wait(self, timeout: float) -> None:
        """Handle the first result or report."""
        ready, _ = self._ray.wait(list(self._awaited), num_returns=1, timeout=timeout)
        for reference in ready:
            actor, unit = self._awaited.pop(reference)
            if unit is None:
                actor.reporting = False
            else:
                actor.active -= 1
            try:
                result = self._ray.get(reference)
            except self._ray.exceptions.RayTaskError:
                raise
            except self._ray.exceptions.RayError:
                self._replace(actor)
                result = None
            if unit is not None:
                self._record(unit, result)
            elif result is not None:
                self._totals.report(actor.name, result)

    def _record(self, unit: Unit, result: UnitResult | None) -> None:
        """Record the result of a unit; None if the actor died."""
        if result is None or (result.rows is None and result.failure is None):
            if self._stopping:
                return
            self._attempts[unit.name] += 1
            if self._attempts[unit.name] == _MAX_ATTEMPTS:
                self._totals.given_up.append(str(unit))
            else:
                self._queue.append(unit)
            return
        self._deaths = 0
        for text in self._totals.add(result):
            print(text, file=sys.stderr)

    def _replace(self, actor: _Actor) -> None:
        """Remove an actor that died, and start another one unless there is a budget."""
        if actor not in self._actors:
            return
        self._actors.remove(actor)
        self._totals.in_progress.pop(actor.name, None)
        # One that is alive but cannot be reached must not go on.
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(actor.handle)
        self._deaths += 1
        if self._deaths > 3 * _MAX_ATTEMPTS * (1 + len(self._actors)):
            problem = f"{self._deaths} actors died one after the other, and no unit was done"
            remedy = f"see Ray's logs for the cause (a lack of memory?), then {RESUME_HINT}"
            self._totals.failure = EXIT_INPUT, f"error: {problem}\n  remedy:   {remedy}"
        elif self._replaces_actors:
            self._actors.append(self._start(actor.job))
        elif not self._actors and self._totals.failure is None:
            problem = "all actors were killed, and may have spent their shares of the budget"
            remedy = f"raise --budget if you need to, and {RESUME_HINT}"
            self._totals.failure = EXIT_LM, f"error: {problem}\n  remedy:   {remedy}"

    def _stop(self) -> None:
        """Let the actors finish calls in flight, and collect their last results and reports."""
        self._queue.clear()
        self._stopping = True
        self._replaces_actors = False
        for actor in self._actors:
            self._awaited[actor.handle.stop.remote()] = actor, None
        deadline = time.monotonic() + _GRACE_PERIOD
        while self._awaited and (seconds_left := deadline - time.monotonic()) > 0:
            self._wait(timeout=seconds_left)
