"""The parts of a debate's prompts other than the texts: the standard, the rules, and the task of each role.

A debate opens with exactly the prompt of a single call, which mentions no other role, so a debate's first turn is also
the result of the single call. In all later prompts the rules of the debate follow the source, where a provider's prefix
cache serves them for every candidate of the source. What belongs to one role is at the end of its prompt. No other role
sees the Critic's persona, because a Scorer that knew it would discount the criticism.

Where a call is about several aspects, what holds for all of them is said once, and each aspect has sections with its
label in their headers: scale, definition and granularity of scores, its guide to the raters, its rated examples. The
Scorer's instructions without the guide are the same for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

from dspy.signatures.signature import Signature

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Scale
from debate_judge.programs.debate.table_prompts import header
from debate_judge.programs.roles.adapter import form
from debate_judge.programs.roles.examples import NO_EXAMPLES, ShownExamples
from debate_judge.programs.roles.guide import guide_in, with_guide
from debate_judge.programs.roles.parsing import escape
from debate_judge.programs.roles.role import aspect_text

Asked = Literal["free", "half", "whole"]
"""The granularity that prompts ask for: any number, half steps of the scale, or whole steps."""

OPENING = "You are the Scorer. Weigh step by step what speaks for the candidate and what speaks against it."
REVISION = (
    "You are the Scorer. Say first how far the latest objection holds against the texts. Then change your score by "
    "what the part that holds is worth; if none of it does, keep your score."
)

GUIDE, DEFINITION = "the guide to the raters", "the definition"
"""How the rules of a debate name what to argue from."""

SEVERAL = (
    "All of this holds for each candidate and its score by itself; the feedback about one stands under its own header. "
    "A candidate without an issue is settled, and its score stands."
)


def asked(text: str) -> Asked:
    """Parse the granularity that prompts ask for.

    Raises:
        InputError: It is none of `Asked`.
    """
    for known in get_args(Asked):
        if text == known:
            return known
    raise InputError("not a granularity", field="--granularity", expected="free, half or whole", found=text)


def issue_size(scale: Scale) -> float:
    """The least change of the score that makes an objection an issue: half a step of the scale.

    The Critic gives its own score in tenths. If scores are whole points, the nearest point changes from half a point
    on; a threshold of a whole point would silence the Critic.
    """
    return scale.step / 2


def fineness(scale: Scale, granularity: Asked) -> str:
    """The sentence in prompts about the granularity of scores."""
    if granularity == "half":
        return f"Scores are given in steps of {scale.step / 2:g}."
    if granularity == "whole" and scale.step == 1:
        return "Scores are whole points of the scale."
    if granularity == "whole":
        return f"Scores are given in steps of {scale.step:g}."
    if scale.binary:
        return "A score may lie between the two ends, where the candidate does."
    return "A score may lie between two points of the scale, where the candidate does."


@dataclass(frozen=True, slots=True)
class Briefing:
    """Input fields of the prompts of one debate. They are the same for all candidates, except for rated examples that
    are chosen for the item."""

    standard: str
    """The standard that every role argues from: the Scorer's instructions with the guide to the raters. The form of the
    Scorer's reply comes first, so that a prefix cache serves it in every turn."""
    aspect: str
    rules: str
    issue: float
    """The least change of the score that makes an objection an issue."""
    examples: ShownExamples = NO_EXAMPLES

    def opening(self) -> dict[str, str]:
        """Input fields of the Scorer's first turn, which is the single call."""
        return {**self._shared(), "role": OPENING}

    def revision(self) -> dict[str, str]:
        """Input fields of the Scorer's later turns."""
        return self._debating(REVISION)

    def critic(self, persona: str) -> dict[str, str]:
        return self._debating(f"You are the Critic. {escape(persona)}")

    def tie_breaker(self, instructions: str) -> dict[str, str]:
        return self._debating(f"You are the Tie-breaker. {escape(instructions)}")

    def _debating(self, role: str) -> dict[str, str]:
        return {**self._shared(), "rules": self.rules, "role": role}

    def _shared(self) -> dict[str, str]:
        shown = {"examples": self.examples.shared, "similar": self.examples.similar}
        return {"standard": self.standard, "aspect": self.aspect, **shown}


def briefing(
    aspect: Aspect, granularity: Asked, scorer: type[Signature], critic: type[Signature], *, together: bool = False
) -> Briefing:
    """The briefing for an aspect; of the roles' instructions it contains only the Scorer's.

    Args:
        aspect: The aspect that is scored.
        granularity: The granularity to ask for.
        scorer: The Scorer's signature.
        critic: The Critic's signature.
        together: Whether the debate is about several candidates; the form of replies is then in the requests.
    """
    # mypy considers pydantic model classes unhashable; classes hash by identity.
    signatures: Any = (scorer, critic)
    return _briefing(aspect, granularity, *signatures, together)


@lru_cache(maxsize=256)
def _briefing(aspect: Aspect, granularity: Asked, scorer: Any, critic: Any, together: bool) -> Briefing:
    # Escaped, because instructions may be written by an LM that has read texts under evaluation.
    standard = escape(scorer.instructions)
    if not together:
        standard = f"The Scorer replies with {form(scorer)}.\n{standard}"
    text = f"{aspect_text(aspect)}\n{fineness(aspect.scale, granularity)}"
    size = issue_size(aspect.scale)
    told = rules(GUIDE if guide_in(standard) else DEFINITION, f"{size:g}")
    told += SEVERAL if together else f"The Critic replies with {form(critic)}."
    return Briefing(standard, text, told, size)


def rules(law: str, size: str) -> str:
    """The rules of a debate.

    Args:
        law: What to argue from, e.g. `GUIDE`.
        size: How far apart two scores must be for an issue.
    """
    return (
        f"Scorer and Critic debate the score. The Critic first scores the candidate itself by {law}, as if no score "
        "had been given, and says in its review, in tenths, what it arrived at. Then it holds the latest score against "
        "that, and looks for what speaks for a higher and what for a lower one.\n"
        "An issue is an objection that holds against the texts and for which the two scores lie at least "
        f"{size} apart. The feedback quotes the place that it rests on, says which rule of {law} was overlooked or "
        "applied wrongly there and whether the score is too high or too low for it, and names no score. An objection "
        "against the direction of an earlier one needs evidence that is new to the debate. NO ISSUE is as honourable "
        "as an issue: a score that holds should stand.\n"
    )


# --- several aspects in one call ---

SEVERAL_ASPECTS = (
    "All of this holds for each candidate and each aspect by itself: an objection in one aspect is none in another. "
    "The feedback about a score stands under its own header, which names candidate and aspect. A score without an "
    "issue is settled and stands."
)
OWN_LAW = "the aspect's guide to the raters or, where it has none, its definition"
"""What to argue from if only some of several aspects have a guide."""


def joint_briefing(told: Mapping[str, Briefing]) -> Briefing:
    """One briefing for several aspects.

    Args:
        told: Label of an aspect -> its briefing for several candidates; if there is only one, it is returned.
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
    return Briefing(standard, "\n\n".join(parts), rules(law, size) + SEVERAL_ASPECTS, first.issue, shown)


def _of_each(name: str, texts: Mapping[str, str]) -> str:
    return "\n\n".join(part for label, text in texts.items() for part in _section(name, label, text))


def _section(name: str, label: str, text: str) -> list[str]:
    return [f"{header(f'{name}_{label}')}\n{text}"] if text else []
