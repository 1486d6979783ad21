"""The one flow of a comparison, readable top to bottom: one evaluation, and the views of its table."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from debate_judge.data.agreement.decisions import DecisionResult, evaluate_decisions
from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import write_json
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.reply import StoreError, replies_folder
from debate_judge.programs.make_lm import OFFLINE, make_lm, open_replies
from debate_judge.runs.comparison.flags import CompareFlags
from debate_judge.runs.comparison.probes import ProbeEffects, effects_of, probes_json, probes_table
from debate_judge.runs.comparison.published import no_published_figures, published_json, published_tables
from debate_judge.runs.comparison.report import ComparedJudges, write_report
from debate_judge.runs.comparison.results import Comparison, compare_all
from debate_judge.runs.comparison.setup import ComparisonPlan, prepare, split_warning
from debate_judge.runs.comparison.table import judges_table, legend
from debate_judge.runs.comparison.variability import run_variability, variability_table
from debate_judge.runs.estimates.dry_run import EstimateTarget, reply_tokens
from debate_judge.runs.estimates.table import render as estimate_table
from debate_judge.runs.evaluation.entrants import Entrant
from debate_judge.runs.evaluation.evaluate import estimate_evaluation, evaluate, problem
from debate_judge.runs.flags.lm import limits, require_server
from debate_judge.runs.reports import absolute_agreement as absolute_agreement_tables
from debate_judge.runs.reports import raters as rater_tables
from debate_judge.runs.reports.costs import cost_rows, cost_table
from debate_judge.runs.reports.decisions import tables as decision_tables
from debate_judge.runs.reports.decisions import to_json as decisions_json
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.terminal import Printed, show
from debate_judge.runs.runner.billing import UsageByJudge
from debate_judge.runs.runner.preflight import preflight, preflight_checks
from debate_judge.runs.runner.runner import JudgeRunner


def run(arguments: CompareFlags) -> None:
    """Run a comparison and print its tables and other outputs."""
    work = prepare(arguments)
    if arguments.estimate is not None:
        show(*estimated(arguments, work))
        return
    spec = work.setting.lm
    require_server(spec, work.api_base, arguments.store)
    kept = open_replies(replies_folder(arguments.store, spec), spec, arguments.replies)
    try:
        lm = make_lm(
            spec,
            api_base=work.api_base,
            store=UsageByJudge(kept),
            concurrency=arguments.concurrency,
            options=limits(arguments),
            **work.sampling,
        )
        if lm.destination is not None:
            print(lm.destination, file=sys.stderr)
        with JudgeRunner(lm) as runner:
            compared_judges = compared(arguments, work, runner)
            in_markdown = arguments.style == "markdown"
            show(judges_table(compared_judges.comparison), "", compared_judges.legend, in_markdown=in_markdown)
            for _, table in compared_judges.tables:
                show("", table, in_markdown=in_markdown)
            if arguments.json:
                write_json(arguments.json, compared_judges.record, "--json")
            write_report(arguments, work, compared_judges, lm)
            if lm.meter.requested and spec != OFFLINE:
                show("", *cost_table(cost_rows(lm.meter, lm.price)), to=sys.stderr)
    finally:
        kept.close()


def estimated(arguments: CompareFlags, work: ComparisonPlan) -> list[Printed]:
    """What the comparison would take, before anything is spent."""
    target = EstimateTarget(
        work.setting.lm,
        work.api_base,
        replies_folder(arguments.store, work.setting.lm),
        work.sampling,
        limits(arguments),
        reply_tokens(arguments.estimate or ""),
    )
    setup = work.setup
    estimate = estimate_evaluation(target, setup.corpus, setup.aspects, work.entrants, work.probes, setup.seed)
    notes = ["A call that several judges need is made once, and counted for the first of them."]
    return estimate_table(estimate, "judge", notes)


def compared(arguments: CompareFlags, work: ComparisonPlan, runner: JudgeRunner) -> ComparedJudges:
    """Evaluate and make all views of the table.

    Raises:
        dspy.LMError: The LM failed for good; what was answered is in its store.
        InputError: No judge could score anything.
    """
    setup, setting = work.setup, work.setting
    ready, failed = _ready(arguments, work, runner)
    done = evaluate(runner, ready, setup.corpus, setup.aspects, work.probes, setup.seed)
    held_out = {entrant.name: entrant.held_out for entrant in ready}
    entries = {name: entrant.noted(split_warning(held_out[name], setting)) for name, entrant in done.judges.items()}
    price = _price(runner.lm, setting.lm)
    comparison = compare_all(
        setup,
        {**entries, **work.external},
        baseline=work.baseline,
        price=price,
        failed={**failed, **done.failed},
        progress=runner.progress,
    )
    views = list(_views(arguments, work, comparison, ready))
    record = {**comparison.to_json(), **setting.about(setup)}
    for view in views:
        record |= view.record
    nothing = no_published_figures(setup) if arguments.published else None
    return ComparedJudges(
        comparison,
        "\n".join(filter(None, [legend(comparison, setting, priced=price is not None), nothing])),
        tuple((view.section, table) for view in views for table in view.tables),
        record,
        {name: entrant for view in views for name, entrant in view.effects.items()},
    )


@dataclass(frozen=True)
class _View:
    """One thing that the table of judgements says besides the agreement."""

    section: str
    """Of the report."""
    tables: Sequence[DataTable]
    record: Mapping[str, Any]
    effects: Mapping[str, ProbeEffects] = field(default_factory=dict)


def _views(
    arguments: CompareFlags, work: ComparisonPlan, comparison: Comparison, entrants: Sequence[Entrant]
) -> Iterator[_View]:
    """What the data, the judges and the flags call for."""
    setup, results = work.setup, comparison.results
    if comparison.absolute_agreement:
        shown = [absolute_agreement_tables.table_by_judge(comparison.absolute_agreement)]
        yield _View(
            "Absolute agreement", shown, {"closeness": absolute_agreement_tables.to_json(comparison.absolute_agreement)}
        )
    if work.decision_rules:
        decided: dict[str, dict[str, DecisionResult]] = {}
        for result in results:
            how: Any = {"on_scale": result.entry.on_scale, "resamples": setup.resamples, "seed": setup.seed}
            decided[result.name] = evaluate_decisions(result.entry.scores, work.decision_rules, **how)
        yield _View("Decisions", decision_tables(decided), {"decisions": decisions_json(decided)})
    if any(rater_tables.several_raters(result.entry.scores) for result in results):
        by_judge = {
            result.name: setup.compare_with_raters(result.entry.scores, on_scale=result.entry.on_scale)
            for result in results
        }
        raters = rater_tables.table(by_judge, setup.level, setup.statistics[0])
        yield _View("Judge vs. individual raters", [raters], {"raters": rater_tables.to_json(by_judge)})
    if varied := run_variability(comparison, entrants):
        record = {"variability": [result.to_json() for result in varied]}
        yield _View("Runs of one judge", [variability_table(varied, comparison, work.setting.lm)], record)
    if work.probes:
        probes = [probe.name for probe in work.probes]
        effects = {
            result.name: effects_of(result.entry, setup.aspects, probes)
            for result in results
            if result.entry.judgements
        }
        table = probes_table(effects, setup, work.setting.where)
        yield _View("Bias probes", [table], {"probes": probes_json(effects, setup)}, effects)
    if arguments.published:
        yield _View("Published figures, not run here", published_tables(setup), published_json(setup))


def _ready(arguments: CompareFlags, work: ComparisonPlan, runner: JudgeRunner) -> tuple[list[Entrant], dict[str, str]]:
    """The entrants whose roles this LM can play, and for each other one the reason why not; none at all is an error."""
    if not arguments.preflight:
        return list(work.entrants), {}
    ready: list[Entrant] = []
    failed: dict[str, str] = {}
    for entrant in work.entrants:
        try:
            judges = {name: judge.judge for name, judge in entrant.aspects.items()}
            preflight(runner, preflight_checks(entrant.name, judges, work.setup.corpus, work.setup.aspects))
            ready.append(entrant)
        except InputError as error:
            if isinstance(error, StoreError) or len(failed) == len(work.entrants) - 1:
                raise
            failed[entrant.name] = problem(error)
    return ready, failed


def _price(lm: JudgeLM, spec: str) -> Price | None:
    """The price of this run's calls; None for the stand-in, which is free."""
    if lm.price is None or spec == OFFLINE:
        return None
    return lm.price if lm.batches is None else lm.price.batch()
