"""Ray, started or joined, the loop that hands units to actors until all are done, and what it says meanwhile."""

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
from debate_judge.programs.lm.usage import Meter, Tokens
from debate_judge.runs.distributed.actor import ActorReport, ScoringActor, ScoringJob, UnitDone
from debate_judge.runs.distributed.units import Unit
from debate_judge.runs.flags.parser import EXIT_INPUT, EXIT_LM, RESUMES
from debate_judge.runs.runner.progress import ProgressDisplay
from debate_judge.runs.scoring.output import RowTotals

_AT_ONCE = 2
"""Units that one actor is at: the calls of the next one fill the places that the last items of one leave."""
_TRIES = 4
"""Times that a unit is begun, if each time the process dies."""
_GRACE = 60.0
"""Seconds that actors have to finish what is in flight, once the run is to stop."""
_STARTS = 5
"""Times that Ray is started here before it is given up."""


def require_ray() -> Any:
    """The library, or an error that says how to install it."""
    # Before the import: Ray reads it there.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Its native part writes what it finds remarkable into the terminal.
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
    """Ray itself, joined at an address or started here with room for so many actors; a running one is used.

    Raises:
        InputError: There is none at the address, or it has failed.
    """
    ray = require_ray()
    if ray.is_initialized():
        yield ray
        return
    settings: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        # By itself it would join what the environment names, or what runs on this machine.
        settings |= {"address": "local", "num_cpus": actors, "include_dashboard": False}
    _init(ray, settings, 1 if address else _STARTS)
    try:
        yield ray
    except ray.exceptions.RayError as error:
        raise InputError(
            "Ray has failed",
            field="--engine",
            # It ends with what was raised in an actor.
            found=str(error).strip().rpartition("\n")[2],
            remedy=f"repair the cluster and {RESUMES}",
        ) from error
    finally:
        ray.shutdown()


def _init(ray: Any, settings: dict[str, Any], tries: int) -> None:
    for left in reversed(range(tries)):
        try:
            ray.init(**settings)
            return
        # It raises whatever comes, an Exception as such where a busy machine was too slow for it.
        except Exception as error:
            ray.shutdown()
            if not left:
                raise InputError(
                    "Ray cannot be started" if settings["address"] == "local" else "Ray cannot be joined",
                    field="address",
                    found=str(error),
                    remedy="check that `ray status` knows the cluster, and that the versions of Ray are the same",
                ) from error


def add_rows(into: RowTotals, more: RowTotals) -> None:
    """Add what other units hold."""
    into.rows += more.rows
    into.kept += more.kept
    into.unscored.update(more.unscored)
    for reason, example in more.examples.items():
        into.examples[reason] = into.examples.get(reason) or example


@dataclass
class RunTotals:
    """What all actors have done; `sizes` has the bytes of each unit that is to be scored."""

    sizes: Mapping[str, int]
    rows: RowTotals = field(default_factory=RowTotals)
    """Of all units that are done, those of earlier runs included."""
    meters: dict[str, Meter] = field(default_factory=dict)
    """Actor -> its latest counts; those of a dead one are kept."""
    reported: set[str] = field(default_factory=set)
    """What the user was told of the reading."""
    unread: int = 0
    """Places of the input that could not be read."""
    failure: tuple[int, str] | None = None
    given_up: list[str] = field(default_factory=list)
    """Units that have ended every process that began them."""
    done: set[str] = field(default_factory=set)
    at: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """Actor -> items of the units that it is at."""

    def add(self, unit_done: UnitDone) -> list[str]:
        """Take in what has become of a unit; returns what the user has to be told of it."""
        self.failure = self.failure or unit_done.failure
        if unit_done.rows is not None:
            self.done.add(unit_done.unit)
            add_rows(self.rows, unit_done.rows)
        # All units of a table that lie behind its bad row report that row.
        again = self.reported.intersection(unit_done.errors)
        self.unread += unit_done.unread - len(again)
        new = [text for text in (*unit_done.errors, unit_done.notes) if text and text not in self.reported]
        self.reported.update(new)
        return [text if text == unit_done.notes else f"error: {text}" for text in new]

    def report(self, actor: str, report: ActorReport) -> None:
        """Take in what an actor has done so far."""
        self.meters[actor], self.at[actor] = report.meter, report.items

    @property
    def items(self) -> int:
        """Items that this run has scored, those of unfinished units included."""
        at = [count for units in self.at.copy().values() for count in units.items()]
        return self.rows.rows - self.rows.kept + sum(items for name, items in at if name not in self.done)

    @property
    def share(self) -> float:
        """Of the bytes that this run has to score, those of finished units."""
        return sum(self.sizes[name] for name in self.done) / max(1, sum(self.sizes.values()))

    def meter(self) -> Meter:
        """The counts of all actors together."""
        requested, executed, accounts = Counter[str](), Counter[str](), dict[tuple[str, int], Tokens]()
        for actor_meter in self.meters.copy().values():
            requested.update(actor_meter.requested)
            executed.update(actor_meter.executed)
            for key, tokens in actor_meter.accounts.items():
                accounts[key] = accounts.get(key, Tokens()) + tokens
        return Meter(requested, executed, accounts)


class DistributedProgress(ProgressDisplay):
    """Says how far a run on many machines is."""

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
        if rows.kept:
            parts.append(f"{rows.kept:,} were already present")
        if rows.unscored:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in rows.unscored.most_common(3))
            parts.append(f"unscored: {reasons}")
        calls = f"{meter.executed.total():,} LM calls"
        if self._price is not None and (usd := sum(meter.cost(self._price).values())):
            calls += f", ${usd:.2f}"
        parts.append(calls)
        if share is not None and 0.02 <= share < 0.99:
            parts.append(f"about {100 * share:.0f} % done, {self.left(share)}")
        return " · ".join(parts)


@dataclass(eq=False)
class _Actor:
    name: str
    job: ScoringJob
    handle: Any
    units: int = 0
    """That it is at."""
    suspect: bool = False
    """Whether one of them was begun by a process that died."""
    reporting: bool = False


class UnitDriver:
    """Has actors score units, with a job for each actor, and counts in `totals`."""

    def __init__(self, ray: Any, jobs: Sequence[ScoringJob], units: Sequence[Unit], totals: RunTotals) -> None:
        self._ray, self._totals = ray, totals
        self._replaced = not any(job.options.budget for job in jobs)
        """Whether another actor takes the place of one that died; with a budget not: it may have spent its share."""
        self._stopping = False
        self._left = deque(units)
        self._tries: Counter[str] = Counter()
        self._deaths = 0
        """Since a unit was done."""
        self._waiting: dict[Any, tuple[_Actor, Unit | None]] = {}
        """What is awaited of which actor: a unit, or a report."""
        self._started = 0
        self._actors = [self._start(job) for job in jobs]

    def run(self) -> None:
        """Hand out the units until all are done, or until a failure that concerns all of them has stopped the run.

        After an interrupt the actors finish what is in flight.
        """
        try:
            # A unit of an actor that died may still be awaited, so that it is begun again.
            while self._totals.failure is None and (self._left or any(unit for _, unit in self._waiting.values())):
                self._hand_out()
                self._wait(timeout=1.0)
        except KeyboardInterrupt:
            print("stopping: waiting for calls in flight; press Ctrl-C again to stop at once", file=sys.stderr)
            self._stop()
            raise
        else:
            self._stop()
        finally:
            for actor in self._actors:
                # Where the cluster has failed, its own error is raised already.
                with suppress(self._ray.exceptions.RayError, RuntimeError):
                    self._ray.kill(actor.handle)

    def _start(self, job: ScoringJob) -> _Actor:
        self._started += 1
        # Actors mostly wait for the LM, so that there may be more of them than CPUs.
        remote = self._ray.remote(ScoringActor).options(
            num_cpus=0, scheduling_strategy="SPREAD", max_concurrency=_AT_ONCE + 2
        )
        return _Actor(f"actor {self._started}", job, remote.remote(job))

    def _hand_out(self) -> None:
        for room in range(1, _AT_ONCE + 1):
            for actor in self._actors:
                # A unit that may have ended a process is alone with the next one, so that it ends no other unit's.
                suspect = bool(self._left) and self._tries[self._left[0].name] > 0
                if self._left and actor.units < room and not (actor.units and (suspect or actor.suspect)):
                    actor.units, actor.suspect = actor.units + 1, suspect
                    unit = self._left.popleft()
                    self._waiting[actor.handle.score.remote(unit)] = actor, unit
        for actor in self._actors:
            if not actor.reporting:
                actor.reporting = True
                self._waiting[actor.handle.report.remote()] = actor, None

    def _wait(self, timeout: float) -> None:
        """Take in what comes first."""
        ready, _ = self._ray.wait(list(self._waiting), num_returns=1, timeout=timeout)
        for reference in ready:
            actor, unit = self._waiting.pop(reference)
            if unit is None:
                actor.reporting = False
            else:
                actor.units -= 1
            try:
                answer = self._ray.get(reference)
            except self._ray.exceptions.RayTaskError:
                raise
            except self._ray.exceptions.RayError:
                self._replace(actor)
                answer = None
            if unit is not None:
                self._take(unit, answer)
            elif answer is not None:
                self._totals.report(actor.name, answer)

    def _take(self, unit: Unit, done: UnitDone | None) -> None:
        """Count what has become of a unit; None if the actor died of it."""
        if done is None or (done.rows is None and done.failure is None):
            if self._stopping:
                return
            self._tries[unit.name] += 1
            if self._tries[unit.name] == _TRIES:
                self._totals.given_up.append(str(unit))
            else:
                self._left.append(unit)
            return
        self._deaths = 0
        for text in self._totals.add(done):
            print(text, file=sys.stderr)

    def _replace(self, actor: _Actor) -> None:
        """Go on without an actor that died, or with another one."""
        if actor not in self._actors:
            return
        self._actors.remove(actor)
        self._totals.at.pop(actor.name, None)
        # One that only cannot be reached must not go on.
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(actor.handle)
        self._deaths += 1
        if self._deaths > 3 * _TRIES * (1 + len(self._actors)):
            problem = f"{self._deaths} actors died one after the other, and no unit was done"
            remedy = f"see Ray's logs for the cause (a lack of memory?), then {RESUMES}"
            self._totals.failure = EXIT_INPUT, f"error: {problem}\n  remedy:   {remedy}"
        elif self._replaced:
            self._actors.append(self._start(actor.job))
        elif not self._actors and self._totals.failure is None:
            problem = "all actors were killed, and may have spent their shares of the budget"
            remedy = f"raise --budget if you need to, and {RESUMES}"
            self._totals.failure = EXIT_LM, f"error: {problem}\n  remedy:   {remedy}"

    def _stop(self) -> None:
        """Let the actors finish what is in flight, and hear what they have done."""
        self._left.clear()
        self._stopping = True
        self._replaced = False
        for actor in self._actors:
            self._waiting[actor.handle.stop.remote()] = actor, None
        until = time.monotonic() + _GRACE
        while self._waiting and (left := until - time.monotonic()) > 0:
            self._wait(timeout=left)
