"""From an LM's reply to typed values, or to a reason why not. The only parser of replies in the project.

Texts that come from a data set or from another agent are disarmed here before they enter a prompt, so
that nothing in them can look like a field of the protocol.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from data.schema import Scale

NO_ISSUE = "NO ISSUE"
"""The protocol's words for a Critic who is content (DEBATE, Algorithm 1, line 8)."""

_OPENING = re.compile(r"\[(\s*)\[(\s*)#\s*#")
_THINKING = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_LEFT_OPEN = re.compile(r"^.*?</(?:think|thinking|reasoning)>", re.DOTALL | re.IGNORECASE)
_HEADER = re.compile(r"^[ \t>*_`#]*\[\[\s*##\s*(\w+)\s*##\s*\]\][ \t*_`]*:?[ \t]*", re.MULTILINE)
_NUMBER = r"[-+]?\d+(?:[.,]\d+)?"
_PLAIN = re.compile(rf"^\W*?({_NUMBER})(?:\s*(?:/|out of|of)\s*({_NUMBER}))?(?:\s*points?)?\s*[.!]?\W*$", re.IGNORECASE)
_LABELLED = re.compile(
    rf"\b(?:final |overall |revised |new )?(?:score|rating)\b\W{{0,6}}(?:is|of|=|:)?\W{{0,4}}({_NUMBER})"
    rf"(?:\s*(?:/|out of)\s*({_NUMBER}))?(?![\d%])",
    re.IGNORECASE,
)
_RANGE = re.compile(r"[(\[]\s*\d+(?:\.\d+)?\s*(?:-|–|to)\s*\d+(?:\.\d+)?\s*[)\]]")
_QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”|^\s*>.*$", re.MULTILINE)
_CONTENT = re.compile(r"^no[\s_-]*issues?(?:\s+(?:found|remain|left))?$", re.IGNORECASE)
_OBJECTION = re.compile(r"^(?:issues?|an issue|yes|there is an issue|issue found|issues found)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A reply, or a part of it, that says nothing the protocol can use."""

    why: str
    """Worded for the LM, which is told it when it is asked again."""


def disarm(text: str) -> str:
    """Break every protocol marker in a text that the project did not write."""
    return _OPENING.sub(r"[ \1[\2##", text)


def sections(reply: str, names: Sequence[str]) -> dict[str, str] | Unreadable:
    """Split a reply into the named fields.

    Understood are marker headers, a JSON object, and lines that start with `name:`; thinking tags and code
    fences are dropped. A field that stands twice with different content is refused: one of the two may
    come from the text under evaluation.

    Returns:
        Field name -> text, for the fields that were found (absent fields are absent).
    """
    text = _LEFT_OPEN.sub("", _THINKING.sub("", reply)).strip()
    if not text:
        return Unreadable("the reply was empty")
    for split in (_by_markers, _by_json, _by_labels):
        found = split(text, names)
        if isinstance(found, Unreadable) or found:
            return found
    return {names[-1]: text} if len(names) == 1 else {"": text}


def _by_markers(text: str, names: Sequence[str]) -> dict[str, str] | Unreadable:
    heads = list(_HEADER.finditer(text))
    found: dict[str, str] = {}
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        name = head[1].lower()
        body = text[head.end() : following.start() if following else len(text)].strip()
        if name in found and found[name] != body:
            return Unreadable(f"the field {name!r} stood twice with different content")
        if name in names:
            found[name] = body
    return found


def _by_json(text: str, names: Sequence[str]) -> dict[str, str]:
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return {}
    try:
        value = json.loads(text[start : end + 1], strict=False)
    except ValueError:
        return {}
    if not isinstance(value, dict):
        return {}
    lowered = {str(k).lower(): v for k, v in value.items()}
    return {n: _as_text(lowered[n]) for n in names if n in lowered and lowered[n] is not None}


def _as_text(value: object) -> str:
    return value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _by_labels(text: str, names: Sequence[str]) -> dict[str, str] | Unreadable:
    label = re.compile(
        rf"^[\s>*_`#-]*({'|'.join(map(re.escape, names))})[*_`]*\s*[:=][*_`]*", re.IGNORECASE | re.MULTILINE
    )
    heads = list(label.finditer(text))
    found: dict[str, str] = {}
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        name = head[1].lower()
        body = text[head.end() : following.start() if following else len(text)].strip()
        if name in found and found[name] != body:
            return Unreadable(f"the field {name!r} stood twice with different content")
        found[name] = body
    return found


def score(text: str, scale: Scale) -> float | Unreadable:
    """Read one number on the scale. What the scale does not contain is refused, never clamped."""
    bare = _RANGE.sub("", text).strip().strip("`*_\"' \n\t")
    spelled = {"yes": scale.high, "true": scale.high, "no": scale.low, "false": scale.low}.get(bare.lower().rstrip("."))
    if scale.binary and spelled is not None:
        return spelled
    match = _PLAIN.match(bare)
    # What stands in quotation marks is somebody else's: a candidate may well claim a score for itself.
    pairs = [match.groups()] if match else [m.groups() for m in _LABELLED.finditer(_QUOTED.sub("", bare))]
    values = {_number(v) for v, _ in pairs}
    if len(values) != 1:
        why = "no score could be found" if not values else "several different scores were given"
        return Unreadable(f"{why}; give one number from {scale}")
    (value, ceiling) = (_number(pairs[-1][0]), pairs[-1][1])
    if ceiling is not None and _number(ceiling) != scale.high:
        return Unreadable(f"the score was given on another scale (of {ceiling}); give one number from {scale}")
    if not scale.contains(value):
        return Unreadable(f"the score {value:g} is outside the scale; give one number from {scale}")
    return value


def _number(text: str) -> float:
    return float(text.replace(",", "."))


def no_issue(text: str) -> bool | Unreadable:
    """Read the Critic's decision: True for NO ISSUE, False for an issue, else why it cannot be told."""
    bare = re.sub(r"[^\w\s-]", " ", text.replace("_", " ")).strip()
    first = bare.splitlines()[0].strip() if bare else ""
    for candidate in (bare, first):
        if _CONTENT.match(candidate):
            return True
        if _OBJECTION.match(candidate):
            return False
    return Unreadable(f"the decision must be {NO_ISSUE} or ISSUE")
