"""Parses an LM's reply: its fields and scores, or the reason why that fails; and escapes texts for prompts.

A reply has one of several forms: headers, a JSON object, or labelled lines. The form is decided once for the whole
reply, so structure inside a field's text is never taken for fields. Only what is unambiguous is accepted: a refused
reply is asked for once more, whereas a misread one would go unnoticed. Texts from a data set or another agent are
escaped before they enter a prompt, so that what a reply quotes from them is not taken for its own fields.

Replies may be long and odd, so every pattern takes linear time: no repetition is followed by another one that could
match the same characters, and no line's prefix can run over the end of the line.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from debate_judge.data.schema import Scale

HEADER = re.compile(r"^[ \t*_`#]*\[\[\s*##\s*(\w+)\s*##\s*\]\][ \t*_`]*:?[ \t]*", re.MULTILINE)
TAG = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
MAX_BLOCKS = 100
"""Maximum number of code fences that are parsed: each broken object costs a pass over the text."""

_LANGUAGE = re.compile(r"\A(?:json\b|[a-z]*[ \t]*\n)", re.IGNORECASE)
_FENCE = re.compile(r"```(?:json)?\s*(?=\{)", re.IGNORECASE)
_CLOSING_FENCE = re.compile(r"\s*```")
_TURN_ENDS = re.compile(r"(?:\s*(?:<\|\w{1,20}\|>|</s>|<end_of_turn>))+\s*\Z")
_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a reply, or a part of it, cannot be parsed."""

    problem: str
    """Worded for the LM, which reads it in the second request."""


MIXED_FORMS = Unreadable("it has fields in two forms; give each field once, under its header")

Contents = dict[str, tuple[str, ...]]
"""Field -> its different contents; in an unambiguous reply it has one."""


def _split_answer(text: str, names: Sequence[str]) -> Contents | Unreadable:
    """The fields of an answer, which is from `_answer_text`; empty if it has none of the forms."""
    label, heads = label_pattern(tuple(names)), list(HEADER.finditer(text))
    # A header inside a JSON object is part of a string.
    if not _is_json(text) and any(_field_named(head) in names for head in heads):
        # If labels come before the first header, the headers may be a quotation.
        return MIXED_FORMS if label.search(text, 0, heads[0].start()) else _fields_under(heads, text, names)
    labels, objects = list(label.finditer(text)), _objects(text)
    if objects and not (labels and labels[0].start() < objects[0][0]):
        contents = _fields_in_json(text, objects, names)
        if contents:
            return contents
    if len(labels) == 1 and text[: labels[0].start()].strip() and "\n" in text[labels[0].end() :].strip():
        # With text before and after it, a line `Score: 5` may be a quotation.
        return Unreadable(f"it is not clear where the field {_field_named(labels[0])!r} ends")
    return _fields_under(labels, text, names) if labels else {}


def _fields_under(heads: Sequence[re.Match[str]], text: str, names: Sequence[str]) -> Contents:
    """The contents under headers or labels; text before the first one belongs to the first field if that has none."""
    ends = [*(head.start() for head in heads[1:]), len(text)]
    bodies = ((_field_named(head), text[head.end() : end]) for head, end in zip(heads, ends, strict=True))
    contents = _grouped_by_field(bodies, names)
    opening = text[: heads[0].start()].strip() if contents else ""
    return {names[0]: (opening,), **contents} if opening else contents


def _grouped_by_field(bodies: Iterable[tuple[str, str]], names: Sequence[str]) -> Contents:
    contents: dict[str, dict[str, None]] = {}
    for name, body in bodies:
        if name in names and body.strip():
            contents.setdefault(name, {})[body.strip()] = None
    return {name: tuple(distinct) for name, distinct in contents.items()}


# --- the answer within a reply ---


def _answer_text(reply: str, names: Sequence[str]) -> str | Unreadable:
    """A reply with the fields `names` without its thinking, end-of-turn tokens and a fence around it."""
    reply = reply.strip()
    if _is_json(_unfenced(reply)):
        return _unfenced(reply)  # Tags in it are part of strings.
    text = _without_thinking(reply, names) if TAG.search(reply) else reply
    if isinstance(text, Unreadable):
        return text
    # Servers with a wrong chat template leave these tokens at the end of a reply.
    text = text[:-80] + _TURN_ENDS.sub("", text[-80:])
    text = text.strip()
    return _unfenced(text) or Unreadable("the reply was empty")


def _without_thinking(reply: str, names: Sequence[str]) -> str | Unreadable:
    """A reply without its thinking, which a closing tag ends and which may have begun in the prompt.

    A tag is a quotation where a field stands before it and not again after it. Where one complete reply stands before a
    closing tag without an opening one, and another one after it, either may be a quotation.
    """
    fields = _fields_between(reply, names)
    begins_with_field = bool(fields(0, 1)) or HEADER.match(reply) is not None
    answer: list[str] = []
    # Where the answer begins, after the latest thinking; and where the text or thinking begins that the next tag ends.
    answer_start = start = 0
    opened = False
    for tag in TAG.finditer(reply):
        first, last = tag.span()
        if not tag[1]:
            if not opened:
                answer.append(reply[start:first])
                start, opened = first, True
            continue
        before = fields(answer_start, start if opened else first)
        if opened:
            if before and fields(start, first) - before - fields(last, len(reply)):
                return Unreadable("a field stood in thinking tags only")
            answer_start = answer_start if before else last
        else:
            if before - fields(last, len(reply)):
                continue
            complete = len(before) >= min(2, len(names)) or (not answer_start and begins_with_field)
            # Compared only once, because a comparison is a pass over the reply.
            if complete and (answer_start or _split_answer(reply[:first], names) != _split_answer(reply[last:], names)):
                problem = f"different replies stood before and after {tag[0]}; give one, and do not write that tag"
                return Unreadable(problem)
            answer.clear()
            answer_start = last
        start, opened = last, False
    # An opening tag without a closing one is text, but not at the beginning of a reply.
    if opened and not "".join(answer).strip():
        return Unreadable("the reply ended before the thinking did")
    return "".join(answer) + reply[start:]


def _fields_between(reply: str, names: Sequence[str]) -> Callable[[int, int], set[str]]:
    """A function that returns the fields that begin between two positions of a reply, in any of the forms."""
    keys = re.compile('"(' + "|".join(map(re.escape, names)) + r')"\s*:', re.IGNORECASE)
    heads = [head for pattern in (HEADER, label_pattern(tuple(names)), keys) for head in pattern.finditer(reply)]
    positions: dict[str, list[int]] = {name: [] for name in names}
    for position, name in sorted((head.start(), _field_named(head)) for head in heads):
        positions.get(name, []).append(position)

    def fields(first: int, last: int) -> set[str]:
        return {name for name, starts in positions.items() if bisect_left(starts, first) < bisect_left(starts, last)}

    return fields


def _unfenced(text: str) -> str:
    """The content of a code fence around the whole text; any other text unchanged."""
    if not (len(text) >= 6 and text.startswith("```") and text.endswith("```")):
        return text
    content = _LANGUAGE.sub("", text[3:-3]).strip()
    # A string in a JSON object may contain another fence.
    return content if text.count("```") == 2 or _is_json(content) else text


def _is_json(text: str) -> bool:
    """Whether a text is one JSON object or list."""
    return _end_of_value(text, 0) == len(text)


# --- labels ---


@lru_cache(maxsize=256)
def label_pattern(names: tuple[str, ...], number: str = "") -> re.Pattern[str]:
    """The pattern of a label: a line that begins with one of the names and a colon, or is a Markdown heading of it.

    The names may be followed by what the pattern `number` matches.
    """
    known = "(?:" + "|".join(re.escape(name).replace("_", "[ _-]") for name in names) + ")" + number
    marks = "[ \t*_`#-]*"
    span = r"[(\[]\d{1,3}(?:-|–| to )\d{1,3}[)\]]"
    return re.compile(
        rf"^(?:{marks}(?:final[ \t])?({known})[*_`]*[ \t]*(?:{span}[*_`]*)?[:：=][*_`]*"
        rf"|[ \t]*(?:#+|\*\*)[ \t*_]*({known})[*_`]*[ \t]*$)",
        re.IGNORECASE | re.MULTILINE,
    )


def _field_named(head: re.Match[str]) -> str:
    """The field that a header or label names."""
    return _normalized_name(next(filter(None, head.groups())))


def _normalized_name(label: str) -> str:
    return re.sub("[ -]", "_", label.strip().lower())


# --- JSON ---


def _fields_in_json(text: str, objects: Sequence[tuple[int, str, int]], names: Sequence[str]) -> Contents | Unreadable:
    """The fields of JSON objects in a text; empty if they have none or may be a quotation.

    They are the answer if they are the whole reply, or follow a colon and end the reply, or are fenced and have all of
    several fields.
    """
    members: list[tuple[str, str]] = []
    for _, content, _ in objects:
        try:
            value = json.loads(content, strict=False, object_pairs_hook=_without_repeats)
        except (ValueError, RecursionError):
            if text.startswith("{"):
                return Unreadable("the reply looked like a JSON object but was not a valid one")
            continue
        texts = {
            k: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for k, v in value.items() if v is not None
        }
        members += [(_normalized_name(key), member) for key, member in texts.items()]
    contents = _grouped_by_field(members, names)
    starts, ends = [*(start for start, _, _ in objects), len(text)], [0, *(end for _, _, end in objects)]
    before, *rest = (text[end:start] for end, start in zip(ends, starts, strict=True))
    if contents and label_pattern(tuple(names)).search("".join([before, *rest])):
        return MIXED_FORMS
    before, after = before.strip(), "".join(rest).strip()
    if text.startswith("`", objects[0][0]):
        is_answer = len(names) > 1 or not after
    else:
        is_answer = not after and before.endswith((":", "："))
    is_answer = (is_answer and len(contents) == len(names)) or not (before or after)
    return contents if is_answer or any(len(distinct) > 1 for distinct in contents.values()) else {}


def _objects(text: str) -> list[tuple[int, str, int]]:
    """Start, content and end of the parts that look like JSON objects: fenced blocks, else the text from the first
    brace to the last."""
    blocks: list[tuple[int, str, int]] = []
    fences = [] if text.startswith("{") else islice(_FENCE.finditer(text), MAX_BLOCKS)
    for fence in fences:
        end = _end_of_value(text, fence.end()) if not blocks or fence.start() >= blocks[-1][2] else None
        closing = None if end is None else _CLOSING_FENCE.match(text, end)
        if closing is not None:
            blocks.append((fence.start(), text[fence.end() : end], closing.end()))
    # Without a closing brace, everything from the first opening one is taken for a broken object.
    start, end = text.find("{"), text.rfind("}") + 1 or len(text)
    return blocks or ([] if start < 0 else [(start, text[start:end], end)])


def _end_of_value(text: str, start: int) -> int | None:
    """Where the JSON object or list that begins at `start` ends; None if none begins there."""
    try:
        return _DECODER.raw_decode(text, start)[1] if text.startswith(("{", "["), start) else None
    except (ValueError, RecursionError):
        return None


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key occurs twice")
    return members


# --- escaping, and the fields of a reply ---

NO_ISSUE = "NO ISSUE"
"""The decision of a Critic who has no objection (DEBATE, Algorithm 1, line 8)."""

FIELDS = (
    *("rationale", "score", "feedback", "case_for_less", "case_for_more", "reasoning", "side", "final_score"),
    *("opinion", "factuality", "severity", "facts", "claims", "steps", "summary", "query"),
)
"""Names of the reply fields of all built-in judges, without the numbers of those that there are several of."""


_ANY_NUMBER = r"(?:[ _-]?\d{1,3}(?!\d))?"
_HEADER_START = re.compile(r"\[(?=\[\s*#\s*#)")
_THINKING_TAG = re.compile(r"<[^\S\n]*+(/?)[^\S\n]*+(think|thinking|thought|reasoning)[^\S\n]*+>", re.IGNORECASE)
"""A thinking tag, also one with spaces, because an LM that quotes the text may leave them out."""


def escape(text: str) -> str:
    """Disarm everything in a text that `parse_fields` would take for structure: headers, labels and thinking tags.

    Headers get a space inside, tags get round brackets, and a line that begins with the name of a field is marked as a
    quotation, so the text stays readable. Escaping twice is the same as escaping once.
    """
    without_headers = _THINKING_TAG.sub(r"(\1\2)", _HEADER_START.sub(r"\g<0> ", text))
    return label_pattern(FIELDS, _ANY_NUMBER).sub(r"> \g<0>", without_headers)


escape_cached = lru_cache(maxsize=1024)(escape)
"""`escape` with a cache, because a source is in every prompt about any of its candidates."""


def parse_fields(reply: str, names: Sequence[str]) -> dict[str, str] | Unreadable:
    """Parse a reply into the named fields.

    Text before the first header belongs to the first field if that has no header of its own. A field that occurs twice
    with different content is refused, because one of the two may come from the text under evaluation. A reply without
    any structure is the content of the only field, or is returned under "" if several fields were asked for.
    """
    text = _answer_text(reply, names)
    if isinstance(text, Unreadable):
        return text
    contents = _split_answer(text, names)
    if isinstance(contents, Unreadable):
        return contents
    for name, bodies in contents.items():
        if len(bodies) > 1:
            return Unreadable(f"the field {name!r} stood twice with different content")
    if not contents and any(head[1].lower() in names for head in HEADER.finditer(text)):
        return {}
    return {name: bodies[0] for name, bodies in contents.items()} or {names[0] if len(names) == 1 else "": text}


# --- scores ---

_NUMBER = r"[-+−]?(?:\d{1,9}(?:\.\d{1,15}|,\d{1,2}(?!\d))?|\.\d{1,15})"
_OUT_OF = rf"(?:[\s*_`]*\(?(?:/|(?:out )?of\b)\s*({_NUMBER})|\s*(%))?"
"""The upper end that a score is stated with: `/5`, `of 5`, `%`."""
_BARE_SCORE = re.compile(rf"[\s*_`'\"“‘«(\[:=]*({_NUMBER}){_OUT_OF}(?:\s*points?)?[\s*_`'\"”’»)\].!,;]*", re.IGNORECASE)
"""A score in any markup, without other words."""
_REASON = re.compile(r"(?<=[\d)*])[ \t]*[–—-][ \t]+[^\W\d_]")
"""The beginning of a reason after a score: `4 - it is fair`."""
_MARKS = r"[ \t*_`]*"
_MARKUP = " \t\r\n`*_\"'"
_NO_SCORE = re.compile(
    r"</?(?:final[ _-]?)?(?:score|rating|answer)>|[(\[]\s*\d+(?:\.\d+)?\s*(?:-|–|to)\s*\d+(?:\.\d+)?\s*[)\]]",
    re.IGNORECASE,
)
"""Tags, and the ends of a scale in brackets, `(1-5)`."""
_QUOTED = re.compile(r"\"[^\"]*\"|“[^“”]*”|«[^«»]*»|^[ \t]*>.*$", re.MULTILINE)


def parse_score(text: str, scale: Scale, aspect: str = "") -> float | Unreadable:
    """Parse one number on the scale. A number outside the scale is refused and never clamped.

    Accepted, with digits of any script, are a number alone on the first line, perhaps followed by a dash and a reason;
    and a number with a label such as `Score:`, or the aspect's name, at the start of a sentence or list item in the
    first or the last line. Refused are numbers in prose, in words or in quotation marks, and several different ones.
    """
    lines = _NO_SCORE.sub(" ", text).split("\n")
    unmarked = _without_markup("\n".join(map(_without_reason, lines)))
    first = _without_markup(unmarked.partition("\n")[0])
    binary_value = {"yes": scale.high, "true": scale.high, "no": scale.low, "false": scale.low}.get(first.lower())
    if scale.binary and binary_value is not None:
        return float(binary_value)
    bare = _BARE_SCORE.fullmatch(first)
    # Text in quotation marks is not the LM's own: a candidate may claim a score for itself. Nor are, perhaps, the lines
    # between the first and the last.
    own = _QUOTED.sub("", unmarked).strip()
    first_end, last_start = own.find("\n") % (len(own) + 1), own.rfind("\n")
    labelled = [m for m in _score_label(aspect).finditer(own) if m.start() <= first_end or m.end() > last_start]
    matches = [bare, *labelled] if bare else labelled
    # A reason may quote another score: `2 - it says: my score is 5`.
    leading = _BARE_SCORE.fullmatch(first[: reason.start()]) if matches and (reason := _REASON.search(first)) else None
    values = {_number(match[1]) for match in [*matches, *([leading] if leading else [])]}
    if len(values) != 1:
        listed = ", ".join(f"{value:g}" for value in sorted(values))
        problem = f"several different scores were given ({listed})" if values else "no score could be found"
        return Unreadable(f"{problem if text.strip() else 'the score was missing'}; give one number from {scale}")
    for match in matches:
        out_of = match[2] or ("100" if match[3] else None)
        if out_of is not None and _number(out_of) != scale.high:
            return Unreadable(f"the score was given on another scale (of {out_of}); give one number from {scale}")
    value = values.pop()
    if not scale.contains(value):
        return Unreadable(f"the score {value:g} is outside the scale; give one number from {scale}")
    return value


def _without_reason(line: str) -> str:
    """A line without a dash and the words after it, if these follow its last number."""
    last = max((index for index, c in enumerate(line) if c.isdigit()), default=-1)
    reason = _REASON.search(line, last + 1)
    return line if reason is None else line[: reason.start()]


@lru_cache(maxsize=256)
def _score_label(aspect: str) -> re.Pattern[str]:
    """The pattern of a labelled score; the aspect's name may be the label, or come before it."""
    name = "[ _-]".join(map(re.escape, re.split("[ _-]+", aspect))) if aspect else r"(?!)"
    label = rf"(?:(?:score|rating){_MARKS}(?:[:：=]|is\b)|{name}{_MARKS}[:：=])"
    return re.compile(
        rf"(?:^|(?<=[.!?;]\s))[ \t*_`#•–-]*(?:(?:the|my|final|overall|revised|updated|new|{name})[ \t]+){{0,3}}{label}"
        rf"[\s*_`(\[]*({_NUMBER}){_OUT_OF}(?:\s*points?)?(?=[\s*_`)\]]*(?:[.!,;(\n]|\Z))(?![.,]\d)",
        re.IGNORECASE | re.MULTILINE,
    )


def _without_markup(text: str) -> str:
    text = text.strip(_MARKUP).rstrip(_MARKUP + ".!")
    return text[1:-1].strip(_MARKUP) if text.startswith("<") and text.endswith(">") else text


def _number(text: str) -> float:
    return float(text.replace(",", ".").replace("−", "-"))
