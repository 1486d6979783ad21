"""The actor: it holds the judge, with its share of the limits, and scores units."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import ReadingNotes
from debate_judge.programs.lm.options import BudgetCaps, LMOptions
from debate_judge.programs.lm.usage import Meter
from debate_judge.runs.distributed.output_folder import OutputFolder
from debate_judge.runs.distributed.units import Unit, UnitReading, read_unit
from debate_judge.runs.flags.parser import EXIT_INPUT, EXIT_LM
from debate_judge.runs.scoring.output import PROVIDER_FAILED, JsonLines, Row, RowForm, RowTotals, plain
from debate_judge.runs.scoring.settings import ScoreFlags
from debate_judge.runs.scoring.tables import cell

if TYPE_CHECKING:
    from debate_judge.data.schema import RatedGroup
    from debate_judge.programs.judge import Item
    from debate_judge.runs.export.manifest import Export
    from debate_judge.runs.runner.streaming import Score

_SHOWN = 20
"""Errors of one unit that are shown one by one."""
_PAUSE = 1.0
"""Seconds between two reports of an actor."""
_BLOCK = 8 << 20
"""Least bytes of rows that are written to Parquet at once."""


@dataclass(frozen=True)
class ScoringJob:
    """What an actor needs to score; holds no key of an LM, for these come from the environment of each process."""

    # Its addresses may hold passwords, and Ray prints what it cannot pack.
    flags: ScoreFlags = field(repr=False)
    """Of the command, with the actor's share of calls in flight, and the folder of the replies as `store`."""
    options: LMOptions
    """With the actor's share of the limits."""
    prices: str | None
    """The content of `options.prices`."""
    program: dict[str, bytes]
    """The export's files, so that no machine but the driver's must reach its folder."""
    reading: UnitReading
    out: OutputFolder
    first: Row
    """The input's columns of the first text, where they are kept."""
    path: tuple[str, ...] = ()
    """Where the driver imports from, for judges of the user's own."""


def shared_out(job: ScoringJob, budget: BudgetCaps, count: int) -> list[ScoringJob]:
    """The job of each of `count` actors: an equal share of the limits and of a budget, together all of it."""

    def share(cap: int | None, number: int) -> int | None:
        return None if cap is None else cap // count + (number < cap % count)

    def one(number: int) -> ScoringJob:
        options, usd = job.options, None if budget.usd is None else budget.usd / count
        caps = BudgetCaps(share(budget.calls, number), share(budget.tokens, number), usd)
        rpm, tpm = options.rpm and options.rpm / count, options.tpm and options.tpm / count
        options = replace(options, rpm=rpm, tpm=tpm, budget=caps)
        return replace(job, options=options, flags=replace(job.flags, concurrency=job.flags.concurrency // count))

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
    return read(folder / "program", job.flags.judge), options


@dataclass(frozen=True)
class ActorReport:
    """What an actor has done so far."""

    meter: Meter
    items: Mapping[str, int]
    """Unit that it is at -> items scored."""


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
    """Exit code and message of an error that ends the run of the LM `spec` in order; None for any other."""
    import dspy

    from debate_judge.programs.lm.errors import BudgetSpentError, describe

    if isinstance(error, dspy.LMError):
        share = "of the share of one actor: " if isinstance(error, BudgetSpentError) else ""
        return EXIT_LM, share + describe(error, spec)
    return (EXIT_INPUT, f"error: {error}") if isinstance(error, (InputError, OSError)) else None


class ScoringActor:
    """Scores the units of a job, several at a time where it is called from several threads."""

    def __init__(self, job: ScoringJob) -> None:
        self._job = job
        self._stopping = threading.Event()
        self._at: dict[str, int] = {}
        self._failure: tuple[int, str] | None = None
        try:
            self._open()
        except Exception as error:
            # A machine without a key, say: shown by the driver, where Ray would only print a traceback.
            self._failure = failure_of(error, job.flags.lm or "")
            if self._failure is None:
                raise

    def _open(self) -> None:
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
        from debate_judge.runs.scoring.scorer import TextScorer, connect

        job = self._job
        job.out.require_shared()
        sys.path += [place for place in job.path if place not in sys.path]
        export, options = unpacked(job)
        self._judge = connect(export, job.flags, Path(job.flags.store), options)
        self._scorer = TextScorer(self._judge, job.flags)
        self._form = self._scorer.form(job.first)

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
            failure = failure_of(error, self._job.flags.lm or self._judge.lm.model)
            # A closed judge takes no further item.
            if failure is None and not self._stopping.is_set():
                raise
            return UnitDone(unit.name, failure=failure)
        finally:
            self._at.pop(unit.name, None)

    def _score(self, unit: Unit) -> UnitDone:
        errors, unread, notes = list[str](), 0, ReadingNotes(unit.file.name)

        def on_error(error: InputError) -> None:
            nonlocal unread
            unread += 1
            if unread <= _SHOWN:
                errors.append(str(error))

        with tempfile.TemporaryDirectory(prefix="debate-rows-") as folder:
            path = Path(folder) / "rows.jsonl"
            rows = self._write(unit.name, read_unit(unit, self._job.reading, notes, on_error), path)
            self._keep(unit, path, rows, complete=not unread and not PROVIDER_FAILED & rows.unscored.keys())
        if unread > _SHOWN:
            errors.append(f"{unit.file.name}: {unread - _SHOWN:,} further lines that cannot be read")
        return UnitDone(unit.name, rows, tuple(errors), unread, notes.text())

    def _write(self, unit: str, groups: Iterator[RatedGroup], path: Path) -> RowTotals:
        """Score groups into a file of JSON lines."""
        lines, rows, of_row = JsonLines(self._form), RowTotals(), list[tuple["Item", "Score"]]()
        in_texts = self._job.out.suffix == ".parquet"
        with path.open("wb") as file:
            for item, score, kept in self._scorer.scored(groups):
                of_row.append((item, score))
                rows.count(score, kept=False)
                self._at[unit] = rows.rows
                if len(of_row) == self._form.items:
                    # The parts of a Parquet table have one schema, whatever the values of a part look like.
                    texts = {name: cell(plain(value)) for name, value in kept.items()} if in_texts else kept
                    file.write(lines.row(of_row, texts)[0])
                    of_row = []
        return rows

    def _keep(self, unit: Unit, path: Path, rows: RowTotals, *, complete: bool) -> None:
        """Write the rows of a unit to where they belong, and that it is complete, if it is."""
        out = self._job.out
        if rows.rows:
            path = path if out.suffix == ".jsonl" else _parquet(path, self._form)
            out.write_part(unit.name, path)
        if complete:
            out.mark_complete(unit.name, path.stat().st_size, rows)

    def report(self) -> ActorReport | None:
        """What has been done, after a pause; None if the judge could not be loaded."""
        self._stopping.wait(_PAUSE)
        if self._failure is not None:
            return None
        return ActorReport(Meter(*self._judge.lm.meter.snapshot()), dict(self._at))

    def stop(self) -> ActorReport | None:
        """Take no further item, and wait until what is in flight has been answered and kept."""
        self._stopping.set()
        if self._failure is None:
            self._judge.close()
        return self.report()


def _parquet(path: Path, form: RowForm) -> Path:
    """A file of rows in JSON lines as Parquet, beside it."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import json

    types = {float: pa.float64(), int: pa.int64(), bool: pa.bool_(), str: pa.string()}
    schema = pa.schema([(name, types[form.kinds.get(name, str)]) for name in form.fields])
    known = json.ParseOptions(explicit_schema=schema)
    with path.open("rb") as lines:
        # A row lies in one block or in two.
        block = max(_BLOCK, 2 * max(map(len, lines), default=0))
    with (
        json.open_json(path, json.ReadOptions(block_size=block), known) as batches,
        pq.ParquetWriter(path.with_suffix(".parquet"), schema) as file,
    ):
        for batch in batches:
            file.write_batch(batch)
    return path.with_suffix(".parquet")
