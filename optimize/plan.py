"""The plan of a compile, which is made before any LM call: the rated corpus, loaded, checked and split once or into
folds, and the judges; and the run that executes it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from debate_judge import data
from debate_judge.data.agreement.decisions import (
    AbsoluteScale,
    DecisionRule,
    Objective,
    decision_cuts,
    find_decision_rules,
)
from debate_judge.data.agreement.figures import Statistic
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Corpus, Level, RatedGroup, fingerprint
from debate_judge.data.splits import (
    MIN_RATED,
    Splits,
    append_held_out,
    aspects_to_judge,
    default_folds,
    make_folds,
    require_level,
    require_ratings,
    split,
    split_with_held_out,
)
from debate_judge.optimize.search import SEARCH_LIMITS, ChoicePart, SearchLimits
from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuners import Tuner, find_tuner
from debate_judge.programs import build_preset, find_preset, options_of
from debate_judge.programs.examples import require_shows_examples
from debate_judge.programs.judge import Judge
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.programs.make_lm import OFFLINE, OFFLINE_NOTE
from debate_judge.runs.human_ratings import resolve_data
from debate_judge.runs.runner import JudgeRunner
from debate_judge.runs.tracking import Tracker

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class CompilePlan:
    """Settings, data and judges of a compile. The judges are built with the plan only: that reads the user's files."""

    settings: Settings
    corpus: Corpus
    """The rated texts, with those of `--held-out`."""
    aspects: tuple[Aspect, ...]
    """The aspects to judge."""
    level: Level
    """Level of the agreement that judges are chosen by."""
    decision_rules: Mapping[str, DecisionRule]
    """Aspect -> the decision that its ratings define, for aspects whose ratings define one."""
    cuts: Mapping[str, float]
    """Aspect -> the least value that counts as a yes where decisions are compared (`data.agreement.decisions`)."""
    halves: tuple[tuple[Splits, ...], ...]
    """Splits in train, to tune on, dev, to choose by, and held-out, to measure on, by halves, whose splits have the
    same train part. The first is that of the exported judge; of a cross-validation that uses all sources and holds none
    out, and the others are the folds. Without folds it is the only one."""
    judge: Judge
    """The untuned judge of the settings; it is copied before it makes calls or is tuned."""
    single: Judge
    """One call of the Scorer, with the user's score mode, which debates are compared with."""
    personas: Mapping[str, str]
    """Name -> text of the Critic's personas."""
    identity: str
    """Fingerprint of settings, data and personas: equal identities give equal results."""

    @property
    def splits(self) -> Splits:
        """The split of the exported judge."""
        return self.halves[0][0]

    @property
    def folds(self) -> list[Splits]:
        """The splits that hold sources out: one, or the folds of a cross-validation."""
        return [splits for half in self.halves for splits in half if splits.held_out.groups]

    @property
    def cross_validated(self) -> bool:
        return len(self.folds) > 1

    @property
    def evaluation_corpus(self) -> Corpus:
        """The sources of the held-out figures; with folds all."""
        return self.corpus if self.cross_validated else self.splits.held_out

    @property
    def statistic(self) -> Statistic:
        """The correlation of reported agreement; the objective, too, unless that is an absolute measure."""
        return self.settings.metric_choice.correlation

    @property
    def objective(self) -> Objective:
        """What the search maximizes."""
        return self.settings.metric_choice.absolute_measure or self.statistic

    @property
    def absolute_scales(self) -> dict[str, AbsoluteScale]:
        """Aspect -> what absolute agreement is measured against."""
        return {a.name: AbsoluteScale(a.scale.high - a.scale.low, self.cuts[a.name]) for a in self.aspects}

    @property
    def search_limits(self) -> SearchLimits:
        """How much the search tries."""
        return replace(SEARCH_LIMITS[self.settings.effort], trials=self.settings.trials)

    def discriminates(self, group: RatedGroup, aspects: Sequence[Aspect]) -> bool:
        """Whether a group's ratings can tell better from worse judges in one of the aspects."""
        if self.level == "summary" and not any(aspect.name in self.decision_rules for aspect in aspects):
            return any(group.has_distinct_ratings(aspect.name) for aspect in aspects)
        return True

    def choice_corpora(
        self, splits: Splits, aspect: Aspect, *, discriminating: bool = True
    ) -> dict[ChoicePart, Corpus]:
        """The sources of a split that the judge of an aspect is chosen by.

        Those of dev, then of train, up to the number of candidates that the effort allows. Only sources whose ratings
        can discriminate between judges (`discriminates`); with `discriminating=False` the other rated sources, up to
        the same limit.
        """
        remaining = self.search_limits.candidates
        corpora: dict[ChoicePart, Corpus] = {}
        parts: dict[ChoicePart, Sequence[RatedGroup]] = {"dev": splits.dev.groups, "train": splits.train.groups}
        for part, groups in parts.items():
            selected: list[RatedGroup] = []
            for group in groups:
                if remaining < len(group.candidates):
                    continue
                if discriminates := self.discriminates(group, [aspect]):
                    remaining -= len(group.candidates)
                rated = any(c.ratings.get(aspect.name) for c in group.candidates)
                if discriminates == discriminating and (discriminates or rated):
                    selected.append(group)
            corpora[part] = replace(splits.dev, groups=tuple(selected))
        return corpora

    @property
    def corpus_name(self) -> str:
        stem = Path(self.settings.data.partition("=")[0]).stem
        # Names of data sets and splits have characters that a folder's name should not have.
        return re.sub(r"[^\w.+-]+", "-", stem) if self.settings.data.startswith(("hf:", "mlflow:")) else stem

    @property
    def name(self) -> str:
        """The name of the run and its export; equal settings and data give equal names."""
        lm = self.settings.lm.replace("/", "_")
        judge = self.settings.judge.replace(":", ".")
        return self.settings.name or f"{self.corpus_name}-{judge}-{lm}-{self.identity[:8]}"

    @property
    def export(self) -> Path:
        """The folder of the export."""
        return Path(self.settings.store) / "exports" / self.name

    @property
    def model_name(self) -> str:
        """The name of the registered model and prompts; every compile with this name registers a version."""
        return self.settings.name or f"debate-{self.corpus.task.name}"

    @property
    def note(self) -> str | None:
        """A remark that must accompany all figures of the compile, if any."""
        return OFFLINE_NOTE if self.settings.lm == OFFLINE else None


@dataclass(frozen=True)
class CompileRun:
    """A plan with all that executes it."""

    plan: CompilePlan
    runner: JudgeRunner
    reflection_lm: JudgeLM
    """The LM that writes guides and instructions for the tuner."""
    tracker: Tracker | None = None
    """None for an estimate."""
    tuner: Tuner | None = None
    """In place of the one that the settings name."""
    at_most: bool = False
    """For an estimate: whether everything is tuned, searched and chosen as if it took the most calls."""

    @property
    def tunes_concurrently(self) -> bool:
        """Whether several judges can be tuned at once: DSPy's optimizers set global seeds, and silencing them redirects
        the output of the whole process."""
        return self.plan.settings.tuner in ("guide", "none")

    def each(self, step: Callable[..., T], *arguments: Sequence[Any], concurrent: bool = True) -> list[T]:
        """The results of `step(run, *of_one)` for each of the arguments, concurrently with an LM on a server."""
        jobs = [partial(step, self, *of_one) for of_one in zip(*arguments, strict=True)]
        return self.runner.run_concurrently(jobs) if concurrent else [job() for job in jobs]


def make_plan(settings: Settings, personas: Mapping[str, str], rated: Corpus | None = None) -> CompilePlan:
    """The plan of a compile: the data that the settings name, their split, the level to choose by, the judges.

    Args:
        settings: All settings of the compile.
        personas: Name -> text of the Critic's personas to try.
        rated: Rated texts in place of `--data`.

    Raises:
        InputError: Settings or data cannot be used.
    """
    searched = find_preset(settings.judge).dimensions
    find_tuner(settings.tuner)
    options = settings.options()
    judge = build_preset(settings.judge, options)
    rounds = settings.max_rounds if "rounds" in searched else min(judge.debate_config.rounds, settings.max_rounds)
    judge = judge.with_debate(rounds=rounds)
    if settings.examples:
        require_shows_examples(judge)
    # The single call has the user's score mode, too.
    single = build_preset("single", {name: value for name, value in options.items() if name in options_of("single")})
    measure = settings.metric_choice.absolute_measure
    if measure and (judge.compares_pairs or not judge.on_scale):
        raise InputError(
            f"the values of {settings.judge} are not on the raters' scale, so that there is no {measure}",
            field="--metric",
            expected="a correlation",
            found=settings.metric,
        )
    corpus, held_out = load(settings, rated)
    names = aspects_to_judge(corpus, settings.aspects)
    require_ratings(corpus, names, MIN_RATED)
    aspects = tuple(corpus.task.aspect(name) for name in names)
    decision_rules = find_decision_rules(corpus.groups, aspects)
    level = settings.metric_choice.level
    if level == "auto":
        level = _auto_level(corpus, aspects, decision_rules, judge)
    require_level(corpus, level)
    return CompilePlan(
        settings=settings,
        corpus=corpus,
        aspects=aspects,
        level=level,
        decision_rules=decision_rules,
        cuts=decision_cuts(aspects, decision_rules, settings.cut),
        halves=_split(corpus, held_out, settings, names),
        judge=judge,
        single=single,
        personas=personas,
        identity=fingerprint(
            [settings.identity(), corpus.digest, dict(personas), judge.instructions()]
            # The task of a corpus from Python is not named by the settings, so its wording is added.
            + ([] if rated is None else [repr(corpus.task)])
        ),
    )


def load(settings: Settings, rated: Corpus | None) -> tuple[Corpus, Corpus | None]:
    """All rated texts, and the part of them that is only measured on (`--held-out`)."""
    if rated is None:
        rated = data.load(resolve_data(settings.data), settings.task, settings.columns, settings.sources)
    if settings.held_out is None:
        return rated, None
    held_out = data.load(resolve_data(settings.held_out, "--held-out"), rated.task, settings.columns)
    return append_held_out(rated, held_out), held_out


def _split(
    corpus: Corpus, held_out: Corpus | None, settings: Settings, aspects: Sequence[str]
) -> tuple[tuple[Splits, ...], ...]:
    """`CompilePlan.halves`.

    Raises:
        InputError: Too few sources.
    """
    if held_out is not None:
        if (settings.folds or 1) != 1:
            raise InputError(
                "a separate held-out set cannot be combined with folds",
                field="--held-out",
                expected="no --folds",
                found=f"--folds {settings.folds}",
                remedy="give either --folds or --held-out",
            )
        splits = split_with_held_out(corpus, len(held_out.groups), aspects=aspects, seed=settings.seed)
        halves: tuple[tuple[Splits, ...], ...] = ((),)
    elif (count := settings.folds or default_folds(corpus)) > 1:
        folds = make_folds(corpus, aspects=aspects, seed=settings.seed, count=count)
        splits, halves = folds.final, folds.halves
    else:
        splits, halves = split(corpus, aspects=aspects, seed=settings.seed), ((),)
    if splits.joined:
        logger.info(splits.near_duplicates_note())
    return (splits, *halves[0]), *halves[1:]


def _auto_level(
    corpus: Corpus, aspects: Sequence[Aspect], decision_rules: Mapping[str, DecisionRule], judge: Judge
) -> Level:
    """The level `auto`: `summary` if groups have several candidates, else `sample`.

    Also `sample` if the ratings of all aspects are binary: there is one threshold for all sources then, the pooled
    correlation ranks judges much as AUROC does, and groups with a single label count, too. But not for a judge that
    compares candidates, whose scores mean nothing across sources.
    """
    all_binary = all(a.name in decision_rules and decision_rules[a.name].kind == "binary" for a in aspects)
    return "summary" if corpus.grouped and (not all_binary or judge.compares_pairs) else "sample"
