"""Ray, started or joined, and the loop that hands units to actors until all are done, or until the run has to stop."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from debate_judge.data.errors import InputError, install_hint
from debate_judge.runs.distributed.actor import ScoringActor, ScoringJob, UnitDone
from debate_judge.runs.distributed.progress import RunTotals
from debate_judge.runs.distributed.units import Unit
from debate_judge.runs.flags.parser import RESUMES
from debate_judge.runs.scoring.settings import EXIT_INPUT, EXIT_LM

_AT_ONCE = 2
"""Units that one actor is at: the calls of the next one fill the places that the last items of one leave."""
_TRIES = 4
"""Times that a unit is begun, if each time the process dies."""
_GRACE = 60.0
"""Seconds that actors have to finish what is in flight, once the run is to stop."""
_STARTS = 5
"""Times that Ray is started here before it is given up."""


def require_ray() -> Any:
    """The library.

    Raises:
        InputError: It is not installed.
    """
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
    """Has actors score units.

    Args:
        ray: Running.
        jobs: What each actor scores with.
        units: To be scored.
        totals: Where it is counted.
    """

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

        Raises:
            KeyboardInterrupt: The user stopped it; the actors have finished what was in flight, or had their time to.
        """
        try:
            # A unit of an actor that died may still be awaited, so that it is begun again.
            while self._totals.failure is None and (self._left or any(unit for _, unit in self._waiting.values())):
                self._hand_out()
                self._wait(timeout=1.0)
        except KeyboardInterrupt:
            print("stopping: what is in flight is waited for; once more to stop at once", file=sys.stderr)
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
            found = f"{self._deaths} actors died one after the other, and no unit was done"
            remedy = f"see Ray's logs for the cause (a lack of memory?), then {RESUMES}"
            self._totals.failure = EXIT_INPUT, f"error: {found}\n  remedy:   {remedy}"
        elif self._replaced:
            self._actors.append(self._start(actor.job))
        elif not self._actors and self._totals.failure is None:
            found = "all actors were killed, and may have spent their shares of the budget"
            remedy = f"raise --budget if you need to, and {RESUMES}"
            self._totals.failure = EXIT_LM, f"error: {found}\n  remedy:   {remedy}"

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
