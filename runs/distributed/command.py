"""`score --engine ray` from its settings to its exit code."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import ReadingNotes
from debate_judge.data.schema import Aspect, Task
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.options import BudgetCaps, LMOptions
from debate_judge.programs.lm.reply import replies_folder
from debate_judge.runs.distributed import engine, inputs, pipeline
from debate_judge.runs.distributed.driver import RunDriver
from debate_judge.runs.distributed.inputs import InputSlice
from debate_judge.runs.distributed.job import MeterCopy, ScoringJob, packed, shares_of
from debate_judge.runs.distributed.out_folder import OutFolder
from debate_judge.runs.distributed.parts import PartShape
from debate_judge.runs.distributed.progress import DistributedProgress, RunTotals
from debate_judge.runs.distributed.slice_reading import SliceReading, read_slice
from debate_judge.runs.export.loaded import LoadedJudge
from debate_judge.runs.export.manifest import Export
from debate_judge.runs.flags.declared import spelled
from debate_judge.runs.flags.lm import limits
from debate_judge.runs.flags.parser import RESUMES
from debate_judge.runs.reports.scored import scored_summary
from debate_judge.runs.reports.terminal import show
from debate_judge.runs.runner.streaming import GATHERED, group_items
from debate_judge.runs.scoring.settings import EXIT_INPUT, EXIT_UNSCORED, ScoreFlags

Find = Callable[[ScoreFlags], Export]
Load = Callable[[ScoreFlags], LoadedJudge]
MadeFrom = Callable[[ScoreFlags, LoadedJudge, Sequence[Aspect]], dict[str, Any]]


def score_distributed(arguments: ScoreFlags, find: Find, load: Load, made_from: MadeFrom) -> int:
    """Score all files of the input by actors; returns the exit code.

    Args:
        arguments: Of the command.
        find: Finds the export.
        load: Loads the judge, and says where its calls go.
        made_from: What the rows are made from, but for the input.

    Raises:
        InputError: Something cannot be used; a file that cannot be read is told, and ends the run with another code.
        dspy.LMError: The LM cannot be used at all.
    """
    _require_supported(arguments)
    engine.require_ray()
    out = OutFolder(arguments.out)
    files = inputs.fingerprinted(inputs.find_inputs(arguments.source))
    with out.exclusive(), load(arguments) as judge:
        aspects = judge.choose(arguments.aspects or None)
        judge.compiled.require_calibrated(aspects, arguments.scale)
        pieces = inputs.slices(files, arguments.columns, inputs.SLICE, _gathered(judge, aspects))
        totals = RunTotals({piece.name: piece.size for piece in pieces})
        of_input = {
            "columns": arguments.columns,
            "part": arguments.part,
            "slice": inputs.SLICE,
            "inputs": [asdict(file) for file in files],
        }
        out.require_made_from({**made_from(arguments, judge, aspects), **of_input})
        finished = out.finished()
        left = [piece for piece in pieces if piece.name not in finished]
        for piece in pieces:
            if piece.name in finished:
                totals.skip(piece.name, finished[piece.name])
        if left:
            job = _job(arguments, find(arguments), judge, aspects, out)
            _run(arguments, judge, aspects, job, left, totals)
        else:
            _say(f"nothing left to do: {arguments.out} has all parts")
        return _told(arguments, judge, totals)


def _gathered(judge: LoadedJudge, aspects: Sequence[Aspect]) -> int:
    """See `runs.distributed.parts.PartShape`."""
    judges = [judge.compiled.aspects[aspect.name].judge for aspect in aspects]
    return GATHERED if any(one.together > 1 or one.joint for one in judges) else 1


def _run(
    arguments: ScoreFlags,
    judge: LoadedJudge,
    aspects: Sequence[Aspect],
    job: ScoringJob,
    left: Sequence[InputSlice],
    totals: RunTotals,
) -> None:
    out = job.out
    reading = SliceReading(judge.task, arguments.task, arguments.columns)
    shape = PartShape(arguments.part, len(aspects), _gathered(judge, aspects))
    parts = pipeline.PartsToScore(left, reading, shape, out, frozenset(out.part_names()))
    if parts.there:
        _say(f"{len(parts.there):,} parts are finished already; {len(left):,} slices are read for what is left")
    run = uuid.uuid4().hex[:12]
    cluster = arguments.address or os.environ.get("RAY_ADDRESS")
    _say("starting Ray ..." if cluster is None else "joining Ray ...")
    with engine.cluster(cluster, arguments.actors) as ray:
        _try(arguments, judge, aspects, left, totals)
        # Its replies are on disk before an actor looks for them.
        judge.close()
        totals.meters["driver"] = MeterCopy.of(judge.lm.meter)
        shares = shares_of(_budget_left(limits(arguments).budget, judge), arguments.actors)
        with engine.service(ray, run, out, shares) as address:
            driver = RunDriver(out, totals, lambda stop: engine.ask_status(ray, address, stop))
            with DistributedProgress(totals, judge.lm.price):
                driver.run(pipeline.score_parts(ray, parts, job, address, arguments.actors))


def _budget_left(budget: BudgetCaps, judge: LoadedJudge) -> BudgetCaps:
    """What the calls that were made before the actors started have left of the budget."""
    meter, price = judge.lm.meter, judge.lm.price
    used = meter.total.fresh + meter.total.cached + meter.total.output
    usd = sum(meter.cost(price).values()) if price else 0.0
    return BudgetCaps(
        None if budget.calls is None else max(0, budget.calls - meter.executed.total()),
        None if budget.tokens is None else max(0, budget.tokens - used),
        None if budget.usd is None else max(0.0, budget.usd - usd),
    )


def _limits_of_one(arguments: ScoreFlags) -> LMOptions:
    """The limits of each actor but for the budget: its share of the user's."""
    options = limits(arguments)
    return replace(
        options,
        rpm=options.rpm and options.rpm / arguments.actors,
        tpm=options.tpm and options.tpm / arguments.actors,
        budget=BudgetCaps(),
    )


def _try(
    arguments: ScoreFlags,
    judge: LoadedJudge,
    aspects: Sequence[Aspect],
    left: Sequence[InputSlice],
    totals: RunTotals,
) -> None:
    """Have each role speak once before actors are started."""
    judges = [judge.compiled.aspects[aspect.name].judge for aspect in aspects]
    if any(one.compares for one in judges):
        _say("note: the judge's evidence is about comparing two candidates; here each text is scored by itself")
    if not arguments.preflight:
        return
    count = max(2, *(one.together for one in judges)) * len(aspects)
    notes = ReadingNotes(left[0].file.name)
    reading = SliceReading(judge.task, arguments.task, arguments.columns)
    first = list(islice(_items(left[:1], reading, aspects, notes), count))
    if notes.line():
        totals.told.add(notes.line())
        _say(notes.line())
    if first:
        judge.smoke_test(first)


def _items(
    pieces: Sequence[InputSlice], reading: SliceReading, aspects: Sequence[Aspect], notes: ReadingNotes
) -> Iterator[Item]:
    for piece in pieces:
        # What cannot be read is told when it is read for good.
        for group in read_slice(piece, reading, notes, lambda _: None):
            yield from group_items(reading.task, group, aspects)


def all_items(arguments: ScoreFlags, task: Task, aspects: Sequence[Aspect]) -> Iterator[Item]:
    """The items of all files, one after the other; what cannot be read is left out."""
    pieces = inputs.slices(inputs.find_inputs(arguments.source), arguments.columns, inputs.SLICE)
    return _items(pieces, SliceReading(task, arguments.task, arguments.columns), aspects, ReadingNotes(""))


def _job(
    arguments: ScoreFlags, found: Export, judge: LoadedJudge, aspects: Sequence[Aspect], out: OutFolder
) -> ScoringJob:
    options = _limits_of_one(arguments)
    spec = arguments.lm or found.manifest["lm"]["spec"]
    # An address that the user has agreed to, or given; one of the environment is in that of the actors, too.
    address = arguments.api_base or (judge.lm.endpoint if arguments.trust_export else None)
    return ScoringJob(
        program=packed(found),
        judges=arguments.judge,
        lm=arguments.lm,
        api_base=address or None,
        concurrency=arguments.concurrency // arguments.actors,
        store=str(replies_folder(arguments.store, spec).absolute()),
        replies=arguments.replies,
        options=options,
        budgeted=bool(limits(arguments).budget),
        prices=None if options.prices is None else options.prices.read_text(encoding="utf-8"),
        max_tokens=arguments.max_tokens,
        aspects=tuple(aspect.name for aspect in aspects),
        scale=arguments.scale,
        out=out,
        path=tuple(str(Path(place).absolute()) for place in sys.path),
    )


def _told(arguments: ScoreFlags, judge: LoadedJudge, totals: RunTotals) -> int:
    """Say how the run has ended; returns the exit code."""
    tally = totals.rows
    for note in sorted(totals.notes - totals.told):
        _say(note)
    show(*scored_summary(totals.meter(), judge.lm.price, arguments.out, tally), to=sys.stderr)
    if totals.failure is not None:
        _say(totals.failure[1])
        return totals.failure[0]
    if totals.given_up:
        _say(
            f"error: {len(totals.given_up):,} parts have no scores: the process died each time while they were scored\n"
            f"  found:    {'; '.join(totals.given_up[:3])}\n"
            "  remedy:   see Ray's logs for the cause (a lack of memory?), then run the command again: all other parts "
            "are kept, and these are tried again"
        )
        return EXIT_UNSCORED
    if totals.unread:
        _say(
            f"error: {totals.unread:,} places of the input could not be read; all else is scored\n"
            "  remedy:   fix them and run again with another --out: finished calls are not paid for again"
        )
        return EXIT_INPUT
    if not tally.rows:
        raise InputError("no groups in the input", file=arguments.source, expected="at least one group with candidates")
    if tally.share > arguments.max_unscored:
        most = f"{spelled(ScoreFlags, 'max_unscored')} {arguments.max_unscored:g}"
        _say(
            f"error: {100 * tally.share:.0f} % of the items have no score ({most})\n"
            f"  remedy:   fix the problem and {RESUMES}"
        )
        return EXIT_UNSCORED
    return 0


def _require_supported(arguments: ScoreFlags) -> None:
    for name in ("batch", "transcripts", "sources"):
        if (given := getattr(arguments, name)) is not None:
            raise InputError(
                "not with --engine ray",
                field=spelled(ScoreFlags, name),
                found=given,
                remedy="leave it out, or score with --engine local",
            )
    if arguments.concurrency < arguments.actors:
        raise InputError(
            "fewer calls at once than actors",
            field="--concurrency",
            expected=f"at least {arguments.actors}, one for each of {spelled(ScoreFlags, 'actors')}",
            found=arguments.concurrency,
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr)
