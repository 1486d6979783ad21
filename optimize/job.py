"""A compile from its settings to its export, with the LM and the run that it uses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from debate_judge.data.errors import InputError
from debate_judge.data.files.writing import make_folder
from debate_judge.data.schema import Corpus, fingerprint
from debate_judge.optimize import optimizer
from debate_judge.optimize.context import CompilePlan, Run
from debate_judge.optimize.evaluation.comparison import HeldOut, choose_export, compare_held_out
from debate_judge.optimize.evaluation.held_out import HeldOutEvaluation, evaluate
from debate_judge.optimize.evaluation.learning_curve import learning_curve, require_learning
from debate_judge.optimize.optimizer import TunedJudges
from debate_judge.optimize.publishing import announce, export, log
from debate_judge.optimize.rated_data import RatedSources, load, split_sources
from debate_judge.optimize.reflection import preflight_reflection, reflection_lm
from debate_judge.optimize.result import Result
from debate_judge.optimize.search.storage import require_reachable
from debate_judge.optimize.selection import choose, study_of
from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuners import tuner_named
from debate_judge.programs import build_preset, find_preset, options_of
from debate_judge.programs.judge import Judge
from debate_judge.programs.lm.reply import replies_folder
from debate_judge.programs.make_lm import make_lm, open_replies
from debate_judge.programs.roles.examples import require_shows_examples
from debate_judge.runs.flags.lm import limits
from debate_judge.runs.runner.debate_cache import DebateCache
from debate_judge.runs.runner.preflight import PreflightCheck, preflight, preflight_checks
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.tracking.held_out_reuse import HeldOutReuse, record_held_out_use
from debate_judge.runs.tracking.tracker import Tracker

logger = logging.getLogger(__name__)


def compile_judge(
    settings: Settings,
    personas: Mapping[str, str],
    corpus: Corpus | RatedSources | None = None,
    *,
    progress: bool = True,
    opened: Callable[[CompilePlan], AbstractContextManager[Run]] | None = None,
) -> Result:
    """Compile a judge for the raters of a corpus and measure it on held-out sources.

    Folds do not depend on each other, so that each step is taken for all of them at once.

    Args:
        settings: All settings of the compile.
        personas: Name -> text of the Critic's personas to try.
        corpus: Rated texts in place of those that the settings name.
        progress: Whether to show progress on stderr.
        opened: Gives the run of a plan, for estimates. If it is not tracked, nothing is logged and exported.

    Raises:
        InputError: Settings or data cannot be used; no LM call was made then.
        dspy.LMError: The LM failed for good; its replies are stored, and the same command resumes from there.
    """
    plan = split(load(settings, corpus), settings, personas)
    with (opened or partial(open_run, progress=progress))(plan) as run:
        tuned = run.tune_at_once([partial(optimizer.compile, half[0]) for half in run.halves])

        def choose_and_evaluate(run: Run, judges: TunedJudges) -> HeldOutEvaluation:
            study = study_of(run, judges)
            study.optimize()
            return evaluate(run, *choose(run, study))

        works = [
            partial(choose_and_evaluate, fold, judges)
            for half, judges in zip(run.halves, tuned, strict=True)
            for fold in half
        ]
        if run.plan.data.folds:
            # The exported judge learns from all sources: it is tuned on the first half, like half of the folds.
            works.append(partial(choose_and_evaluate, run, tuned[0]))
        *folds, whole = run.runner.run_concurrently(works)
        evaluations = folds or [whole]
        held_out = compare_held_out(run.plan, evaluations)
        result = Result(
            plan=run.plan,
            lm=run.runner.lm,
            evaluations=evaluations,
            compiled=whole.judge,
            searches=whole.searches,
            held_out=held_out,
            exported=choose_export(run.plan, whole.judge, held_out),
            curve=learning_curve(run, tuned, evaluations) if settings.learning_curve else None,
        )
        if run.tracker is None:
            return result
        result = replace(result, looks=_looked_at(plan, held_out))
        export(result)
        return log(result, run.tracker)


def _require_fitting(settings: Settings, judge: Judge, corpus: Corpus) -> None:
    """Refuse settings that ask for what this judge, or these data, do not have."""
    if settings.wanted_examples and settings.wanted_examples.pairs and not corpus.grouped:
        raise InputError(
            "there are no pairs to show: each source has one text",
            field="--examples",
            expected="sources with several texts",
            remedy="give N or nearest:N",
        )
    measure = settings.chosen_by.absolute_measure
    if measure and (judge.compares or not judge.on_scale):
        raise InputError(
            f"the values of {settings.judge} are not on the raters' scale, so that there is no {measure}",
            field="--metric",
            expected="a correlation",
            found=settings.metric,
        )


def split(rated: RatedSources, settings: Settings, personas: Mapping[str, str]) -> CompilePlan:
    """Make the plan of a compile: the judge, the data, their split, the level to choose by.

    Raises:
        InputError: Settings or data cannot be used.
    """
    find_preset(settings.judge)
    tuner_named(settings.tuner)
    require_learning(settings)
    options = settings.options()
    judge = _start(settings, options)
    if settings.wanted_examples:
        require_shows_examples(judge)
    # The single call has the user's score mode, too.
    single = build_preset("single", {name: value for name, value in options.items() if name in options_of("single")})
    corpus = rated.corpus
    _require_fitting(settings, judge, corpus)
    return CompilePlan(
        settings=settings,
        data=split_sources(rated, settings, judge),
        judge=judge,
        single=single,
        personas=personas,
        identity=fingerprint(
            [settings.identity(), corpus.digest, dict(personas), judge.instructions()]
            # What the settings name they identify; of what was made in Python the task's wording counts as well.
            + ([repr(corpus.task)] if rated.given else [])
        ),
    )


@contextmanager
def open_run(plan: CompilePlan, *, progress: bool = True) -> Iterator[Run]:
    """The LM with its stored replies and the tracked run of a compile, after trial calls of each kind.

    Raises:
        InputError: The store, the tracking server or the LM cannot be used.
        dspy.LMError: The LM refuses the trial calls.
    """
    settings = plan.settings
    require_reachable(plan.study)
    with _runner(plan, progress=progress) as runner:
        # Before the tracker: settings that name no LM leave no run.
        reflection = reflection_lm(settings, runner.lm)
        with _tracker(plan) as tracker:
            announce(plan, tracker)
            runner.progress.phases = plan.phases
            if settings.preflight:
                preflight(runner, _preflight_checks(plan))
                preflight_reflection(settings, reflection)
            yield Run.of(plan, runner, tracker, reflection)


def _start(settings: Settings, options: Mapping[str, Any]) -> Judge:
    """The judge that the settings name, with the options and rounds that they allow, before any tuning."""
    judge = build_preset(settings.judge, options)
    searched = "rounds" in find_preset(settings.judge).searched
    return judge.with_debate(
        rounds=settings.max_rounds if searched else min(judge.debate_config.rounds, settings.max_rounds)
    )


def _preflight_checks(plan: CompilePlan) -> list[PreflightCheck]:
    """The trial calls before the compile: the judge with every role that the search may use, in every reading."""
    searched = "tie_breaker" in find_preset(plan.settings.judge).searched
    readings = [*plan.readings, *(("joint",) if plan.joint else ())]
    fullest = [plan.read(reading).with_debate(tie_breaker=True if searched else None) for reading in readings]
    aspects = plan.data.aspects
    return [
        trial
        for judge in fullest
        for trial in preflight_checks(
            plan.settings.judge, dict.fromkeys((a.name for a in aspects), judge), plan.data.corpus, aspects
        )
    ]


def _tracker(plan: CompilePlan) -> Tracker:
    return Tracker(
        uri=plan.settings.tracking_uri,
        store=Path(plan.settings.store),
        experiment=f"debate/{plan.corpus_name}",
        run_name=plan.name,
    )


def _looked_at(plan: CompilePlan, held_out: HeldOut) -> HeldOutReuse:
    """Record in the store's ledger that the held-out figures were looked at."""
    return record_held_out_use(
        Path(plan.settings.store),
        plan.identity,
        plan.data.corpus,
        plan.data.measured,
        held_out.tables["compiled"].average[plan.data.level][plan.statistic],
        {"name": plan.name, "seed": plan.settings.seed, "aspects": [aspect.name for aspect in plan.data.aspects]},
    )


@contextmanager
def _only_process(file: Path) -> Iterator[None]:
    """Let one process at a time compile the same, for it would write the same files; the others wait.

    Raises:
        InputError: The place cannot be written.
    """
    make_folder(file.parent, "--store")
    lock = FileLock(file.with_name(f"{file.name}.lock"))
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
def _runner(plan: CompilePlan, *, progress: bool) -> Iterator[JudgeRunner]:
    settings = plan.settings
    replies = replies_folder(settings.store, settings.lm)
    # Compiles at once share their replies, but for those of batch jobs, which would be made twice.
    turns = replies / "compile" if settings.batch else Path(settings.store) / "compiles" / plan.identity
    with _only_process(turns), closing(open_replies(replies, settings.lm, settings.replies)) as kept:
        lm = make_lm(
            settings.lm,
            api_base=settings.api_base,
            store=kept,
            concurrency=settings.concurrency,
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            options=limits(settings),
        )
        if lm.destination is not None:
            logger.info(lm.destination)
        with JudgeRunner(lm, progress=progress, memory=DebateCache() if plan.data.folds else None) as runner:
            yield runner
