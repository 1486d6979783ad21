"""An LM for dry runs, which estimate the cost of a job: the offline LM's replies, at assumed lengths.

How many calls a debate takes depends on its replies. In the expected case of an estimate the offline LM decides; in
the case of the most calls no Critic ever agrees.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from debate_judge.programs import offline, parsing
from debate_judge.programs.lm.limits import TOKENS_PER_BYTE
from debate_judge.programs.lm.replies import LocalTransport, Reply

REPLY_TOKENS = (250, 800)
"""Assumed length of a reply in tokens, all free-text fields together: expected, and at most."""
SHARE_PER_SCORE = 0.25
"""Assumed length for each score of a reply about several candidates, as a share of `REPLY_TOKENS`."""
CRITICISMS = {"feedback", "case_for_less", "case_for_more"}
"""The fields of a Critic's reply."""
FREE_TEXT_FIELDS = CRITICISMS | {"rationale", "reasoning", "opinion", "steps", "summary"}
"""The free-text fields among those that the offline LM knows; the others hold a short value. Whether an unknown field
is free text follows from its type and description."""
_FILLER = "These words stand for what an LM would go on to say. "


@dataclass(frozen=True, slots=True)
class EstimateCase:
    reply_tokens: int
    """Assumed length of a reply."""
    at_most: bool = False
    """Whether debates are as long as they can be."""
    distinct_replies: bool = True
    """Whether different prompts get different replies, as from a real LM. Equal replies can make later prompts equal,
    which are then sent only once."""


@dataclass(frozen=True, slots=True)
class ItemReply(Reply):
    """A reply to a prompt about items. Any other prompt is sent once, however many items there are."""


class DryRunTransport(LocalTransport):
    """The transport for a case of an estimate; of a call's settings only `logprobs` and `max_tokens` have an effect."""

    def __init__(self, case: EstimateCase) -> None:
        self._case = case

    def answer(self, system: str, user: str, settings: Mapping[str, Any]) -> Reply:
        case, prompt = self._case, offline.parse(system, user)
        role_fields = offline.role_fields(prompt)
        fields = offline.complete_fields(prompt, role_fields)
        free_text = [
            name
            for name in fields
            if _field(name) in FREE_TEXT_FIELDS or (name not in role_fields and offline.is_free_text(prompt, name))
        ]
        if case.at_most:
            fields = {name: _longest(prompt, name, text) for name, text in fields.items()}
        # At most the LM gives none to G-Eval, which asks for samples then; others cannot do without them.
        gives_logprobs = settings.get("logprobs") and not (case.at_most and prompt.input("steps"))
        if with_logprobs := gives_logprobs and "score" in fields:
            fields["score"] = f"{round(float(fields['score']))}"
        tokens = case.reply_tokens
        if prompt.input("candidates"):
            count = len({name.rpartition("_")[2] for name in prompt.outputs})
            tokens = max(tokens, round(tokens * count * SHARE_PER_SCORE))
        tokens = min(tokens, settings.get("max_tokens") or tokens)
        # NO ISSUE is all that such a reply says; with words added it would be a criticism.
        free_text = [name for name in free_text if fields[name] != parsing.NO_ISSUE]
        digest = hashlib.blake2b(user.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
        for name in free_text:
            text = f"{fields[name]} ({digest})" if case.distinct_replies else fields[name]
            missing = round(tokens / TOKENS_PER_BYTE / len(free_text)) - _size(text)
            filler = " " + (_FILLER * (missing // len(_FILLER) + 1))[:missing].strip() if missing > 0 else ""
            fields[name] = text + filler
        text = offline.render(prompt, fields)
        logprobs = offline.score_logprobs(text, fields["score"], float(fields["score"])) if with_logprobs else None
        given, replied = _tokens(system) + _tokens(user), _tokens(text)
        # A prompt with nothing but these inputs is the same for all items.
        is_general = set(prompt.inputs) <= {"task", "aspect", "role"}
        return (Reply if is_general else ItemReply)(text, given, replied, logprobs=logprobs)


def _longest(prompt: offline.Prompt, name: str, text: str) -> str:
    """What a field holds where debates are as long as they can be, in place of the offline LM's `text`.

    A new field that decides how long a debate lasts needs a case here.
    """
    field = _field(name)
    if field in CRITICISMS and name in prompt.outputs:
        return "An issue."
    if field == "factuality":
        # The opposite of the last verdict in the debate, so that the agents of a Markov state never agree.
        debate = prompt.input("debate")
        return str(debate.rfind("factuality True") <= debate.rfind("factuality False"))
    if field == "severity" and "factuality" in prompt.outputs:
        return "1"
    if field == "claims" and text != "NONE":
        doubled = [claim for line in text.splitlines() for claim in (line, f"Besides: {line}")]
        return "\n".join(doubled[: offline.max_claims(prompt)])
    return text


def _field(name: str) -> str:
    """The name of a field without the number that it has in a reply about several candidates."""
    return re.sub(r"_\d+\Z", "", name)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _tokens(text: str) -> int:
    return round(_size(text) * TOKENS_PER_BYTE)
