"""Ray: started or joined, its CPUs, and the service of a run as a named actor."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from debate_judge.data.errors import InputError, install_hint
from debate_judge.programs.lm.options import BudgetCaps
from debate_judge.runs.distributed.job import ActorNews
from debate_judge.runs.distributed.out_folder import OutFolder
from debate_judge.runs.distributed.service import RunService, RunStatus
from debate_judge.runs.flags.parser import RESUMES

NAMESPACE = "debate"
_STARTS = 5
"""Times that Ray is started here before it is given up."""
_READERS = 2
"""Tasks that read at the same time, at least."""


def require_ray() -> Any:
    """The library.

    Raises:
        InputError: It is not installed.
    """
    # Before the import: Ray reads it there.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
    # Its native part writes what it finds remarkable into the terminal.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise InputError(
            "the engine ray is not installed", field="--engine", found=str(error), remedy=install_hint("ray")
        ) from None
    return ray


@contextmanager
def cluster(address: str | None, actors: int) -> Iterator[Any]:
    """Ray itself, joined at an address or started here with room for so many actors; a running one is used.

    Raises:
        InputError: There is none at the address.
    """
    ray = require_ray()
    if ray.is_initialized():
        yield ray
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": NAMESPACE}
    # Actors mostly wait for the LM, so that there may be more of them than CPUs.
    started: dict[str, Any] = {"address": address}
    if address is None:
        # By itself it would join what the environment names, or what runs on this machine.
        started = {"address": "local", "num_cpus": actors + _READERS, "include_dashboard": False}
    _init(ray, address is not None, {**started, **quiet})
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        yield ray
    except ray.exceptions.RayError as error:
        raise InputError(
            "Ray has failed",
            field="--engine",
            found=_cause(error),
            remedy=f"repair the cluster and {RESUMES}",
        ) from error
    finally:
        ray.shutdown()


def readers(actors: int) -> int:
    """Tasks that read at the same time."""
    return max(_READERS, actors // 2)


def cpu_share(ray: Any, actors: int) -> float:
    """The CPUs that each actor and each reading task asks for.

    Actors mostly wait for the LM. All together ask for half of the cluster at most: with a whole CPU for each, one with
    as many actors as CPUs would have no place left for the tasks that read, and wait for ever.
    """
    cpus = float(ray.cluster_resources().get("CPU", 0.0))
    if not cpus:
        raise InputError("the cluster of Ray has no CPU", field="address", remedy="see what `ray status` says")
    # Ray counts in ten-thousandths.
    return max(0.0001, int(min(1.0, cpus / 2 / (actors + readers(actors))) * 10_000) / 10_000)


def _cause(error: Exception) -> str:
    """The line of a report of Ray that says what happened: it ends with what was raised in an actor."""
    text = str(error).strip()
    raised = text.rpartition(f"{InputError.__name__}: ")[2]
    return raised.partition("\n")[0] if raised != text else text.rpartition("\n")[2]


def _init(ray: Any, joins: bool, arguments: dict[str, Any]) -> None:
    for left in range(0 if joins else _STARTS - 1, -1, -1):
        try:
            ray.init(**arguments)
            return
        # It raises whatever comes, an Exception as such where a busy machine was too slow for it.
        except Exception as error:
            ray.shutdown()
            if not left:
                raise InputError(
                    "Ray cannot be joined" if joins else "Ray cannot be started",
                    field="address",
                    found=str(error),
                    remedy="check that `ray status` knows the cluster, and that the versions of Ray are the same",
                ) from error


@dataclass(frozen=True)
class ServiceAddress:
    """The named actor that serves the run, as any process of the cluster finds it."""

    name: str

    def handle(self) -> Any:
        import ray

        return ray.get_actor(self.name, namespace=NAMESPACE)


class ServiceClient:
    """The service as an actor reaches it; a call waits while the service restarts."""

    def __init__(self, address: ServiceAddress) -> None:
        self._handle = address.handle()

    def share(self) -> BudgetCaps | None:
        import ray

        share: BudgetCaps | None = ray.get(self._handle.share.remote())
        return share

    def begin(self, part: str) -> int:
        import ray

        return int(ray.get(self._handle.begin.remote(part)))

    def tell(self, news: ActorNews) -> bool:
        import ray

        return bool(ray.get(self._handle.tell.remote(news)))


@contextmanager
def service(ray: Any, run: str, out: OutFolder, shares: Sequence[BudgetCaps]) -> Iterator[ServiceAddress]:
    """Run the service as a named actor on the machine of the driver; Ray restarts it whenever it dies."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    address = ServiceAddress(f"debate-service-{run}")
    actor = ray.remote(RunService).options(
        name=address.name,
        namespace=NAMESPACE,
        num_cpus=0,
        max_restarts=-1,
        max_task_retries=-1,
        scheduling_strategy=here,
    )
    handle = actor.remote(out, run, shares)
    # What it cannot do is told here.
    ray.get(handle.status.remote())
    try:
        yield address
    finally:
        # Where the cluster has failed, its own error is raised already.
        with suppress(ray.exceptions.RayError, RuntimeError):
            ray.kill(handle, no_restart=True)
        out.drop_state(f"service-{run}")


def ask_status(ray: Any, address: ServiceAddress, stop: bool) -> RunStatus | None:
    """What the service knows; None while it does not answer."""
    try:
        status: RunStatus = ray.get(address.handle().status.remote(stop), timeout=5.0)
    except (ray.exceptions.RayError, ValueError):
        return None
    return status
