"""`score --engine ray` from its settings to its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import ReadingNotes
from debate_judge.data.schema import RatedGroup
from debate_judge.programs.lm.options import BudgetCaps
from debate_judge.programs.lm.reply import replies_folder
from debate_judge.programs.lm.usage import Meter
from debate_judge.runs.distributed import driver, units
from debate_judge.runs.distributed.actor import ScoringJob, packed, shared_out
from debate_judge.runs.distributed.driver import DistributedProgress, RunTotals, add_rows
from debate_judge.runs.distributed.output_folder import OutputFolder
from debate_judge.runs.distributed.units import Unit, UnitReading, read_unit
from debate_judge.runs.export.loaded import LoadedJudge
from debate_judge.runs.export.manifest import Export
from debate_judge.runs.flags.declaration import cli_name
from debate_judge.runs.flags.lm import limits
from debate_judge.runs.flags.parser import EXIT_INPUT
from debate_judge.runs.flags.text_layout import say
from debate_judge.runs.reports.scoring_summary import scored_summary
from debate_judge.runs.reports.terminal import show
from debate_judge.runs.scoring.scorer import TextScorer, find_export, open_program, unscored_code
from debate_judge.runs.scoring.settings import EXIT_UNSCORED, ScoreFlags


def score_distributed(flags: ScoreFlags) -> int:
    """Score all files of the input by actors; returns the exit code.

    A file that cannot be read does not stop the others.
    """
    _require_supported(flags)
    driver.require_ray()
    out = OutputFolder(flags.out)
    files = units.fingerprinted(units.find_inputs(flags.source))
    export = find_export(flags)
    with out.exclusive(), open_program(flags, export) as judge:
        scorer = TextScorer(judge, flags)
        reading = UnitReading(judge.task, flags.task, flags.columns, scorer.shared, flags.keep_columns)
        cut = units.cut(files, flags.columns, scorer.shared)
        of_input = {
            "columns": flags.columns,
            "units": [units.LARGEST, units.SMALLEST, units.UNITS, units.TABLE_UNITS],
            "inputs": [asdict(file) for file in files],
        }
        out.require_provenance({**scorer.provenance(), **of_input})
        complete, damaged = out.complete()
        if damaged:
            say(f"note: {damaged:,} parts of {flags.out} are damaged or lost, and are scored again")
        left = [unit for unit in cut if unit.name not in complete]
        totals = RunTotals({unit.name: unit.size for unit in left})
        for rows in complete.values():
            add_rows(totals.rows, rows)
        if left:
            first = _first_groups(scorer, reading, cut if flags.keep_columns else left[:1], totals)
            if scorer.note:
                say(f"note: {scorer.note}")
            # Two columns of one name are refused before anything is asked.
            scorer.form(first[0].candidates[0].row if first else {})
            scorer.run_preflight(first)
            job = _job(flags, export, judge, reading, out, first)
            _run(flags, job, judge, left, totals)
        else:
            say(f"nothing left to do: {flags.out} has all parts")
        return _summary(flags, judge, totals)


def _first_groups(
    scorer: TextScorer, reading: UnitReading, some: Sequence[Unit], totals: RunTotals
) -> list[RatedGroup]:
    """The first groups of the first unit that has any; what cannot be read is reported when it is read for good."""
    for unit in some:
        notes = ReadingNotes(unit.file.name)
        first, _ = scorer.ahead(read_unit(unit, reading, notes, lambda _: None))
        if notes.text() and notes.text() not in totals.reported:
            totals.reported.add(notes.text())
            say(notes.text())
        if first:
            return first
    return []


def _job(
    flags: ScoreFlags,
    export: Export,
    judge: LoadedJudge,
    reading: UnitReading,
    out: OutputFolder,
    first: list[RatedGroup],
) -> ScoringJob:
    """What is to be scored, and how, with the limits of all actors together."""
    options = limits(flags)
    spec = flags.lm or export.manifest["lm"]["spec"]
    # An address that the user has agreed to, or given; one of the environment is in that of the actors, too.
    address = flags.api_base or (judge.lm.endpoint if flags.trust_export else None)
    store = replies_folder(flags.store, spec).absolute()
    return ScoringJob(
        replace(flags, api_base=address or None, store=str(store), trust_export=False),
        options,
        None if options.prices is None else options.prices.read_text(encoding="utf-8"),
        packed(export),
        reading,
        out,
        first[0].candidates[0].row if first and flags.keep_columns else {},
        tuple(str(Path(place).absolute()) for place in sys.path),
    )


def _run(flags: ScoreFlags, job: ScoringJob, judge: LoadedJudge, left: Sequence[Unit], totals: RunTotals) -> None:
    # Its replies are on disk before an actor looks for them.
    judge.close()
    totals.meters["driver"] = Meter(*judge.lm.meter.snapshot())
    # Of a small input, each actor has a larger share of the limits.
    jobs = shared_out(job, _budget_left(job.options.budget, judge), min(flags.actors, len(left)))
    address = flags.address or os.environ.get("RAY_ADDRESS")
    say("starting Ray ..." if address is None else "joining Ray ...")
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


def _summary(flags: ScoreFlags, judge: LoadedJudge, totals: RunTotals) -> int:
    """Say how the run has ended; returns the exit code."""
    show(*scored_summary(totals.meter(), judge.lm.price, flags.out, totals.rows), to=sys.stderr)
    if totals.failure is not None:
        say(totals.failure[1])
        return totals.failure[0]
    if totals.given_up:
        say(
            f"error: {len(totals.given_up):,} units have no scores: the process died each time while they were scored\n"
            f"  found:    {'; '.join(totals.given_up[:3])}\n"
            "  remedy:   see Ray's logs for the cause (a lack of memory?), then run the command again: what others "
            "gave is kept, and these are tried again"
        )
        return EXIT_UNSCORED
    if totals.unread:
        say(
            f"error: {totals.unread:,} records of the input could not be read; everything else is scored\n"
            "  remedy:   fix them and run again with another --out: finished calls are not paid for again"
        )
        return EXIT_INPUT
    if not totals.rows.rows:
        raise InputError("no groups in the input", file=flags.source, expected="at least one group with candidates")
    return unscored_code(flags, totals.rows)


def _require_supported(flags: ScoreFlags) -> None:
    for name in ("batch", "transcripts", "sources"):
        if (given := getattr(flags, name)) is not None:
            raise InputError(
                "not with --engine ray",
                field=cli_name(ScoreFlags, name),
                found=given,
                remedy="leave it out, or score with --engine local",
            )
    if flags.concurrency < flags.actors:
        raise InputError(
            "fewer calls at once than actors",
            field="--concurrency",
            expected=f"at least {flags.actors}, one for each of {cli_name(ScoreFlags, 'actors')}",
            found=flags.concurrency,
        )
