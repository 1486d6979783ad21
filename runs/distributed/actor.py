"""The Ray actor, which loads the judge with a share of the limits, and scores units."""

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

from debate_judge.data.errors import FirstErrors, InputError
from debate_judge.data.files.columns import ReadingNotes
from debate_judge.programs.lm.options import BudgetCaps, LMOptions
from debate_judge.programs.lm.usage import Meter
from debate_judge.runs.distributed.output_folder import OutputFolder
from debate_judge.runs.distributed.units import ReadingOptions, Unit, read_unit
from debate_judge.runs.flags.parser import EXIT_INPUT, EXIT_LM
from debate_judge.runs.scoring.output import PROVIDER_FAILED, JsonLines, ResultLayout, Row, RowTotals, json_value
from debate_judge.runs.scoring.settings import ScoreFlags
from debate_judge.runs.scoring.tables import cell_text

if TYPE_CHECKING:
    from debate_judge.data.schema import RatedGroup
    from debate_judge.programs.judge import Item
    from debate_judge.runs.export.manifest import Export
    from debate_judge.runs.runner.streaming import Score

_REPORT_INTERVAL = 1.0
"""Seconds between two reports of an actor."""
_PARQUET_BLOCK = 8 << 20
"""Minimum bytes of rows in a batch that is converted to Parquet."""


@dataclass(frozen=True)
class ScoringJob:
    """What an actor needs to score. Holds no API key: each process takes them from its environment."""

    # Its addresses may hold passwords, and Ray prints what it cannot pack.
    flags: ScoreFlags = field(repr=False)
    """The flags of the command, with the actor's share of `concurrency` and the folder of the replies as `store`."""
    options: LMOptions
    """LM options with the actor's share of the limits."""
    prices: str | None
    """The content of the file `options.prices`."""
    export_files: dict[str, bytes]
    """Files of the export, so that only the driver's machine must reach its folder."""
    reading_options: ReadingOptions
    out: OutputFolder
    first_row: Row
    """The input's columns of the first text, where they are kept."""
    import_path: tuple[str, ...] = ()
    """`sys.path` of the driver, for judges of the user's own."""


def divide_job(job: ScoringJob, budget: BudgetCaps, count: int) -> list[ScoringJob]:
    """The job of each of `count` actors, with an equal share of the limits and of the budget."""

    def share(cap: int | None, number: int) -> int | None:
        return None if cap is None else cap // count + (number < cap % count)

    def job_of_actor(number: int) -> ScoringJob:
        options, usd = job.options, None if budget.usd is None else budget.usd / count
        caps = BudgetCaps(share(budget.calls, number), share(budget.tokens, number), usd)
        rpm, tpm = options.rpm and options.rpm / count, options.tpm and options.tpm / count
        options = replace(options, rpm=rpm, tpm=tpm, budget=caps)
        return replace(job, options=options, flags=replace(job.flags, concurrency=job.flags.concurrency // count))

    return [job_of_actor(number) for number in range(count)]


def pack_export(export: Export) -> dict[str, bytes]:
    """The files that an export is read from."""
    from debate_judge.runs.export.manifest import MANIFEST

    files = [export.folder / MANIFEST, *sorted((export.folder / "state").glob("*.json"))]
    return {str(file.relative_to(export.folder)): file.read_bytes() for file in files}


def unpack_export(job: ScoringJob) -> tuple[Export, LMOptions]:
    """The export and the options, whose files are written to this machine."""
    from debate_judge.runs.export.manifest import read

    folder = Path(tempfile.mkdtemp(prefix="debate-actor-"))
    for name, content in job.export_files.items():
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
    """The progress of an actor."""

    meter: Meter
    items: Mapping[str, int]
    """Unit in progress -> items scored."""


@dataclass(frozen=True)
class UnitResult:
    """The result of a unit."""

    unit: str
    rows: RowTotals | None = None
    """None if it was not scored to its end."""
    errors: tuple[str, ...] = ()
    """Messages about records that could not be read; of those after the first only the number."""
    unreadable: int = 0
    """Records of the input that could not be read."""
    notes: str = ""
    """Printed for the user: how the file was read."""
    failure: tuple[int, str] | None = None
    """Exit code and message of what ends the run."""


def failure_of(error: Exception, spec: str) -> tuple[int, str] | None:
    """Exit code and message of an error that ends the run with a message; None for any other error."""
    import dspy

    from debate_judge.programs.lm.errors import BudgetSpentError, describe

    if isinstance(error, dspy.LMError):
        share = "of the share of one actor: " if isinstance(error, BudgetSpentError) else ""
        return EXIT_LM, share + describe(error, spec)
    return (EXIT_INPUT, f"error: {error}") if isinstance(error, (InputError, OSError)) else None


class ScoringActor:
    """Scores the units of a job; several at a time if called from several threads."""

    def __init__(self, job: ScoringJob) -> None:
        self._job = job
        self._stopping = threading.Event()
        self._scored_items: dict[str, int] = {}
        self._failure: tuple[int, str] | None = None
        try:
            self._open()
        except Exception as error:
            # E.g. no API key on this machine: printed by the driver, where Ray would show a traceback.
            self._failure = failure_of(error, job.flags.lm or "")
            if self._failure is None:
                raise

    def _open(self) -> None:
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
        from debate_judge.runs.scoring.scorer import TextScorer, connect_judge

        job = self._job
        job.out.require_same_folder()
        sys.path += [entry for entry in job.import_path if entry not in sys.path]
        export, options = unpack_export(job)
        self._judge = connect_judge(export, job.flags, Path(job.flags.store), options)
        self._scorer = TextScorer(self._judge, job.flags)
        self._layout = self._scorer.layout(job.first_row)

    def score(self, unit: Unit) -> UnitResult:
        """Read, score and write a unit; a failure that concerns all units is returned and not raised."""
        if self._failure is not None:
            return UnitResult(unit.name, failure=self._failure)
        try:
            return self._score(unit)
        except CancelledError:
            # The judge was closed, as it is where the run is to stop.
            return UnitResult(unit.name)
        except Exception as error:
            failure = failure_of(error, self._job.flags.lm or self._judge.lm.model)
            # A closed judge takes no further item.
            if failure is None and not self._stopping.is_set():
                raise
            return UnitResult(unit.name, failure=failure)
        finally:
            self._scored_items.pop(unit.name, None)

    def _score(self, unit: Unit) -> UnitResult:
        errors, notes = FirstErrors(), ReadingNotes(unit.file.name)
        with tempfile.TemporaryDirectory(prefix="debate-rows-") as folder:
            path = Path(folder) / "rows.jsonl"
            rows = self._score_to_file(unit.name, read_unit(unit, self._job.reading_options, notes, errors), path)
            self._write_part(unit, path, rows, complete=not errors.count and not PROVIDER_FAILED & rows.unscored.keys())
        messages = [str(error) for error in errors.first]
        if hidden := errors.count - len(messages):
            messages.append(f"{unit.file.name}: {hidden:,} further lines that cannot be read")
        return UnitResult(unit.name, rows, tuple(messages), errors.count, notes.text())

    def _score_to_file(self, unit: str, groups: Iterator[RatedGroup], path: Path) -> RowTotals:
        """Score groups into a file of JSON lines."""
        lines, rows, row_items = JsonLines(self._layout), RowTotals(), list[tuple["Item", "Score"]]()
        columns_as_texts = self._job.out.suffix == ".parquet"
        with path.open("wb") as file:
            for item, score, input_columns in self._scorer.score_groups(groups):
                row_items.append((item, score))
                rows.count(score, existing=False)
                self._scored_items[unit] = rows.rows
                if len(row_items) == self._layout.items:
                    # All parts of a Parquet table must have one schema, so input columns are texts.
                    if columns_as_texts:
                        input_columns = {name: cell_text(json_value(v)) for name, v in input_columns.items()}
                    file.write(lines.row(row_items, input_columns)[0])
                    row_items = []
        return rows

    def _write_part(self, unit: Unit, path: Path, rows: RowTotals, *, complete: bool) -> None:
        """Write the rows of a unit to the output folder, and mark it complete if it is."""
        out = self._job.out
        if rows.rows:
            path = path if out.suffix == ".jsonl" else _to_parquet(path, self._layout)
            out.write_part(unit.name, path)
        if complete:
            out.mark_complete(unit.name, path.stat().st_size, rows)

    def report(self) -> ActorReport | None:
        """The progress, after a pause; None if the judge could not be loaded."""
        self._stopping.wait(_REPORT_INTERVAL)
        if self._failure is not None:
            return None
        return ActorReport(Meter(*self._judge.lm.meter.snapshot()), dict(self._scored_items))

    def stop(self) -> ActorReport | None:
        """Take no further item, and wait until the calls in flight are answered and stored."""
        self._stopping.set()
        if self._failure is None:
            self._judge.close()
        return self.report()


def _to_parquet(path: Path, layout: ResultLayout) -> Path:
    """Convert a file of JSON lines to a Parquet file in the same folder; returns its path."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import json

    types = {float: pa.float64(), int: pa.int64(), bool: pa.bool_(), str: pa.string()}
    schema = pa.schema([(name, types[layout.types.get(name, str)]) for name in layout.fields])
    parse_options = json.ParseOptions(explicit_schema=schema)
    with path.open("rb") as lines:
        # A row lies in one block or in two.
        block = max(_PARQUET_BLOCK, 2 * max(map(len, lines), default=0))
    with (
        json.open_json(path, json.ReadOptions(block_size=block), parse_options) as batches,
        pq.ParquetWriter(path.with_suffix(".parquet"), schema) as file,
    ):
        for batch in batches:
            file.write_batch(batch)
    return path.with_suffix(".parquet")
