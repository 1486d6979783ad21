"""What a compile would take before anything is spent, by a dry run of its steps on a sample of each part.

Split, tuner, search space and held-out comparison are those of the compile itself (`optimize.job`), with an LM that
costs nothing. Three things nobody can know beforehand: how long debates last (`programs.dry_run`), which points
the search visits beyond those that it always visits, and which it chooses in the end.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from tqdm import tqdm

from debate_judge.data.agreement.decisions import Question
from debate_judge.data.agreement.tables import Level
from debate_judge.data.schema import Aspect, Corpus, RatedGroup
from debate_judge.data.splits import Splits
from debate_judge.optimize.context import Run
from debate_judge.optimize.examples import examples
from debate_judge.optimize.held_out import untouched
from debate_judge.optimize.job import prepared
from debate_judge.optimize.search.dev_scores import DevScores, Space
from debate_judge.optimize.search.study import first_points
from debate_judge.optimize.selection import TUNED, allowed_personas, allowed_space, start, tune
from debate_judge.optimize.settings import Settings
from debate_judge.programs.dry_run import EstimateCase
from debate_judge.programs.judge import DebateConfig, Item, Judge, corpus_items
from debate_judge.programs.lm.options import LMOptions
from debate_judge.runs.estimates.dry_run import Estimate, Ledger, Stage, Target, dry_run_all, reply_tokens
from debate_judge.runs.estimates.items import extent, sampled_groups
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.tracking.tracker import Tracker

SAMPLED = 96
"""Items that are sampled from each part, over all aspects that have judges of their own."""


@dataclass(frozen=True)
class CompilePlan:
    """What is compiled, as the compile itself would find it."""

    settings: Settings
    personas: Mapping[str, str]
    splits: Splits
    aspects: Sequence[Aspect]
    questions: Mapping[str, Question]
    level: Level

    @property
    def units(self) -> list[tuple[Aspect, ...]]:
        """The aspects that get one judge together."""
        return [tuple(self.aspects)] if self.settings.shared else [(a,) for a in self.aspects]


def estimate_compile(settings: Settings, personas: Mapping[str, str], lengths: str = "") -> Estimate:
    """Estimate a compile, stage by stage; nothing is written.

    Args:
        settings: As for the compile.
        personas: Name -> text of the personas that a debate may be given.
        lengths: The value of `--estimate`.

    Raises:
        InputError: Settings or data cannot be used.
    """
    target = _target(settings, lengths)
    _, aspects, questions, level, splits = prepared(settings)
    plan = CompilePlan(settings, personas, splits, aspects, questions, level)
    steps = tqdm(total=3 * len(plan.units), desc="dry run", unit="aspect", delay=2, file=sys.stderr)

    def work(case: EstimateCase, runner: JudgeRunner, ledger: Ledger) -> None:
        for unit in plan.units:
            _DryRun(plan, unit, case, runner, ledger).run_through()
            steps.update()

    with steps:
        return dry_run_all(target, work, _row)


def notes(settings: Settings) -> list[str]:
    """What the figures assume about the search."""
    return [
        f"Search: of {settings.trials} trials those that come first are always made; the others visit whatever is new",
        "(upper) or nothing new (lower). Held-out: the single call is chosen (lower), a debate of half the rounds",
        "(expected), of all rounds with the Tie-breaker (upper).",
    ]


def _target(settings: Settings, lengths: str) -> Target:
    options = LMOptions.of(budget=settings.budget, prices=settings.prices, batch=settings.batch)
    folder = Path(settings.store) / "replies" / settings.lm.replace("/", "_")
    sampling = {"temperature": settings.temperature, "max_tokens": settings.max_tokens}
    return Target(settings.lm, settings.api_base, folder, sampling, options, reply_tokens(lengths))


def _row(stage: str, role: str) -> str:
    return f"{stage}, {'proposals' if role == 'proposer' else 'evaluations'}" if stage.endswith("tuning") else stage


class _DryRun:
    """One case of the steps of `optimize.selection.choose` and `optimize.held_out.prove` for one unit."""

    def __init__(
        self, plan: CompilePlan, unit: tuple[Aspect, ...], case: EstimateCase, runner: JudgeRunner, ledger: Ledger
    ) -> None:
        self.plan, self.unit, self.case, self.runner, self.ledger = plan, unit, case, runner, ledger
        self.label = "+".join(a.name for a in unit)
        seed, limit = plan.settings.seed, max(1, SAMPLED // len(plan.aspects))
        parts = plan.splits
        self.sampled = replace(
            parts,
            train=_sampled(parts.train, limit, seed, _tunable(parts.train, unit, plan.level)),
            dev=_sampled(parts.dev, limit, seed),
            held_out=_sampled(parts.held_out, limit, seed),
        )
        self.run = Run(
            plan.settings,
            plan.personas,
            self.sampled,
            list(unit),
            plan.settings.objective,
            plan.level,
            runner,
            # Nothing of a dry run is tracked.
            cast(Tracker, None),
            "dry run",
            plan.questions,
        )

    def run_through(self) -> None:
        settings = self.plan.settings
        base = start(settings).dry_run_copy()
        variants = self._tuned(base)
        found = allowed_space(self.run, base, variants, self.unit)
        held, ties = _visits(found, settings.trials, self.case, settings.seed)
        dev_scores = DevScores(variants, self.sampled.dev, self.unit, self.runner, base.rules.rounds, self.label)
        self._begin("search, debates", self.plan.splits.dev, self.sampled.dev)
        for variant in held:
            dev_scores.judgements(variant, base.rules.rounds, False)
        self._begin("search, tie-breaks", self.plan.splits.dev, self.sampled.dev)
        for variant, rounds in ties:
            dev_scores.judgements(variant, rounds, True)
        self._begin("held-out", self.plan.splits.held_out, self.sampled.held_out)
        single, uncompiled = (judge.dry_run_copy() for judge in untouched(settings))
        for judge in (uncompiled, single, self._chosen(variants, found)):
            self.runner.judge(judge, _items(self.sampled.held_out, self.unit))

    def _tuned(self, base: Judge) -> dict[str, Judge]:
        """The variants of the search, after tuning."""
        everything, sampled = (self._rated(part) for part in (self.plan.splits.train, self.sampled.train))
        self.ledger.stage = Stage.of(f"{self.label}: tuning", extent(everything), extent(sampled))
        personas = allowed_personas(self.run, base)
        variants = base.variants(personas)
        tuned = tune(self.run, base, self.unit, personas, self.label)
        if self.case.name == "upper" and tuned is not base:
            tuned = _rewritten(tuned)
        known = [variant.instructions() for variant in variants.values()]
        if self.case.name != "lower" and tuned.instructions() not in known:
            variants[TUNED] = tuned
        return variants

    def _rated(self, part: Corpus) -> Iterator[Item]:
        plan = self.plan
        for example in examples(part, self.unit, grouped=plan.level == "summary", seed=plan.settings.seed):
            yield from example.questions

    def _begin(self, stage: str, part: Corpus, sampled: Corpus) -> None:
        extents = (extent(_items(corpus, self.unit)) for corpus in (part, sampled))
        self.ledger.stage = Stage.of(f"{self.label}: {stage}", *extents)

    def _chosen(self, variants: Mapping[str, Judge], found: Space) -> Judge:
        """The compiled judge: the cheapest, one in the middle, or the dearest that could be chosen."""
        name = TUNED if TUNED in variants else found.personas[-1]
        judge = variants[found.singles[0] if self.case.name == "lower" else name].deepcopy()
        most = max(found.rounds)
        rounds = {"lower": 0, "expected": -(-most // 2), "upper": most}[self.case.name]
        rounds = min((n for n in found.rounds if n >= rounds), default=most)
        judge.rules = DebateConfig(rounds, rounds > 0 and max(found.tie_breakers))
        return judge


def _visits(
    found: Space, trials: int, case: EstimateCase, seed: int
) -> tuple[Sequence[str], Sequence[tuple[str, int]]]:
    """The variants whose debates are held on dev, and the (variant, rounds) whose ties are broken there."""
    points = found.points()
    first = first_points(points, trials)
    left = min(trials, len(points)) - len(first)
    held = dict.fromkeys(point.persona for point in first)
    ties = dict.fromkeys((point.persona, point.rounds) for point in first if point.tie_breaker)
    more_held = [name for name in found.personas if name not in held]
    more_ties = list(dict.fromkeys((p.persona, p.rounds) for p in points if p.tie_breaker))
    more_ties = [pair for pair in more_ties if pair not in ties]
    share = sum(point.tie_breaker for point in points) / len(points)
    wanted = {
        "lower": (0, 0),
        "expected": (_met(len(more_held), left, 1.0), _met(len(more_ties), left, share)),
        "upper": (left, left),
    }[case.name]
    # The longest debates are the dearest to settle; where nobody knows which, any will do.
    random.Random(seed).shuffle(more_ties)
    if case.name == "upper":
        more_ties.sort(key=lambda pair: -pair[1])
    chosen = more_ties[: wanted[1]]
    held |= dict.fromkeys([*(name for name, _ in chosen), *more_held[: wanted[0]]])
    return list(held), [*ties, *chosen]


def _met(kinds: int, draws: int, share: float) -> int:
    """How many of so many kinds are met, on average, in `draws` draws of which a share is of any of these kinds."""
    return round(kinds * (1 - (1 - share / kinds) ** draws)) if kinds else 0


def _rewritten(judge: Judge) -> Judge:
    """The judge as if a tuner had found other instructions for everybody."""
    one = judge.deepcopy()
    for name, predictor in one.named_predictors():
        if name in one.tunable():
            signature = predictor.signature
            predictor.signature = signature.with_instructions(f"{signature.instructions} Be thorough.")
    return one


def _items(corpus: Corpus, aspects: Sequence[Aspect]) -> list[Item]:
    return [item for aspect in aspects for item in corpus_items(corpus, aspect)]


def _sampled(corpus: Corpus, size: int, seed: int, groups: Iterable[RatedGroup] | None = None) -> Corpus:
    return replace(corpus, groups=sampled_groups(corpus.groups if groups is None else groups, size, seed))


def _tunable(corpus: Corpus, aspects: Sequence[Aspect], level: Level) -> Iterator[RatedGroup]:
    """The groups from which `optimize.examples` makes examples."""
    for group in corpus.groups:
        for aspect in aspects:
            ranks = (
                group.ranks_humans(aspect.name)
                if level == "summary"
                else any(rating is not None for rating in group.ratings(aspect.name))
            )
            if ranks:
                yield group
                break
