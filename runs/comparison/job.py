"""The one flow of a comparison, readable top to bottom: one pass of all judges, table, figures, ablations."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dspy

from debate_judge.data.agreement.decisions import Decided, decide
from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import write_json
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.errors import describe
from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.reply import ReplyStore, StoreError, replies_folder
from debate_judge.programs.make_lm import OFFLINE, make_lm, open_replies
from debate_judge.runs.comparison.ablations.plan import AblationPlan, Findings, ablate
from debate_judge.runs.comparison.ablations.plan import render as render_ablations
from debate_judge.runs.comparison.entrants import Entrant
from debate_judge.runs.comparison.estimate import estimate_comparison
from debate_judge.runs.comparison.flags import CompareFlags
from debate_judge.runs.comparison.legend import Setting, document, legend, tuned_elsewhere
from debate_judge.runs.comparison.published import fitting, published
from debate_judge.runs.comparison.published import to_json as published_json
from debate_judge.runs.comparison.published_decisions import decisions_to_json, fitting_decisions, published_decisions
from debate_judge.runs.comparison.report.leaving import told
from debate_judge.runs.comparison.report.sections import ComparedJudges
from debate_judge.runs.comparison.results import EvalSetup, compare_all
from debate_judge.runs.comparison.scoring import problem, score_all
from debate_judge.runs.comparison.setup import Work, prepare
from debate_judge.runs.comparison.table import plain_table, prose, render
from debate_judge.runs.estimates.dry_run import Target, reply_tokens
from debate_judge.runs.estimates.table import render as estimate_table
from debate_judge.runs.flags.lm import limits
from debate_judge.runs.reports.costs import cost_rows, cost_table
from debate_judge.runs.reports.decisions import blocks
from debate_judge.runs.reports.decisions import to_json as decisions_json
from debate_judge.runs.reports.raters import HEADER, BesideRaters, rows, several_raters, title
from debate_judge.runs.reports.raters import to_json as raters_json
from debate_judge.runs.reports.terminal import Printed, show
from debate_judge.runs.runner.billing import UsageByJudge
from debate_judge.runs.runner.preflight import preflight, trials
from debate_judge.runs.runner.runner import JudgeRunner


def run(arguments: CompareFlags) -> int:
    """Run a comparison and print its table and other outputs; returns the exit code.

    Raises:
        InputError: An argument or a file cannot be used.
    """
    work = prepare(arguments)
    if arguments.estimate is not None:
        show(*estimated(arguments, work))
        return 0
    kept = open_replies(replies_folder(arguments.store, arguments.lm), arguments.lm, arguments.replies)
    try:
        lm = _lm(arguments, kept)
        if lm.destination is not None:
            print(lm.destination, file=sys.stderr)
        with JudgeRunner(lm) as runner:
            found = compared(arguments, work, runner)
            findings = None if work.plan is None else ablated(arguments, work, work.plan, runner)
            told(arguments, work, found, findings, lm)
            if runner.lm.meter.asked and arguments.lm != OFFLINE:
                show("", *cost_table(cost_rows(runner.lm.meter, runner.lm.price)), to=sys.stderr)
    except dspy.LMError as error:
        print(describe(error, arguments.lm), file=sys.stderr)
        return 3
    finally:
        kept.close()
    return 0


def estimated(arguments: CompareFlags, work: Work) -> list[Printed]:
    """What the table would take, before anything is spent.

    Raises:
        InputError: The lengths of replies, or the LM, cannot be used.
    """
    target = Target(
        arguments.lm,
        arguments.api_base,
        replies_folder(arguments.store, arguments.lm),
        _sampling(arguments),
        limits(arguments),
        reply_tokens(arguments.estimate or ""),
    )
    found = estimate_comparison(target, work.setup, work.entrants)
    notes = ["A call that several judges need is made once, and counted for the first of them."]
    if work.plan is not None:
        notes.append("The ablations are not part of the estimate.")
    return estimate_table(found, "judge", notes)


def compared(arguments: CompareFlags, work: Work, runner: JudgeRunner) -> ComparedJudges:
    """Score, compare and print; files are written as asked.

    Raises:
        dspy.LMError: The LM failed for good; what was answered is in its store.
        InputError: No judge could score anything.
    """
    setup, setting = work.setup, work.setting
    ready, failed = _ready(arguments, work, runner)
    entries, impossible = score_all(runner, setup, ready)
    for one in ready:
        if one.name in entries:
            entries[one.name] = entries[one.name].noted(tuned_elsewhere(one.held_out, setting))
    entries |= work.external
    failed |= impossible
    price = _price(runner.lm, setting)
    comparison = compare_all(
        setup, entries, baseline=work.baseline, price=price, failed=failed, progress=runner.progress
    )
    table = render(comparison, arguments.style, all_intervals=arguments.intervals == "all")
    show(table, "", prose(legend(comparison, setting, priced=price is not None), arguments.style))
    record = document(comparison, setting)
    decided = {
        s.name: decide(
            s.entry.scores, work.questions, on_scale=s.entry.on_scale, resamples=setup.resamples, seed=setup.seed
        )
        for s in comparison.results
    }
    if work.questions:
        show(*_decisions(decided, arguments.style))
        record["decisions"] = decisions_json(decided)
    beside: BesideRaters = {}
    if any(several_raters(s.entry.scores) for s in comparison.results):
        beside = {s.name: setup.beside_raters(s.entry.scores, on_scale=s.entry.on_scale) for s in comparison.results}
        show(*_raters(beside, setup, arguments.style))
        record["raters"] = raters_json(beside)
    if arguments.published:
        show("", *published(setup, arguments.style))
        record["published"] = published_json(fitting(setup))
        if made := fitting_decisions(setup.corpus):
            show("", *published_decisions(made, arguments.style))
            record["published_decisions"] = decisions_to_json(made)
    if arguments.json:
        write_json(arguments.json, record, "--json")
    if work.figure is not None:
        from debate_judge.runs.comparison.figures import table_figure

        table_figure(comparison, setting.where, setting.note).savefig(work.figure)
    return ComparedJudges(comparison, decided if work.questions else {}, beside, price is not None)


def ablated(arguments: CompareFlags, work: Work, plan: AblationPlan, runner: JudgeRunner) -> Findings:
    """Do the ablations, print their tables, and write their figures and all numbers to the folder.

    Raises:
        dspy.LMError: The LM failed for good; what was answered is in its store.
        InputError: The debate cannot be had with this LM or on these scales.
    """
    from debate_judge.runs.comparison.figures import ablation_figures

    setup, setting, folder = work.setup, work.setting, Path(arguments.ablations or "")
    findings = ablate(runner, setup, plan)
    show(*render_ablations(findings, setup, arguments.style))
    if findings.stability and setting.lm == OFFLINE:
        remark = "the offline LM is deterministic: its runs cannot differ, at any temperature"
        show("", prose(remark, arguments.style))
    if findings.order and setting.lm == OFFLINE:
        remark = "the offline LM measures each candidate by itself: no order can make a difference"
        show("", prose(remark, arguments.style))
    record = {
        "level": setup.level,
        "statistics": list(setup.statistics),
        **setting.about(setup),
        "judge": plan.judge.config(),
        "temperature_of_repeats": None if runner.lm.kwargs.get("temperature") is None else plan.temperature,
        **findings.to_json(),
    }
    write_json(folder / "ablations.json", record, "--ablations")
    for name, figure in ablation_figures(findings, setup, setting.where, setting.note).items():
        figure.savefig(folder / f"{name}.png")
    show("", prose(f"figures and numbers of the ablations: {folder}", arguments.style))
    return findings


def _ready(arguments: CompareFlags, work: Work, runner: JudgeRunner) -> tuple[list[Entrant], dict[str, str]]:
    """The entrants whose roles this LM can play, and for each other one the reason why not.

    Raises:
        InputError: No entrant's roles can be played.
    """
    if not arguments.preflight:
        return list(work.entrants), {}
    ready: list[Entrant] = []
    failed: dict[str, str] = {}
    for one in work.entrants:
        try:
            judges = {name: own.judge for name, own in one.aspects.items()}
            preflight(runner, trials(one.name, judges, work.setup.corpus, work.setup.aspects))
            ready.append(one)
        except InputError as error:
            if isinstance(error, StoreError) or len(failed) == len(work.entrants) - 1:
                raise
            failed[one.name] = problem(error)
    return ready, failed


def _price(lm: JudgeLM, setting: Setting) -> Price | None:
    """The price of this run's calls; None for the stand-in, which is free."""
    if lm.price is None or setting.lm == OFFLINE:
        return None
    return lm.price if lm.batches is None else lm.price.batch()


def _lm(arguments: CompareFlags, kept: ReplyStore) -> JudgeLM:
    return make_lm(
        arguments.lm,
        api_base=arguments.api_base,
        store=UsageByJudge(kept),
        concurrency=arguments.concurrency,
        options=limits(arguments),
        **_sampling(arguments),
    )


def _sampling(arguments: CompareFlags) -> dict[str, Any]:
    return {"temperature": arguments.temperature, "max_tokens": arguments.max_tokens}


def _decisions(decided: Mapping[str, Mapping[str, Decided]], style: str) -> list[Printed]:
    return [
        part for b in blocks(decided) for part in ("", prose(b.title, style), "", plain_table(b.header, b.rows, style))
    ]


def _raters(beside: BesideRaters, setup: EvalSetup, style: str) -> list[Printed]:
    about = prose(title(setup.level, setup.statistics[0]), style)
    return ["", about, "", plain_table(HEADER, rows(beside), style)]
