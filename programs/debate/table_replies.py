"""Parses the Critic's decision, and replies about several scores into a score or decision for each cell of a table.

Cells may come in any order, and an unreadable one does not affect the others. A reply that names a candidate or an
aspect that does not exist is refused as a whole, because its numbers may be shifted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from debate_judge.data.schema import Aspect
from debate_judge.programs.debate.prompts import (
    DECISIONS,
    TOO_HIGH,
    TOO_LOW,
    Cell,
    aspects_in,
    candidates_in,
    cell_label,
)
from debate_judge.programs.judge import Item
from debate_judge.programs.roles.parsing import (
    CONTRADICTION,
    HEADER,
    NO_ISSUE,
    Contents,
    Unreadable,
    answer_text,
    field_named,
    fields_under,
    fields_under_headers,
    label_pattern,
    parse_score,
    unfenced,
    unquoted,
)
from debate_judge.programs.roles.score_modes import ParsedScore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CriticDecision:
    """The Critic's decision about one score."""

    no_issue: bool
    text: str
    """The part of the reply that the other roles see."""


# --- decisions ---

_WITH_EXPLANATION = re.compile(r"(.{2,40}?)\s*(?::|\(|–|—|\s-\s)\s*(.*\S.*)")
"""A decision and its explanation: `NO ISSUE: I agree`, `ISSUE (too high)`."""
_HEDGE = re.compile(r"\b(?:but|however|though|although|except|yet|still|unless|issues?)\b", re.IGNORECASE)
"""Words in an explanation that may take the decision back."""
_LIMITATION = re.compile(
    r"\A(?:with|in|on|about|regarding|concerning|as|for|of|apart|other|besides|beyond|only|here)\b"
    r"|\b(?:wrong\w*|false|incorrect\w*|inaccura\w*|errors?|mistakes?|problems?|missing|lacks?|fails?|too|not|never"
    r"|contradict\w*|unsupported|invent\w*)\b|n['’]t\b",
    re.IGNORECASE,
)
"""Words in the explanation of a NO ISSUE that restrict it to a part of the text, or turn it into an issue."""
_NOTHING = re.compile(r"\b(?:none|nothing|no)\b", re.IGNORECASE)
_DECISION = re.compile(
    r"(?:decision )?(?:there (?:is|are) )?(?:(no ?)|an )?issues?(?: (?:found|remains?|remaining|left))?", re.IGNORECASE
)


def parse_decision(text: str) -> bool | Unreadable:
    """Parse the Critic's decision: True for NO ISSUE, False for an issue.

    It must be alone on the first line, in any case, punctuation and markup, and no other line may say the opposite.
    """
    decisions = [_decision_in(line) for line in text.splitlines() if line.strip()]
    decision = decisions[0] if decisions else None
    if decision is None or (not decision) in decisions:
        both = "the decision was both; " if {True, False} <= set(decisions) else ""
        missing = "" if decisions else "the decision was missing; "
        return Unreadable(f"{both or missing}the decision must be {NO_ISSUE} or ISSUE and nothing else")
    return decision


def _decision_in(line: str) -> bool | None:
    explained = _WITH_EXPLANATION.fullmatch(line.strip())
    if explained and not _HEDGE.search(explained[2]):
        no_issue_found = _decision_in(explained[1])
        # Neither "ISSUE: none" nor "NO ISSUE - with grammar, the facts are wrong" is a decision.
        contradiction = None if no_issue_found is None else _LIMITATION if no_issue_found else _NOTHING
        return None if contradiction is not None and contradiction.search(explained[2]) else no_issue_found
    match = _DECISION.fullmatch(re.sub(r"[\W_]+", " ", line).strip())
    return None if match is None else match[1] is not None


# --- each cell's score or decision ---


def parse_scores(
    reply: str, field: str, cells: Sequence[Cell], items: Mapping[Cell, Item]
) -> dict[Cell, ParsedScore | Unreadable]:
    """The score of each of `cells`, from its line in the field; `items` has all cells of the prompt."""
    return _parse_cells(reply, field, cells, items, lambda cell, *texts: _score(items[cell].aspect, *texts))


def parse_decisions(
    reply: str, cells: Sequence[Cell], prompt_cells: Collection[Cell]
) -> dict[Cell, CriticDecision | Unreadable]:
    """The Critic's decision about each cell in `cells`; `prompt_cells` are all cells of the prompt."""
    return _parse_cells(reply, DECISIONS, cells, prompt_cells, lambda _, *texts: _decision(*texts))


def _parse_cells(
    reply: str,
    field: str,
    cells: Sequence[Cell],
    prompt_cells: Collection[Cell],
    parse: Callable[[Cell, str, str | Unreadable], T | Unreadable],
) -> dict[Cell, T | Unreadable]:
    """The result of `parse` for each cell, from its line in the field and the text under its own header."""
    contents = _contents(reply, field, prompt_cells)
    if isinstance(contents, Unreadable):
        return dict.fromkeys(cells, contents)
    statements = _statements(contents[field], prompt_cells)
    if isinstance(statements, Unreadable):
        return dict.fromkeys(cells, statements)
    values: dict[Cell, T | Unreadable] = {}
    for cell in cells:
        line, texts = statements[cell], contents.get(cell_label(cell), ("",))
        reasons = texts[0] if len(texts) == 1 else Unreadable(f"the field {cell_label(cell)!r} {CONTRADICTION}")
        values[cell] = line if isinstance(line, Unreadable) else parse(cell, line, reasons)
    return values


def _score(aspect: Aspect, line: str, reasons: str | Unreadable) -> ParsedScore | Unreadable:
    columns = line.split("|")
    answers = [column for column in columns if _ANSWER.match(column)]
    if len(answers) == 1 < len(columns):
        # A row of a Markdown table: one of its columns is the score, and another may have the reasons.
        line, reasons = answers[0], reasons or " ".join(c.strip() for c in columns if c != answers[0])
    value = parse_score(line, aspect.scale, aspect.name)
    if isinstance(value, Unreadable):
        return value
    return reasons if isinstance(reasons, Unreadable) else ParsedScore(value, reasons)


_DIRECTION = re.compile(r"(too (?:high|low))\b(?!\W*\?)\W*(.*)", re.IGNORECASE)
_CLAUSES = re.compile(r"[.,;:!?…/()–—]+|\s-+\s|\b(?:or|and|but|then|so)\b", re.IGNORECASE)
_DECISIONS = frozenset({"no issue", "too high", "too low"})


def _decision_clauses(text: str) -> frozenset[str]:
    """The decisions that are a clause by themselves, unlike "no issue with the grammar" and "it is not too high"."""
    clauses = _CLAUSES.split(unquoted(text))
    return _DECISIONS & {re.sub(r"[\W_]+", " ", clause).strip().lower() for clause in clauses}


def _decision(line: str, evidence: str | Unreadable) -> CriticDecision | Unreadable:
    direction = _DIRECTION.fullmatch(line)
    no_issue_found = False if direction else parse_decision(line)
    decisions = _decision_clauses(line).union(*map(_decision_clauses, direction.groups() if direction else ()))
    if len(decisions) > 1 or isinstance(no_issue_found, Unreadable):
        return Unreadable(f"a decision must be {NO_ISSUE}, {TOO_HIGH} or {TOO_LOW} and nothing else")
    if no_issue_found:
        return CriticDecision(True, NO_ISSUE)
    if isinstance(evidence, Unreadable):
        return evidence
    evidence = evidence or (direction[2] if direction else "")
    if not evidence:
        return Unreadable("an issue stood without its evidence")
    if direction and not evidence.lower().startswith(direction[1].lower()):
        evidence = f"{direction[1].capitalize()}. {evidence}"
    return CriticDecision(False, evidence)


# --- the lines of a field ---

_LINE_START = r"[ *_`•#|-]*(?:\d{1,3}[.)] [*_`]*(?=candidate))?"
_NUMBER = r"(?:candidate[ _#-]*)?(\d{1,4})(?!\d)"
_BEFORE_ASPECT = r"[ *_`|,/·:：–—(\[-]"
"""Characters allowed between the number of a candidate and the name of an aspect."""
_SEPARATOR = r"[ *_`)\]]{0,9}(?:[:：=|→]|->|[–—])"
_ANSWERS = r"\W{0,9}(?:\d[\d.,/]*+(?! (?!out\b|of\b|points?\b)[^\W\d])|no[ _-]?issue|(?:an )?issue|too (?:high|low))"
_ANSWER = re.compile(_ANSWERS, re.IGNORECASE)
"""A score or a decision at the beginning of a text."""
_UNKNOWN_CELL = re.compile(
    rf"{_LINE_START}(?:(?:candidate[ _#-]*)?(\d{{1,4}}_\w{{1,60}}+){_SEPARATOR}"
    # Other lines may be prose, which has no answer after the name: "Candidate 2 (the shorter one): 3 facts".
    rf"|candidate(?: ?[_#-]| (?=\d|\w\b))(\w(?:\w|{_BEFORE_ASPECT}){{0,60}}?){_SEPARATOR}{_ANSWERS})",
    re.IGNORECASE,
)
"""A line about `candidate_1_NAME`, or one like `candidate_A: 4`, `Candidate 12345: 4` and `candidate 1 - NAME: 4`."""


def _statements(bodies: Sequence[str], prompt_cells: Collection[Cell]) -> dict[Cell, str | Unreadable] | Unreadable:
    """The text after the label of each cell in the lines of a field; `prompt_cells` are all cells of the prompt.

    The field has several bodies if it occurs with different contents: one of them may be quoted from a candidate.
    """
    by_body: list[dict[Cell, str | Unreadable]] = []
    for body in bodies:
        lines = [joined for line in body.split("\n") if (joined := " ".join(line.split()))]
        statements = _statements_in(lines, prompt_cells)
        if isinstance(statements, Unreadable):
            return statements
        by_body.append(statements)
    contradictory = Unreadable(f"the field {CONTRADICTION}")
    missing = Unreadable("it was missing") if len(by_body) == 1 else contradictory
    by_cell = {cell: {statements.get(cell, missing) for statements in by_body} for cell in prompt_cells}
    return {cell: distinct.pop() if len(distinct) == 1 else contradictory for cell, distinct in by_cell.items()}


def _statements_in(lines: Sequence[str], prompt_cells: Collection[Cell]) -> dict[Cell, str | Unreadable] | Unreadable:
    # One NO ISSUE may stand for all scores.
    if len(lines) == 1 and parse_decision(lines[0]) is True:
        return dict.fromkeys(prompt_cells, NO_ISSUE)
    labels, numbers = tuple(aspects_in(prompt_cells)), candidates_in(prompt_cells)
    statements: dict[Cell, str | Unreadable] = {}
    for line in lines:
        statement = _cell_line(line, numbers, labels)
        if isinstance(statement, Unreadable):
            return statement
        if statement is not None and statements.setdefault(*statement) != statement[1]:
            statements[statement[0]] = Unreadable(f"it {CONTRADICTION}")
    return statements


def _cell_line(line: str, numbers: Sequence[int], labels: tuple[str, ...]) -> tuple[Cell, str] | Unreadable | None:
    """The cell that a line begins with, and the rest of the line; None if it begins with none."""
    match = _cell_line_pattern(labels).fullmatch(line)
    if match is None:
        return _unknown_cell(line, numbers, labels)
    cell = Cell(int(match[1]), re.sub("[ _-]", "_", match[2].lower()))
    if cell.candidate not in numbers:
        return Unreadable(f"there is no {cell_label(cell)}")
    return cell, match[3].strip(" *_`|")


@lru_cache(maxsize=256)
def _cell_line_pattern(labels: tuple[str, ...]) -> re.Pattern[str]:
    """The pattern of a line about a cell: its candidate, its aspect with words joined in any way, and the rest."""
    longest = sorted(labels, key=len, reverse=True)
    aspects = "|".join(re.escape(name).replace("_", "[ _-]") for name in longest)
    separator = "" if labels == ("",) else f"{_BEFORE_ASPECT}*"
    return re.compile(rf"{_LINE_START}{_NUMBER}{separator}({aspects}){_SEPARATOR}(.*)", re.IGNORECASE)


def _unknown_cell(line: str, numbers: Sequence[int], labels: tuple[str, ...]) -> Unreadable | None:
    match = _UNKNOWN_CELL.match(line)
    if match is None:
        return None
    name = match[1] or match[2]
    number = re.match(r"\d{1,4}(?!\w)", name)
    # Words after the number of a candidate name an aspect only where there are several.
    if number and int(number[0]) in numbers and (labels == ("",) or number[0] == name):
        return None
    return Unreadable("there is no candidate_" + re.sub(r"[\W_]+", "_", name.lower()).strip("_"))


# --- the forms of a reply ---

_FIRST_FIELD = "review"
"""The field that text before the first header belongs to."""

_SCORE_KEYS = frozenset({"score", "scores", "rating", "final_score", "final_scores", "decision", "decisions"})
_REASON_KEYS = frozenset(
    {"reason", "reasons", "reasoning", "rationale", "rationales", "explanation", "explanations", "justification"}
    | {"justifications", "evidence", "review", "feedback", "comment", "comments", "analysis", "issue"}
)
_JSON_BEGINS = re.compile("```|{")
MAX_JSON_DEPTH = 6
"""Maximum depth of nested JSON that is parsed."""


def _contents(reply: str, field: str, prompt_cells: Collection[Cell]) -> Contents | Unreadable:
    """The contents of a reply in any of its forms: the field with its lines, and the text under each cell's label."""
    names = (_FIRST_FIELD, field, *map(cell_label, prompt_cells))
    text = answer_text(_header_pattern(names).sub(r"## \1", reply), names, required_field=field)
    if isinstance(text, Unreadable):
        return text
    contents = _from_json_reply(text, field, names)
    if contents is not None:
        return contents
    if not HEADER.search(text):
        return _from_labels(text, field, names)
    sections = fields_under_headers(text, names)
    if isinstance(sections, Unreadable):
        return sections
    if field not in sections:
        return Unreadable(f"the field {field!r} was missing")
    bodies: list[str] = []
    for body in map(unfenced, sections[field]):
        members = _from_json(body, field, names)
        if isinstance(members, Unreadable):
            return members
        bodies += [body] if members is None else members[field]
    return {**sections, field: tuple(bodies)}


def _from_labels(text: str, field: str, names: tuple[str, ...]) -> Contents | Unreadable:
    """A reply with labels or headings, or one that consists of the field's lines only."""
    heads = list(label_pattern(names).finditer(text))
    field_heads = [index for index, head in enumerate(heads) if field_named(head) == field]
    if not field_heads:
        return {field: (text,)}
    if len(field_heads) > 1:
        return Unreadable(f"the field {field!r} {CONTRADICTION}")
    ends = [text.find("\n", head.end()) % (len(text) + 1) for head in heads]
    contents = [text[head.end() : end].strip(" *_`") for head, end in zip(heads, ends, strict=True)]
    # After the field's label, the label of a cell begins a line of the field, unless it is alone on its line. Elsewhere
    # a label with a score is a line of another table: one of the two may be quoted.
    field_index = field_heads[0]
    sections = fields_under([head for i, head in enumerate(heads) if i <= field_index or not contents[i]], text, names)
    other_lines = [
        text[heads[i].start() : ends[i]] for i in range(len(heads)) if i != field_index and _ANSWER.match(contents[i])
    ]
    return {**sections, field: tuple("\n".join([*other_lines, body]) for body in sections.get(field, ("",)))}


@lru_cache(maxsize=256)
def _header_pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    """The pattern of a header that lacks some of its brackets; not of one that `escape` changed, which is quoted."""
    alternatives = "|".join(re.escape(name).replace("_", "[ _-]") for name in names)
    return re.compile(
        rf"^(?![*_`# \t]*\[[ \t]*\[[ \t]*#[ \t]*#)[\[#* \t]++({alternatives})[ \t]*+[\]#*][\]#* \t:]*$",
        re.IGNORECASE | re.MULTILINE,
    )


def _from_json_reply(text: str, field: str, names: tuple[str, ...]) -> Contents | Unreadable | None:
    """The contents of a reply that is one JSON value, perhaps after words and a colon; None for other replies."""
    if HEADER.match(text):
        return None
    beginning = _JSON_BEGINS.search(text)
    start = 0 if text.startswith("[") else len(text) if beginning is None else beginning.start()
    announcement = text[:start].rstrip()
    if (
        HEADER.search(announcement)
        or label_pattern(names).search(announcement)
        or announcement[-1:] not in ("", ":", "：")
    ):
        return None
    contents = _from_json(unfenced(text[start:]), field, names)
    return None if announcement and isinstance(contents, Unreadable) else contents


def _from_json(text: str, field: str, names: tuple[str, ...]) -> Contents | Unreadable | None:
    """The members of a JSON object or list as lines of the field and as sections; None if it looks like neither.

    A cell may be named by a key, by the keys of nested objects, or by the members `candidate` and `aspect` of a record.
    A repeated key gives two lines. Line breaks in values are removed, so that no text in a value can begin a line.
    """
    if not text.startswith(("{", "[")):
        return None
    try:
        leaves = list(_leaves(json.loads(text, strict=False, object_pairs_hook=tuple), ()))
    except (ValueError, RecursionError):
        problem = f"the field {field!r} looked like a JSON object but was not a valid one"
        return Unreadable(problem) if text.startswith("{") else None
    aspects = {name.split("_", 2)[-1] for name in names[2:]}
    score_keys, reason_keys = _SCORE_KEYS - aspects, _REASON_KEYS - aspects
    has_scores = any(not score_keys.isdisjoint(keys) for keys, _ in leaves)
    lines: list[str] = []
    sections: dict[str, dict[str, None]] = {}
    for keys, value in leaves:
        name = "_".join(key for key in keys if key not in score_keys | reason_keys)
        if not reason_keys.isdisjoint(keys) or (has_scores and score_keys.isdisjoint(keys)):
            sections.setdefault(name, {})[value.strip()] = None
        else:
            lines.append((f"{name}: " if name else "") + " ".join(value.split()))
    return {**{name: tuple(texts) for name, texts in sections.items()}, field: ("\n".join(lines),)}


def _leaves(value: object, keys: tuple[str, ...], depth: int = 0) -> Iterator[tuple[tuple[str, ...], str]]:
    """The values other than objects and lists, each with the keys that lead to it, the candidate's first."""
    if depth > MAX_JSON_DEPTH:
        raise ValueError("too many levels")
    if isinstance(value, list):
        for member in value:
            yield from _leaves(member, keys, depth + 1)
    elif isinstance(value, tuple):
        members = [(_key(key), member) for key, member in value]
        named = {key: _key(f"{member}") for key, member in members if key in ("candidate", "aspect")}
        if "aspect" in named:
            keys = (*keys, named["aspect"])
        if "candidate" in named:
            keys = ("candidate_" + named["candidate"].removeprefix("candidate_"), *keys)
        for key, member in members:
            if key not in named:
                inner = (key, *keys) if key.startswith("candidate_") else (*keys, key)
                yield from _leaves(member, inner, depth + 1)
    elif value is not None:
        yield keys, f"{value}"


def _key(name: str) -> str:
    return re.sub(r"[\W_]+", "_", name.lower()).strip("_")
