"""The Critic's personas. A persona is the text of the Critic's instructions.

Five degrees as in DEBATE (section 2, appendices C and G.1), from mildest to strongest, in this project's own words.
Because a persona is the instructions of a signature and not an input field, every DSPy optimizer can rewrite it.

Besides the paper's Critic, who sees the score that it is to attack, there is one that first scores blind: in a call of
its own that mentions no debate, as a second rater would. The distance of the two scores is computed and not asked for;
where it is less than `Persona.gap`, the Scorer's score is final and no more calls are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType

from debate_judge.data.errors import InputError, did_you_mean


@dataclass(frozen=True, slots=True)
class Persona:
    """A named persona of the Critic."""

    name: str
    text: str
    gap: float | None = None
    """The smallest distance of the Critic's blind score from the Scorer's at which the two debate, in steps of the
    scale. With 0 every score is debated; with infinity none is, and the final score is the mean of both. None for a
    Critic that does not score blind."""


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
ADVOCATE = Persona(
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

PERSONAS: Mapping[str, Persona] = MappingProxyType(
    {p.name: p for p in (PLAIN, WEAK, MODERATE, ADVOCATE, SOPHISTICATED)}
)
"""The paper's personas, by name."""

_BLIND = (
    "You have scored before you saw any score; the debate shows you that reading as the Blind critic's, and only you "
    "see it. Now you speak for what it found. Go through the Scorer's reasons and take none of them on trust: at "
    "each place where the two readings part, say what the texts show, and argue for what yours saw and theirs passed "
    "over. Where their reasons explain the difference better than yours, your decision is NO ISSUE."
)
_GAPS = {"second-reading": inf, "blind": 0.25, "blind-half": 0.5, "blind-every": 0.0}
BLIND: Mapping[str, Persona] = MappingProxyType({name: Persona(name, _BLIND, gap) for name, gap in _GAPS.items()})
"""The personas that score blind, by name."""


def custom_persona(name: str, text: str) -> Persona:
    """A persona with a text of its own; it scores blind if the built-in persona of its name does."""
    return Persona(name, text, BLIND[name].gap if name in BLIND else None)


def builtin_persona(name: str) -> Persona:
    """The persona `name` of `PERSONAS` or `BLIND`."""
    personas = {**PERSONAS, **BLIND}
    if name not in personas:
        expected, remedy = f"one of {', '.join(personas)}", did_you_mean(name, personas)
        raise InputError("unknown persona", field="persona", expected=expected, found=name, remedy=remedy)
    return personas[name]
