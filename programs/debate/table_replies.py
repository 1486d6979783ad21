"""From a reply about several candidates to what it says about each, or why that cannot be told.

What is unmistakable about one candidate is read, whatever the reply says about the others, and in any order. Nothing is
read of a reply that names a candidate which does not exist: its numbers may be shifted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from debate_judge.data.schema import Scale
from debate_judge.programs.debate.table_prompts import DECISIONS, TOO_HIGH, TOO_LOW, label
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.parsing import Unreadable
from debate_judge.programs.roles.score_modes import ParsedScore

T = TypeVar("T")

_LEAD = "review"
"""The field that what stands before the first header belongs to."""

_MARKER = re.compile(r"\[\[\s*##\s*(\w+)\s*##\s*\]\]")
_LINE = re.compile(r"[ \t*_`•#|-]*(?:candidate[ \t_#-]*)?(\d{1,4})[ \t*_`]*(?:[:=|→]|->|[–—])(.*)", re.IGNORECASE)
_DIRECTION = re.compile(r"(too (?:high|low))\b[^\w]*(.*)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Objection:
    """The Critic's decision about one candidate."""

    content: bool
    text: str
    """What the other roles hear."""


def read_scores(
    reply: str, name: str, asked: Sequence[int], known: Collection[int], scale: Scale, aspect: str
) -> dict[int, ParsedScore | Unreadable]:
    """The score of each candidate that was asked about.

    Args:
        reply: The LM's.
        name: The field with the scores.
        asked: Numbers of the candidates to be read.
        known: Numbers of all candidates of the prompt.
        scale: Of the scores.
        aspect: Its name.
    """

    def one(number: int, line: str) -> ParsedScore | Unreadable:
        value = replies.score(line, scale, aspect)
        why = _about(reply, number)
        if isinstance(value, Unreadable):
            return value
        return why if isinstance(why, Unreadable) else ParsedScore(value, why)

    return _each(_lines(reply, name, known), asked, one)


def read_decisions(reply: str, asked: Sequence[int], known: Collection[int]) -> dict[int, Objection | Unreadable]:
    """The Critic's decision about each candidate that was asked about; the other arguments are those of scores."""
    field = _field(reply, DECISIONS)
    if not isinstance(field, Unreadable) and len(field.split("\n")) == 1 and replies.no_issue(field) is True:
        return dict.fromkeys(asked, Objection(True, replies.NO_ISSUE))
    return _each(_lines(reply, DECISIONS, known), asked, lambda number, line: _decision(reply, number, line))


def _decision(reply: str, number: int, line: str) -> Objection | Unreadable:
    direction = _DIRECTION.fullmatch(line.strip(" \t*_`"))
    content = False if direction else replies.no_issue(line)
    if isinstance(content, Unreadable):
        return Unreadable(f"a decision must be {replies.NO_ISSUE}, {TOO_HIGH} or {TOO_LOW} and nothing else")
    if content:
        return Objection(True, replies.NO_ISSUE)
    evidence = _about(reply, number)
    if isinstance(evidence, Unreadable):
        return evidence
    evidence = evidence or (direction[2].strip() if direction else "")
    if not evidence:
        return Unreadable("an issue stood without its evidence")
    return Objection(False, f"{direction[1].capitalize()}. {evidence}" if direction else evidence)


def _each(
    lines: Mapping[int, str | Unreadable] | Unreadable, asked: Sequence[int], read: Callable[[int, str], T | Unreadable]
) -> dict[int, T | Unreadable]:
    if isinstance(lines, Unreadable):
        return dict.fromkeys(asked, lines)
    found: dict[int, T | Unreadable] = {}
    for number in asked:
        line = lines.get(number, Unreadable("it was missing"))
        found[number] = line if isinstance(line, Unreadable) else read(number, line)
    return found


def _lines(reply: str, name: str, known: Collection[int]) -> dict[int, str | Unreadable] | Unreadable:
    """What a field says about each candidate, a line each."""
    field = _field(reply, name)
    if isinstance(field, Unreadable):
        return field
    found: dict[int, str | Unreadable] = {}
    for line in field.split("\n"):
        match = _LINE.fullmatch(line.strip())
        if match is None:
            continue
        number, said = int(match[1]), match[2].strip(" \t*_`|")
        if number not in known:
            return Unreadable(f"there is no {label(number)}")
        if found.setdefault(number, said) != said:
            found[number] = Unreadable("it stood twice with different content")
    return found


def _field(reply: str, name: str) -> str | Unreadable:
    found = _sections(reply, name)
    if isinstance(found, Unreadable):
        return found
    # A reply without any structure may be nothing but the lines.
    text = found.get(name, found.get("", ""))
    if not text:
        return Unreadable(f"the field {name!r} was missing")
    return _as_lines(text) if text.startswith("{") else text.strip()


def _about(reply: str, number: int) -> str | Unreadable:
    """What stands under a candidate's own header; empty where there is none."""
    found = _sections(reply, label(number))
    if isinstance(found, Unreadable):
        # Without headers its line of another field looks like a second section.
        return found if _MARKER.search(reply) else ""
    return found.get(label(number), "")


def _sections(reply: str, name: str) -> dict[str, str] | Unreadable:
    """The field of a reply, and what stands before the first one."""
    heads = {head.lower() for head in _MARKER.findall(reply)}
    # In a reply that has headers nothing else is structure: what looks so may be quoted from a candidate.
    return {} if heads and name not in heads else replies.sections(reply, (_LEAD, name))


def _as_lines(text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return "\n".join(f"{name}: {said}" for name, said in value.items())
