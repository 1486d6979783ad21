"""The choices of a compile and its guides in words."""

from __future__ import annotations

from debate_judge.optimize.search.points import NO_KNOWLEDGE, JudgeVariant, Point
from debate_judge.optimize.tuners.guide import guide_of
from debate_judge.programs.compiled import CompiledJudge


def describe_point(point: Point, calls: float = 1.0) -> str:
    """A choice in words, e.g. `guide, n = 2, devils-advocate, tie-breaker, half points`.

    Without rounds, some judges make several `calls` per item, and metrics none.
    """
    single = "single call" if round(calls) == 1 else "n = 0"
    parts = [single] if point.rounds == 0 else [f"n = {point.rounds}", point.persona]
    if point.knowledge != NO_KNOWLEDGE and point.persona != point.knowledge:
        parts.insert(0, point.knowledge)
    elif point.rounds == 0 and point.knowledge != NO_KNOWLEDGE:
        parts.append(point.knowledge)
    if point.tie_breaker and point.rounds:
        parts.append("tie-breaker")
    if point.granularity != "given":
        parts.append(f"{point.granularity} points")
    return ", ".join(parts)


def variant_name(variant: JudgeVariant) -> str:
    """The name of a variant in charts."""
    knowledge = "" if variant.knowledge in (NO_KNOWLEDGE, variant.persona) else f" + {variant.knowledge}"
    return f"{variant.persona}{knowledge}"


def guides(judge: CompiledJudge) -> dict[str, str]:
    """Aspect -> the guide in the judge's instructions, for aspects with a guide."""
    by_aspect = {aspect: guide_of(chosen.judge) for aspect, chosen in judge.aspects.items()}
    return {aspect: guide for aspect, guide in by_aspect.items() if guide}
