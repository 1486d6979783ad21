"""The run of a compile: opened with the LM, its stored replies and its preflight; tracked; and its result written as an
export, a model, figures and the report."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from debate_judge.data.errors import InputError, make_folder, write_errors
from debate_judge.optimize.held_out import COMPARED
from debate_judge.optimize.plan import CompilePlan, CompileRun
from debate_judge.optimize.result import Result, compile_report, description
from debate_judge.optimize.search import describe_point
from debate_judge.programs import JUDGE_CLASSES, find_preset
from debate_judge.programs.examples import examples_of, render_examples
from debate_judge.programs.judge import corpus_items
from debate_judge.programs.lm.replies import LocalTransport, SqlStore, replies_folder
from debate_judge.programs.lm.settings import redact
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.export import save
from debate_judge.runs.flags import changed_settings
from debate_judge.runs.mlflow_store import tracking_errors
from debate_judge.runs.reports.page import write_pages
from debate_judge.runs.reports.tables import cost_rows
from debate_judge.runs.runner import DebateCache, JudgeRunner, preflight
from debate_judge.runs.shared_flags import lm_options
from debate_judge.runs.tracking import (
    CHOICE_METRIC,
    Tracker,
    finite_values,
    log_dataset,
    log_model,
    register_prompts,
    require_registrable,
    text_values,
)

if TYPE_CHECKING:
    from debate_judge.optimize.settings import Settings
    from debate_judge.programs.lm.engine import JudgeLM
    from debate_judge.programs.lm.settings import LMOptions

logger = logging.getLogger(__name__)

REFLECTION = "reflection"
"""The role of its calls in the table of costs and in estimates."""

_TEMPERATURE = 1.0
"""So that proposals differ; a repeated run finds the same replies in the store."""

_MAX_TOKENS = 4000
"""Least `max_tokens` of its calls, whose replies hold an analysis and a guide, or complete instructions."""


def make_reflection_lm(
    settings: Settings, lm: JudgeLM, options: LMOptions, transport: LocalTransport | None = None
) -> JudgeLM:
    """The LM that `--reflection-lm` names, with the store, counts and budget of the judge's LM `lm`; an estimate passes
    the `transport` of a dry run.

    Raises:
        InputError: There is no such LM, or a budget in money was set and the price is unknown.
    """
    spec, api_base = settings.reflection
    return make_lm(
        spec,
        api_base=api_base,
        store=lm.store,
        concurrency=settings.concurrency,
        temperature="none" if settings.temperature == "none" else _TEMPERATURE,
        max_tokens="none" if settings.max_tokens == "none" else max(settings.max_tokens, _MAX_TOKENS),
        options=options,
        transport=transport,
        flag="--reflection-lm",
    ).share_run(lm, REFLECTION)


@contextmanager
def open_run(plan: CompilePlan, *, progress: bool = True) -> Iterator[tuple[CompileRun, Tracker]]:
    """The run of a compile, with the LM and its stored replies, after the preflight calls; and where it is tracked.

    One process at a time has the same compile, because others would write the same files; these wait.

    Raises:
        InputError: The store, the tracking server or the LM cannot be used.
        dspy.LMError: The LM refuses the preflight calls.
    """
    settings, store = plan.settings, Path(plan.settings.store)
    with (
        _lock(store / "compiles" / f"{plan.identity}.lock"),
        # Concurrent compiles share replies as they arrive.
        closing(SqlStore(replies_folder(settings.store, settings.lm))) as replies,
    ):
        lm = make_lm(
            settings.lm,
            api_base=settings.api_base,
            store=replies,
            concurrency=settings.concurrency,
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            options=lm_options(settings),
        )
        if progress and lm.destination is not None:
            print(lm.destination, file=sys.stderr)
        cache = DebateCache() if plan.cross_validated else None
        with JudgeRunner(lm, progress=progress, cache=cache) as runner:
            # Before the tracker: settings that name no LM leave no run.
            reflection_lm = make_reflection_lm(settings, lm, lm_options(settings))
            with Tracker(
                uri=os.environ.get("MLFLOW_TRACKING_URI"),
                store=store,
                experiment=f"debate/{plan.corpus_name}",
                run_name=plan.name,
                identity=plan.identity,
            ) as tracker:
                _log_plan(plan, tracker)
                if settings.preflight:
                    _preflight(plan, runner)
                    # A wrong key or name is found before the compile.
                    if settings.reflection_lm not in (None, settings.lm):
                        reflection_lm("Reply with OK.")
                yield CompileRun(plan, runner, reflection_lm, tracker), tracker


def _preflight(plan: CompilePlan, runner: JudgeRunner) -> None:
    """The preflight calls: the judge with every role that the search may use."""
    searched = "tie_breaker" in find_preset(plan.settings.judge).dimensions
    judge = plan.judge.with_debate(tie_breaker=True if searched else None)
    judges = dict.fromkeys((aspect.name for aspect in plan.aspects), judge)
    items = chain.from_iterable(corpus_items(plan.corpus, aspect) for aspect in plan.aspects)
    preflight(runner, judges, items, name=plan.settings.judge)


@contextmanager
def _lock(file: Path) -> Iterator[None]:
    make_folder(file.parent, "--store")
    lock = FileLock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        logger.info("another process is running the same compile; waiting until it has ended")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


_ALWAYS_LOGGED = ("data", "judge", "lm", "tuner", "effort", "max_rounds", "metric", "seed")
"""Settings that every run logs, even at their defaults, so that runs can be compared by them."""

_TEXTS_WARNING = (
    "\nreport.html quotes the texts of the data: take it out before the export goes to others. report-share.html "
    "quotes none.\n"
)
"""Added to the export's README if the page has texts."""


def _log_plan(plan: CompilePlan, tracker: Tracker) -> None:
    """Log what is known before any LM call: settings, data and split."""
    import mlflow

    derived = {"aspects": ",".join(a.name for a in plan.aspects), "level": plan.level}
    tracker.log_settings(asdict(plan.settings) | derived, changed_settings(plan.settings, _ALWAYS_LOGGED) | derived)
    with tracker.writing(), tracking_errors(tracker.store.uri):
        require_registrable(plan.model_name)
        mlflow.set_tags(text_values({"note": plan.note or None, "held_out": plan.evaluation_corpus.digest}))
        log_dataset("train", plan.splits.train, plan.splits.fingerprints["train"])
        log_dataset("dev", plan.splits.dev, plan.splits.fingerprints["dev"])
        log_dataset("held_out", plan.evaluation_corpus, plan.evaluation_corpus.digest)


def write_export(result: Result) -> None:
    """Write the exported judge with its evidence into the folder of the export."""
    settings = result.plan.settings
    given = {"temperature": settings.temperature, "max_tokens": settings.max_tokens}
    sampling = {name: value if value == "none" else result.lm.kwargs.get(name) for name, value in given.items()}
    lm = {"spec": settings.lm, "api_base": result.lm.endpoint or None, **sampling}
    save(
        result.export,
        result.exported,
        lm=lm,
        evidence={**result.evidence(), "compiled_on": _compiled_on(result.plan), "identity": result.plan.identity},
        name=result.plan.name,
    )


def _compiled_on(plan: CompilePlan) -> list[str]:
    """Hashes of the sources that the exported judge was tuned or chosen on: agreement on them is no evidence."""
    return sorted({group.source_id for part in (plan.splits.train, plan.splits.dev) for group in part.groups})


def log_result(result: Result, tracker: Tracker) -> Result:
    """Log the result in its run, with the model that is its export, and write the report; returns it with both."""
    import mlflow
    import pandas as pd

    logger.info("writing figures, tables, the report and the model")
    chosen = {
        f"chosen/{aspect}": describe_point(outcome.point, outcome.calls) for aspect, outcome in result.chosen.items()
    }
    by_aspect = {aspect: examples_of(judged.judge) for aspect, judged in result.compiled.aspects.items()}
    examples = [f"{aspect}\n\n{render_examples(shown)}" for aspect, shown in by_aspect.items() if shown]
    with tracker.writing():
        mlflow.log_params(_chosen_params(result))
        mlflow.log_metrics(finite_values(_main_metrics(result)))
        mlflow.set_tags(text_values({"mlflow.note.content": description(result), "exported": result.why, **chosen}))
        mlflow.log_dict(redact(result.to_json()), "result.json")
        if examples:
            mlflow.log_text("\n\n".join(examples), "examples.txt")
        # dtype object: a missing number would become NaN, which is no JSON.
        mlflow.log_table(pd.DataFrame(cost_rows(result.lm.meter, result.lm.price), dtype=object), "costs.json")
        _log_model(result)
    page = None if result.plan.settings.report == "none" else _write_report(result, tracker)
    return replace(result, tracked=tracker, report=page)


def _write_report(result: Result, tracker: Tracker) -> Path | None:
    """Write the report beside the export and log the page to share; returns the page.

    If the page cannot be written, this is only a warning, because the compile has been paid for by now.
    """
    import mlflow

    full, file = result.plan.settings.report == "full", result.export / "report.html"
    try:
        shareable = write_pages(compile_report(result), file, full=full)
        if full:
            readme = result.export / "README.md"
            with write_errors(readme, "report"), readme.open("a", encoding="utf-8") as out:
                out.write(_TEXTS_WARNING)
    except InputError as error:
        logger.warning("no report: %s", error)
        return None
    with tracker.writing():
        mlflow.log_text(shareable, file.name)
    return file


def _log_model(result: Result) -> None:
    """Log the export as a model with its prompts, and register it if its agreement is shown to be above chance."""
    plan, exported = result.plan, result.exported
    custom_kinds = sorted({chosen.judge.kind for chosen in exported.aspects.values()} - set(JUDGE_CLASSES))
    if custom_kinds:
        # The model would need the modules of these judges and everything that they import, which is not known here.
        logger.warning(
            "no MLflow model: it cannot hold the code of %s; use the export in %s",
            ", ".join(custom_kinds),
            plan.export,
        )
    else:
        log_model(plan.export, **(_registration(result) if result.beats_chance else {}))
    register_prompts(
        plan.name,
        {
            f"{plan.model_name}.{aspect}.{role}": text
            for aspect, chosen in exported.aspects.items()
            for role, text in chosen.judge.instructions().items()
            # The Tie-breaker's are not tuned, and may be out of use.
            if text
            and role in {*chosen.judge.tunable(), *(["tie_breaker"] if chosen.judge.debate_config.tie_breaker else [])}
        },
    )


def _registration(result: Result) -> dict[str, str]:
    plan, judge = result.plan, result.exported
    task, settings, agreement = judge.task, plan.settings, result.agreement(result.exports)
    chosen = ", ".join(f"{aspect}: {aspect_judge.judge.kind}" for aspect, aspect_judge in judge.aspects.items())
    return dict(
        register_as=plan.model_name,
        description=f"Judges that score a {task.candidate_label} ({', '.join(judge.aspects)}) as human raters do, one "
        "version a compile.",
        version_description=f"{plan.name}: held-out agreement {agreement}; LM {settings.lm}; {chosen}."
        + (f" {plan.note}" if plan.note else ""),
    )


def _chosen_params(result: Result) -> dict[str, str]:
    """What the compiled judge is, as parameters by which runs are compared: one value, or one for each aspect."""
    params = {}
    for name in ("n", "persona", "knowledge"):
        values = {aspect: str(chosen.point.params[name]) for aspect, chosen in result.chosen.items()}
        first, *others = set(values.values())
        params[name] = ", ".join(f"{aspect}: {value}" for aspect, value in values.items()) if others else first
    return params


def _main_metrics(result: Result) -> dict[str, float | None]:
    """The metrics of the run, which have the same names in every compile.

    `agreement` is the main one: the compiled judge's held-out agreement, averaged over aspects, in the correlation and
    at the level that are the run's parameters `metric` and `level`.
    """
    meter, held_out, chosen = result.lm.meter, result.held_out, result.chosen
    average = {name: result.agreement(name) for name in COMPARED}
    return {
        **average["compiled"].to_metrics("agreement"),
        **{f"agreement_{name}": average[name].value for name in COMPARED if name != "compiled"},
        **{f"agreement/{aspect}": result.agreement("compiled", aspect).value for aspect in chosen},
        CHOICE_METRIC: fmean(outcome.agreement for outcome in chosen.values()),
        **held_out.gain.to_metrics("gain"),
        "gain_p_value": held_out.gain.p_value,
        "gain_of_knowledge": held_out.gain_of_knowledge.value,
        "gain_over_informed_single": held_out.gain_over_informed.value,
        "calls_per_item": held_out.calls_per_item("compiled"),
        "unscored": average["compiled"].unscored,
        "trials": sum(result.searches[0].states.values()),
        "lm_calls": meter.requested.total(),
        "input_tokens": meter.total.fresh + meter.total.cached,
        "output_tokens": meter.total.output,
        "usd": cost_rows(meter, result.lm.price)[-1]["usd"],
    }
