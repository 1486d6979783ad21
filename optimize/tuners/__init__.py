"""Tuners: from a judge and training examples to better instructions. `TUNERS` names them.

A tuner is one file with a function `Tuning -> Judge`; it uses the runner and `optimize.examples`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import dspy

    from debate_judge.data.agreement.tables import Statistic
    from debate_judge.programs.judge import Judge
    from debate_judge.runs.runner.runner import JudgeRunner


@dataclass(frozen=True)
class Tuning:
    """What a tuner works with."""

    judge: Judge
    """The judge to improve; never changed, a tuner returns a copy."""
    examples: list[dspy.Example]
    runner: JudgeRunner
    rounds: int
    statistic: Statistic
    personas: Mapping[str, str]
    proposals: int
    trials: int
    seed: int
    label: str


def _tuner(module: str) -> Callable[[Tuning], Judge]:
    """The function `tune` of a file in this folder, imported when it is called: --help needs no more than the names."""

    def tune(tuning: Tuning) -> Judge:
        tuned: Judge = import_module(f"debate_judge.optimize.tuners.{module}").tune(tuning)
        return tuned

    return tune


def _none(tuning: Tuning) -> Judge:
    return tuning.judge


TUNERS: Mapping[str, Callable[[Tuning], Judge]] = MappingProxyType(
    {
        "mipro": _tuner("mipro"),
        "none": _none,
    }
)
"""Name -> function. A new tuner is one file beside this one and one line here."""
