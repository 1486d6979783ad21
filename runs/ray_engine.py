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
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import dspy

from debate_judge.data.errors import InputError, install_hint
from debate_judge.programs.judge import ScoreScale
from debate_judge.programs.lm.limits import describe
from debate_judge.programs.lm.replies import Meter
from debate_judge.runs import scoring
from debate_judge.runs.command_line import EXIT_INPUT, EXIT_LM, RESUME_HINT, is_terminal, say
from debate_judge.runs.export import Export
from debate_judge.runs.loaded import Connection, LoadedJudge, score_frame
from debate_judge.runs.reports.tables import show
from debate_judge.runs.scoring import EXIT_UNSCORED, PROVIDER_FAILED, RowTotals

if TYPE_CHECKING:
    import pandas as pd

    from debate_judge.runs.score import ScoreFlags

_SUFFIXES = (".parquet", ".csv", ".jsonl")
_ROLES = ("id", "source", "text", "context")


class Tally:
    """A Ray actor that hands out each share of the limits once, and adds up what the other actors did."""

    def __init__(self, shares: int) -> None:
        self._shares, self._totals, self._left_out = shares, RowTotals(), 0
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

    def result(self) -> tuple[RowTotals, int, Meter, tuple[int, str] | None]:
        """Items that were written, rows that were not, the calls of all actors, and what ended the run."""
        return self._totals, self._left_out, Meter.sum(self._meters.values()), self._failure


class Scorer:
    """An actor: the judge, loaded once, with a share of the limits. Its key comes from its own environment."""

    def __init__(
        self,
        export: Export,
        connection: Connection,
        aspects: tuple[str, ...] | None,
        scale: ScoreScale,
        columns: Mapping[str, str],
        tally: Any,
    ) -> None:
        import ray

        self._aspects, self._scale, self._columns, self._tally = aspects, scale, columns, tally
        self._name = ray.get_runtime_context().get_worker_id()
        if connection.options.budget and not ray.get(tally.take_share.remote()):
            problem = "error: an actor was killed, and what it had spent of the budget is not known"
            self._end_run(EXIT_LM, f"{problem}\n  remedy:   {RESUME_HINT}")
        try:
            self._judge = LoadedJudge(export, connection)
        except (InputError, dspy.LMError) as error:
            self._end_run(*_outcome(error))

    def __call__(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows with their scores, without those that the provider failed to answer."""
        named = {**self._columns}
        try:
            if (id_column := named.pop("id")) not in rows:
                remedy = "name a column whose values are all different: --columns id=..."
                raise InputError("the input has no such column", field=id_column, remedy=remedy)
            scored = score_frame(rows, self._judge, aspects=self._aspects, scale=self._scale, **named)
        except (InputError, dspy.LMError) as error:
            self._end_run(*_outcome(error))
        aspects = [aspect.name for aspect in self._judge.select_aspects(self._aspects)]
        reasons = scored[[f"{name}_unscored" for name in aspects]].map(lambda text: text.partition(":")[0])
        written = ~reasons.isin(PROVIDER_FAILED).any(axis=1)
        unscored = Counter(reason for reason in reasons[written].to_numpy().flat if reason)
        meter, count = self._judge.lm.meter.snapshot(), int(written.sum())
        self._tally.add.remote(self._name, meter, count * len(aspects), unscored, len(rows) - count)
        return scored[written]

    def _end_run(self, code: int, message: str) -> NoReturn:
        import ray

        ray.get(self._tally.fail.remote(code, message))
        raise RuntimeError(message)


def _outcome(error: InputError | dspy.LMError) -> tuple[int, str]:
    """The exit code and the message of a command that ends with this error."""
    if isinstance(error, InputError):
        return EXIT_INPUT, f"error: {error}"
    return EXIT_LM, describe(error, error.model or "")


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
            remedy = "score with --engine local"
            raise InputError("the judge reads texts of a source together", field="--engine", remedy=remedy)
        learnt, price = judge.task.columns, judge.lm.price
        columns = {name: name for name in _ROLES[:3]} | {role: learnt[role] for role in _ROLES if role in learnt}
        columns |= dict(part.split("=", 1) for part in flags.columns)
        made_from = {"judge": judge.fingerprint, "lm": judge.lm.model, "aspects": flags.aspects, "scale": flags.scale}
    _require_same_judge(flags.out, {**made_from, "columns": columns})
    connection = scoring.connection(flags)
    connection = replace(
        connection,
        concurrency=flags.concurrency // flags.actors,
        store=Path(flags.store).absolute(),
        options=connection.options.share(flags.actors),
    )
    cluster = os.environ.get("RAY_ADDRESS")
    say("joining Ray ..." if cluster else "starting Ray ...")
    # The two CPUs besides the actors' are for reading and writing.
    settings = {"address": cluster} if cluster else {"address": "local", "num_cpus": flags.actors + 2}
    ray.init(**settings, log_to_driver=False, logging_level=logging.ERROR)
    try:
        tally = ray.remote(num_cpus=0)(Tally).remote(flags.actors)
        ray_error = _run(
            ray.data, flags, columns, (export, connection, flags.aspects or None, flags.scale, columns, tally)
        )
        totals, left_out, meter, failure = ray.get(tally.result.remote())
    finally:
        ray.shutdown()
    show(*scoring.scored_summary(meter, price, flags.out, totals), file=sys.stderr)
    if failure is None and ray_error:
        failure = EXIT_INPUT, f"error: Ray has failed\n  found:    {ray_error}\n  remedy:   {RESUME_HINT}"
    if failure is None and left_out:
        problem = f"error: calls for {left_out:,} rows failed, which are not written"
        failure = EXIT_UNSCORED, f"{problem}\n  remedy:   {RESUME_HINT}"
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
    formats = " or ".join(_SUFFIXES)
    for flag, files in {"--in": filesystem.glob(path), "--out": [flags.out]}.items():
        suffixes = {Path(file).suffix.lower() for file in files}
        if len(suffixes) != 1 or not suffixes <= {*_SUFFIXES}:
            problem = "Ray reads and writes files of one of its formats" if files else "no such file"
            raise InputError(problem, field=flag, expected=formats, found=", ".join(sorted(suffixes)) or flags.input)
    for name in ("transcripts", "sources"):
        if (value := getattr(flags, name)) is not None:
            remedy = "leave it out, or score with --engine local"
            raise InputError("not with --engine ray", field=f"--{name}", found=value, remedy=remedy)
    if flags.concurrency < flags.actors:
        expected = f"at least {flags.actors}, one for each actor"
        raise InputError("too few calls at once", field="--concurrency", expected=expected, found=flags.concurrency)
    if unknown := [part for part in flags.columns if part.partition("=")[0] not in _ROLES]:
        raise InputError("no such column", field="--columns", expected=", ".join(_ROLES), found=unknown[0])


def _location(url: str) -> tuple[Any, str]:
    """The file system of a path or URL, as fsspec's, and the path in it."""
    import fsspec

    filesystem, path = fsspec.core.url_to_fs(url)
    return filesystem, path.rstrip("/")


def _require_same_judge(out: str, made_from: Mapping[str, object]) -> None:
    """Note what the rows are made from; refuse a folder with others."""
    filesystem, path = _location(out)
    made, earlier = json.dumps(made_from), "unknown: there is no .json beside it"
    if filesystem.exists(f"{path}.json"):
        earlier = filesystem.cat_file(f"{path}.json").decode()
    elif not filesystem.exists(path):
        filesystem.makedirs(str(Path(path).parent), exist_ok=True)
        filesystem.pipe_file(f"{path}.json", (earlier := made).encode())
    if earlier != made:
        raise InputError(
            "the folder has other rows", file=out, field="--out", expected=made, found=earlier,
            remedy="choose another --out; replies are kept in --store",
        )  # fmt: skip


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
            parse_options = json_lines.ParseOptions(explicit_schema=texts)
            return data.read_json(files, filesystem=filesystem, parse_options=parse_options)
    parse_options, types = csv.ParseOptions(newlines_in_values=True), csv.ConvertOptions(column_types=texts)
    return data.read_csv(files, filesystem=filesystem, parse_options=parse_options, convert_options=types)
