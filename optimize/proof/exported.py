"""Which judge is exported: the compiled one, or the single call if it is better, or cheaper and not shown worse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from debate_judge.optimize.context import CompilePlan
from debate_judge.optimize.proof.held_out import HeldOut
from debate_judge.programs.compiled import AspectJudge, CompiledJudge

SAME_COST = 1.05
"""Up to this many times the calls of a single call, a judge counts as no more expensive."""


@dataclass(frozen=True)
class Exported:
    """The judge that is exported, and why it is this one."""

    judge: CompiledJudge
    name: Literal["compiled", "single"]
    """Of `held_out.COMPARED`."""
    why: str


def costs_more(calls: float, single: float) -> bool:
    """Whether a judge with `calls` LM calls per item is more expensive than one with `single`."""
    return calls > SAME_COST * single


def choose_export(plan: CompilePlan, compiled: CompiledJudge, held_out: HeldOut) -> Exported:
    """Choose the judge to export.

    The single call, if held-out shows that the compiled judge is worse, or if it takes more calls and its gain is not
    shown. Otherwise, or with `keep="compiled"`, or if there is no interval of the gain, the compiled judge.
    """
    gain = held_out.gain
    calls, single = held_out.calls_per_item("compiled"), held_out.calls_per_item("single")
    if gain.low is None or gain.high is None:
        return Exported(compiled, "compiled", "the compiled judge")
    if gain.low > 0:
        return Exported(compiled, "compiled", "the compiled judge, which is better than a single call")
    if gain.high < 0:
        found = "held-out shows that it is worse than a single call"
    elif costs_more(calls, single):
        found = (
            f"held-out does not show that it is better than a single call, and it takes {calls:.1f} calls per item "
            f"instead of {single:.1f}"
        )
    else:
        return Exported(compiled, "compiled", "the compiled judge, which takes no more calls than a single call")
    if plan.settings.keep == "compiled":
        return Exported(compiled, "compiled", f"the compiled judge, as keep=compiled wants it, although {found}")
    judge = AspectJudge(plan.single.deepcopy())
    return Exported(
        CompiledJudge(compiled.task, dict.fromkeys(compiled.aspects, judge)),
        "single",
        f"the single call and not the compiled judge, for {found} (--config keep=compiled exports the compiled judge)",
    )
