"""Parses replies about several scores: what a reply says about each cell, or why that cannot be read.

Cells are read independently of one another and in any order. A reply that names a candidate or an aspect which does not
exist is refused as a whole, because its numbers may be shifted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from debate_judge.programs.debate.table_cells import Cell, aspects_in, candidates_in, label
from debate_judge.programs.debate.table_prompts import DECISIONS, TOO_HIGH, TOO_LOW
from debate_judge.programs.judge import Item
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.parsing import Unreadable
from debate_judge.programs.roles.reply_forms import HEADER
from debate_judge.programs.roles.score_modes import ParsedScore

T = TypeVar("T")

_LEAD = "review"
"""The field that text before the first header belongs to."""

_MARKER = re.compile(r"\[\[\s*##\s*(\w+)\s*##\s*\]\]")
_CANDIDATE = r"[ \t*_`•#|-]*(?:candidate[ \t_#-]*)?(\d{1,4})"
_SAID = r"[ \t*_`)\]]*(?:[:=|→]|->|[–—])(.*)"
_LINE = re.compile(rf"{_CANDIDATE}[ \t*_`]*(?:[:=|→]|->|[–—])(.*)", re.IGNORECASE)
_NUMBER = re.compile(rf"{_CANDIDATE}(?!\d)", re.IGNORECASE)
_BETWEEN = " \t*_`|,/·:–—-(["
"""Characters allowed between the number of a candidate and the name of an aspect."""
_FOREIGN = re.compile(r"_(\w+)[ \t*_`]*[:=|→]")
_DIRECTION = re.compile(r"(too (?:high|low))\b[^\w]*(.*)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Objection:
    """The Critic's decision about one score."""

    content: bool
    """Whether there is no issue."""
    text: str
    """What the other roles read of it."""


def read_scores(
    reply: str, name: str, asked: Sequence[Cell], items: Mapping[Cell, Item]
) -> dict[Cell, ParsedScore | Unreadable]:
    """The score of each cell that was asked about.

    Args:
        reply: The LM's reply.
        name: The field with the scores.
        asked: The cells to read.
        items: All cells of the prompt, with their items.
    """

    def one(cell: Cell, line: str) -> ParsedScore | Unreadable:
        aspect = items[cell].aspect
        value = replies.score(line, aspect.scale, aspect.name)
        why = _about(reply, cell)
        if isinstance(value, Unreadable):
            return value
        return why if isinstance(why, Unreadable) else ParsedScore(value, why)

    return _each(_lines(reply, name, items), asked, one)


def read_decisions(reply: str, asked: Sequence[Cell], known: Collection[Cell]) -> dict[Cell, Objection | Unreadable]:
    """The Critic's decision about each cell in `asked`; `known` are all cells of the prompt."""
    field = _field(reply, DECISIONS)
    if not isinstance(field, Unreadable) and len(field.split("\n")) == 1 and replies.no_issue(field) is True:
        return dict.fromkeys(asked, Objection(True, replies.NO_ISSUE))
    return _each(_lines(reply, DECISIONS, known), asked, lambda cell, line: _decision(reply, cell, line))


def _decision(reply: str, cell: Cell, line: str) -> Objection | Unreadable:
    direction = _DIRECTION.fullmatch(line.strip(" \t*_`"))
    content = False if direction else replies.no_issue(line)
    if isinstance(content, Unreadable):
        return Unreadable(f"a decision must be {replies.NO_ISSUE}, {TOO_HIGH} or {TOO_LOW} and nothing else")
    if content:
        return Objection(True, replies.NO_ISSUE)
    evidence = _about(reply, cell)
    if isinstance(evidence, Unreadable):
        return evidence
    evidence = evidence or (direction[2].strip() if direction else "")
    if not evidence:
        return Unreadable("an issue stood without its evidence")
    return Objection(False, f"{direction[1].capitalize()}. {evidence}" if direction else evidence)


def _each(
    lines: Mapping[Cell, str | Unreadable] | Unreadable,
    asked: Sequence[Cell],
    read: Callable[[Cell, str], T | Unreadable],
) -> dict[Cell, T | Unreadable]:
    if isinstance(lines, Unreadable):
        return dict.fromkeys(asked, lines)
    found: dict[Cell, T | Unreadable] = {}
    for cell in asked:
        line = lines.get(cell, Unreadable("it was missing"))
        found[cell] = line if isinstance(line, Unreadable) else read(cell, line)
    return found


def _lines(reply: str, name: str, known: Collection[Cell]) -> dict[Cell, str | Unreadable] | Unreadable:
    """Cell -> its line in a field."""
    field = _field(reply, name)
    if isinstance(field, Unreadable):
        return field
    labels, numbers = tuple(aspects_in(known)), candidates_in(known)
    found: dict[Cell, str | Unreadable] = {}
    for line in field.split("\n"):
        one = _cell_line(line.strip(), labels)
        if one is None:
            continue
        cell, said = one[0], one[1].strip(" \t*_`|")
        if cell.candidate not in numbers or cell.aspect not in labels:
            return Unreadable(f"there is no {label(cell)}")
        if found.setdefault(cell, said) != said:
            found[cell] = Unreadable("it stood twice with different content")
    return found


def _cell_line(line: str, labels: tuple[str, ...]) -> tuple[Cell, str] | None:
    """The cell that a line begins with, and the rest of the line; None if it begins with none.

    An unknown aspect gives a cell with the unknown name as its label.
    """
    if labels == ("",):
        match = _LINE.fullmatch(line)
        return None if match is None else (Cell(int(match[1])), match[2])
    number = _NUMBER.match(line)
    if number is None:
        return None
    rest = line[number.end() :]
    named = _aspect_names(labels).match(rest.lstrip(_BETWEEN))
    if named is not None:
        own = re.sub("[ _-]+", "_", named[1].lower())
        return Cell(int(number[1]), own), named[2]
    foreign = _FOREIGN.match(rest)
    return None if foreign is None else (Cell(int(number[1]), foreign[1].lower()), "")


@lru_cache(maxsize=256)
def _aspect_names(labels: tuple[str, ...]) -> re.Pattern[str]:
    """The pattern of one of the labels, with its words joined in any way, and of the text after it."""
    longest = sorted(labels, key=len, reverse=True)
    known = "|".join(re.escape(name).replace("_", "[ _-]") for name in longest)
    return re.compile(rf"({known}){_SAID}", re.IGNORECASE)


def _field(reply: str, name: str) -> str | Unreadable:
    found = _sections(reply, name)
    if isinstance(found, Unreadable):
        return found
    # A reply without any structure may consist of the lines only.
    text = found.get(name, found.get("", ""))
    if not text:
        return Unreadable(f"the field {name!r} was missing")
    return _as_lines(text) if text.startswith("{") else text.strip()


def _about(reply: str, cell: Cell) -> str | Unreadable:
    """The text under a cell's own header; empty if there is no such header."""
    found = _sections(reply, label(cell))
    if isinstance(found, Unreadable):
        # Without headers, the cell's line in another field looks like a second section.
        return found if _MARKER.search(reply) else ""
    return found.get(label(cell), "")


def _sections(reply: str, name: str) -> dict[str, str] | Unreadable:
    """The field `name` of a reply, and the text before the first field."""
    heads = _heads(reply)
    if name in (whole := _whole(reply)):
        return whole
    # In a reply with headers nothing else is structure: what looks like it may be quoted from a candidate.
    return {} if heads and name not in heads else replies.sections(reply, (_LEAD, name))


# Cached, because a table may have a hundred cells that each look for their section.
@lru_cache(maxsize=8)
def _heads(reply: str) -> frozenset[str]:
    return frozenset(head.lower() for head in _MARKER.findall(reply))


@lru_cache(maxsize=8)
def _whole(reply: str) -> dict[str, str]:
    """All sections of a reply at once. Empty if sections must be searched one by one: because one occurs twice, or
    because a closing tag may end thinking or be text of a section."""
    heads = {head.lower() for head in HEADER.findall(reply)}
    found = replies.sections(reply, (_LEAD, *heads)) if heads and "</" not in reply else {}
    return {} if isinstance(found, Unreadable) else found


def _as_lines(text: str) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    lines = []
    for name, said in value.items():
        # A reply about several aspects may have one object for each candidate.
        inner = said.items() if isinstance(said, dict) else [("", said)]
        lines += [f"{name}_{aspect}: {one}" if aspect else f"{name}: {one}" for aspect, one in inner]
    return "\n".join(lines)
