"""A compile from its settings to its export, with the LM and the run that it uses."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import make_folder
from debate_judge.data.schema import Corpus, fingerprint
from debate_judge.optimize.evaluation.comparison import choose_export, compare_held_out
from debate_judge.optimize.evaluation.held_out import HeldOutEvaluation, evaluate_held_out
from debate_judge.optimize.plan import CompilePlan, CompileRun
from debate_judge.optimize.publishing import log_plan, log_result, write_export
from debate_judge.optimize.rated_data import RatedData, load, split_sources
from debate_judge.optimize.reflection import make_reflection_lm, preflight_reflection
from debate_judge.optimize.result import Result
from debate_judge.optimize.selection import compiled_judge, search
from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuners import find_tuner
from debate_judge.optimize.tuning import TunedJudges, tune_judges
from debate_judge.programs import build_preset, find_preset, options_of
from debate_judge.programs.judge import Judge
from debate_judge.programs.lm.reply import replies_folder
from debate_judge.programs.lm.store import SqlStore
from debate_judge.programs.make_lm import make_lm
from debate_judge.programs.roles.examples import require_shows_examples
from debate_judge.runs.flags.lm import lm_options
from debate_judge.runs.runner.debate_cache import DebateCache
from debate_judge.runs.runner.preflight import PreflightCheck, preflight, preflight_checks
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.tracking.tracker import Tracker

logger = logging.getLogger(__name__)


def compile_judge(
    settings: Settings,
    personas: Mapping[str, str],
    corpus: Corpus | RatedData | None = None,
    *,
    progress: bool = True,
    run_factory: Callable[[CompilePlan], AbstractContextManager[CompileRun]] | None = None,
) -> Result:
    """Compile a judge for the raters of a corpus and measure it on held-out sources.

    Folds do not depend on each other and run concurrently.

    Args:
        settings: All settings of the compile.
        personas: Name -> text of the Critic's personas to try.
        corpus: Rated texts in place of those that the settings name.
        progress: Whether to show progress on stderr.
        run_factory: From a plan to its run, for estimates. Without a tracker nothing is logged or exported.

    Raises:
        InputError: Settings or data cannot be used; no LM call was made then.
        dspy.LMError: The LM failed for good; its replies are stored, and the same command resumes from there.
    """
    plan = make_plan(load(settings, corpus), settings, personas)
    with (run_factory or partial(open_run, progress=progress))(plan) as run:
        tuned = run.tune_concurrently([partial(tune_judges, half[0]) for half in run.halves])

        def choose_and_evaluate(run: CompileRun, judges: TunedJudges) -> HeldOutEvaluation:
            searches = search(run, judges)
            return evaluate_held_out(run, compiled_judge(run, searches), searches)

        jobs = [
            partial(choose_and_evaluate, fold, judges)
            for half, judges in zip(run.halves, tuned, strict=True)
            for fold in half
        ]
        if run.plan.data.folds:
            # The exported judge is tuned on the first half, like half of the folds, and chosen on all sources.
            jobs.append(partial(choose_and_evaluate, run, tuned[0]))
        *fold_evaluations, final = run.runner.run_concurrently(jobs)
        evaluations = fold_evaluations or [final]
        held_out = compare_held_out(run.plan, evaluations)
        result = Result(
            plan=run.plan,
            lm=run.runner.lm,
            evaluations=evaluations,
            compiled=final.judge,
            searches=final.searches,
            held_out=held_out,
            exported=choose_export(run.plan, final.judge, held_out),
        )
        if run.tracker is None:
            return result
        write_export(result)
        return log_result(result, run.tracker)


def _require_compatible(settings: Settings, judge: Judge, corpus: Corpus) -> None:
    """Refuse settings that do not fit the judge or the data."""
    measure = settings.metric_choice.absolute_measure
    if measure and (judge.compares_pairs or not judge.on_scale):
        raise InputError(
            f"the values of {settings.judge} are not on the raters' scale, so that there is no {measure}",
            field="--metric",
            expected="a correlation",
            found=settings.metric,
        )


def make_plan(rated: RatedData, settings: Settings, personas: Mapping[str, str]) -> CompilePlan:
    """The plan of a compile: the judge, the data, their split, the level to choose by.

    Raises:
        InputError: Settings or data cannot be used.
    """
    find_preset(settings.judge)
    find_tuner(settings.tuner)
    options = settings.options()
    judge = _initial_judge(settings, options)
    if settings.examples:
        require_shows_examples(judge)
    # The single call has the user's score mode, too.
    single = build_preset("single", {name: value for name, value in options.items() if name in options_of("single")})
    corpus = rated.corpus
    _require_compatible(settings, judge, corpus)
    return CompilePlan(
        settings=settings,
        data=split_sources(rated, settings, judge),
        judge=judge,
        single=single,
        personas=personas,
        identity=fingerprint(
            [settings.identity(), corpus.digest, dict(personas), judge.instructions()]
            # The task of a corpus from Python is not named by the settings, so its wording is added.
            + ([repr(corpus.task)] if rated.from_python else [])
        ),
    )


@contextmanager
def open_run(plan: CompilePlan, *, progress: bool = True) -> Iterator[CompileRun]:
    """The LM with its stored replies and the tracked run of a compile, after the preflight calls.

    Raises:
        InputError: The store, the tracking server or the LM cannot be used.
        dspy.LMError: The LM refuses the preflight calls.
    """
    settings = plan.settings
    with _open_runner(plan, progress=progress) as runner:
        # Before the tracker: settings that name no LM leave no run.
        reflection_lm = make_reflection_lm(settings, runner.lm)
        with _make_tracker(plan) as tracker:
            log_plan(plan, tracker)
            if settings.preflight:
                preflight(runner, _preflight_checks(plan))
                preflight_reflection(settings, reflection_lm)
            yield CompileRun.of(plan, runner, tracker, reflection_lm)


def _initial_judge(settings: Settings, options: Mapping[str, Any]) -> Judge:
    """The untuned judge of the settings, with their options and their maximum of rounds."""
    judge = build_preset(settings.judge, options)
    searched = "rounds" in find_preset(settings.judge).dimensions
    return judge.with_debate(
        rounds=settings.max_rounds if searched else min(judge.debate_config.rounds, settings.max_rounds)
    )


def _preflight_checks(plan: CompilePlan) -> list[PreflightCheck]:
    """The preflight calls: the judge with every role that the search may use."""
    searched = "tie_breaker" in find_preset(plan.settings.judge).dimensions
    judge, aspects = plan.judge.with_debate(tie_breaker=True if searched else None), plan.data.aspects
    return preflight_checks(
        plan.settings.judge, dict.fromkeys((a.name for a in aspects), judge), plan.data.corpus, aspects
    )


def _make_tracker(plan: CompilePlan) -> Tracker:
    return Tracker(
        uri=os.environ.get("MLFLOW_TRACKING_URI"),
        store=Path(plan.settings.store),
        experiment=f"debate/{plan.corpus_name}",
        run_name=plan.name,
        identity=plan.identity,
    )


@contextmanager
def _one_process_at_a_time(lock_file: Path) -> Iterator[None]:
    """Run the block in one process at a time, because others would write the same files; these wait.

    Raises:
        InputError: The folder cannot be written.
    """
    make_folder(lock_file.parent, "--store")
    lock = FileLock(lock_file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        logger.info("another process is running the same compile; waiting until it has ended")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _open_runner(plan: CompilePlan, *, progress: bool) -> Iterator[JudgeRunner]:
    settings = plan.settings
    # Concurrent compiles share replies as they arrive.
    lock_file = Path(settings.store, "compiles", f"{plan.identity}.lock")
    with _one_process_at_a_time(lock_file), closing(SqlStore(replies_folder(settings.store, settings.lm))) as store:
        lm = make_lm(
            settings.lm,
            api_base=settings.api_base,
            store=store,
            concurrency=settings.concurrency,
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            options=lm_options(settings),
        )
        if lm.destination is not None:
            logger.info(lm.destination)
        with JudgeRunner(lm, progress=progress, cache=DebateCache() if plan.data.folds else None) as runner:
            yield runner
