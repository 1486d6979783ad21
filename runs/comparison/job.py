"""A comparison from settings to output: one evaluation, and the views of its table."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import write_json
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.errors import TooManyUnscoredError
from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.reply import StoreError, replies_folder
from debate_judge.programs.lm.store import SqlStore
from debate_judge.programs.make_lm import OFFLINE, make_lm
from debate_judge.runs.comparison.entrants import Entrant, LMChoice
from debate_judge.runs.comparison.evaluate import estimate_evaluation, evaluate, one_line
from debate_judge.runs.comparison.evidence import evidence
from debate_judge.runs.comparison.flags import CompareFlags
from debate_judge.runs.comparison.judged import EvaluatedJudge
from debate_judge.runs.comparison.plan import ComparisonPlan, prepare
from debate_judge.runs.comparison.report import RenderedComparison, write_report
from debate_judge.runs.comparison.results import Comparison
from debate_judge.runs.comparison.table import heading, judges_table, notes, verdict
from debate_judge.runs.comparison.tracked import tracked
from debate_judge.runs.estimates.dry_run import EstimateTarget, reply_tokens
from debate_judge.runs.estimates.table import estimate_blocks
from debate_judge.runs.flags.lm import lm_options, require_server
from debate_judge.runs.flags.parser import EXIT_LM, RESUME_HINT
from debate_judge.runs.flags.text_layout import print_error
from debate_judge.runs.reports.costs import calls_text, cost_table
from debate_judge.runs.reports.terminal import OutputBlock, Verbatim, show
from debate_judge.runs.runner.judge_usage import UsageByJudge
from debate_judge.runs.runner.preflight import preflight, preflight_checks
from debate_judge.runs.runner.runner import JudgeRunner, require_scored
from debate_judge.runs.tracking.tracker import EXIT_TRACKING, Tracker, TrackingError


def run(flags: CompareFlags) -> int:
    """Run a comparison and print its tables and other outputs; returns the exit code, `EXIT_LM` if a judge left too
    many texts without a score, `EXIT_TRACKING` if the tracking store failed."""
    try:
        return _run(flags)
    except TrackingError as error:
        print_error(error)
        return EXIT_TRACKING


def _run(flags: CompareFlags) -> int:
    plan = prepare(flags)
    if flags.estimate is not None:
        show(*estimate_comparison(flags, plan))
        return 0
    with ExitStack() as stack:
        lms = {choice: _open_lm(flags, choice, stack) for choice in plan.lms}
        clients = list(lms.values())
        for lm in clients[1:]:
            lm.share_budget(clients[0])
        tracker = stack.enter_context(tracked(flags, plan))
        rendered = compare_entrants(flags, plan, lms)
        if flags.json:
            counts = {lm.model: lm.meter.counts() for lm in clients}
            write_json(flags.json, {**rendered.record, "lm_calls": counts}, "--json")
        show(*summary(flags, plan, rendered, clients, tracker))
    for name in rendered.incomplete:
        reason = rendered.comparison.failed[name]
        print_error(
            f"{name}: {reason}\n  remedy:   fix the cause, or allow more with --max-unscored, and {RESUME_HINT}"
        )
    return EXIT_LM if rendered.incomplete else 0


def summary(
    flags: CompareFlags,
    plan: ComparisonPlan,
    rendered: RenderedComparison,
    clients: Sequence[JudgeLM],
    tracker: Tracker,
) -> list[OutputBlock]:
    """What is printed: one screen, and before it, if verbose, all tables of the report. Writes the report, too."""
    comparison, context = rendered.comparison, plan.context
    blocks: list[OutputBlock] = []
    if flags.verbose:
        for kind in evidence(comparison):
            blocks += [part for table in kind.tables for part in (table, "")]
        blocks += [*rendered.notes, ""]
        blocks += [part for lm in clients if lm.meter.requested for part in (cost_table(lm.meter, lm.price), "")]
    places = write_report(flags, plan, rendered, clients, tracker)
    return [
        *blocks,
        heading(comparison, context),
        "",
        judges_table(comparison),
        "",
        *verdict(comparison),
        *(f"{result.name}: {result.judge.note}" for result in comparison.rows if result.judge.note),
        *([context.lm_note] if context.stand_in else []),
        *(calls_text(lm.meter, lm.price) for lm in clients if lm.meter.requested),
        *(["", Verbatim("\n".join(f"{word:<8}{place}" for word, place in places.items()))] if places else []),
    ]


def _open_lm(flags: CompareFlags, choice: LMChoice, stack: ExitStack) -> JudgeLM:
    """The LM with its store of replies, which `stack` closes."""
    require_server(choice.spec, choice.api_base, flags.store)
    replies = SqlStore(replies_folder(flags.store, choice.spec))
    stack.callback(replies.close)
    lm = make_lm(
        choice.spec,
        api_base=choice.api_base,
        store=UsageByJudge(replies),
        concurrency=flags.concurrency,
        options=lm_options(flags),
        temperature=choice.temperature,
        max_tokens=choice.max_tokens,
        flag=choice.flag,
    )
    if lm.destination is not None:
        print(lm.destination, file=sys.stderr)
    return lm


def estimate_comparison(flags: CompareFlags, plan: ComparisonPlan) -> list[OutputBlock]:
    """The cost estimate of the comparison, for the terminal, by LM; no LM is called."""
    setup, blocks = plan.setup, list[OutputBlock]()
    for number, choice in enumerate(plan.lms, 1):
        target = EstimateTarget(
            choice.spec,
            choice.api_base,
            replies_folder(flags.store, choice.spec),
            {"temperature": choice.temperature, "max_tokens": choice.max_tokens},
            lm_options(flags),
            reply_tokens(flags.estimate or ""),
        )
        estimate = estimate_evaluation(target, setup.corpus, setup.aspects, plan.entrants_of(choice))
        notes = ["A call that several judges need is made once, and counted for the first of them."]
        last = number == len(plan.lms)
        blocks += estimate_blocks(estimate, "judge", notes if last else [], with_assumptions=last)
    return blocks


def compare_entrants(flags: CompareFlags, plan: ComparisonPlan, lms: Mapping[LMChoice, JudgeLM]) -> RenderedComparison:
    """Evaluate all entrants, LM by LM, and compute the views of the table.

    Raises:
        dspy.LMError: An LM cannot be used, or every judge left too many texts without a score; replies so far are in
            its store.
        InputError: No judge of an LM could score anything.
    """
    setup, context = plan.setup, plan.context
    judges: dict[str, EvaluatedJudge] = {}
    failed: dict[str, str] = {}
    incomplete: dict[str, TooManyUnscoredError] = {}
    for choice, lm in lms.items():
        with JudgeRunner(lm) as runner:
            usable, unusable = _usable_entrants(flags, plan, choice, runner)
            evaluation = evaluate(runner, usable, setup.corpus, setup.aspects)
        failed |= {**unusable, **evaluation.failed}
        price = _price(lm, choice.spec)
        for name, judge in evaluation.judges.items():
            try:
                judgements = [j for of_aspect in judge.judgements.values() for j in of_aspect]
                require_scored(judgements, flags.max_unscored, "texts")
                judges[name] = replace(judge, price=price)
            except TooManyUnscoredError as error:
                incomplete[name], failed[name] = error, one_line(error)
    if incomplete and not judges:
        raise next(iter(incomplete.values()))
    in_order = {entrant.name: judges[entrant.name] for entrant in plan.entrants if entrant.name in judges}
    comparison = Comparison(setup, {**in_order, **plan.external}, plan.baseline, failed)
    record = {**comparison.to_json(), **context.to_json(setup)}
    for kind in evidence(comparison):
        record |= kind.record
    return RenderedComparison(comparison, tuple(notes(comparison, context)), record, tuple(incomplete))


def _usable_entrants(
    flags: CompareFlags, plan: ComparisonPlan, choice: LMChoice, runner: JudgeRunner
) -> tuple[list[Entrant], dict[str, str]]:
    """The entrants of an LM that pass the preflight, and the reason of each that fails; it is an error if all fail."""
    entrants = plan.entrants_of(choice)
    if not flags.preflight:
        return entrants, {}
    usable: list[Entrant] = []
    failed: dict[str, str] = {}
    for entrant in entrants:
        try:
            judges = {name: aspect_judge.judge for name, aspect_judge in entrant.aspect_judges.items()}
            preflight(runner, preflight_checks(entrant.name, judges, plan.setup.corpus, plan.setup.aspects))
            usable.append(entrant)
        except InputError as error:
            if isinstance(error, StoreError) or len(failed) == len(entrants) - 1:
                raise
            failed[entrant.name] = one_line(error)
    return usable, failed


def _price(lm: JudgeLM, spec: str) -> Price | None:
    """The price of this run's calls; None where it is unknown, and for the stand-in, which is free."""
    if lm.price is None or spec == OFFLINE:
        return None
    return lm.price
