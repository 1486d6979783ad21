"""`score --engine ray` from its settings to its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import ReadingNotes
from debate_judge.data.schema import Aspect, Task
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.options import BudgetCaps
from debate_judge.programs.lm.reply import replies_folder
from debate_judge.programs.lm.usage import Meter
from debate_judge.runs.distributed import driver, units
from debate_judge.runs.distributed.actor import ScoringJob, packed, shared_out
from debate_judge.runs.distributed.out_folder import OutFolder
from debate_judge.runs.distributed.progress import DistributedProgress, RunTotals, add_rows
from debate_judge.runs.distributed.reading import UnitReading, read_unit
from debate_judge.runs.distributed.units import Unit
from debate_judge.runs.export.loaded import LoadedJudge
from debate_judge.runs.export.manifest import Export
from debate_judge.runs.flags.declared import spelled
from debate_judge.runs.flags.lm import limits
from debate_judge.runs.flags.parser import RESUMES
from debate_judge.runs.reports.scored import scored_summary
from debate_judge.runs.reports.terminal import show
from debate_judge.runs.runner.streaming import group_items
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
        InputError: Something cannot be used; a file that cannot be read is reported, and ends the run with another
            code.
        dspy.LMError: The LM cannot be used at all.
    """
    _require_supported(arguments)
    driver.require_ray()
    out = OutFolder(arguments.out)
    files = units.fingerprinted(units.find_inputs(arguments.source))
    with out.exclusive(), load(arguments) as judge:
        aspects = judge.choose(arguments.aspects or None)
        judge.compiled.require_calibrated(aspects, arguments.scale)
        job = _job(arguments, find(arguments), judge, aspects, out)
        cut = units.cut(files, arguments.columns, job.reading.shared)
        of_input = {
            "columns": arguments.columns,
            "units": [units.LARGEST, units.SMALLEST, units.UNITS, units.TABLE_UNITS],
            "inputs": [asdict(file) for file in files],
        }
        out.require_made_from({**made_from(arguments, judge, aspects), **of_input})
        complete, damaged = out.complete()
        if damaged:
            _say(f"note: {damaged:,} parts of {arguments.out} are damaged or lost, and are scored again")
        left = [unit for unit in cut if unit.name not in complete]
        totals = RunTotals({unit.name: unit.size for unit in left})
        for rows in complete.values():
            add_rows(totals.rows, rows)
        if left:
            totals.reported.add(_preflight(arguments, judge, aspects, job.reading, left[0]))
            _run(arguments, job, judge, left, totals)
        else:
            _say(f"nothing left to do: {arguments.out} has all parts")
        return _summary(arguments, judge, totals)


def _run(arguments: ScoreFlags, job: ScoringJob, judge: LoadedJudge, left: Sequence[Unit], totals: RunTotals) -> None:
    # Its replies are on disk before an actor looks for them.
    judge.close()
    totals.meters["driver"] = Meter(*judge.lm.meter.copied())
    # Of a small input, each actor has a larger share of the limits.
    jobs = shared_out(job, _budget_left(job.options.budget, judge), min(arguments.actors, len(left)))
    address = arguments.address or os.environ.get("RAY_ADDRESS")
    _say("starting Ray ..." if address is None else "joining Ray ...")
    with driver.cluster(address, len(jobs)) as ray, DistributedProgress(totals, judge.lm.price):
        driver.UnitDriver(ray, jobs, left, totals).run()


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


def _preflight(
    arguments: ScoreFlags,
    judge: LoadedJudge,
    aspects: Sequence[Aspect],
    reading: UnitReading,
    first: Unit,
) -> str:
    """Have each role speak once before actors are started; returns what was noted about the reading."""
    judges = [judge.compiled.aspects[aspect.name].judge for aspect in aspects]
    if any(one.compares for one in judges):
        _say("note: the judge's evidence is about comparing two candidates; here each text is scored by itself")
    if not arguments.preflight:
        return ""
    notes = ReadingNotes(first.file.name)
    count = max(2, *(one.together for one in judges)) * len(aspects)
    items = list(islice(_items([first], reading, aspects, notes), count))
    if notes.line():
        _say(notes.line())
    if items:
        judge.smoke_test(items)
    return notes.line()


def _items(
    some: Sequence[Unit], reading: UnitReading, aspects: Sequence[Aspect], notes: ReadingNotes
) -> Iterator[Item]:
    for unit in some:
        # What cannot be read is reported when it is read for good.
        for group, _ in read_unit(unit, reading, notes, lambda _: None):
            yield from group_items(reading.task, group, aspects)


def all_items(arguments: ScoreFlags, task: Task, aspects: Sequence[Aspect]) -> Iterator[Item]:
    """The items of all files, one after the other; what cannot be read is left out."""
    cut = units.cut(units.find_inputs(arguments.source), arguments.columns)
    # A table is read from its beginning for each of its units: once is enough here.
    once = [replace(u, end=None, of_lines=False) if u.of_lines else u for u in cut if not u.of_lines or u.start == 1]
    return _items(once, UnitReading(task, arguments.task, arguments.columns), aspects, ReadingNotes(""))


def _job(
    arguments: ScoreFlags, found: Export, judge: LoadedJudge, aspects: Sequence[Aspect], out: OutFolder
) -> ScoringJob:
    """What is to be scored, and how, with the limits of all actors together."""
    judges = [judge.compiled.aspects[aspect.name].judge for aspect in aspects]
    shared = any(one.together > 1 or one.joint for one in judges)
    options = limits(arguments)
    spec = arguments.lm or found.manifest["lm"]["spec"]
    # An address that the user has agreed to, or given; one of the environment is in that of the actors, too.
    address = arguments.api_base or (judge.lm.endpoint if arguments.trust_export else None)
    return ScoringJob(
        program=packed(found),
        judges=arguments.judge,
        lm=arguments.lm,
        api_base=address or None,
        concurrency=arguments.concurrency,
        store=str(replies_folder(arguments.store, spec).absolute()),
        replies=arguments.replies,
        options=options,
        prices=None if options.prices is None else options.prices.read_text(encoding="utf-8"),
        max_tokens=arguments.max_tokens,
        aspects=tuple(aspect.name for aspect in aspects),
        scale=arguments.scale,
        interval=arguments.interval,
        abstain=arguments.abstain,
        reading=UnitReading(judge.task, arguments.task, arguments.columns, shared),
        out=out,
        path=tuple(str(Path(place).absolute()) for place in sys.path),
    )


def _summary(arguments: ScoreFlags, judge: LoadedJudge, totals: RunTotals) -> int:
    """Say how the run has ended; returns the exit code."""
    tally = totals.rows
    show(*scored_summary(totals.meter(), judge.lm.price, arguments.out, tally), to=sys.stderr)
    if totals.failure is not None:
        _say(totals.failure[1])
        return totals.failure[0]
    if totals.given_up:
        _say(
            f"error: {len(totals.given_up):,} units have no scores: the process died each time while they were scored\n"
            f"  found:    {'; '.join(totals.given_up[:3])}\n"
            "  remedy:   see Ray's logs for the cause (a lack of memory?), then run the command again: what others "
            "gave is kept, and these are tried again"
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
