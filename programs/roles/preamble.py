"""What all members of a debate are told at the head of every prompt: the form of all replies, and the Scorer's task.

It stands first so that providers' prefix caches find it, with all that follows, for every role: what a role is told at
the end of a prompt is new in every call. The Critic's persona is not part of it, for a Scorer that knew it would
discount the criticism.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dspy.signatures.signature import Signature

TASK = "Task of the Scorer: "
"""What the Scorer's instructions stand behind, at the end of the text."""


def preamble(scorer: type[Signature], critic: type[Signature], tie_breaker: type[Signature]) -> str:
    """The text for roles of these signatures; of all instructions it depends on the Scorer's alone."""
    # mypy takes pydantic model classes for unhashable; classes hash by identity.
    roles: Any = (scorer, critic, tie_breaker)
    return _preamble(*roles)


@lru_cache(maxsize=256)
def _preamble(scorer: Any, critic: Any, tie_breaker: Any) -> str:
    return "\n".join(
        [
            "Each member replies in a form of its own, every field under its header and in this order.",
            f"Scorer: {_form(scorer)}.",
            f"Critic: {_form(critic)}.",
            f"Tie-breaker: {_form(tie_breaker)}.",
            TASK + scorer.instructions,
        ]
    )


def _form(signature: Any) -> str:
    return "; ".join(f"{name}: {field.json_schema_extra['desc']}" for name, field in signature.output_fields.items())
