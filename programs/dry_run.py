"""An LM for dry runs, which estimate the cost of a job: the offline LM's replies, at assumed lengths.

How many calls a debate takes depends on what its roles reply. In the lower case of an estimate every Critic is content
at once, or has scored blind as the Scorer did; in the upper case none ever is; in the expected case the offline LM
decides. A new field that decides how long a debate lasts needs one line in `EXTREMES`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

from debate_judge.programs.lm.limits.limiter import TOKENS_PER_BYTE
from debate_judge.programs.lm.local_engine import LocalEngine
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.offline import engine as offline
from debate_judge.programs.offline import other_roles
from debate_judge.programs.offline.roles import BLIND, CONTRARY, Prompt, parse, render
from debate_judge.programs.roles import parsing as replies

REPLY_TOKENS = (80, 250, 800)
"""Assumed length of a reply in tokens (all free-text fields together): lower, expected, upper case."""

AMONG_OTHERS = 0.25
"""Assumed share of that length for each score of a reply about several candidates or aspects."""

SPOKEN = frozenset({"rationale", "review", "feedback", "reasoning", "opinion", "steps", "summary"})
"""Fields that the offline LM knows and that hold free text; its others hold a short value. Whether a field that it does
not know is free text follows from its type and description."""

_ABOUT_NO_ITEM = frozenset({"task", "aspect", "role"})
"""Inputs of a prompt that is the same for all items."""

_FILLER = "These words stand for what an LM would go on to say. "


@dataclass(frozen=True, slots=True)
class EstimateCase:
    name: Literal["lower", "expected", "upper"]
    reply_tokens: int
    """Assumed length of a reply."""
    distinct: bool = True
    """Whether different prompts get different replies, as from an LM that writes freely. With equal replies later
    prompts can become equal, too, which are then asked once."""


@dataclass(frozen=True, slots=True)
class ItemReply(Reply):
    """A reply to a prompt about one item. Other prompts are asked once, however many items there are."""


Change = Callable[[Prompt, str], dict[str, str]]
"""(prompt, the offline LM's text of a field) -> fields to write instead, by name."""


def _contradicting(prompt: Prompt, written: str) -> dict[str, str]:
    """The opposite of what was said last, so that no three who speak in turn ever agree."""
    debate = prompt.input("debate")
    denied = debate.rfind("factuality True") > debate.rfind("factuality False")
    return {"factuality": str(not denied), "severity": "1"}


def _many_claims(prompt: Prompt, written: str) -> dict[str, str]:
    """Twice as many, as far as the prompt allows that many."""
    lines = written.splitlines()
    if lines == ["NONE"]:
        return {"claims": written}
    twice = [claim for line in lines for claim in (line, f"Besides: {line}")]
    return {"claims": "\n".join(twice[: other_roles.most_claims(prompt)])}


def _none_disputed(prompt: Prompt, written: str) -> dict[str, str]:
    return {"decisions": replies.NO_ISSUE, **dict.fromkeys(other_roles.named(prompt, "decisions"), "")}


def _all_disputed(prompt: Prompt, written: str) -> dict[str, str]:
    names = other_roles.named(prompt, "decisions")
    return {**dict.fromkeys(names, "An issue."), "decisions": "\n".join(f"{name}: TOO HIGH" for name in names)}


EXTREMES: Mapping[str, tuple[Change, Change]] = MappingProxyType(
    {
        "decision": (lambda *_: {"decision": replies.NO_ISSUE}, lambda *_: {"decision": "ISSUE"}),
        "decisions": (_none_disputed, _all_disputed),
        "factuality": (lambda *_: {"factuality": "True", "severity": "0"}, _contradicting),
        "claims": (
            lambda _, written: {"claims": "\n".join(written.splitlines()[: -(-len(written.splitlines()) // 2)])},
            _many_claims,
        ),
    }
)
"""Requested field -> how the lower and the upper case fill it in, for debates as short and as long as possible."""


class DryRunEngine(LocalEngine):
    """An engine that answers according to a case of the estimate; of a call's settings only `logprobs` and `max_tokens`
    have an effect."""

    def __init__(self, case: EstimateCase) -> None:
        self._case = case

    def answer(self, system: str, user: str, settings: Mapping[str, Any]) -> Reply:
        case, prompt = self._case, parse(system, user)
        if BLIND in prompt.role and case.name != "expected":
            # Its distance from the Scorer's score decides whether there is a debate.
            prompt = replace(prompt, role="" if case.name == "lower" else CONTRARY)
        known = offline.known_fields(prompt)
        fields = offline.fill_in(prompt, known)
        spoken = [n for n in fields if n in SPOKEN or (n not in known and offline.is_text(prompt, n))]
        tokens = case.reply_tokens
        if case.name != "expected":
            for name in [name for name in prompt.outputs if name in EXTREMES]:
                fields |= EXTREMES[name][case.name == "upper"](prompt, fields[name])
        if prompt.input("candidates"):
            fields = {name: text for name, text in fields.items() if text}
            spoken = [name for name in fields if name == "review" or name.startswith("candidate_")]
            tokens = max(tokens, round(tokens * other_roles.cell_count(prompt) * AMONG_OTHERS))
        weighed = bool(settings.get("logprobs")) and "score" in fields
        if weighed:
            fields["score"] = f"{round(float(fields['score']))}"
        _lengthen(case, fields, spoken, user, min(tokens, settings.get("max_tokens") or tokens))
        text = render(prompt, fields)
        kind = Reply if set(prompt.inputs) <= _ABOUT_NO_ITEM else ItemReply
        logprobs = _certain(text, fields["score"]) if weighed else None
        return kind(text, tokens_of(system) + tokens_of(user), tokens_of(text), logprobs=logprobs)


def tokens_of(text: str) -> int:
    """The number of tokens of a text, estimated from its bytes."""
    return round(len(text.encode("utf-8", "surrogatepass")) * TOKENS_PER_BYTE)


def _lengthen(case: EstimateCase, fields: dict[str, str], spoken: Sequence[str], user: str, tokens: int) -> None:
    """Fill up the `spoken` fields to `tokens` in all; in the lower case longer ones are cut."""
    mark = hashlib.blake2b(user.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    for name in spoken:
        size = round(tokens / TOKENS_PER_BYTE / len(spoken))
        text = f"{fields[name]} ({mark})" if case.distinct else fields[name]
        missing = size - len(text.encode("utf-8", "surrogatepass"))
        if missing > 0:
            text += " " + (_FILLER * (missing // len(_FILLER) + 1))[:missing].strip()
        fields[name] = text[:size] if case.name == "lower" else text


def _certain(text: str, score: str) -> tuple[tuple[tuple[str, float], ...], ...]:
    """Log-probabilities that give the score's token the probability 1."""
    start = text.rindex(score)
    parts = (text[:start], score, text[start + len(score) :])
    return tuple(((part, 0.0),) for part in parts if part)
