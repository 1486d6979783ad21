"""The plan of a compile, which is made before any LM call, and the run that executes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from debate_judge.data.agreement.decisions import OBJECTIVE_DESCRIPTIONS, AbsoluteScale, Objective
from debate_judge.data.agreement.figures import STATISTIC_NAMES, Statistic
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Corpus, RatedGroup, fingerprint
from debate_judge.data.splits import Splits
from debate_judge.optimize.rated_data import CompileData, RatedData, split_sources
from debate_judge.optimize.search.choice_scores import ChoicePart
from debate_judge.optimize.search.study import SEARCH_LIMITS, SearchLimits
from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuners import Tuner, find_tuner
from debate_judge.programs import build_preset, find_preset, options_of
from debate_judge.programs.examples import require_shows_examples
from debate_judge.programs.judge import Judge
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.programs.make_lm import OFFLINE, OFFLINE_NOTE
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.tracking.tracker import Tracker

T = TypeVar("T")


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

    @property
    def study_file(self) -> Path:
        """The file of the exported judge's study."""
        return Path(self.settings.store) / "studies" / f"{self.identity}.log"

    @property
    def search_limits(self) -> SearchLimits:
        """How much the search tries."""
        return replace(SEARCH_LIMITS[self.settings.effort], trials=self.settings.trials)

    def choice_corpora(
        self, splits: Splits, aspect: Aspect, *, discriminating: bool = True
    ) -> dict[ChoicePart, Corpus]:
        """The sources of a split that the judge of an aspect is chosen by.

        Those of dev, then of train, up to the number of candidates that the effort allows. Only sources whose ratings
        can discriminate between judges (`CompileData.discriminates`); with `discriminating=False` the other rated
        sources, up to the same limit.
        """
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
    def make_tuner(self) -> Tuner:
        return self.tuner or find_tuner(self.plan.settings.tuner)

    @property
    def tunes_concurrently(self) -> bool:
        """Whether several judges can be tuned at once: DSPy's optimizers set global seeds, and silencing them redirects
        the output of the whole process."""
        return self.plan.settings.tuner in ("guide", "none")

    def each(self, step: Callable[..., T], *arguments: Sequence[Any], concurrent: bool = True) -> list[T]:
        """The results of `step(run, *of_one)` for each of the arguments, concurrently with an LM on a server."""
        jobs = [partial(step, self, *of_one) for of_one in zip(*arguments, strict=True)]
        return self.runner.run_concurrently(jobs) if concurrent else [job() for job in jobs]


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


def _initial_judge(settings: Settings, options: Mapping[str, Any]) -> Judge:
    """The untuned judge of the settings, with their options and their maximum of rounds."""
    judge = build_preset(settings.judge, options)
    searched = "rounds" in find_preset(settings.judge).dimensions
    return judge.with_debate(
        rounds=settings.max_rounds if searched else min(judge.debate_config.rounds, settings.max_rounds)
    )
