"""What the steps of a compile share: its plan, made before anything is spent, and the run that carries it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from debate_judge.data.agreement.decisions import Question
from debate_judge.data.agreement.tables import Level, Statistic
from debate_judge.data.schema import Aspect, Corpus
from debate_judge.data.splits import Splits
from debate_judge.optimize.search.study import Search, search
from debate_judge.optimize.settings import Settings
from debate_judge.optimize.tuners import TUNERS, Tuner
from debate_judge.programs.judge import Judge
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.runner.runner import JudgeRunner

OFFLINE_NOTE = "offline LM: text statistics, a stand-in, not an LLM"


@dataclass(frozen=True)
class CompileData:
    """The rated corpus of a compile."""

    corpus: Corpus
    aspects: tuple[Aspect, ...]
    """Those that are judged."""
    level: Level
    """The level of agreement that choices are made by."""
    questions: Mapping[str, Question]
    """Aspect -> the decision that the whole corpus calls for, for aspects where it does."""
    splits: Splits


@dataclass(frozen=True)
class CompilePlan:
    """What a compile works on. The judges are built once, for building them reads the user's files."""

    settings: Settings
    data: CompileData
    judge: Judge
    """The judge that the settings name, before any tuning; it is copied before it is asked or tuned."""
    single: Judge
    """One call of the Scorer, in the way of scoring that the user chose: what every debate is compared with."""
    personas: Mapping[str, str]
    """Name -> text of the Critic's personas."""
    identity: str
    """Fingerprint of settings, data and personas: equal identities give equal results."""

    @property
    def statistic(self) -> Statistic:
        """The correlation that is optimized."""
        return self.settings.objective

    @property
    def units(self) -> list[tuple[Aspect, ...]]:
        """The aspects that get one judge together."""
        return [self.data.aspects] if self.settings.shared else [(aspect,) for aspect in self.data.aspects]

    @property
    def corpus_name(self) -> str:
        return Path(self.settings.data.partition("=")[0]).stem

    @property
    def name(self) -> str:
        """Name of the run and of its export; equal settings and data give equal names."""
        lm = self.settings.lm.replace("/", "_")
        judge = self.settings.judge.replace(":", ".")
        return self.settings.name or f"{self.corpus_name}-{judge}-{lm}-{self.identity[:8]}"

    @property
    def note(self) -> str | None:
        """What must stand beside every figure of the compile, if anything."""
        return OFFLINE_NOTE if self.settings.lm == OFFLINE else None


class Trials(Protocol):
    """Where the trials of a search are logged; `runs.tracking.tracker.Tracker` does it in MLflow."""

    def trial(self, name: str, params: Mapping[str, object], metrics: Mapping[str, float | None]) -> None: ...


class NoTracking:
    """Logs nothing."""

    def trial(self, name: str, params: Mapping[str, object], metrics: Mapping[str, float | None]) -> None:
        return None


@dataclass(frozen=True)
class Run:
    """A plan that is being carried out.

    An estimate carries it out too: with an LM for dry runs in the runner, without tracking, and with a tuner and a
    search that take the cheapest or the dearest course.
    """

    plan: CompilePlan
    runner: JudgeRunner
    tracker: Trials
    tuner: Tuner
    reflection: JudgeLM
    """What the tuner has guides and instructions written by."""
    search: Search = search

    @classmethod
    def of(cls, plan: CompilePlan, runner: JudgeRunner, tracker: Trials, reflection: JudgeLM) -> Run:
        """The compile itself."""
        return cls(plan, runner, tracker, TUNERS[plan.settings.tuner], reflection)


def label_of(aspects: Sequence[Aspect]) -> str:
    """The name of a judge for these aspects in logs, stages and studies."""
    return "+".join(aspect.name for aspect in aspects)
