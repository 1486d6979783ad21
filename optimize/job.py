"""The steps of a compile in their order: load and split the data, tune, choose, score held-out, publish.

With few sources, tuning to scoring is a loop over folds (`proof/procedure.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from debate_judge.data.agreement.differences import power_of
from debate_judge.data.calibration import CalibrationEffect
from debate_judge.data.files.writing import make_folder
from debate_judge.data.schema import Corpus, fingerprint
from debate_judge.optimize.context import CompilePlan, Run
from debate_judge.optimize.findings.leaving import leave_report
from debate_judge.optimize.findings.sections import compile_report
from debate_judge.optimize.findings.wording import guides
from debate_judge.optimize.measures.calibrating import calibration_effects
from debate_judge.optimize.measures.learning_curve import LearningCurve, require_learning, tracked_curve
from debate_judge.optimize.proof.comparison import compare_held_out
from debate_judge.optimize.proof.exported import CompileEvidence, choose_export
from debate_judge.optimize.proof.fold_figures import folds_json
from debate_judge.optimize.proof.held_out import COMPARED, HeldOut
from debate_judge.optimize.proof.procedure import prove
from debate_judge.optimize.publishing import announce, publish
from debate_judge.optimize.rated_data import rated_data
from debate_judge.optimize.reflection import preflight_reflection, reflection_lm
from debate_judge.optimize.search.storage import require_reachable
from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuners import tuner_named
from debate_judge.programs import named, options_of, preset
from debate_judge.programs.judge import Judge
from debate_judge.programs.lm.reply import replies_folder
from debate_judge.programs.make_lm import make_lm, open_replies
from debate_judge.programs.roles.examples import require_shown
from debate_judge.runs.flags.lm import limits
from debate_judge.runs.reports import calibration as calibration_tables
from debate_judge.runs.reports import decisions as decision_tables
from debate_judge.runs.reports import raters as rater_tables
from debate_judge.runs.reports.costs import cost_rows
from debate_judge.runs.runner.memory import DebateMemory
from debate_judge.runs.runner.preflight import Trial, preflight, trials
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.tracking.looks import Looks, record_look
from debate_judge.runs.tracking.tracker import Tracker

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LMUse:
    """The LM calls of a compile."""

    asked: int
    executed: int
    """Calls that were sent; the others were answered from the store of replies."""
    rows: Sequence[Mapping[str, Any]]
    """Calls, tokens and money by role and round, as `runs.reports.costs.cost_rows` has them."""


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """The run in MLflow."""

    run_id: str
    ui_command: str | None
    """The command that serves the store; None where a server does."""
    link: str
    """The run's page."""
    runs_link: str
    """The table of the experiment's runs."""


@dataclass(frozen=True, kw_only=True)
class Result(CompileEvidence):
    """A finished compile."""

    plan: CompilePlan
    lm_use: LMUse
    export: Path
    report: Path | None
    """The HTML page, with texts if these were wanted; None if no page was wanted or it could not be written."""
    tracked: TrackedRun
    curve: LearningCurve | None = None

    @cached_property
    def calibration(self) -> Mapping[str, CalibrationEffect]:
        """Aspect -> the effect on held-out of mapping scores to the raters' scale."""
        return calibration_effects(self.plan, self.judge, self.held_out)

    def to_json(self) -> dict[str, Any]:
        """The result as the JSON file; every number finite or null."""
        held_out, gain = self.held_out, self.held_out.gain
        return {
            "chosen": {a: asdict(s.chosen.point) for a, s in self.searches.items()},
            "held_out": {name: held_out.tables[name].to_json() for name in COMPARED},
            **({"decisions": decision_tables.to_json(held_out.decisions)} if held_out.decisions else {}),
            **({"calibration": calibration_tables.to_json(self.calibration)} if self.calibration else {}),
            **({"raters": rater_tables.to_json(held_out.raters)} if held_out.raters else {}),
            "gain": {**asdict(gain), "power": None if (power := power_of(gain)) is None else asdict(power)},
            **({"learning_curve": self.curve.to_json()} if self.curve else {}),
            "gain_of_knowledge": asdict(held_out.of_knowledge),
            "gain_over_informed_single": asdict(held_out.over_informed),
            "looks": asdict(self.looks),
            **({"folds": folds_json(self.plan, held_out.folds)} if held_out.folds else {}),
            "guides": guides(self.judge),
            "lm_calls": {
                "total": self.lm_use.asked,
                "executed": self.lm_use.executed,
                "per_item": held_out.calls_per_item("compiled"),
            },
            "export": str(self.export),
            "exported": {"judge": self.exported.name, "why": self.exported.why},
            "run_id": self.tracked.run_id,
            "seed": self.plan.settings.seed,
            **({"note": self.plan.note} if self.plan.note else {}),
        }


def compile_judge(
    settings: Settings, personas: Mapping[str, str], corpus: Corpus | None = None, *, progress: bool = True
) -> Result:
    """Compile a judge for the raters of a corpus and measure it on held-out sources.

    Args:
        settings: All settings of the compile.
        personas: Name -> text of the Critic's personas to try.
        corpus: Rated texts in place of those that the settings name.
        progress: Whether to show progress on stderr.

    Raises:
        InputError: Settings or data cannot be used; no LM call was made then.
        dspy.LMError: The LM failed for good; its replies are stored, and the same command resumes from there.
    """
    plan = prepared(settings, personas, corpus)
    require_reachable(plan.study)
    with _runner(plan, progress=progress) as runner, _tracker(plan) as tracker:
        announce(plan, tracker)
        runner.progress.phases = plan.phases
        run = Run.of(plan, runner, tracker, reflection_lm(settings, runner.lm))
        if settings.preflight:
            preflight(runner, _trials(plan))
            preflight_reflection(settings, run.reflection)
        selected, proofs = prove(run)
        held_out = compare_held_out(plan, proofs)
        evidence = CompileEvidence(
            judge=selected.judge,
            searches=selected.searches,
            held_out=held_out,
            looks=_looked_at(plan, held_out),
            exported=choose_export(plan, selected.judge, held_out),
        )
        curve = tracked_curve(run, tracker, proofs)
        export = publish(run, tracker, evidence)
        page = None
        if settings.report != "none":
            page = leave_report(plan, tracker, export, *compile_report(run, evidence, curve))
        meter = runner.lm.meter
        return Result(
            **vars(evidence),
            plan=plan,
            lm_use=LMUse(
                asked=meter.asked.total(), executed=meter.executed.total(), rows=cost_rows(meter, runner.lm.price)
            ),
            export=export,
            report=page,
            curve=curve,
            tracked=TrackedRun(
                run_id=tracker.run_id,
                ui_command=tracker.ui_command,
                link=tracker.run_link(),
                runs_link=tracker.runs_link(),
            ),
        )


def prepared(settings: Settings, personas: Mapping[str, str], corpus: Corpus | None = None) -> CompilePlan:
    """Make the plan of a compile: the judge, the data, their split, the level to choose by.

    Raises:
        InputError: Settings or data cannot be used.
    """
    named(settings.judge)
    tuner_named(settings.tuner)
    require_learning(settings)
    options = settings.options()
    judge = _start(settings, options)
    if settings.wanted_examples:
        require_shown(judge)
    # The single call has the user's score mode, too.
    single = preset("single", {name: value for name, value in options.items() if name in options_of("single")})
    rated = rated_data(settings, judge, corpus)
    return CompilePlan(
        settings=settings,
        data=rated,
        judge=judge,
        single=single,
        personas=personas,
        identity=fingerprint(
            [settings.identity(), rated.corpus.digest, dict(personas), judge.instructions()]
            # What the settings name they identify; of what was made in Python the task's wording counts as well.
            + ([] if corpus is None else [repr(corpus.task)])
        ),
    )


def _start(settings: Settings, options: Mapping[str, Any]) -> Judge:
    """The judge that the settings name, with the options and rounds that they allow, before any tuning."""
    judge = preset(settings.judge, options)
    searched = "rounds" in named(settings.judge).searched
    return judge.with_debate(
        rounds=settings.max_rounds if searched else min(judge.debate_config.rounds, settings.max_rounds)
    )


def _trials(plan: CompilePlan) -> list[Trial]:
    """The trial calls before the compile: the judge with every role that the search may use, in every reading."""
    searched = "tie_breaker" in named(plan.settings.judge).searched
    readings = [*plan.readings, *(("joint",) if plan.joint else ())]
    fullest = [plan.read(reading).with_debate(tie_breaker=True if searched else None) for reading in readings]
    aspects = plan.data.aspects
    return [
        trial
        for judge in fullest
        for trial in trials(
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


def _looked_at(plan: CompilePlan, held_out: HeldOut) -> Looks:
    """Record in the store's ledger that the held-out figures were looked at."""
    return record_look(
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
        logger.info("another process compiles the same; waiting until it has ended")
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
        with JudgeRunner(lm, progress=progress, memory=DebateMemory() if plan.data.folds else None) as runner:
            yield runner
