"""What an actor does in its process: it holds the judge, with its share of the limits, and scores units."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import ReadingNotes
from debate_judge.programs.lm.options import BudgetCaps, LMOptions
from debate_judge.programs.lm.usage import Meter
from debate_judge.runs.distributed.out_folder import OutFolder
from debate_judge.runs.distributed.reading import UnitReading, read_unit
from debate_judge.runs.distributed.units import Unit
from debate_judge.runs.scoring.output import RowTotals
from debate_judge.runs.scoring.rows import PROVIDER_FAILED, JsonLines, extra_fields
from debate_judge.runs.scoring.settings import EXIT_INPUT, EXIT_LM
from debate_judge.runs.scoring.uncertainty import RowIntervals, interval_fields

if TYPE_CHECKING:
    from debate_judge.programs.judge import Item
    from debate_judge.runs.export.manifest import Export

_SHOWN = 20
"""Errors of one unit that are shown one by one."""
_PAUSE = 1.0
"""Seconds between two reports of an actor."""
_BLOCK = 8 << 20
"""Bytes of rows that are written to Parquet at once; no row is longer."""


@dataclass(frozen=True)
class ScoringJob:
    """What an actor needs to score; holds no key, for these come from the environment of each process."""

    program: dict[str, bytes]
    """The export's files, so that no machine but the driver's must reach its folder."""
    judges: tuple[str, ...]
    lm: str | None
    api_base: str | None = field(repr=False)
    concurrency: int
    """LM calls in flight."""
    store: str
    """Folder of the replies."""
    replies: str | None = field(repr=False)
    """Address of a database of replies, if there is one."""
    options: LMOptions
    prices: str | None
    """The content of `options.prices`."""
    max_tokens: int | None
    aspects: tuple[str, ...]
    scale: Literal["judge", "raters"]
    interval: float | None
    """Level of the intervals, if there are any."""
    abstain: float | None
    """Width from which on scores are left to people."""
    reading: UnitReading
    out: OutFolder
    path: tuple[str, ...] = ()
    """Where the driver imports from, for judges of the user's own."""


def shared_out(job: ScoringJob, budget: BudgetCaps, count: int) -> list[ScoringJob]:
    """The job of each of `count` actors: an equal share of the limits and of a budget, together all of it."""

    def share(cap: int | None, number: int) -> int | None:
        return None if cap is None else cap // count + (number < cap % count)

    def one(number: int) -> ScoringJob:
        options, usd = job.options, None if budget.usd is None else budget.usd / count
        own = BudgetCaps(share(budget.calls, number), share(budget.tokens, number), usd)
        rpm, tpm = options.rpm and options.rpm / count, options.tpm and options.tpm / count
        options = replace(options, rpm=rpm, tpm=tpm, budget=own)
        return replace(job, options=options, concurrency=job.concurrency // count)

    return [one(number) for number in range(count)]


def packed(export: Export) -> dict[str, bytes]:
    """The files of an export that it is read from."""
    from debate_judge.runs.export.manifest import MANIFEST

    files = [export.folder / MANIFEST, *sorted((export.folder / "state").glob("*.json"))]
    return {str(file.relative_to(export.folder)): file.read_bytes() for file in files}


def unpacked(job: ScoringJob) -> tuple[Export, LMOptions]:
    """The export, and the options with the table of prices on this machine."""
    from debate_judge.runs.export.manifest import read

    folder = Path(tempfile.mkdtemp(prefix="debate-actor-"))
    for name, content in job.program.items():
        file = folder / "program" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    options = job.options
    if job.prices is not None:
        (folder / "prices.toml").write_text(job.prices, encoding="utf-8")
        options = replace(options, prices=folder / "prices.toml")
    return read(folder / "program", job.judges), options


@dataclass(frozen=True)
class ActorReport:
    """What an actor has done so far."""

    meter: Meter
    units: dict[str, tuple[int, float]]
    """Unit that it is at -> items scored, and the share of the unit, about, that they are."""


@dataclass(frozen=True)
class UnitDone:
    """What has become of a unit."""

    unit: str
    rows: RowTotals | None = None
    """None if it was not scored to its end."""
    errors: tuple[str, ...] = ()
    """Where the input could not be read; beyond the first ones, only in numbers."""
    unread: int = 0
    """Places of the input that could not be read."""
    notes: str = ""
    """What a user has to know of the reading."""
    failure: tuple[int, str] | None = None
    """Exit code and message of what ends the run."""


def failure_of(error: Exception, spec: str) -> tuple[int, str] | None:
    """Exit code and message of an error that ends the run in order; None for any other.

    Args:
        error: What was raised.
        spec: Of the LM.
    """
    import dspy

    from debate_judge.programs.lm.errors import BudgetSpentError, describe

    if isinstance(error, dspy.LMError):
        share = "of the share of one actor: " if isinstance(error, BudgetSpentError) else ""
        return EXIT_LM, share + describe(error, spec)
    return (EXIT_INPUT, f"error: {error}") if isinstance(error, (InputError, OSError)) else None


class ScoringActor:
    """Scores units, several at a time where it is called from several threads.

    Args:
        job: What to score with.
    """

    def __init__(self, job: ScoringJob) -> None:
        self._job = job
        self._stopping = threading.Event()
        self._at: dict[str, tuple[int, float]] = {}
        self._failure: tuple[int, str] | None = None
        try:
            self._open()
        except Exception as error:
            # A machine without a key, say: shown by the driver, where Ray would only print a traceback.
            self._failure = failure_of(error, job.lm or "")
            if self._failure is None:
                raise

    def _open(self) -> None:
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
        from debate_judge.runs.export.intervals import fitted_intervals
        from debate_judge.runs.export.loaded import open_judge

        job = self._job
        job.out.require_shared()
        sys.path += [place for place in job.path if place not in sys.path]
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
        self._aspects = self._judge.choose(job.aspects)
        judges = [self._judge.compiled.aspects[name].judge for name in job.aspects]
        extra = extra_fields(judges, mapped=job.scale == "raters") + interval_fields(job.interval, job.abstain)
        self._form = JsonLines(extra)
        fitted = {} if job.interval is None else fitted_intervals(export.manifest, self._aspects, job.interval)
        self._spans = RowIntervals(fitted, job.abstain)

    def score(self, unit: Unit) -> UnitDone:
        """Read, score and write a unit; a failure that concerns all units is returned and not raised."""
        if self._failure is not None:
            return UnitDone(unit.name, failure=self._failure)
        try:
            return self._score(unit)
        except CancelledError:
            # The judge was closed, as it is where the run is to stop.
            return UnitDone(unit.name)
        except Exception as error:
            failure = failure_of(error, self._job.lm or self._judge.lm.model)
            # A closed judge takes no further item.
            if failure is None and not self._stopping.is_set():
                raise
            return UnitDone(unit.name, failure=failure)
        finally:
            self._at.pop(unit.name, None)

    def _score(self, unit: Unit) -> UnitDone:
        from debate_judge.runs.runner.streaming import group_items, score_of

        job, errors, unread, rows = self._job, list[str](), 0, RowTotals()
        notes, shares = ReadingNotes(unit.file.name), deque[float]()

        def tell(error: InputError) -> None:
            nonlocal unread
            unread += 1
            if unread <= _SHOWN:
                errors.append(str(error))

        def items() -> Iterator[Item]:
            for group, share in read_unit(unit, job.reading, notes, tell):
                for item in group_items(self._judge.task, group, self._aspects):
                    shares.append(share)
                    yield item

        with tempfile.TemporaryDirectory(prefix="debate-rows-") as folder:
            path = Path(folder) / "rows.jsonl"
            with path.open("wb") as file:
                for item, judgement in self._judge.stream(items()):
                    score = self._spans.applied(item, score_of(self._judge.compiled, item, judgement, job.scale))
                    file.write(self._form.encode(item, score))
                    rows.count(score, kept=False)
                    self._at[unit.name] = rows.rows, shares.popleft()
            self._keep(unit, path, rows, complete=not unread and not PROVIDER_FAILED & rows.unscored.keys())
        if unread > _SHOWN:
            errors.append(f"{unit.file.name}: {unread - _SHOWN:,} further lines that cannot be read")
        return UnitDone(unit.name, rows, tuple(errors), unread, notes.line())

    def _keep(self, unit: Unit, path: Path, rows: RowTotals, *, complete: bool) -> None:
        """Write the rows of a unit to where they belong, and that it is complete, if it is."""
        out = self._job.out
        if rows.rows:
            path = path if out.suffix == ".jsonl" else _parquet(path, self._form.fields())
            out.write_part(unit.name, path)
        if complete:
            out.mark_complete(unit.name, path.stat().st_size, rows)

    def report(self) -> ActorReport | None:
        """What has been done, after a pause; None if the judge could not be loaded."""
        self._stopping.wait(_PAUSE)
        if self._failure is not None:
            return None
        return ActorReport(Meter(*self._judge.lm.meter.copied()), dict(self._at))

    def stop(self) -> ActorReport | None:
        """Take no further item, and wait until what is in flight has been answered and kept."""
        self._stopping.set()
        if self._failure is None:
            self._judge.close()
        return self.report()


def _parquet(path: Path, fields: Sequence[str]) -> Path:
    """A file of rows in JSON lines as Parquet, beside it."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import json

    kinds = {name: pa.float64() for name in ("score", "judge_score", "low", "high")} | {"to_people": pa.bool_()}
    kinds |= {name: pa.int64() for name in ("rounds", "together", "joint")}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in fields])
    known = json.ParseOptions(explicit_schema=schema)
    with (
        json.open_json(path, json.ReadOptions(block_size=_BLOCK), known) as batches,
        pq.ParquetWriter(path.with_suffix(".parquet"), schema) as file,
    ):
        for batch in batches:
            file.write_batch(batch)
    return path.with_suffix(".parquet")
