"""Tuners: from a judge and training examples to better instructions. `TUNERS` names them.

A tuner is one file with a function `Tuning -> Judge`, or `Tuning -> Tuned` where it can also say what it learnt without
which examples; it uses the runner, metric and feedback that it is handed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import dspy

    from debate_judge.data.agreement.tables import Statistic
    from debate_judge.programs.judge import Judge
    from debate_judge.runs.runner.runner import JudgeRunner


class Effort(NamedTuple):
    """How much a tuner may try."""

    proposals: int
    """Instructions that the LM proposes for each role."""
    trials: int
    """Candidate programs that are evaluated on train."""


@dataclass(frozen=True)
class GuideLimits:
    """How much is shown to the reflecting LM, and how much it may write."""

    words: int = 220
    """Of one guide."""
    tokens: int = 14_000
    """Of the rated texts in one prompt."""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What a tuner works with. A prediction of an example is a `dspy.Prediction` with `judgements`, one per item."""

    judge: Judge
    """The judge to improve; never changed, a tuner returns a copy."""
    examples: list[dspy.Example]
    """Groups of rated items (`optimize.examples`)."""
    statistic: Statistic
    """The correlation that is optimized."""
    feedback: Callable[[dspy.Example, dspy.Prediction], str] | None
    """What went wrong on one example, in words, for tuners that reflect (`optimize.feedback`)."""
    runner: JudgeRunner
    reflection: dspy.BaseLM
    """The LM that writes guides and instructions (`--reflection-lm`)."""
    guide: GuideLimits = GuideLimits()
    personas: Mapping[str, str]
    """Name -> text: instructions that are worth a try for the Critic."""
    effort: Effort
    seed: int
    label: str
    """What is tuned, for logs and progress."""
    folder: Path | None = None
    """Where a tuner may keep its state, so that it goes on there; its name changes whenever the result could."""

    @property
    def rounds(self) -> int:
        """Of the debates by which candidates are evaluated: as many as the judge holds."""
        return self.judge.debate_config.rounds

    def metric(self, example: dspy.Example, prediction: dspy.Prediction) -> float:
        """Agreement with the raters on one example, from 0 to 1 (`optimize.examples.group_metric`)."""
        from debate_judge.optimize.examples import example_metric

        return example_metric(example, prediction, self.statistic)


@dataclass(frozen=True)
class Fold:
    """What a tuner learnt without a part of its examples, so that these can tell what it is worth."""

    judge: Judge
    unseen: frozenset[int]
    """Places in `Tuning.examples` of the examples that nothing in the judge rests on."""


@dataclass(frozen=True)
class Tuned:
    """What a tuner returns."""

    judge: Judge
    folds: tuple[Fold, ...] = ()
    """The same learnt from other parts of the examples. Examples that none of them leaves unseen do not count when the
    judge is compared with others."""
    start: Tuned | None = None
    """What it started from, where that is worth a try by itself: a guide before all instructions were rewritten."""


Tuner = Callable[[Tuning], "Judge | Tuned"]


def as_tuned(found: Judge | Tuned) -> Tuned:
    """What a tuner returned, whichever of the two it was."""
    return found if isinstance(found, Tuned) else Tuned(found)


def _tuner(module: str) -> Tuner:
    """The function `tune` of a file in this folder, imported when it is called: --help needs no more than the names."""

    def tune(tuning: Tuning) -> Judge | Tuned:
        tuned: Judge | Tuned = import_module(f"debate_judge.optimize.tuners.{module}").tune(tuning)
        return tuned

    return tune


def _none(tuning: Tuning) -> Judge:
    return tuning.judge


TUNERS: Mapping[str, Tuner] = MappingProxyType(
    {
        "guide": _tuner("guide"),
        "mipro": _tuner("mipro"),
        "gepa": _tuner("gepa"),
        "none": _none,
    }
)
"""Name -> function. A new tuner is one file beside this one and one line here."""
