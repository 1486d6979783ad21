"""A comparison from settings to output: one evaluation, the table, the report, the run in MLflow."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import write_json
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.programs.lm.limits import TooManyUnscoredError
from debate_judge.programs.lm.replies import SqlStore, StoreError, replies_folder
from debate_judge.programs.make_lm import OFFLINE, make_lm
from debate_judge.runs.command_line import EXIT_LM, RESUME_HINT, print_error
from debate_judge.runs.comparison.entrants import Entrant, LMChoice
from debate_judge.runs.comparison.evaluate import estimate_evaluation, evaluate, one_line
from debate_judge.runs.comparison.flags import CompareFlags
from debate_judge.runs.comparison.plan import ComparisonPlan, prepare
from debate_judge.runs.comparison.report import comparison_report, evidence_tables
from debate_judge.runs.comparison.results import AVERAGE, Comparison, EvaluatedJudge
from debate_judge.runs.comparison.table import heading, judges_table, notes, verdict
from debate_judge.runs.estimates import EstimateTarget, estimate_blocks
from debate_judge.runs.flags import changed_settings, result_settings
from debate_judge.runs.reports.costs import calls_text, cost_table
from debate_judge.runs.reports.evidence import average_distances
from debate_judge.runs.reports.page import write_pages
from debate_judge.runs.reports.tables import OutputBlock, Verbatim, markdown, show
from debate_judge.runs.reports.text import interval_metrics
from debate_judge.runs.runner.judge_usage import UsageByJudge
from debate_judge.runs.runner.preflight import preflight, preflight_checks
from debate_judge.runs.runner.runner import JudgeRunner, require_scored
from debate_judge.runs.shared_flags import lm_options, require_server
from debate_judge.runs.tracking.model import log_dataset
from debate_judge.runs.tracking.tracker import EXIT_TRACKING, Tracker, TrackingError
from debate_judge.runs.tracking.values import text_values


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
        show(*_estimate(plan))
        return 0
    with ExitStack() as stack:
        lms = {choice: _open_lm(flags, choice, stack) for choice in plan.lms}
        clients = list(lms.values())
        for lm in clients[1:]:
            lm.share_budget(clients[0])
        tracker = stack.enter_context(tracked(plan))
        comparison, incomplete = compare_entrants(plan, lms)
        record = {**comparison.to_json(), **plan.to_json()}
        if flags.json:
            write_json(flags.json, {**record, "lm_calls": {lm.model: lm.meter.counts() for lm in clients}}, "--json")
        places = _write(comparison, plan, clients, tracker, record)
        show(*_summary(comparison, plan, clients, places))
    for name in incomplete:
        remedy = f"fix the cause, or allow more with --max-unscored, and {RESUME_HINT}"
        print_error(f"{name}: {comparison.failed[name]}\n  remedy:   {remedy}")
    return EXIT_LM if incomplete else 0


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


def compare_entrants(plan: ComparisonPlan, lms: Mapping[LMChoice, JudgeLM]) -> tuple[Comparison, list[str]]:
    """Evaluate all entrants, LM by LM; returns the comparison, and the judges that left too many texts without a score.

    Raises:
        dspy.LMError: An LM cannot be used, or every judge left too many texts without a score; replies so far are in
            its store.
        InputError: No judge of an LM could score anything.
    """
    setup = plan.setup
    judges: dict[str, EvaluatedJudge] = {}
    failed: dict[str, str] = {}
    incomplete: dict[str, TooManyUnscoredError] = {}
    for choice, lm in lms.items():
        with JudgeRunner(lm) as runner:
            usable, unusable = _usable_entrants(plan, choice, runner)
            evaluated, failed_later = evaluate(runner, usable, setup.corpus, setup.aspects)
        failed |= {**unusable, **failed_later}
        for name, judge in evaluated.items():
            try:
                judgements = [j for of_aspect in judge.judgements.values() for j in of_aspect]
                require_scored(judgements, plan.flags.max_unscored, "texts")
                # The stand-in is free.
                judges[name] = replace(judge, price=None if choice.spec == OFFLINE else lm.price)
            except TooManyUnscoredError as error:
                incomplete[name], failed[name] = error, one_line(error)
    if incomplete and not judges:
        raise next(iter(incomplete.values()))
    in_order = {entrant.name: judges[entrant.name] for entrant in plan.entrants if entrant.name in judges}
    return Comparison(setup, {**in_order, **plan.external}, plan.baseline, failed), list(incomplete)


def _usable_entrants(
    plan: ComparisonPlan, choice: LMChoice, runner: JudgeRunner
) -> tuple[list[Entrant], dict[str, str]]:
    """The entrants of an LM that pass the preflight, and the reason of each that fails; it is an error if all fail."""
    entrants = plan.entrants_of(choice)
    if not plan.flags.preflight:
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


def _estimate(plan: ComparisonPlan) -> list[OutputBlock]:
    """The cost estimate of the comparison, for the terminal, by LM; no LM is called."""
    flags, blocks = plan.flags, list[OutputBlock]()
    for choice in plan.lms:
        sampling = {"temperature": choice.temperature, "max_tokens": choice.max_tokens}
        target = EstimateTarget.of(flags, flags.store, flags.estimate or "", choice.spec, choice.api_base, sampling)
        estimate = estimate_evaluation(target, plan.setup.corpus, plan.setup.aspects, plan.entrants_of(choice))
        last = choice == plan.lms[-1]
        notes = ["A call that several judges need is made once, and counted for the first of them."] if last else []
        blocks += estimate_blocks(estimate, "judge", notes, with_assumptions=last)
    return blocks


# --- output ---


def _summary(
    comparison: Comparison, plan: ComparisonPlan, lms: list[JudgeLM], places: Mapping[str, str]
) -> list[OutputBlock]:
    """What is printed: one screen, and before it, if verbose, all tables of the report."""
    blocks: list[OutputBlock] = []
    asked = [lm for lm in lms if lm.meter.requested]
    if plan.flags.verbose:
        tables = [table for of_kind in evidence_tables(comparison).values() for table in of_kind]
        blocks += [part for table in tables for part in (table, "")]
        blocks += [*notes(comparison, plan), ""]
        blocks += [part for lm in asked for part in (cost_table(lm.meter, lm.price), "")]
    return [
        *blocks,
        heading(comparison, plan),
        "",
        judges_table(comparison),
        "",
        *verdict(comparison),
        *(f"{result.name}: {result.judge.note}" for result in comparison.rows if result.judge.note),
        *([plan.stand_in] if plan.stand_in else []),
        *(calls_text(lm.meter, lm.price) for lm in asked),
        *(["", Verbatim("\n".join(f"{word:<8}{place}" for word, place in places.items()))] if places else []),
    ]


def _write(
    comparison: Comparison,
    plan: ComparisonPlan,
    lms: list[JudgeLM],
    tracker: Tracker,
    record: Mapping[str, object],
) -> dict[str, str]:
    """Write the report and log the run; returns where they are, by a word for each.

    If that fails there is a warning only, so that the comparison itself is not lost.
    """
    flags, places = plan.flags, dict[str, str]()
    artifacts: dict[str, str] = {}
    output = "report"
    try:
        if flags.report != "none":
            file = Path(flags.store, "comparisons", plan.name, "report.html")
            if flags.json is not None:
                file = Path(flags.json).with_name(f"{Path(flags.json).stem}-report.html")
            report = comparison_report(comparison, plan, lms)
            artifacts["report.html"] = write_pages(report, file, full=flags.report == "full")
            places["Report"] = str(file)
        output = "run"
        log_comparison(tracker, comparison, plan, record, artifacts)
        places["MLflow"] = tracker.ui_command or tracker.run_link()
    except (InputError, TrackingError) as error:
        print(f"warning: the {output} could not be written: {error}", file=sys.stderr)
    return places


@contextmanager
def tracked(plan: ComparisonPlan) -> Iterator[Tracker]:
    """The run of a comparison, which is opened, and asks for the login, before any LM call.

    Raises:
        InputError: On entering: the tracking store cannot be used.
        TrackingError: A write failed.
    """
    flags, corpus = plan.flags, plan.setup.corpus
    with Tracker(
        uri=os.environ.get("MLFLOW_TRACKING_URI"),
        store=Path(flags.store),
        experiment=f"debate/{Path(flags.data.partition('=')[0]).stem}",
        run_name=plan.name,
        identity=plan.identity,
    ) as tracker:
        import mlflow

        params = _params(plan)
        tracker.log_settings(result_settings(flags) | params, changed_settings(flags, ("data", "judges")) | params)
        with tracker.writing():
            mlflow.set_tag("level", plan.setup.level)
            if flags.part == "held-out":
                log_dataset("held_out", corpus, corpus.digest)
        yield tracker


def _params(plan: ComparisonPlan) -> dict[str, str]:
    return {"lm": plan.lm, "aspects": ",".join(aspect.name for aspect in plan.setup.aspects)}


def log_comparison(
    tracker: Tracker,
    comparison: Comparison,
    plan: ComparisonPlan,
    record: Mapping[str, object],
    artifacts: Mapping[str, str],
) -> None:
    """Log the figures, a nested run for each judge, and `artifacts` by name; metric names are those of compiles.

    Raises:
        TrackingError: A write failed.
    """
    import mlflow

    for result in comparison.rows:
        judge = result.judge
        # Agreement on sources of a compile is no evidence, and must not be sorted among figures that are.
        agreement = "in_sample_agreement" if judge.compiled_on else "agreement"
        average = result.agreement(AVERAGE)[comparison.setup.statistics[0]]
        metrics = {
            **interval_metrics(agreement, average),
            "calls_per_item": judge.calls,
            "unscored": float(average.unscored),
            **average_distances(comparison.absolute_agreement, result.name),
        }
        own = {"judge": result.name, **_params(plan), **({"lm": judge.lm} if judge.lm else {})}
        tracker.log_trial(result.name, own, metrics)
    page = "\n\n".join(filter(None, [plan.stand_in, markdown(judges_table(comparison))]))
    with tracker.writing():
        mlflow.set_tags(text_values({"mlflow.note.content": page, "note": plan.stand_in or None}))
        mlflow.log_dict(dict(record), "comparison.json")
        for file, text in artifacts.items():
            mlflow.log_text(text, file)
