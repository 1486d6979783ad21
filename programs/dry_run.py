"""An LM for dry runs, which estimate the cost of a job: the offline LM's replies, at assumed lengths.

How many calls a debate takes depends on its replies. In the expected case of an estimate the offline LM decides; in
the case of the most calls no Critic ever agrees.
A new field that decides how long a debate lasts needs an entry in `OVERRIDES`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from debate_judge.programs import offline, parsing
from debate_judge.programs.lm.limits import TOKENS_PER_BYTE
from debate_judge.programs.lm.replies import LocalTransport, Reply
from debate_judge.programs.offline import Prompt, max_claims, parse, render

REPLY_TOKENS = (250, 800)
"""Assumed length of a reply in tokens, all free-text fields together: expected, and at most."""

SHARE_PER_SCORE = 0.25
"""Assumed length for each score of a reply about several candidates, as a share of `REPLY_TOKENS`."""

CRITICISMS = frozenset({"feedback", "case_for_less", "case_for_more"})
"""The fields of a Critic's reply."""

FREE_TEXT_FIELDS = CRITICISMS | {"rationale", "reasoning", "opinion", "steps", "summary"}
"""The free-text fields among those that the offline LM knows; the others hold a short value. Whether an unknown field
is free text follows from its type and description."""

_ITEM_INDEPENDENT_INPUTS = frozenset({"task", "aspect", "role"})
"""Inputs of a prompt that is the same for all items."""

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


FieldOverride = Callable[[Prompt, str], dict[str, str]]
"""(prompt, the offline LM's text of a field) -> name of a field -> its text in place of the offline LM's."""


def _opposite_verdict(prompt: Prompt, text: str) -> dict[str, str]:
    """The opposite of the last verdict in the debate, so that the agents of a Markov state never agree."""
    debate = prompt.input("debate")
    denied = debate.rfind("factuality True") > debate.rfind("factuality False")
    return {"factuality": str(not denied), "severity": "1"}


def _twice_as_many_claims(prompt: Prompt, text: str) -> dict[str, str]:
    """Twice as many claims as the offline LM's, up to the prompt's maximum."""
    lines = text.splitlines()
    if lines == ["NONE"]:
        return {"claims": text}
    doubled_claims = [claim for line in lines for claim in (line, f"Besides: {line}")]
    return {"claims": "\n".join(doubled_claims[: max_claims(prompt)])}


def _an_issue(prompt: Prompt, text: str) -> dict[str, str]:
    return {name: "An issue." for name in prompt.outputs if field_name(name) in CRITICISMS}


OVERRIDES: Mapping[str, FieldOverride] = MappingProxyType(
    {**dict.fromkeys(CRITICISMS, _an_issue), "factuality": _opposite_verdict, "claims": _twice_as_many_claims}
)
"""Requested field -> its text where debates are as long as they can be."""


class DryRunTransport(LocalTransport):
    """The transport for a case of an estimate; of a call's settings only `logprobs` and `max_tokens` have an effect."""

    def __init__(self, case: EstimateCase) -> None:
        self._case = case

    def answer(self, system: str, user: str, settings: Mapping[str, Any]) -> Reply:
        case, prompt = self._case, parse(system, user)
        role_fields = offline.role_fields(prompt)
        fields = offline.complete_fields(prompt, role_fields)
        free_text = [
            n
            for n in fields
            if field_name(n) in FREE_TEXT_FIELDS or (n not in role_fields and offline.is_free_text(prompt, n))
        ]
        tokens = case.reply_tokens
        if case.at_most:
            for name in [name for name in prompt.outputs if field_name(name) in OVERRIDES]:
                fields |= OVERRIDES[field_name(name)](prompt, fields[name])
        # NO ISSUE is all that such a reply says; with words added it would be a criticism.
        free_text = [name for name in free_text if fields[name] != parsing.NO_ISSUE]
        if prompt.input("candidates"):
            count = len({name.rpartition("_")[2] for name in prompt.outputs})
            tokens = max(tokens, round(tokens * count * SHARE_PER_SCORE))
        # At most the LM gives none to G-Eval, which asks for samples then; others cannot do without them.
        gives_logprobs = not case.at_most or not prompt.input("steps")
        with_logprobs = bool(settings.get("logprobs")) and "score" in fields and gives_logprobs
        if with_logprobs:
            fields["score"] = f"{round(float(fields['score']))}"
        _pad(case, fields, free_text, user, min(tokens, settings.get("max_tokens") or tokens))
        text = render(prompt, fields)
        reply_type = Reply if set(prompt.inputs) <= _ITEM_INDEPENDENT_INPUTS else ItemReply
        logprobs = offline.score_logprobs(text, fields["score"], float(fields["score"])) if with_logprobs else None
        return reply_type(text, tokens_of(system) + tokens_of(user), tokens_of(text), logprobs=logprobs)


def field_name(name: str) -> str:
    """The name of a field without the number that it has in a reply about several candidates."""
    return re.sub(r"_\d+\Z", "", name)


def tokens_of(text: str) -> int:
    """The number of tokens of a text, estimated from its bytes."""
    return round(len(text.encode("utf-8", "surrogatepass")) * TOKENS_PER_BYTE)


def _pad(case: EstimateCase, fields: dict[str, str], free_text: Sequence[str], user: str, tokens: int) -> None:
    """Fill the `free_text` fields up to `tokens` in all."""
    digest = hashlib.blake2b(user.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    for name in free_text:
        size = round(tokens / TOKENS_PER_BYTE / len(free_text))
        text = f"{fields[name]} ({digest})" if case.distinct_replies else fields[name]
        missing = size - len(text.encode("utf-8", "surrogatepass"))
        if missing > 0:
            text += " " + (_FILLER * (missing // len(_FILLER) + 1))[:missing].strip()
        fields[name] = text
