"""`score --engine ray`: Ray Data reads rows, actors score them, and its checkpoint says which ones are written.

    in.parquet, .csv, .jsonl    a file or a glob of one format, anywhere that fsspec reaches: a row a text, with an id
    scores.parquet/             these rows with `A`, `A_reason` and `A_unscored` for each aspect A, in any order
    scores.parquet.checkpoint/  the ids of the rows that are written, kept by Ray
    scores.parquet.json         what they were made from; another judge is refused

A row that the provider failed to answer is not written, so that the next run tries it again. Replies are stored before
they are used, by each machine in its `--store`: what a killed actor or driver had in flight is all that is paid again.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dspy

from debate_judge.data.errors import InputError, install_hint
from debate_judge.programs.lm.limits import describe
from debate_judge.programs.lm.replies import Meter
from debate_judge.runs import scoring
from debate_judge.runs.command_line import EXIT_INPUT, EXIT_LM, RESUME_HINT, is_terminal, say
from debate_judge.runs.export import Export
from debate_judge.runs.loaded import Connection, LoadedJudge, score_frame
from debate_judge.runs.reports.tables import show

if TYPE_CHECKING:
    import pandas as pd

    from debate_judge.runs.score import ScoreFlags

_SUFFIXES = (".parquet", ".csv", ".jsonl")
_ROLES = ("id", "source", "text", "context")
_LOCAL = "score with --engine local"


class Tally:
    """A Ray actor that hands out each share of the limits once, and adds up what the other actors did."""

    def __init__(self, shares: int) -> None:
        self._shares, self._totals, self._left_out = shares, scoring.RowTotals(), 0
        self._meters: dict[str, Meter] = {}
        self._failure: tuple[int, str] | None = None

    def take_share(self) -> bool:
        """Whether a share is left; none is for the successor of an actor that was killed."""
        self._shares -= 1
        return self._shares >= 0

    def add(self, actor: str, meter: Meter, items: int, unscored: Mapping[str, int], left_out: int) -> None:
        """Count a batch; `meter` has all calls of the actor so far."""
        self._meters[actor] = meter
        self._totals.rows += items
        self._totals.unscored.update(unscored)
        self._left_out += left_out

    def fail(self, code: int, message: str) -> None:
        """Note why an actor ends the run: the exit code and the message of the command."""
        self._failure = self._failure or (code, message)

    def result(self) -> tuple[scoring.RowTotals, int, Meter, tuple[int, str] | None]:
        """Items that were written, rows that were not, the calls of all actors, and what ended the run."""
        return self._totals, self._left_out, Meter.sum(self._meters.values()), self._failure


class Scorer:
    """An actor: the judge, loaded once, with a share of the limits. Its key comes from its own environment."""

    def __init__(
        self, export: Export, share: Connection, id_column: str, options: Mapping[str, Any], tally: Any
    ) -> None:
        import ray

        self._id, self._options, self._tally = id_column, options, tally
        self._name = ray.get_runtime_context().get_worker_id()
        with self._reported():
            if share.options.budget and not ray.get(tally.take_share.remote()):
                raise dspy.LMError("an actor was killed, and what it had spent of the budget is not known")
            self._judge = LoadedJudge(export, share)

    def __call__(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows with their scores, without those that the provider failed to answer."""
        with self._reported():
            if self._id not in rows:
                remedy = "name a column whose values are all different: --columns id=..."
                raise InputError("the input has no such column", field=self._id, remedy=remedy)
            scored = score_frame(rows, self._judge, **self._options)
        columns = [f"{aspect.name}_unscored" for aspect in self._judge.select_aspects(self._options["aspects"])]
        reasons = scored[columns].map(lambda text: text.partition(":")[0])
        written = ~reasons.isin(scoring.PROVIDER_FAILED).any(axis=1)
        unscored = Counter(reason for reason in reasons[written].to_numpy().flat if reason)
        meter, count = self._judge.lm.meter.snapshot(), int(written.sum())
        self._tally.add.remote(self._name, meter, count * len(columns), unscored, len(rows) - count)
        return scored[written]

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Tell the driver of an error, as a command would."""
        import ray

        try:
            yield
        except InputError as error:
            ray.get(self._tally.fail.remote(EXIT_INPUT, f"error: {error}"))
            raise
        except dspy.LMError as error:
            ray.get(self._tally.fail.remote(EXIT_LM, describe(error, error.model or "")))
            raise


def score_with_ray(flags: ScoreFlags) -> int:
    """Score rows by actors; returns the exit code.

    Raises:
        InputError: Ray is not installed or cannot start, or input, output or judge cannot be used.
    """
    # Read by Ray when it is imported.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        import ray.data.checkpoint
    except ImportError as error:
        remedy = install_hint("ray")
        raise InputError("Ray is not installed", field="--engine", found=str(error), remedy=remedy) from None
    _require_supported(flags)
    export = scoring.find_export(flags)
    with scoring.load_judge(flags, export) as judge:
        if any(chosen.judge.together > 1 for chosen in judge.compiled.aspects.values()):
            raise InputError("the judge reads texts of a source together", field="--engine", remedy=_LOCAL)
        price, columns = judge.lm.price, {name: name for name in _ROLES[:3]}
        columns |= {role: column for role, column in judge.task.columns.items() if role in _ROLES}
        columns |= dict(part.split("=", 1) for part in flags.columns)
        made_from = {"judge": judge.fingerprint, "lm": judge.lm.model, "aspects": flags.aspects, "scale": flags.scale}
    _require_same_judge(flags.out, json.dumps({**made_from, "columns": columns}))
    flags = replace(flags, actors=min(flags.actors, flags.concurrency))
    connection, store = scoring.connection(flags), Path(flags.store).absolute()
    limits, concurrency = connection.options.share(flags.actors), flags.concurrency // flags.actors
    share = replace(connection, concurrency=concurrency, store=store, options=limits)
    cluster = os.environ.get("RAY_ADDRESS")
    say("joining Ray ..." if cluster else "starting Ray ...")
    # The two CPUs besides the actors' are for reading and writing.
    settings = {"address": cluster} if cluster else {"address": "local", "num_cpus": flags.actors + 2}
    ray.init(**settings, log_to_driver=False, logging_level=logging.ERROR)
    try:
        tally = ray.remote(num_cpus=0)(Tally).remote(flags.actors)
        texts = {role: column for role, column in columns.items() if role != "id"}
        options = {"aspects": flags.aspects or None, "scale": flags.scale, **texts}
        problem = _run(ray.data, flags, columns, (export, share, columns["id"], options, tally))
        totals, left_out, meter, failure = ray.get(tally.result.remote())
    finally:
        ray.shutdown()
    show(*scoring.scored_summary(meter, price, flags.out, totals), file=sys.stderr)
    if failure is None and problem:
        failure = EXIT_INPUT, f"error: Ray has failed\n  found:    {problem}\n  remedy:   {RESUME_HINT}"
    elif failure is None and left_out:
        problem = f"error: calls for {left_out:,} rows failed, which are not written"
        failure = scoring.EXIT_UNSCORED, f"{problem}\n  remedy:   {RESUME_HINT}"
    if failure is None:
        return scoring.unscored_exit_code(flags, totals)
    say(failure[1])
    return failure[0]


def _run(data: Any, flags: ScoreFlags, columns: Mapping[str, str], scorer_arguments: tuple[Any, ...]) -> str:
    """Read, score and write; returns Ray's error."""
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    filesystem, out = _location(flags.out)
    # What an actor raises is reported by the command.
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    context = data.DataContext.get_current()
    context.enable_progress_bars = is_terminal(sys.stderr)
    # The checkpoint is kept, so that the same command has nothing left to do.
    context.checkpoint_config = data.checkpoint.CheckpointConfig(
        columns["id"],
        f"{out}.checkpoint",
        override_filesystem=PyFileSystem(FSSpecHandler(filesystem)),
        delete_checkpoint_on_success=False,
    )
    scored = _read(data, flags.input, columns).map_batches(
        Scorer,
        fn_constructor_args=scorer_arguments,
        batch_format="pandas",
        batch_size=max(16, 4 * (flags.concurrency // flags.actors)),
        # An actor waits for its LM. With a CPU each, those of a small machine leave none for reading: a deadlock.
        num_cpus=0,
        # Two batches at once: the first calls of one overlap with the last of the other.
        compute=data.ActorPoolStrategy(size=flags.actors, max_concurrent_calls_per_actor=2),
    )
    try:
        if out.endswith(".jsonl"):
            scored.write_json(out, filesystem=filesystem, force_ascii=False, double_precision=15)
        else:
            (scored.write_csv if out.endswith(".csv") else scored.write_parquet)(out, filesystem=filesystem)
    except Exception as error:
        return str(error).strip().rpartition("\n")[2]
    return ""


def _require_supported(flags: ScoreFlags) -> None:
    filesystem, path = _location(flags.input)
    for flag, files in {"--in": filesystem.glob(path), "--out": [flags.out]}.items():
        suffixes = {Path(file).suffix.lower() for file in files}
        if len(suffixes) != 1 or not suffixes <= {*_SUFFIXES}:
            expected, found = "files of one format: " + " or ".join(_SUFFIXES), ", ".join(files[:8]) or "no such file"
            raise InputError("not what Ray reads and writes", field=flag, expected=expected, found=found)
    if flags.transcripts is not None or flags.sources is not None:
        raise InputError("no --transcripts and no --sources with Ray", field="--engine", remedy=_LOCAL)
    if unknown := [part for part in flags.columns if part.partition("=")[0] not in _ROLES]:
        raise InputError("no such column", field="--columns", expected=", ".join(_ROLES), found=unknown[0])


def _location(url: str) -> tuple[Any, str]:
    """The file system of a path or URL, as fsspec's, and the path in it."""
    import fsspec

    filesystem, path = fsspec.core.url_to_fs(url)
    return filesystem, path.rstrip("/")


def _require_same_judge(out: str, made_from: str) -> None:
    """Note what the rows are made from; refuse a folder with others."""
    filesystem, path = _location(out)
    if not filesystem.exists(path) and not filesystem.exists(f"{path}.json"):
        filesystem.makedirs(str(Path(path).parent), exist_ok=True)
        filesystem.pipe_file(f"{path}.json", made_from.encode())
    known = filesystem.exists(f"{path}.json")
    earlier = filesystem.cat_file(f"{path}.json").decode() if known else "unknown: there is no .json beside it"
    if earlier != made_from:
        problem, remedy = "the folder has other rows", "choose another --out; replies are kept in --store"
        raise InputError(problem, file=out, field="--out", expected=made_from, found=earlier, remedy=remedy)


def _read(data: Any, inputs: str, columns: Mapping[str, str]) -> Any:
    """The dataset of all files; ids and texts are read as texts, whatever they look like."""
    import pyarrow as pa
    from pyarrow import csv
    from pyarrow import json as json_lines

    filesystem, path = _location(inputs)
    files, texts = sorted(filesystem.glob(path)), pa.schema([(column, pa.string()) for column in columns.values()])
    match Path(files[0]).suffix.lower():
        case ".parquet":
            return data.read_parquet(files, filesystem=filesystem)
        case ".jsonl":
            options = json_lines.ParseOptions(explicit_schema=texts)
            return data.read_json(files, filesystem=filesystem, parse_options=options)
    lines, types = csv.ParseOptions(newlines_in_values=True), csv.ConvertOptions(column_types=texts)
    return data.read_csv(files, filesystem=filesystem, parse_options=lines, convert_options=types)
