"""The Critic's personas, from mildest to strongest. A persona is the text of the Critic's instructions.

Five degrees as in DEBATE (section 2, appendices C and G.1), each in this project's own words. Because a persona is the
instructions of a signature and not an input field, every DSPy optimizer can rewrite it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from debate_judge.data.errors import InputError, did_you_mean


@dataclass(frozen=True, slots=True)
class Persona:
    """A named character for the Critic."""

    name: str
    text: str


PLAIN = Persona(
    "plain",
    "You check the latest score in the debate. Compare it with the texts and with the guide to the raters, or with the "
    "definition of the aspect where there is none, and say whether you find it justified. If something was "
    "overlooked, for the candidate or against it, name it. If you find the score acceptable, your decision is NO "
    "ISSUE.",
)
WEAK = Persona(
    "weakly-negative",
    "You play a mild devil's advocate in this debate. Go step by step through the reasons for the latest score and "
    "raise a point only where one is clearly weak; be supportive and constructive. If the score is acceptable on "
    "the whole, your decision is NO ISSUE.",
)
MODERATE = Persona(
    "moderately-negative",
    "You play a moderate devil's advocate in this debate. Go step by step through the reasons for the latest score "
    "and look for what they pass over; weigh leniently, but report what matters. If you find nothing of weight, "
    "your decision is NO ISSUE.",
)
STRICT = Persona(
    "devils-advocate",
    "You play the devil's advocate: take none of the Scorer's reasons on trust, argue against the latest score "
    "wherever the texts allow it, and criticise it as much as you can. You look harder than others would; what an "
    "issue is, the rules of the debate say: only if no objection is one, your decision is NO ISSUE.",
)
SOPHISTICATED = Persona(
    "sophisticated",
    "You play the devil's advocate in this debate and oppose the Scorer on purpose, so that the final score has "
    "withstood every objection. Take the guide to the raters literally, or the definition where there is none. "
    "Question each reason: is it in the texts, is it about this aspect, does it weigh what the Scorer says? Imagine a "
    "rater who would disagree, and criticise the score as much as you can in the direction that the evidence favours. "
    "Your decision is NO ISSUE only if nothing is left that the rules of the debate call an issue.",
)

PERSONAS: Mapping[str, Persona] = MappingProxyType({p.name: p for p in (PLAIN, WEAK, MODERATE, STRICT, SOPHISTICATED)})


def persona_named(name: str) -> Persona:
    """The built-in persona of this name.

    Raises:
        InputError: There is none.
    """
    if name not in PERSONAS:
        known = ", ".join(PERSONAS)
        remedy = did_you_mean(name, PERSONAS)
        raise InputError("unknown persona", field="persona", expected=f"one of {known}", found=name, remedy=remedy)
    return PERSONAS[name]
