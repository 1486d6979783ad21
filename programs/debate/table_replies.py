"""Parses replies about several scores: what a reply says about each cell, or why that cannot be read.

Cells are read independently of one another and in any order. A reply that names a candidate or an aspect which does not
exist is refused as a whole, because its numbers may be shifted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from debate_judge.data.schema import Aspect
from debate_judge.programs.debate.table_cells import Cell, aspects_in, candidates_in, label
from debate_judge.programs.debate.table_prompts import DECISIONS, TOO_HIGH, TOO_LOW
from debate_judge.programs.judge import Item
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.parsing import Unreadable
from debate_judge.programs.roles.reply_forms import HEADER, unfenced
from debate_judge.programs.roles.score_modes import ParsedScore


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
    sections = _Sections(reply)
    said = _said(sections.lines(name), asked, items)
    return {cell: _score(one, sections.about(cell), items[cell].aspect) for cell, one in said.items()}


def _score(said: str | Unreadable, why: str | Unreadable, aspect: Aspect) -> ParsedScore | Unreadable:
    value = said if isinstance(said, Unreadable) else replies.score(said, aspect.scale, aspect.name)
    if isinstance(value, Unreadable):
        return value
    return why if isinstance(why, Unreadable) else ParsedScore(value, why)


def read_decisions(reply: str, asked: Sequence[Cell], known: Collection[Cell]) -> dict[Cell, Objection | Unreadable]:
    """The Critic's decision about each cell in `asked`; `known` are all cells of the prompt."""
    sections = _Sections(reply)
    lines = sections.lines(DECISIONS)
    if not isinstance(lines, Unreadable) and len(lines) == 1 and replies.no_issue(lines[0]) is True:
        return dict.fromkeys(asked, Objection(True, replies.NO_ISSUE))
    return {cell: _decision(one, sections.about(cell)) for cell, one in _said(lines, asked, known).items()}


_DIRECTION = re.compile(r"(too (?:high|low))\b(?!\W*\?)\W*(.*)", re.IGNORECASE)
_CLAUSES = re.compile(r"[.,;:!?…/()–—]+|\s-+\s|\b(?:or|and|but|then|so)\b", re.IGNORECASE)
_DECIDED = frozenset({"no issue", "too high", "too low"})


def _decided(text: str) -> frozenset[str]:
    """The decisions that are a clause of their own; "no issue with the grammar" and "it is not too high" are none."""
    clauses = _CLAUSES.split(replies.unquoted(text))
    return _DECIDED & {re.sub(r"[\W_]+", " ", clause).strip().lower() for clause in clauses}


def _decision(said: str | Unreadable, evidence: str | Unreadable) -> Objection | Unreadable:
    if isinstance(said, Unreadable):
        return said
    direction = _DIRECTION.fullmatch(said)
    content = False if direction else replies.no_issue(said)
    decided = _decided(said).union(*map(_decided, direction.groups() if direction else ()))
    if len(decided) > 1 or isinstance(content, Unreadable):
        return Unreadable(f"a decision must be {replies.NO_ISSUE}, {TOO_HIGH} or {TOO_LOW} and nothing else")
    if content:
        return Objection(True, replies.NO_ISSUE)
    if isinstance(evidence, Unreadable):
        return evidence
    evidence = evidence or (direction[2] if direction else "")
    if not evidence:
        return Unreadable("an issue stood without its evidence")
    return Objection(False, f"{direction[1].capitalize()}. {evidence}" if direction else evidence)


# --- the lines of a field ---

_OPENING = r"[ *_`•#|-]*"
_NUMBER = r"(?:candidate[ _#-]*)?(\d{1,4})(?!\d)"
_BETWEEN = r"[ *_`|,/·:：–—(\[-]"
"""Characters allowed between the number of a candidate and the name of an aspect."""
_SEPARATOR = r"[ *_`)\]]{0,9}(?:[:：=|→]|->|[–—])"
_ANSWER = r"\W{0,9}(?:\d[\d.,/]*+(?! (?!out\b|of\b|points?\b)[^\W\d])|no[ _-]?issue|(?:an )?issue|too (?:high|low))"
_FOREIGN = re.compile(
    rf"{_OPENING}(?:(?:candidate[ _#-]*)?(\d{{1,4}}_\w{{1,60}}+){_SEPARATOR}"
    # Other lines may be prose, which has no answer after the name: "Candidate 2 (the shorter one): 3 facts".
    rf"|candidate(?: ?[_#-]| (?=\d|\w\b))(\w(?:\w|{_BETWEEN}){{0,60}}?){_SEPARATOR}{_ANSWER})",
    re.IGNORECASE,
)
"""A line about `candidate_1_NAME`, or one like `candidate_A: 4`, `Candidate 12345: 4` and `candidate 1 - NAME: 4`."""


def _said(
    lines: Sequence[str] | Unreadable, asked: Sequence[Cell], known: Collection[Cell]
) -> dict[Cell, str | Unreadable]:
    """What the lines of a field say of each cell in `asked`; `known` are all cells that they may be about."""
    if isinstance(lines, Unreadable):
        return dict.fromkeys(asked, lines)
    labels, numbers = tuple(aspects_in(known)), candidates_in(known)
    found: dict[Cell, str | Unreadable] = {}
    for line in lines:
        one = _cell_line(line, numbers, labels)
        if isinstance(one, Unreadable):
            return dict.fromkeys(asked, one)
        if one is not None and found.setdefault(*one) != one[1]:
            found[one[0]] = Unreadable("it stood twice with different content")
    return {cell: found.get(cell, Unreadable("it was missing")) for cell in asked}


def _cell_line(line: str, numbers: Sequence[int], labels: tuple[str, ...]) -> tuple[Cell, str] | Unreadable | None:
    """The cell that a line begins with, and the rest of the line; None if it begins with none."""
    match = _line_of(labels).fullmatch(line)
    if match is None:
        return _foreign(line, numbers, labels)
    cell = Cell(int(match[1]), re.sub("[ _-]", "_", match[2].lower()))
    if cell.candidate not in numbers:
        return Unreadable(f"there is no {label(cell)}")
    return cell, match[3].strip(" *_`|")


@lru_cache(maxsize=256)
def _line_of(labels: tuple[str, ...]) -> re.Pattern[str]:
    """The pattern of a line about a cell: its candidate, its aspect with words joined in any way, and what it says."""
    longest = sorted(labels, key=len, reverse=True)
    known = "|".join(re.escape(name).replace("_", "[ _-]") for name in longest)
    between = "" if labels == ("",) else f"{_BETWEEN}*"
    return re.compile(rf"{_OPENING}{_NUMBER}{between}({known}){_SEPARATOR}(.*)", re.IGNORECASE)


def _foreign(line: str, numbers: Sequence[int], labels: tuple[str, ...]) -> Unreadable | None:
    match = _FOREIGN.match(line)
    if match is None:
        return None
    name = match[1] or match[2]
    number = re.match(r"\d{1,4}(?!\w)", name)
    # Words after the number of a candidate name an aspect only where there are several.
    if number and int(number[0]) in numbers and (labels == ("",) or number[0] == name):
        return None
    return Unreadable("there is no candidate_" + re.sub(r"[\W_]+", "_", name.lower()).strip("_"))


# --- the sections of a reply ---

_LEAD = "review"
"""The field that text before the first header belongs to."""

_MARKER = re.compile(r"\[\[\s*##\s*(\w+)\s*##\s*\]\]")


class _Sections:
    """The sections of a reply."""

    def __init__(self, reply: str) -> None:
        self._reply = reply
        self._marked = {head.lower() for head in _MARKER.findall(reply)}
        heads = {head.lower() for head in HEADER.findall(reply)}
        # A section is searched by itself where one occurs twice, and where a closing tag may end thinking or be text.
        whole = replies.sections(reply, (_LEAD, *heads)) if heads and "</" not in reply else {}
        self._whole = {} if isinstance(whole, Unreadable) else whole

    def lines(self, name: str) -> list[str] | Unreadable:
        """The lines of a field without blank ones, or the members of a JSON object in the field as such lines."""
        found = self._named(name)
        if isinstance(found, Unreadable):
            return found
        # A reply without any structure may consist of the lines only.
        text = unfenced(found.get(name, found.get("", "")).strip())
        if not text:
            return Unreadable(f"the field {name!r} was missing")
        lines = _members(text) if text.startswith("{") else text.split("\n")
        if lines is None:
            return Unreadable(f"the field {name!r} looked like a JSON object but was not a valid one")
        # Words are joined, so that no text in a value can begin a line.
        return [joined for line in lines if (joined := " ".join(line.split()))]

    def about(self, cell: Cell) -> str | Unreadable:
        """The text under a cell's own header; empty if there is no such header."""
        found = self._named(label(cell))
        if isinstance(found, Unreadable):
            # Without headers, the cell's line in another field looks like a second section.
            return found if self._marked else ""
        return found.get(label(cell), "")

    def _named(self, name: str) -> dict[str, str] | Unreadable:
        """The section `name`, and the text before the first section."""
        if name in self._whole:
            return self._whole
        # In a reply with headers nothing else is structure: what looks like it may be quoted from a candidate.
        return {} if self._marked and name not in self._marked else replies.sections(self._reply, (_LEAD, name))


def _members(text: str) -> list[str] | None:
    """A line for each member of a JSON object, or of the objects in it; None if it is no valid object.

    A reply about several aspects may have one object for each candidate. A repeated key gives two lines.
    """
    try:
        members = json.loads(text, strict=False, object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        return None
    lines = []
    for name, value in members:
        inner = value if isinstance(value, tuple) else ()
        lines += [f"{name}_{aspect}: {said}" for aspect, said in inner] or [f"{name}: {value}"]
    return lines
