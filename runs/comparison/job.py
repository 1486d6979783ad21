"""A comparison from settings to output: one evaluation, and the views of its table."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from debate_judge.data.agreement.decisions import DecisionResult, evaluate_decisions
from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import write_json
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.prices import Price
from debate_judge.programs.lm.reply import StoreError, replies_folder
from debate_judge.programs.lm.store import SqlStore
from debate_judge.programs.make_lm import OFFLINE, make_lm
from debate_judge.runs.comparison.entrants import Entrant, LMChoice
from debate_judge.runs.comparison.evaluate import estimate_evaluation, evaluate, one_line
from debate_judge.runs.comparison.flags import CompareFlags
from debate_judge.runs.comparison.judged import EvaluatedJudge
from debate_judge.runs.comparison.plan import ComparisonPlan, prepare
from debate_judge.runs.comparison.report import RenderedComparison, write_report
from debate_judge.runs.comparison.results import Comparison, compare_all
from debate_judge.runs.comparison.table import judges_table, legend
from debate_judge.runs.estimates.dry_run import EstimateTarget, reply_tokens
from debate_judge.runs.estimates.table import estimate_blocks
from debate_judge.runs.flags.lm import lm_options, require_server
from debate_judge.runs.reports import absolute_agreement as absolute_agreement_tables
from debate_judge.runs.reports import breakdowns
from debate_judge.runs.reports import raters as rater_tables
from debate_judge.runs.reports.costs import cost_rows, cost_summary
from debate_judge.runs.reports.decisions import tables as decision_tables
from debate_judge.runs.reports.decisions import to_json as decisions_json
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.terminal import OutputBlock, show
from debate_judge.runs.runner.judge_usage import UsageByJudge
from debate_judge.runs.runner.preflight import preflight, preflight_checks
from debate_judge.runs.runner.runner import JudgeRunner

_SHARES = "Shares of scores"
"""The section of the report that the terminal leaves out."""


def run(flags: CompareFlags) -> None:
    """Run a comparison and print its tables and other outputs."""
    plan = prepare(flags)
    if flags.estimate is not None:
        show(*estimate_comparison(flags, plan))
        return
    with ExitStack() as stack:
        lms = {choice: _open_lm(flags, choice, stack) for choice in plan.lms}
        clients = list(lms.values())
        for lm in clients[1:]:
            lm.share_budget(clients[0])
        rendered = compare_entrants(flags, plan, lms)
        show(judges_table(rendered.comparison), "", rendered.legend)
        for section, table in rendered.tables:
            if section != _SHARES:
                show("", table)
        if flags.json:
            write_json(flags.json, rendered.record, "--json")
        write_report(flags, plan, rendered, clients)
        for choice, lm in lms.items():
            if lm.meter.requested and choice.spec != OFFLINE:
                heading = [f"{choice.spec}:"] if len(lms) > 1 else []
                show("", *heading, *cost_summary(cost_rows(lm.meter, lm.price)), file=sys.stderr)


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
        dspy.LMError: An LM cannot be used; replies so far are in its store.
        InputError: No judge of an LM could score anything.
    """
    setup, context = plan.setup, plan.context
    judges: dict[str, EvaluatedJudge] = {}
    failed: dict[str, str] = {}
    for choice, lm in lms.items():
        with JudgeRunner(lm) as runner:
            usable, unusable = _usable_entrants(flags, plan, choice, runner)
            evaluation = evaluate(runner, usable, setup.corpus, setup.aspects)
        failed |= {**unusable, **evaluation.failed}
        price = _price(lm, choice.spec)
        judges |= {name: replace(judge, price=price) for name, judge in evaluation.judges.items()}
    in_order = {entrant.name: judges[entrant.name] for entrant in plan.entrants if entrant.name in judges}
    comparison = compare_all(setup, {**in_order, **plan.external}, baseline=plan.baseline, failed=failed)
    views = list(_views(plan, comparison))
    record = {**comparison.to_json(), **context.to_json(setup)}
    for view in views:
        record |= view.record
    return RenderedComparison(
        comparison,
        legend(comparison, context),
        tuple((view.section, table) for view in views for table in view.tables),
        record,
    )


@dataclass(frozen=True)
class _View:
    """A further result from the table of judgements, in addition to the correlations."""

    section: str
    """Title of the report's section."""
    tables: Sequence[DataTable]
    record: Mapping[str, Any]


def _views(plan: ComparisonPlan, comparison: Comparison) -> Iterator[_View]:
    """The views that apply to these data and judges."""
    setup, results = plan.setup, comparison.results
    if comparison.absolute_agreement:
        table = absolute_agreement_tables.table_by_judge(comparison.absolute_agreement)
        record = absolute_agreement_tables.to_json(comparison.absolute_agreement)
        yield _View("Absolute agreement", [table], {"absolute_agreement": record})
    if plan.decision_rules:
        decisions: dict[str, dict[str, DecisionResult]] = {}
        for result in results:
            options: Any = {"on_scale": result.judge.on_scale, "seed": setup.seed}
            decisions[result.name] = evaluate_decisions(result.judge.scores, plan.decision_rules, **options)
        yield _View("Decisions", decision_tables(decisions), {"decisions": decisions_json(decisions)})
        scores = {result.name: result.judge.scores for result in results if result.judge.on_scale}
        if by_category := breakdowns.decisions_by_category(scores, plan.decision_rules, setup.corpus):
            tables = breakdowns.category_tables(by_category)
            yield _View("Decisions by category", tables, {"decisions_by_category": by_category})
    judges = {result.name: result.judge.scores for result in results if setup.on_scale(result.judge)}
    if shares := breakdowns.score_shares(judges, [a for a in setup.aspects if a.name not in plan.decision_rules]):
        yield _View(_SHARES, breakdowns.score_shares_tables(shares), {"score_shares": shares})
    if any(rater_tables.several_raters(result.judge.scores) for result in results):
        by_judge = {
            result.name: setup.compare_with_raters(result.judge.scores, on_scale=result.judge.on_scale)
            for result in results
        }
        table = rater_tables.table(by_judge, setup.level, setup.statistics[0])
        yield _View("Judge vs. individual raters", [table], {"raters": rater_tables.to_json(by_judge)})


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
