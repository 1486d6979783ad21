"""What a compile has found out, and which judge is exported: the compiled one, unless its gain is not shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from debate_judge.optimize.context import CompilePlan
from debate_judge.optimize.proof.held_out import HeldOut
from debate_judge.optimize.search.outcomes import SearchResult
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs.tracking.looks import Looks

SAME_COST = 1.05
"""Times the calls of a single call up to which a judge takes no more of them."""


@dataclass(frozen=True)
class Exported:
    """The judge that is exported, and why it is this one."""

    judge: CompiledJudge
    name: Literal["compiled", "single"]
    """Of `held_out.COMPARED`."""
    why: str


@dataclass(frozen=True, kw_only=True)
class CompileEvidence:
    """What a compile has found out."""

    judge: CompiledJudge
    """As compiled, exported or not; with folds the one that uses all sources."""
    searches: Mapping[str, SearchResult]
    """Aspect -> the search that chose its judge."""
    held_out: HeldOut
    looks: Looks
    exported: Exported


def dearer(calls: float, single: float) -> bool:
    """Whether a judge takes more calls than a single call does."""
    return calls > SAME_COST * single


def choose_export(plan: CompilePlan, compiled: CompiledJudge, held_out: HeldOut) -> Exported:
    """The compiled judge, or the single call where the compiled judge takes more calls and its gain is not shown, or
    where it is worse; with `--keep compiled` the compiled one all the same.

    Without an interval nothing is known of the gain, and the compiled judge is exported.
    """
    gain = held_out.gain
    calls, single = held_out.calls_per_item("compiled"), held_out.calls_per_item("single")
    if gain.low is None or gain.high is None:
        return Exported(compiled, "compiled", "the compiled judge")
    if gain.low > 0:
        return Exported(compiled, "compiled", "the compiled judge, which is better than a single call")
    if gain.high < 0:
        found = "held-out shows that it is worse than a single call"
    elif dearer(calls, single):
        found = (
            f"held-out does not show that it is better than a single call, and it takes {calls:.1f} calls per item "
            f"instead of {single:.1f}"
        )
    else:
        return Exported(compiled, "compiled", "the compiled judge, which takes no more calls than a single call")
    if plan.settings.keep == "compiled":
        return Exported(compiled, "compiled", f"the compiled judge, as --keep compiled wants it, although {found}")
    judge = AspectJudge(plan.single.deepcopy())
    return Exported(
        CompiledJudge(compiled.task, dict.fromkeys(compiled.aspects, judge)),
        "single",
        f"the single call and not the compiled judge, for {found} (--keep compiled exports the compiled judge)",
    )
