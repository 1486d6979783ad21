"""The pipeline of Ray Data from slices to scored parts, and the actors in it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from debate_judge.runs.distributed.engine import ServiceAddress, ServiceClient, cpu_share, readers
from debate_judge.runs.distributed.job import PartDone, ScoringJob, Service
from debate_judge.runs.distributed.out_folder import OutFolder

if TYPE_CHECKING:
    from debate_judge.runs.distributed.inputs import InputSlice
    from debate_judge.runs.distributed.parts import PartShape, ScoringPart
    from debate_judge.runs.distributed.slice_reading import SliceReading

_AT_ONCE = 2
"""Parts that one actor works on: the calls of the next one fill the places that the last items of one leave."""


class ScoringActor:
    """What Ray Data makes once for each actor, and calls for each part."""

    def __init__(self, job: ScoringJob, connect: Callable[[], Service]) -> None:
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
    return ray.data.read_datasource(
        _datasource(parts),
        override_num_blocks=slices,
        concurrency=min(slices, readers(actors)),
        num_cpus=cpu_share(ray, actors),
    )


def score_parts(
    ray: Any, parts: PartsToScore, job: ScoringJob, address: ServiceAddress, actors: int
) -> Iterator[bytes]:
    """Run the pipeline and yield what the actors say, as pickled `PartDone`, in no particular order.

    Ray Data restarts an actor that died, and gives it its parts again, however often that happens.
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
        num_cpus=cpu_share(ray, actors),
    )
    for row in scored.iter_rows():
        yield row["done"]


@dataclass(frozen=True)
class _Connect:
    """Connects an actor to the service, in the actor's own process."""

    address: ServiceAddress

    def __call__(self) -> Service:
        return ServiceClient(self.address)


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
                for piece, there in with_standing(parts)
            ]

    return TextsDatasource()


def with_standing(parts: PartsToScore) -> Iterator[tuple[InputSlice, set[str]]]:
    """Each slice, and the names of its parts that stand."""
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
