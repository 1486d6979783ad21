"""Ray: started or joined, the ledger as a named actor, and the pipeline from slices to scored parts."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from debate_judge.data.errors import InputError, install_hint
from debate_judge.programs.lm.lending.messages import LeaseGrant, LeaseReport
from debate_judge.programs.lm.limits.provider_limits import RateLimits
from debate_judge.programs.lm.options import LMOptions
from debate_judge.runs.distributed.job import Account, ActorNews, PartDone, ScoringJob
from debate_judge.runs.distributed.out_folder import OutFolder
from debate_judge.runs.distributed.service import AccountService, AccountStatus

if TYPE_CHECKING:
    from debate_judge.runs.distributed.inputs import InputSlice
    from debate_judge.runs.distributed.parts import PartShape, ScoringPart
    from debate_judge.runs.distributed.slice_reading import SliceReading

NAMESPACE = "debate"
_STARTS = 5
"""Times that Ray is started here before it is given up."""
_READERS = 2
"""CPUs for the tasks that read, where Ray is started here."""
_AT_ONCE = 2
"""Parts that one actor works on: the calls of the next one fill the places that the last items of one leave."""


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
            remedy="mend the cluster; the same command goes on from the parts that stand, no LM call is paid twice",
        ) from error
    finally:
        ray.shutdown()


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
                    field="--address",
                    found=str(error),
                    remedy="check that `ray status` knows the cluster, and that the versions of Ray are the same",
                ) from error


@dataclass(frozen=True)
class LedgerAddress:
    """The named actor that keeps the account, as any process of the cluster finds it."""

    name: str

    def handle(self) -> Any:
        import ray

        return ray.get_actor(self.name, namespace=NAMESPACE)


class LedgerClient:
    """The ledger as an actor reaches it; a call waits while the ledger restarts."""

    def __init__(self, address: LedgerAddress) -> None:
        self._handle = address.handle()

    def exchange(self, report: LeaseReport) -> Awaitable[LeaseGrant]:
        answer: Awaitable[LeaseGrant] = self._handle.exchange.remote(report)
        return answer

    def settle(self, report: LeaseReport) -> None:
        import ray

        ray.get(self._handle.exchange.remote(report))

    def tell(self, news: ActorNews) -> bool:
        import ray

        return bool(ray.get(self._handle.tell.remote(news)))


@contextmanager
def ledger(ray: Any, run: str, out: OutFolder, options: LMOptions, usual: RateLimits) -> Iterator[LedgerAddress]:
    """Run the ledger of an account as a named actor that is restarted for ever, on the machine of the driver."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    address = LedgerAddress(f"debate-ledger-{run}")
    actor = ray.remote(AccountService).options(
        name=address.name,
        namespace=NAMESPACE,
        num_cpus=0,
        max_restarts=-1,
        max_task_retries=-1,
        scheduling_strategy=here,
    )
    handle = actor.remote(out, run, options, usual)
    # What it cannot do is told here.
    ray.get(handle.status.remote())
    try:
        yield address
    finally:
        # A cluster that has failed has told so already.
        with suppress(ray.exceptions.RayError, RuntimeError):
            ray.kill(handle, no_restart=True)
        out.drop_state(f"ledger-{run}")


def ask_status(ray: Any, address: LedgerAddress, stop: bool) -> AccountStatus | None:
    """What the ledger knows; None while it does not answer."""
    try:
        status: AccountStatus = ray.get(address.handle().status.remote(stop), timeout=5.0)
    except (ray.exceptions.RayError, ValueError):
        return None
    return status


class ScoringActor:
    """What Ray Data makes once for each actor, and calls for each part."""

    def __init__(self, job: ScoringJob, connect: Callable[[], Account]) -> None:
        from debate_judge.runs.distributed.scorer import PartScorer, failure_of

        self._failure: tuple[int, str] | None = None
        try:
            self._score = PartScorer(job, connect()).score
        except Exception as error:
            # A machine without a key, say: told by the driver, where Ray would only print a traceback.
            self._failure = failure_of(error, job.lm or "")
            if self._failure is None:
                raise

    def __call__(self, batch: Any) -> Any:
        import pyarrow as pa

        parts = [pickle.loads(one.as_py()) for one in batch["part"]]
        done = [self._scored(part) for part in parts]
        return pa.table({"done": [pickle.dumps(one) for one in done]})

    def _scored(self, part: ScoringPart) -> PartDone:
        failure = self._failure
        return self._score(part) if failure is None else PartDone(part.slice, part.name, failure=failure)


@dataclass(frozen=True)
class PartsToScore:
    """The input of the pipeline."""

    slices: Sequence[InputSlice]
    reading: SliceReading
    shape: PartShape
    out: OutFolder
    there: frozenset[str]
    """Names of the parts that stand."""


def read_parts(ray: Any, parts: PartsToScore, actors: int) -> Any:
    """The data set of the parts, each in a block of its own."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.enable_operator_progress_bars = False
    # Otherwise the parts of a slice are joined into one block: one actor would have them all, and a killed one would
    # have to do them all again.
    context.target_max_block_size = 1
    slices = len(parts.slices)
    readers = min(slices, max(_READERS, actors // 2))
    return ray.data.read_datasource(_datasource(parts), override_num_blocks=slices, concurrency=readers)


def score_parts(ray: Any, parts: PartsToScore, job: ScoringJob, address: LedgerAddress, actors: int) -> Iterator[bytes]:
    """Run the pipeline and yield what the actors say, as pickled `PartDone`, in no particular order.

    Ray Data restarts an actor that died, and gives it its parts again, for ever.
    """
    from ray.data import ActorPoolStrategy

    pool = ActorPoolStrategy(
        size=actors,
        max_tasks_in_flight_per_actor=_AT_ONCE + 1,
        max_concurrent_calls_per_actor=_AT_ONCE,
        enable_true_multi_threading=True,
    )
    scored = read_parts(ray, parts, actors).map_batches(
        ScoringActor,
        batch_size=1,
        batch_format="pyarrow",
        fn_constructor_args=(job, _Connect(address)),
        compute=pool,
        num_cpus=1,
    )
    for row in scored.iter_rows():
        yield row["done"]


@dataclass(frozen=True)
class _Connect:
    """Connects an actor to the ledger, in the actor's own process."""

    address: LedgerAddress

    def __call__(self) -> Account:
        return LedgerClient(self.address)


def _datasource(parts: PartsToScore) -> Any:
    from ray.data import Datasource, ReadTask
    from ray.data.block import BlockMetadata

    class TextsDatasource(Datasource):
        """Reads slices by the reader of all commands; each block is one part."""

        def estimate_inmemory_data_size(self) -> int | None:
            return None

        def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None, **_: Any) -> list[Any]:
            return [
                ReadTask(
                    _SliceReader(piece, parts.reading, parts.shape, parts.out, there),
                    BlockMetadata(num_rows=None, size_bytes=piece.size or None, input_files=None, exec_stats=None),
                )
                for piece, there in _with_standing(parts)
            ]

    return TextsDatasource()


def _with_standing(parts: PartsToScore) -> Iterator[tuple[InputSlice, set[str]]]:
    by_slice: dict[str, set[str]] = {}
    for name in parts.there:
        by_slice.setdefault(name.rpartition("-")[0], set()).add(name)
    for piece in parts.slices:
        yield piece, by_slice.get(piece.name, set())


@dataclass(frozen=True)
class _SliceReader:
    """Reads one slice; sent to where it is read."""

    piece: InputSlice
    reading: SliceReading
    shape: PartShape
    out: OutFolder
    there: set[str]

    def __call__(self) -> Iterator[Any]:
        import pyarrow as pa

        from debate_judge.runs.distributed.parts import parts_of

        for part in parts_of(self.piece, self.reading, self.shape, self.out, self.there):
            yield pa.table({"part": [pickle.dumps(part)]})
