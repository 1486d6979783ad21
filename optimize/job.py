"""The one flow of a compile, readable top to bottom: data, split, tuning, search, held-out, export."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from debate_judge import data
from debate_judge.data.agreement.decisions import Question, called_for
from debate_judge.data.agreement.tables import Difference, Level, Statistic
from debate_judge.data.errors import InputError
from debate_judge.data.requirements import require_level, require_ratings
from debate_judge.data.schema import Aspect, Corpus, fingerprint
from debate_judge.data.splits import Splits, split
from debate_judge.optimize.context import Run
from debate_judge.optimize.held_out import COMPARED, HeldOut, evaluate_held_out
from debate_judge.optimize.publishing import OFFLINE_NOTE, announce, publish
from debate_judge.optimize.search.study import SearchResult
from debate_judge.optimize.selection import select, start
from debate_judge.optimize.settings import Settings, one_of
from debate_judge.optimize.tuners import TUNERS
from debate_judge.programs import named
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.judge import Judge
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.journal import Journal
from debate_judge.programs.make_lm import OFFLINE, make_lm
from debate_judge.runs.flags.lm import limits
from debate_judge.runs.reports import decisions as decision_tables
from debate_judge.runs.reports.costs import cost_rows
from debate_judge.runs.runner.preflight import preflight, trials
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.tracking.tracker import Tracker


@dataclass(frozen=True)
class Result:
    """A finished compile."""

    settings: Settings
    statistic: Statistic
    level: Level
    splits: Splits
    judge: CompiledJudge
    searches: Mapping[str, SearchResult]
    """Aspect -> the search that chose its judge."""
    held_out: HeldOut
    asked: int
    executed: int
    costs: Sequence[Mapping[str, Any]]
    """LM calls, tokens and money by role and round, as `runs.reports.costs.cost_rows` has them."""
    export: Path
    run_id: str
    ui_hint: str
    run_link: str

    def to_json(self) -> dict[str, Any]:
        """The result as the JSON of `--json`; every number finite or null."""
        return {
            "chosen": {a: asdict(s.chosen.point) for a, s in self.searches.items()},
            "held_out": {name: self.held_out.tables[name].to_json() for name in COMPARED},
            **({"decisions": decision_tables.to_json(self.held_out.decisions)} if self.held_out.decisions else {}),
            "gain": difference_json(self.held_out.gain),
            "lm_calls": {
                "total": self.asked,
                "executed": self.executed,
                "per_item": self.held_out.calls_per_item("compiled"),
            },
            "export": str(self.export),
            "run_id": self.run_id,
            "seed": self.settings.seed,
            **({"note": OFFLINE_NOTE} if self.settings.lm == OFFLINE else {}),
        }


def compile_judge(settings: Settings, personas: Mapping[str, str], *, progress: bool = True) -> Result:
    """Compile a judge for the raters of a corpus and prove it on held-out sources.

    Args:
        settings: What to do.
        personas: Name -> text of the personas that a debate may be given.
        progress: Whether to show progress on stderr.

    Raises:
        InputError: Settings or data cannot be used; nothing has been spent then.
        dspy.LMError: The LM failed for good; what was answered is kept, the same command goes on from there.
    """
    corpus, aspects, questions, level, splits = prepared(settings)
    identity = fingerprint([settings.identity(), corpus.digest, dict(personas), start(settings).instructions()])
    with _runner(settings, progress) as runner, _tracker(settings, identity) as tracker:
        run = Run(
            settings, personas, splits, aspects, settings.objective, level, runner, tracker, identity,
            questions,
        )  # fmt: skip
        announce(run)
        if not settings.no_preflight:
            preflight(runner, trials(settings.judge, _fullest(settings), corpus, aspects))
        units = [tuple(aspects)] if settings.shared else [(a,) for a in aspects]
        judges: dict[str, AspectJudge] = {}
        searches: dict[str, SearchResult] = {}
        for unit in units:
            found, chosen = select(run, unit)
            for aspect in unit:
                searches[aspect.name], judges[aspect.name] = found, chosen
        judge = CompiledJudge(corpus.task, judges)
        held_out = evaluate_held_out(run, judge, searches)
        folder = publish(run, judge, searches, held_out, run_name(settings, identity))
        meter = runner.lm.meter
        return Result(
            settings, run.statistic, level, splits, judge, searches, held_out,
            meter.asked.total(), meter.executed.total(), cost_rows(meter, runner.lm.price), folder,
            tracker.run_id, tracker.ui_hint, tracker.run_link(),
        )  # fmt: skip


def _fullest(settings: Settings) -> Judge:
    """The judge with every role that the search may give it."""
    judge = start(settings)
    if "tie_breaker" in named(settings.judge).searched:
        judge.rules = replace(judge.rules, tie_breaker=True)
    return judge


def prepared(settings: Settings) -> tuple[Corpus, list[Aspect], Mapping[str, Question], Level, Splits]:
    """What a compile works on: data, aspects, the decisions called for, the level to choose by, the three parts.

    Raises:
        InputError: Settings or data cannot be used.
    """
    named(settings.judge)
    one_of("tuner", settings.tuner, tuple(TUNERS))
    corpus, aspects, level = rated_corpus(settings)
    questions = called_for(corpus.groups, aspects)
    return corpus, aspects, questions, level, split(corpus, aspects=[a.name for a in aspects], seed=settings.seed)


def rated_corpus(settings: Settings) -> tuple[Corpus, list[Aspect], Level]:
    """The corpus that the settings name, the aspects that are judged, and the level that is chosen by.

    Raises:
        InputError: The data cannot be used.
    """
    corpus = data.load(settings.data, settings.task)
    names = settings.aspects or corpus.rated_aspects()
    require_ratings(corpus, names)
    aspects = [corpus.task.aspect(n) for n in names]
    level = cast(Level, settings.level) if settings.level != "auto" else _level(settings, corpus, aspects)
    require_level(corpus, level)
    return corpus, aspects, level


def _level(settings: Settings, corpus: Corpus, aspects: list[Aspect]) -> Level:
    """Within groups where there are groups, else pooled.

    Pooled, too, where every candidate is to be called one of two things, by a cut that is the same for all sources: the
    pooled correlation ranks judges much as AUROC does, and groups of one kind count then. A judge that compares
    says nothing across sources.
    """
    questions = called_for(corpus.groups, aspects)
    pooled = all(a.name in questions and questions[a.name].kind == "binary" for a in aspects)
    return "summary" if corpus.grouped and (not pooled or start(settings).compares) else "sample"


def _tracker(settings: Settings, identity: str) -> Tracker:
    return Tracker(
        uri=settings.tracking_uri,
        store=Path(settings.store),
        experiment=f"debate/{Path(settings.data.partition('=')[0]).stem}",
        run_name=run_name(settings, identity),
    )


def run_name(settings: Settings, identity: str) -> str:
    """Name of the run and of its export; equal settings and data give equal names."""
    corpus = Path(settings.data.partition("=")[0]).stem
    judge, lm = settings.judge.replace(":", "."), settings.lm.replace("/", "_")
    return settings.name or f"{corpus}-{judge}-{lm}-{identity[:8]}"


@contextmanager
def _runner(settings: Settings, progress: bool) -> Iterator[JudgeRunner]:
    journal = Journal(Path(settings.store) / "replies" / settings.lm.replace("/", "_"))
    try:
        lm = _lm(settings, journal)
        with JudgeRunner(lm, progress=progress) as runner:
            yield runner
    finally:
        journal.close()


def _lm(settings: Settings, journal: Journal) -> JudgeLM:
    try:
        return make_lm(
            settings.lm,
            api_base=settings.api_base,
            store=journal,
            concurrency=settings.concurrency,
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            options=limits(settings),
        )
    except InputError:
        raise
    except ValueError as error:
        raise InputError(
            str(error),
            field="--lm",
            expected=f"'{OFFLINE}' or PROVIDER/MODEL",
            found=settings.lm,
            remedy=f"did you mean {OFFLINE!r}?" if difflib.get_close_matches(settings.lm, [OFFLINE]) else None,
        ) from error


def difference_json(difference: Difference) -> dict[str, float | None]:
    """A difference as the `gain` of `--json`."""
    return {
        "value": difference.value,
        "low": difference.low,
        "high": difference.high,
        "p_value": difference.p_value,
    }
