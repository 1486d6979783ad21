"""The prompts of a debate: the roles' signatures and tasks, and what each role is shown.

All roles are shown the material, the aspect, what was learnt about the raters, and the debate so far. The Scorer's
instructions, the standard of scores, are for those who score: the Scorer and the Tie-breaker. The Critic's persona is
for the Critic alone, and nothing of ours is added to it. A debate opens with exactly the prompt of a single call.

Several candidates of one source may share a call (`programs.debate.judge`): each has a header with its number, and the
reply has the role's fields once for each, with that number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import dspy

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.schema import Aspect, Scale
from debate_judge.programs.judge import Item
from debate_judge.programs.parsing import escape
from debate_judge.programs.role import JudgeSignature, aspect_description, header

# --- the Critic's personas: the text of the Critic's instructions, and nothing is added to it ---
#
# Five degrees as in DEBATE (section 2, appendices C and G.1), from mildest to strongest, in this project's own words,
# and a Critic that argues both sides. Because a persona is the instructions of a signature and not an input field,
# every DSPy optimizer can rewrite it. A Critic ends the debate with NO ISSUE; whether it may is the persona's business.


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


# --- the roles; their instructions are what an optimizer may rewrite ---


class Scoring(JudgeSignature):
    """Judge the candidate in the given aspect alone, by its definition; use the source, where it is shown, as far as
    the definition needs it. Faults and merits of other kinds do not count, however plain they are. Traces of
    processing, such as lower case, blanks around punctuation, a dateline or a missing last full stop, count for
    nothing. Name the places in the texts that raise or lower the score; for a clean text say that nothing was found.
    Use the whole scale: the best score is for a text in which you find nothing that the definition names, and trifles
    take nothing off."""

    rationale: str = dspy.OutputField(desc="your reasons, step by step, with the places in the texts that they rest on")
    score: str = dspy.OutputField(desc="one number on the aspect's scale and nothing else")


class Criticism(JudgeSignature):
    __doc__ = PLAIN.text

    feedback: str = dspy.OutputField(desc="what you reply to the Scorer")


class TwoBriefs(JudgeSignature):
    __doc__ = TWO_BRIEFS.text

    case_for_less: str = dspy.OutputField(desc="the best case that the raters would give less than the latest score")
    case_for_more: str = dspy.OutputField(desc="the best case that the raters would give more than the latest score")


class TieBreaking(JudgeSignature):
    """Scorer and Critic have not come to agree. Read their debate, check what is disputed against the texts, take the
    side of the one who is right or stand between the two, and give the final score."""

    reasoning: str = dspy.OutputField(desc="the disputed points and how the texts settle them")
    side: str = dspy.OutputField(desc="Scorer, Critic or between")
    final_score: str = dspy.OutputField(desc="one number on the aspect's scale and nothing else")


OPENING = "Weigh step by step what speaks for the candidate and what speaks against it."
OPENING_TABLE = (
    "Weigh for each candidate what speaks for it and what speaks against it, and hold the candidates against each "
    "other before you score them: equal merit earns an equal score."
)
REVISION = (
    "You have scored, and the Critic has replied. Adjust your score by the Critic's latest feedback: say what of it "
    "holds against the texts, and give the score that you now find right."
)

REVISION_TABLE = (
    "You have scored, and the Critic has replied. Adjust the score of each candidate by the Critic's latest feedback "
    "about it: say what of it holds against the texts, and give the score that you now find right."
)


_USE_WHOLE_SCALE = re.compile(r"\s+Use\s+the\s+whole\s+scale:[^.]+\.")
"""The last sentence of the Scorer's own instructions, which a guide replaces."""


@lru_cache(maxsize=256)
def standard(instructions: str) -> str:
    """The Scorer's instructions without the guide, which has a section of its own."""
    own = with_guide(instructions, "")
    if guide_in(instructions):
        # Only the guide may say how the scale is used.
        own = _USE_WHOLE_SCALE.sub("", own)
    # Escaped, because an LM that has read texts under evaluation may have written the instructions.
    return escape(own)


@lru_cache(maxsize=256)
def common_inputs(aspect: Aspect, scorer_instructions: str, whole_points: bool) -> Mapping[str, str]:
    """The input fields that are the same for all roles and all texts: the guide to the raters and the aspect.

    Args:
        aspect: The aspect that is scored.
        scorer_instructions: The Scorer's instructions, which contain the guide if there is one.
        whole_points: Whether scores must be whole points, because each needs a token of its own.
    """
    guide = guide_in(scorer_instructions)
    if guide:
        aspect = replace(aspect, definition=without_anchors(aspect.definition))
    return {
        "guide": f"{HEADING}\n{escape(guide)}" if guide else "",
        "aspect": f"{aspect_description(aspect)}\n{granularity_instruction(aspect.scale, whole_points)}",
    }


def granularity_instruction(scale: Scale, whole_points: bool = False) -> str:
    """The sentence of prompts about the granularity of scores: steps where the task states one, else any number."""
    if (scale.on_steps or whole_points) and scale.step == 1:
        return "Scores are whole points of the scale."
    if scale.on_steps or whole_points:
        return f"Scores are given in steps of {scale.step:g}."
    if scale.binary:
        return "A score may lie between the two ends, where the candidate does."
    return "A score may lie between two points of the scale, where the candidate does."


# --- several candidates in one call ---


@lru_cache(maxsize=256)
def table_signature(signature: Any, count: int) -> Any:
    """`signature` for `count` candidates: its output fields once for each, with the candidate's number from 1."""
    fields = list(signature.input_fields)
    table = signature.delete("candidate").insert(fields.index("candidate"), "candidates", dspy.InputField())
    for name in signature.output_fields:
        table = table.delete(name)
    for number in range(1, count + 1):
        for name, field in signature.output_fields.items():
            own = f"about candidate_1: {field.json_schema_extra['desc']}"
            description = own if number == 1 else f"the same about candidate_{number}"
            table = table.append(f"{name}_{number}", dspy.OutputField(desc=description))
    return table


def table_inputs(items: Sequence[Item], debates: Sequence[str]) -> dict[str, str]:
    """The input fields with the texts of several candidates and their debates so far, a line for each turn."""
    numbered = list(enumerate(items, 1))
    lines = [
        f"candidate_{number}: {line}"
        for number, debate in enumerate(debates, 1)
        for line in debate.split("\n\n")
        if line
    ]
    sections = [f"{header(f'candidate_{number}')}\n{escape(item.text)}" for number, item in numbered]
    opening = f"{len(items)} candidates of one source, each under its own header; their order means nothing."
    return {"candidates": "\n\n".join([opening, *sections]), "debate": escape("\n".join(lines))}


# --- the guide to the raters ---
#
# It is part of the instructions and not an input field, so that DSPy's optimizers and exports carry it. All roles of a
# debate read it, because the Scorer's instructions are the standard in all prompts.

HEADING = "Guide to these raters, learnt from their ratings; it decides where it differs from all else here:"
"""The line between a role's own instructions and the guide."""


def with_guide(instructions: str, guide: str) -> str:
    """The instructions with this guide in place of any other; an empty guide removes it."""
    without = instructions.partition(HEADING)[0].rstrip()
    return f"{without}\n\n{HEADING}\n{guide.strip()}" if guide.strip() else without


_ANCHOR = r"\d+(?:\.\d+)? (?:[^.;\d]|\d|\.(?=\d))+"
_ANCHORS = re.compile(rf"(?:(?<=[.!?:] )|^){_ANCHOR}(?:; {_ANCHOR})+\.(?: |$)")
"""The part of a definition that describes points of the scale: `1 is a heap; 3 can be followed; 5 leads on.`"""


def without_anchors(definition: str) -> str:
    """A definition without its descriptions of points of the scale, because a guide has its own."""
    return _ANCHORS.sub("", definition).rstrip()


def guide_in(instructions: str) -> str:
    """The guide in the instructions; empty if they have none."""
    return instructions.partition(HEADING)[2].strip()
