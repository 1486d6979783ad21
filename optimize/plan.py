"""The plan of a compile, which is made before any LM call, and the run that executes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TypeVar

from debate_judge.data.agreement.absolute_agreement import OBJECTIVE_DESCRIPTIONS, AbsoluteScale, Objective
from debate_judge.data.agreement.decisions import DecisionRule
from debate_judge.data.agreement.results import STATISTIC_NAMES
from debate_judge.data.agreement.tables import Level, Statistic
from debate_judge.data.folds import Folds
from debate_judge.data.schema import Aspect, Corpus, RatedGroup
from debate_judge.data.splits import Splits
from debate_judge.optimize.search.choice_scores import ChoicePart
from debate_judge.optimize.search.study import SEARCH_LIMITS, SearchLimits, SearchSettings
from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuners import Tuner, find_tuner
from debate_judge.programs.judge import Judge
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.tracking.tracker import Tracker

T = TypeVar("T")

OFFLINE_NOTE = "offline LM: text statistics, a stand-in, not an LLM"


@dataclass(frozen=True)
class CompileData:
    """The rated corpus of a compile."""

    corpus: Corpus
    aspects: tuple[Aspect, ...]
    """The aspects to judge."""
    level: Level
    """Level of the agreement that judges are chosen by."""
    decision_rules: Mapping[str, DecisionRule]
    """Aspect -> the decision that its ratings define, for aspects whose ratings define one."""
    cuts: Mapping[str, float]
    """Aspect -> the least value that counts as a yes where decisions are compared
    (`data.agreement.absolute_agreement`)."""
    splits: Splits
    """The split for the exported judge: train to tune on, dev to choose by, held-out to measure on. With folds, train
    and dev have all sources, and held-out is empty."""
    folds: Folds | None = None
    """The folds of a nested cross-validation; None for a single split."""

    @property
    def evaluation_corpus(self) -> Corpus:
        """The sources of the held-out figures; with folds all."""
        return self.corpus if self.folds else self.splits.held_out

    def discriminates(self, group: RatedGroup, aspects: Sequence[Aspect]) -> bool:
        """Whether a group's ratings can tell better from worse judges in one of the aspects."""
        if self.level == "summary" and not any(aspect.name in self.decision_rules for aspect in aspects):
            return any(group.has_distinct_ratings(aspect.name) for aspect in aspects)
        return True


@dataclass(frozen=True)
class CompilePlan:
    """Settings, data and judges of a compile. The judges are built with the plan only: that reads the user's files."""

    settings: Settings
    data: CompileData
    judge: Judge
    """The untuned judge of the settings; it is copied before it makes calls or is tuned."""
    single: Judge
    """One call of the Scorer, with the user's score mode, which debates are compared with."""
    personas: Mapping[str, str]
    """Name -> text of the Critic's personas."""
    identity: str
    """Fingerprint of settings, data and personas: equal identities give equal results."""
    fold_number: int = 0
    """The number of the plan's fold, from 1; 0 for the plan of the exported judge."""

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
        return {a.name: AbsoluteScale(a.scale.high - a.scale.low, self.data.cuts[a.name]) for a in self.data.aspects}

    @property
    def objective_description(self) -> str:
        """The name of the objective, e.g. `summary-level Spearman`."""
        absolute_measure = self.settings.metric_choice.absolute_measure
        return (
            f"{self.data.level}-level {STATISTIC_NAMES[self.statistic]}"
            if absolute_measure is None
            else OBJECTIVE_DESCRIPTIONS[absolute_measure]
        )

    def for_fold(self, splits: Splits, number: int) -> CompilePlan:
        """The plan of the fold of this number, from 1."""
        return replace(self, data=replace(self.data, splits=splits, folds=None), fold_number=number)

    @property
    def study_storage(self) -> Path | None:
        """The file of the study. None for a fold, whose study is in memory only and after a stop is repeated from the
        stored replies.
        """
        if self.fold_number:
            return None
        return Path(self.settings.store) / "studies" / f"{self.identity}.log"

    @property
    def search_limits(self) -> SearchLimits:
        """How much the search tries."""
        return replace(SEARCH_LIMITS[self.settings.effort], trials=self.settings.trials)

    def choice_corpora(self, aspect: Aspect, *, discriminating: bool = True) -> dict[ChoicePart, Corpus]:
        """The sources that the judge of an aspect is chosen by.

        Those of dev, then of train, up to the number of candidates that the effort allows. Only sources whose ratings
        can discriminate between judges (`CompileData.discriminates`); with `discriminating=False` the other rated
        sources, up to the same limit.
        """
        splits = self.data.splits
        remaining = self.search_limits.candidates
        corpora: dict[ChoicePart, Corpus] = {}
        parts: dict[ChoicePart, Sequence[RatedGroup]] = {"dev": splits.dev.groups, "train": splits.train.groups}
        for part, groups in parts.items():
            selected: list[RatedGroup] = []
            for group in groups:
                if remaining < len(group.candidates):
                    continue
                if discriminates := self.data.discriminates(group, [aspect]):
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
        return self.settings.name or f"debate-{self.data.corpus.task.name}"

    @property
    def note(self) -> str | None:
        """A remark that must accompany all figures of the compile, if any."""
        return OFFLINE_NOTE if self.settings.lm == OFFLINE else None


@dataclass(frozen=True)
class CompileRun:
    """A plan with all that executes it.

    Estimates execute plans, too: with an LM for dry runs, without tracking, and with a tuner and a search that make as
    few or as many calls as possible.
    """

    plan: CompilePlan
    runner: JudgeRunner
    tracker: Tracker | None
    """None for a fold, whose trials are not those of the exported judge, and for a dry run."""
    tuner: Tuner
    reflection_lm: JudgeLM
    """The LM that writes guides and instructions for the tuner."""
    adjust_search: Callable[[SearchSettings], SearchSettings] = lambda settings: settings
    """From the settings of a search to those that are used."""

    @classmethod
    def of(cls, plan: CompilePlan, runner: JudgeRunner, tracker: Tracker | None, reflection_lm: JudgeLM) -> CompileRun:
        """The run of a real compile, with the tuner of the settings."""
        return cls(plan, runner, tracker, find_tuner(plan.settings.tuner), reflection_lm)

    @property
    def halves(self) -> list[list[CompileRun]]:
        """The runs of the folds, in lists of those with the same train part; this run alone for a single split."""
        folds, numbers = self.plan.data.folds, count(1)
        if folds is None:
            return [[self]]
        return [[self.for_fold(splits, next(numbers)) for splits in half] for half in folds.halves]

    def tune_concurrently(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """The results of tuning jobs, which run concurrently if the tuner allows it.

        DSPy's optimizers set global seeds, and silencing them redirects the output of the whole process.
        """
        sequential = self.plan.settings.tuner not in ("guide", "none")
        return [job() for job in jobs] if sequential else self.runner.run_concurrently(jobs)

    def for_fold(self, splits: Splits, number: int) -> CompileRun:
        """The run of the fold of this number, from 1."""
        return replace(self, plan=self.plan.for_fold(splits, number), tracker=None)
