"""The Critic's personas. A persona is the text of the Critic's instructions, and nothing is added to it.

Five degrees as in DEBATE (section 2, appendices C and G.1), from mildest to strongest, in this project's own words, and
a Critic that argues both sides. Because a persona is the instructions of a signature and not an input field, every DSPy
optimizer can rewrite it. A Critic ends the debate with the words NO ISSUE; whether it may is the persona's business.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from debate_judge.data.errors import InputError, did_you_mean


@dataclass(frozen=True, slots=True)
class Persona:
    """A named persona of the Critic."""

    name: str
    text: str
    later: str = ""
    """Added from the second round on."""
    two_briefs: bool = False
    """Whether the Critic writes a case for either side of the score instead of one criticism."""


PLAIN = Persona(
    "plain",
    "Say whether the latest score in the debate is right. Check it and its reasons against the texts, the definition "
    "of the aspect and what is known of the raters. If you find it unjustified, say why; if you can accept it, reply "
    "NO ISSUE and nothing else.",
)
WEAK = Persona(
    "weakly-negative",
    "You play a gentle devil's advocate. Go step by step through the latest score and its reasons. If you see a "
    "weakness, name it in a constructive way, so that the Scorer can do better. If you can accept the score entirely, "
    "reply NO ISSUE and nothing else.",
)
MODERATE = Persona(
    "moderately-negative",
    "You play a moderate devil's advocate. Go step by step through the latest score and its reasons and look for what "
    "they pass over or weigh wrongly. Be lenient in what you ask of them, but report whatever you would object to. "
    "If there is nothing at all, reply NO ISSUE and nothing else.",
)
ADVOCATE = Persona(
    "devils-advocate",
    "You play the devil's advocate. Take none of the Scorer's reasons on trust: go through them step by step, test "
    "each one against the texts, the definition of the aspect and what is known of the raters, and criticise the "
    "latest score as severely as you can. Show where it goes wrong, whether too high or too low, and by which places "
    "in the texts.",
    later="If the latest score leaves you nothing to criticise, reply NO ISSUE and nothing else.",
)
SOPHISTICATED = Persona(
    "sophisticated",
    "You play the devil's advocate: you oppose the Scorer on purpose, so that its score is tested from the other "
    "side. Hold the latest score and each of its reasons against the definition of the aspect and what is known of "
    "the raters, one step after the other. Put the questions that are hardest to answer, doubt what is taken for "
    "granted, and criticise every judgement that rests on taste as severely as you can. Imagine, where it helps, that "
    "the text read otherwise or that another rater sat in the Scorer's place, and say what would follow for the "
    "score. Only if you are certain that the Scorer's answer is objective and right, reply NO ISSUE and nothing else.",
)
TWO_BRIEFS = Persona(
    "two-briefs",
    "You argue both sides of the latest score. Write the best case that the raters would give this text less than "
    "that score, and the best case that they would give it more. Rest each case on places in the texts, on the "
    "definition of the aspect and on what is known of the raters. Do not say which of the two is right.",
    two_briefs=True,
)

PERSONAS: Mapping[str, Persona] = MappingProxyType(
    {p.name: p for p in (PLAIN, WEAK, MODERATE, ADVOCATE, SOPHISTICATED, TWO_BRIEFS)}
)
"""The built-in personas, by name."""


_HEADER = re.compile(r"\[\[\s*##\s*(\w*)")


def require_persona(name: str, text: str) -> None:
    """Refuse a persona without a name or a text, and one that asks for fields of its own: the program reads a Critic's
    feedback and nothing else of its reply."""
    if not name.strip() or not text.strip():
        expected = "a name and a text" if name.strip() else "a name that is not empty"
        raise InputError("not a persona", field=name or '""', expected=expected, found=repr(text if name else name))
    if header := _HEADER.search(text):
        raise InputError(
            "a persona that asks for fields of its own",
            field=name,
            expected="how the Critic argues; the form of its reply, one field `feedback`, is added to every prompt",
            found=f"[[ ## {header[1]} ## ]]",
            remedy="leave the headers out; a persona that may end the debate says: reply NO ISSUE and nothing else",
        )


def find_persona(name: str, text: str | None = None) -> Persona:
    """The built-in persona `name`; with another `text` than its own, a persona that consists of this text alone."""
    builtin = PERSONAS.get(name)
    if builtin is not None and text in (None, builtin.text):
        return builtin
    if text is not None:
        require_persona(name, text)
        return Persona(name, text)
    raise InputError(
        "unknown persona",
        field="persona",
        expected=f"one of {', '.join(PERSONAS)}",
        found=name,
        remedy=did_you_mean(name, PERSONAS),
    )
