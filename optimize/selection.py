"""Tuning on train and choosing on dev, for one aspect or for several that share a judge."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from debate_judge.data.schema import GRANULARITIES, Aspect, Granularity
from debate_judge.optimize.context import Run
from debate_judge.optimize.examples import examples
from debate_judge.optimize.search.dev_scores import DevScores, Outcome, Space
from debate_judge.optimize.search.study import FORMAT, Criterion, SearchResult, search
from debate_judge.optimize.settings import EFFORTS, Settings
from debate_judge.optimize.tuners import TUNERS, Tuning
from debate_judge.programs import named, preset
from debate_judge.programs.compiled import AspectJudge
from debate_judge.programs.judge import DebateConfig, Judge
from debate_judge.runs.runner.runner import require_scored

logger = logging.getLogger(__name__)

TUNED = "tuned"
"""Name of the variant whose instructions the tuner wrote."""


def select(run: Run, aspects: tuple[Aspect, ...]) -> tuple[SearchResult, AspectJudge]:
    """Tune the instructions on train, then choose variant, rounds, Tie-breaker and granularity on dev."""
    base = start(run.settings)
    label = "+".join(a.name for a in aspects)
    personas = allowed_personas(run, base)
    variants = base.variants(personas)
    if base.tunable():
        logger.info("%s: tuning instructions on train (%s)", label, run.settings.tuner)
        tuned = tune(run, base, aspects, personas, label)
    else:
        logger.info("%s: %s has no instructions, so there is nothing to tune", label, run.settings.judge)
        tuned = base
    if all(tuned.instructions() != variant.instructions() for variant in variants.values()):
        variants[TUNED] = tuned
    logger.info("%s: searching rounds, persona, tie-breaker and granularity on dev", label)
    dev_scores = DevScores(variants, run.splits.dev, aspects, run.runner, base.rules.rounds, label)
    found = search(
        dev_scores,
        allowed_space(run, base, variants, aspects),
        criterion=Criterion(run.statistic, run.level, run.settings.tolerance),
        trials=run.settings.trials,
        seed=run.settings.seed,
        storage=Path(run.settings.store) / "studies" / f"{run.identity}-{FORMAT}.log",
        study=label,
        on_trial=lambda outcome: _log(run, label, outcome),
    )
    point = found.chosen.point
    on_dev = dev_scores.judgements(point.persona, point.rounds, point.tie_breaker)
    require_scored(on_dev, run.settings.max_unscored, f"dev items ({label})")
    judge = variants[point.persona].deepcopy()
    judge.rules = DebateConfig(point.rounds, point.tie_breaker)
    return found, AspectJudge(judge, point.granularity)


def start(settings: Settings) -> Judge:
    """The judge that the settings name, with the options and rounds that they allow, before any tuning."""
    judge = preset(settings.judge, settings.options())
    rounds = (
        settings.max_rounds
        if "rounds" in named(settings.judge).searched
        else min(judge.rules.rounds, settings.max_rounds)
    )
    judge.rules = replace(judge.rules, rounds=rounds)
    return judge


def allowed_space(run: Run, base: Judge, variants: Mapping[str, Judge], aspects: tuple[Aspect, ...]) -> Space:
    """What the search may choose from for these aspects."""
    return replace(space(run.settings, base, variants), granularities=_granularities(run, base, aspects))


def _granularities(run: Run, base: Judge, aspects: tuple[Aspect, ...]) -> tuple[Granularity, ...]:
    """All, but for two cases: a metric's values have no place on the scale, and where scores become decisions, the cut
    does what rounding could: half points would move scores from one side of it onto it, and whole ones hide the grade.
    """
    binary = any(a.name in run.questions and run.questions[a.name].kind == "binary" for a in aspects)
    return GRANULARITIES if base.on_scale and not binary else ("given",)


def allowed_personas(run: Run, base: Judge) -> Mapping[str, str]:
    """The personas that the search may choose from: all, or the judge's own where that is not searched."""
    if "persona" in named(run.settings.judge).searched:
        return run.personas
    name = str(base.config().get("persona", ""))
    return {name: run.personas[name]} if name in run.personas else {}


def space(settings: Settings, base: Judge, variants: Mapping[str, Judge]) -> Space:
    """What the search may choose from; the single call is always part of it."""
    searched = named(settings.judge).searched
    rounds = tuple(range(base.rules.rounds + 1)) if "rounds" in searched else (0, base.rules.rounds)
    ties = (False, True) if "tie_breaker" in searched else (base.rules.tie_breaker,)
    # A tuned Scorer has another first turn than the untouched one that all other variants share.
    tuned = variants.get(TUNED)
    own = tuned is not None and tuned.instructions().get("scorer.predict") != base.instructions().get("scorer.predict")
    return Space(tuple(variants), tuple(dict.fromkeys(rounds)), ties, TUNED if own else None)


def tune(run: Run, base: Judge, aspects: tuple[Aspect, ...], personas: Mapping[str, str], label: str) -> Judge:
    """The judge with the instructions that the tuner found best on train."""
    proposals, trials = EFFORTS[run.settings.effort]
    rated = examples(run.splits.train, aspects, grouped=run.level == "summary", seed=run.settings.seed)
    return TUNERS[run.settings.tuner](
        Tuning(
            base,
            rated,
            run.runner,
            base.rules.rounds,
            run.statistic,
            personas,
            proposals,
            trials,
            run.settings.seed,
            label,
        )
    )


def _log(run: Run, label: str, outcome: Outcome) -> None:
    point = outcome.point
    name = f"{label}: n={point.rounds}"
    if point.rounds:
        name += f" {point.persona}" + (" + tie-breaker" if point.tie_breaker else "")
    run.tracker.trial(
        f"{name}, {point.granularity}",
        {
            "aspect": label,
            "persona": point.persona if point.rounds else "none",
            "rounds": point.rounds,
            "tie_breaker": point.tie_breaker,
            "granularity": point.granularity,
        },
        {f"dev/{run.statistic}": outcome.agreement, "lm_calls_per_item": outcome.calls},
    )
