"""`score --engine ray`: from the settings to the exit code."""

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
from debate_judge.runs.distributed.actor import ScoringJob, divide_job, pack_export
from debate_judge.runs.distributed.driver import DistributedProgress, RunTotals, add_rows
from debate_judge.runs.distributed.output_folder import OutputFolder
from debate_judge.runs.distributed.units import ReadingOptions, Unit, read_unit
from debate_judge.runs.export.loaded import LoadedJudge
from debate_judge.runs.export.manifest import Export
from debate_judge.runs.flags.declaration import cli_name
from debate_judge.runs.flags.lm import lm_options
from debate_judge.runs.flags.parser import EXIT_INPUT
from debate_judge.runs.flags.text_layout import say
from debate_judge.runs.reports.scoring_summary import scored_summary
from debate_judge.runs.reports.terminal import show
from debate_judge.runs.scoring.scorer import TextScorer, find_export, load_judge, unscored_exit_code
from debate_judge.runs.scoring.settings import EXIT_UNSCORED, ScoreFlags


def score_distributed(flags: ScoreFlags) -> int:
    """Score all files of the input by actors; returns the exit code.

    A file that cannot be read does not stop the others.
    """
    _require_supported(flags)
    driver.require_ray()
    out = OutputFolder(flags.out)
    files = units.with_fingerprints(units.find_inputs(flags.input))
    export = find_export(flags)
    with out.exclusive(), load_judge(flags, export) as judge:
        scorer = TextScorer(judge, flags)
        options = ReadingOptions(judge.task, flags.task, flags.columns, scorer.shares_calls, flags.keep_columns)
        all_units = units.cut_into_units(files, flags.columns, scorer.shares_calls)
        input_provenance = {
            "columns": flags.columns,
            "units": [units.MAX_UNIT_BYTES, units.MIN_UNIT_BYTES, units.TARGET_UNITS, units.MAX_TABLE_UNITS],
            "inputs": [asdict(file) for file in files],
        }
        out.require_provenance({**scorer.provenance(), **input_provenance})
        complete, damaged = out.complete_units()
        if damaged:
            say(f"note: {damaged:,} parts of {flags.out} are damaged or lost, and are scored again")
        remaining = [unit for unit in all_units if unit.name not in complete]
        totals = RunTotals({unit.name: unit.size for unit in remaining})
        for rows in complete.values():
            add_rows(totals.rows, rows)
        if remaining:
            first_groups = _first_groups(scorer, options, all_units if flags.keep_columns else remaining[:1], totals)
            if scorer.note:
                say(f"note: {scorer.note}")
            # Two columns of one name are refused before any LM call.
            scorer.layout(first_groups[0].candidates[0].row if first_groups else {})
            scorer.run_preflight(first_groups)
            job = _scoring_job(flags, export, judge, options, out, first_groups)
            _run_actors(flags, job, judge, remaining, totals)
        else:
            say(f"nothing left to do: {flags.out} has all parts")
        return _summary(flags, judge, totals)


def _first_groups(
    scorer: TextScorer, options: ReadingOptions, units_to_try: Sequence[Unit], totals: RunTotals
) -> list[RatedGroup]:
    """The first groups of the first unit that has any; errors are left to the actor that scores the unit."""
    for unit in units_to_try:
        notes = ReadingNotes(unit.file.name)
        first_groups, _ = scorer.peek(read_unit(unit, options, notes, lambda _: None))
        if notes.text() and notes.text() not in totals.reported:
            totals.reported.add(notes.text())
            say(notes.text())
        if first_groups:
            return first_groups
    return []


def _scoring_job(
    flags: ScoreFlags,
    export: Export,
    judge: LoadedJudge,
    reading_options: ReadingOptions,
    out: OutputFolder,
    first_groups: list[RatedGroup],
) -> ScoringJob:
    """The job before it is divided among the actors: its limits are those of all together."""
    options = lm_options(flags)
    spec = flags.lm or export.manifest["lm"]["spec"]
    # An address that the user gave or confirmed; one from the environment is set for the actors as well.
    address = flags.api_base or (judge.lm.endpoint if flags.trust_export else None)
    store = replies_folder(flags.store, spec).absolute()
    return ScoringJob(
        replace(flags, api_base=address or None, store=str(store), trust_export=False),
        options,
        None if options.prices is None else options.prices.read_text(encoding="utf-8"),
        pack_export(export),
        reading_options,
        out,
        first_groups[0].candidates[0].row if first_groups and flags.keep_columns else {},
        tuple(str(Path(folder).absolute()) for folder in sys.path),
    )


def _run_actors(
    flags: ScoreFlags, job: ScoringJob, judge: LoadedJudge, remaining: Sequence[Unit], totals: RunTotals
) -> None:
    # Closed first, so that its replies are on disk before an actor reads them.
    judge.close()
    totals.meters["driver"] = Meter(*judge.lm.meter.snapshot())
    # No more actors than units, so that none holds a share of the limits without work.
    jobs = divide_job(job, _budget_left(job.options.budget, judge), min(flags.actors, len(remaining)))
    address = flags.address or os.environ.get("RAY_ADDRESS")
    say("starting Ray ..." if address is None else "joining Ray ...")
    with driver.cluster(address, len(jobs)) as ray, DistributedProgress(totals, judge.lm.price):
        driver.UnitDriver(ray, jobs, remaining, totals).run()


def _budget_left(budget: BudgetCaps, judge: LoadedJudge) -> BudgetCaps:
    """The budget less what the calls before the start of the actors spent."""
    meter, price = judge.lm.meter, judge.lm.price
    used_tokens = meter.total.fresh + meter.total.cached + meter.total.output
    usd = sum(meter.cost(price).values()) if price else 0.0
    return BudgetCaps(
        None if budget.calls is None else max(0, budget.calls - meter.executed.total()),
        None if budget.tokens is None else max(0, budget.tokens - used_tokens),
        None if budget.usd is None else max(0.0, budget.usd - usd),
    )


def _summary(flags: ScoreFlags, judge: LoadedJudge, totals: RunTotals) -> int:
    """Print how the run ended; returns the exit code."""
    show(*scored_summary(totals.meter(), judge.lm.price, flags.out, totals.rows), file=sys.stderr)
    if totals.failure is not None:
        say(totals.failure[1])
        return totals.failure[0]
    if totals.given_up:
        say(
            f"error: {len(totals.given_up):,} units have no scores: the process died each time while they were scored\n"
            f"  found:    {'; '.join(totals.given_up[:3])}\n"
            "  remedy:   see Ray's logs for the cause (a lack of memory?), then run the command again: all other "
            "units are kept, and these are tried again"
        )
        return EXIT_UNSCORED
    if totals.unreadable:
        say(
            f"error: {totals.unreadable:,} records of the input could not be read; everything else is scored\n"
            "  remedy:   fix them and run again with another --out: finished calls are not paid for again"
        )
        return EXIT_INPUT
    if not totals.rows.rows:
        raise InputError("no groups in the input", file=flags.input, expected="at least one group with candidates")
    return unscored_exit_code(flags, totals.rows)


def _require_supported(flags: ScoreFlags) -> None:
    for name in ("transcripts", "sources"):
        if (value := getattr(flags, name)) is not None:
            raise InputError(
                "not with --engine ray",
                field=cli_name(ScoreFlags, name),
                found=value,
                remedy="leave it out, or score with --engine local",
            )
    if flags.concurrency < flags.actors:
        raise InputError(
            "fewer concurrent calls than actors",
            field="--concurrency",
            expected=f"at least {flags.actors}, one for each of {cli_name(ScoreFlags, 'actors')}",
            found=flags.concurrency,
        )
