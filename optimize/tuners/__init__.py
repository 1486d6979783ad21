"""Tuners improve the instructions of a judge by training examples. `TUNERS` names ours; `module:Class` is any other.

Each is a DSPy optimizer, a `Teleprompter`: it is created with a `TunerContext`, and `compile(judge, trainset=examples)`
returns the tuned judge. Further results (judges tuned without part of the examples, a persona) are in the judge's
`detailed_results`, where DSPy's GEPA has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from debate_judge.data.errors import InputError, did_you_mean

if TYPE_CHECKING:
    import dspy
    from dspy.teleprompt.teleprompt import Teleprompter

    from debate_judge.data.agreement.decisions import AbsoluteScale, Objective
    from debate_judge.data.agreement.figures import Statistic
    from debate_judge.programs.judge import Judge
    from debate_judge.runs.runner import JudgeRunner


GroupKey = tuple[str, str]
"""Aspect name and group id: the ratings that a judge has or has not learnt from."""


GUIDE_WORDS = 250
"""Most words of a guide, as its author is told."""


@dataclass(frozen=True, kw_only=True)
class TunerContext:
    """What a compile gives a tuner besides judge and trainset."""

    statistic: Statistic
    """The correlation within a group that is maximized."""
    objective: Objective | None = None
    """What guides are compared by, if not `statistic`."""
    absolute_scales: Mapping[str, AbsoluteScale] = field(default_factory=dict)
    """Aspect -> its scale, for an objective that is no correlation."""
    runner: JudgeRunner
    reflection_lm: dspy.BaseLM
    """The LM that writes guides and instructions (`--reflection-lm`)."""
    guide_words: int = GUIDE_WORDS
    proposals: int
    """Instructions that the LM proposes for each role."""
    trials: int
    """Candidate programs that are evaluated on train."""
    seed: int
    label: str
    """Name of what is tuned, for logs and progress."""


@dataclass(frozen=True)
class FoldJudge:
    """A judge that was tuned without part of the examples, on which it can be evaluated."""

    judge: Judge
    unseen: frozenset[GroupKey]
    """Train groups that the judge was not tuned on."""


@dataclass(frozen=True)
class LearntPersona:
    """A Critic's persona that was written for the raters."""

    text: str
    seen: frozenset[GroupKey] = frozenset()
    """Train groups that it was written from."""


@dataclass(frozen=True)
class TuningResult:
    """The results of a tuner, the `detailed_results` of the judge that it returns."""

    judge: Judge
    """The tuned judge, with its default persona."""
    folds: tuple[FoldJudge, ...] = ()
    """Judges tuned in the same way without parts of the examples. On groups that all of them have seen, the judge
    cannot be evaluated."""
    persona: LearntPersona | None = None
    """For the Critic, as a candidate besides the given personas."""
    start: TuningResult | None = None
    """The starting point, if it is a candidate, too: the guide, before all instructions were rewritten."""


def with_tuning_result(judge: Judge, tuned: TuningResult) -> Judge:
    """A copy of the judge with the results of its tuner."""
    copy = judge.deepcopy()
    copy.detailed_results = tuned
    return copy


def tuning_result(judge: Judge) -> TuningResult:
    """The results of the judge's tuner; the judge alone if the tuner left none."""
    details = getattr(judge, "detailed_results", None)
    return details if isinstance(details, TuningResult) else TuningResult(judge)


Tuner = Callable[[TunerContext], "Teleprompter"]

TUNERS: Mapping[str, str] = MappingProxyType(
    {
        "guide": "guide:GuideOptimizer",
        "mipro": "dspy_optimizers:MIPRO",
        "gepa": "dspy_optimizers:GuidedGEPA",
        "none": "dspy_optimizers:Unchanged",
    }
)
"""Name -> optimizer, a class in a module of this folder."""


def find_tuner(name: str) -> Tuner:
    """A tuner of `TUNERS`, or of any DSPy optimizer by `module:Class` (`optimize.tuners.dspy_optimizers`).

    Raises:
        InputError: There is no such tuner.
    """
    if name in TUNERS:
        module, _, optimizer = TUNERS[name].partition(":")
        # Imported when it is first used, so that --help starts quickly.
        return lambda context: getattr(import_module(f"{__name__}.{module}"), optimizer)(context)
    if ":" in name:
        from debate_judge.optimize.tuners.dspy_optimizers import class_tuner

        return class_tuner(name)
    expected, near = f"one of {', '.join(TUNERS)}", did_you_mean(name, TUNERS)
    raise InputError(f"unknown tuner {name!r}", field="--tuner", expected=expected, remedy=near)
