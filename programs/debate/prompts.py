"""The prompts of a debate: the roles' signatures and tasks, and what each role is shown.

All roles are shown the material, the aspect, what was learnt about the raters, and the debate so far. The Scorer's
instructions, the standard of scores, are for those who score: the Scorer and the Tie-breaker. The Critic's persona is
for the Critic alone, and nothing of ours is added to it. A debate opens with exactly the prompt of a single call.

Several candidates of one source may share a call (`programs.debate.table`): each has a header with its number, and the
reply has the role's fields once for each, with that number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import dspy

from debate_judge.data.schema import Aspect, Scale
from debate_judge.programs.debate.personas import PLAIN, TWO_BRIEFS
from debate_judge.programs.judge import Item
from debate_judge.programs.roles.parsing import escape
from debate_judge.programs.roles.role import JudgeSignature, aspect_description, header

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


def scorer_text(instructions: str, task: str) -> str:
    """The Scorer's part of its prompt: the standard and the task of the turn."""
    return f"You are the Scorer. {standard(instructions)}\n{task}"


def critic_text(instructions: str, later: str = "") -> str:
    """The Critic's part of its prompt: its persona, word for word."""
    return f"You are the Critic.\n{escape(instructions)}" + (f" {later}" if later else "")


def tie_breaker_text(instructions: str, scorer_instructions: str) -> str:
    """The Tie-breaker's part of its prompt: its instructions and the standard of scores."""
    own = escape(instructions)
    return f"You are the Tie-breaker. {own}\nScores are given by this standard: {standard(scorer_instructions)}"


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
