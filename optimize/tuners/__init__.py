"""Tuners improve the instructions of a judge by training examples. `TUNERS` names ours; `module:Class` is any other.

Each is an optimizer of DSPy's, a `Teleprompter`: it is made with a `Tuning`, what a compile knows beyond a student and
a trainset, and `compile(judge, trainset=examples)` returns the tuned judge. What else it found (judges tuned without
part of the examples, a persona) is in the judge's `detailed_results`, where DSPy's GEPA has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from debate_judge.runs.flags.declaration import unknown_name_error

if TYPE_CHECKING:
    import dspy
    from dspy.teleprompt.teleprompt import Teleprompter

    from debate_judge.data.agreement.tables import Statistic
    from debate_judge.data.inference.absolute_agreement import AbsoluteScale, Objective
    from debate_judge.programs.judge import Judge
    from debate_judge.runs.runner.runner import JudgeRunner


AspectGroup = tuple[str, str]
"""Aspect name and group id."""


@dataclass(frozen=True)
class GuideLimits:
    """Limits for the LM that writes guides and personas."""

    words: int = 220
    """Most words of a guide."""
    tokens: int = 40_000
    """Most tokens of rated texts in a prompt."""
    persona: int = 130
    """Most words of a Critic's persona; with 0 none is written."""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What a tuner is made with."""

    statistic: Statistic
    """The correlation within a group that is optimized."""
    objective: Objective | None = None
    """What a guide is compared by, if that is no correlation; `absolute_scales` are then those of the aspects."""
    absolute_scales: Mapping[str, AbsoluteScale] = field(default_factory=dict)
    runner: JudgeRunner
    reflection: dspy.BaseLM
    """The LM that writes guides and instructions (`--reflection-lm`)."""
    guide: GuideLimits = GuideLimits()
    proposals: int
    """Instructions that the LM proposes for each role."""
    trials: int
    """Candidate programs that are evaluated on train."""
    seed: int
    label: str
    """What is tuned, for logs and progress."""


@dataclass(frozen=True)
class Fold:
    """A judge that was tuned without part of the examples, which can then be used to evaluate it."""

    judge: Judge
    unseen: frozenset[AspectGroup]
    """Train groups that the judge was not tuned on."""


@dataclass(frozen=True)
class LearntPersona:
    """A Critic's persona that was written for the raters."""

    text: str
    seen: frozenset[AspectGroup] = frozenset()
    """Train groups that it was written from and chosen by."""


@dataclass(frozen=True)
class Tuned:
    """What a tuner found, the `detailed_results` of the judge that it returns."""

    judge: Judge
    """Tuned, with its own persona."""
    folds: tuple[Fold, ...] = ()
    """Judges tuned in the same way without parts of the examples. Groups that are unseen in no fold do not count when
    the judge is compared with others."""
    persona: LearntPersona | None = None
    """For the Critic, beside the personas that it can be given anyway."""
    start: Tuned | None = None
    """The starting point, if it is a candidate of its own: a guide, before all instructions were rewritten."""


def with_details(judge: Judge, tuned: Tuned) -> Judge:
    """A copy of the judge that carries what its tuner found."""
    copy = judge.deepcopy()
    copy.detailed_results = tuned
    return copy


def details_of(judge: Judge) -> Tuned:
    """What the judge's tuner found; of a tuner that tells nothing, the judge alone."""
    found = getattr(judge, "detailed_results", None)
    return found if isinstance(found, Tuned) else Tuned(judge)


Tuner = Callable[[Tuning], "Teleprompter"]


def _tuner(module: str, name: str) -> Tuner:
    """A class of a file in this folder, imported when it is made: --help needs no more than the names."""

    def make(tuning: Tuning) -> Teleprompter:
        optimizer: Teleprompter = getattr(import_module(f"debate_judge.optimize.tuners.{module}"), name)(tuning)
        return optimizer

    return make


TUNERS: Mapping[str, Tuner] = MappingProxyType(
    {
        "guide": _tuner("guide", "GuideOptimizer"),
        "mipro": _tuner("dspy_optimizers", "MIPRO"),
        "gepa": _tuner("dspy_optimizers", "GuidedGEPA"),
        "none": _tuner("dspy_optimizers", "Unchanged"),
    }
)
"""Name -> optimizer."""


def tuner_named(name: str) -> Tuner:
    """A tuner of `TUNERS`, or of any DSPy optimizer by `module:Class` (`optimize.tuners.dspy_optimizers`).

    Raises:
        InputError: There is no such tuner.
    """
    if name in TUNERS:
        return TUNERS[name]
    if ":" in name:
        from debate_judge.optimize.tuners.dspy_optimizers import class_tuner

        return class_tuner(name)
    raise unknown_name_error("tuner", "--tuner", name, tuple(TUNERS))
