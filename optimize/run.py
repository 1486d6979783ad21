"""Opens the run of a compile: the LM with its store of replies, and the tracked run."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from debate_judge.data.errors import make_folder
from debate_judge.optimize.plan import CompilePlan, CompileRun
from debate_judge.optimize.publishing import log_plan
from debate_judge.programs import find_preset
from debate_judge.programs.lm.replies import LocalTransport, SqlStore, replies_folder
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.estimates import NO_LIMITS
from debate_judge.runs.runner.debate_cache import DebateCache
from debate_judge.runs.runner.preflight import PreflightCheck, preflight, preflight_checks
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.shared_flags import lm_options
from debate_judge.runs.tracking.tracker import Tracker

if TYPE_CHECKING:
    from debate_judge.optimize.settings import Settings
    from debate_judge.programs.lm.engine import JudgeLM

logger = logging.getLogger(__name__)

REFLECTION = "reflection"
"""The role of its calls in the table of costs and in estimates."""

_TEMPERATURE = 1.0
"""So that proposals differ; a repeated run finds the same replies in the store."""

_MAX_TOKENS = 4000
"""Least `max_tokens` of its calls, whose replies hold an analysis and a guide, or complete instructions."""


def make_reflection_lm(settings: Settings, lm: JudgeLM, transport: LocalTransport | None = None) -> JudgeLM:
    """The LM that `--reflection-lm` names, with the store, counts and budget of the judge's LM `lm`.

    An estimate passes the `transport` of a dry run, which has no limits.

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
        options=NO_LIMITS if transport is not None else lm_options(settings),
        transport=transport,
        flag="--reflection-lm",
    ).share_run(lm, REFLECTION)


def preflight_reflection(settings: Settings, lm: JudgeLM) -> None:
    """Call the reflection LM once, if it is not the judge's, so that a wrong key or name is found before the compile.

    Raises:
        dspy.LMError: The key is refused, the model unknown, the account empty.
    """
    if settings.reflection_lm not in (None, settings.lm):
        lm("Reply with OK.")


@contextmanager
def open_run(plan: CompilePlan, *, progress: bool = True) -> Iterator[tuple[CompileRun, Tracker]]:
    """The run of a compile, with the LM and its stored replies, after the preflight calls; and where it is tracked.

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
            yield CompileRun(plan, runner, reflection_lm, tracker), tracker


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
        if progress and lm.destination is not None:
            print(lm.destination, file=sys.stderr)
        with JudgeRunner(lm, progress=progress, cache=DebateCache() if plan.data.cross_validated else None) as runner:
            yield runner
