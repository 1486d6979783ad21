"""What the roles are told where a call is about several aspects: what holds for all once, and for each its own.

Each aspect has sections with its label in their headers: scale, definition and fineness of its scores, its guide to the
raters, its rated examples. The Scorer's instructions without the guide are the same for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from debate_judge.programs.debate.briefing import GUIDE, Briefing, rules
from debate_judge.programs.debate.table_prompts import header
from debate_judge.programs.roles.examples import ShownExamples
from debate_judge.programs.roles.guide import guide_in, with_guide

SEVERAL = (
    "All of this holds for each candidate and each aspect by itself: an objection in one aspect is none in another. "
    "The feedback about a score stands under its own header, which names candidate and aspect. A score without an "
    "issue is settled and stands."
)
OWN_LAW = "the aspect's guide to the raters or, where it has none, its definition"
"""What a debate argues from where only some aspects have a guide."""


def joint_briefing(told: Mapping[str, Briefing]) -> Briefing:
    """One briefing for several aspects.

    Args:
        told: Label of an aspect -> its briefing for several candidates; a single one is the result.
    """
    first = next(iter(told.values()))
    if len(told) == 1:
        return first
    guides = {label: guide_in(one.standard) for label, one in told.items()}
    standard = first.standard
    if shared := len(set(guides.values())) == 1:
        law = GUIDE if guides.popitem()[1] else "the definition of the aspect"
    else:
        standard = with_guide(standard, "")
        law = "the aspect's guide to the raters" if all(guides.values()) else OWN_LAW
    parts = [
        f"{len(told)} aspects of each candidate are rated, each by what stands under the headers with its name and by "
        "nothing that stands under those of another aspect."
    ]
    if not shared:
        parts[0] += (
            " A guide to the raters was learnt from their ratings; it decides where it differs from all else here."
        )
    for label, one in told.items():
        parts += _section("aspect", label, one.aspect) + ([] if shared else _section("guide", label, guides[label]))
    sizes = {label: one.issue for label, one in told.items()}
    if len(set(sizes.values())) == 1:
        size = f"{first.issue:g}"
    else:
        size = ", ".join(f"{one:g} ({label})" for label, one in sizes.items())
    shown = ShownExamples(
        shared=_of_each("examples", {label: one.examples.shared for label, one in told.items()}),
        similar=_of_each("similar", {label: one.examples.similar for label, one in told.items()}),
    )
    return Briefing(standard, "\n\n".join(parts), rules(law, size) + SEVERAL, first.issue, shown)


def _of_each(name: str, texts: Mapping[str, str]) -> str:
    return "\n\n".join(part for label, text in texts.items() for part in _section(name, label, text))


def _section(name: str, label: str, text: str) -> list[str]:
    return [f"{header(f'{name}_{label}')}\n{text}"] if text else []
