"""Reads an LM's reply: its fields, scores and decisions, or a reason why that fails.

A reply has one of several forms: headers, a JSON object, or labels of lines. The form is decided once for the whole
reply, and one reader then reads it: structure inside a field's text is never read as fields. Only what is unambiguous
is read. A refused reply is asked for once more, whereas a misread one would go unnoticed. Texts from a data set or
another agent are escaped here before they enter a prompt, so that what a reply quotes from them is not taken for its
own fields.

Replies may be long and odd, so every pattern takes linear time: no repetition is followed by another one that could
match the same characters, and no line's prefix can run over the end of the line.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from debate_judge.data.schema import Scale

HEADER = re.compile(r"^[ \t*_`#]*\[\[\s*##\s*(\w+)\s*##\s*\]\][ \t*_`]*:?[ \t]*", re.MULTILINE)
TAG = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
MAX_BLOCKS = 100
"""Most code fences that are parsed, because every broken object costs a pass over the text."""
TWICE = "stood twice with different content"

_LANGUAGE = re.compile(r"\A(?:json\b|[a-z]*[ \t]*\n)", re.IGNORECASE)
_FENCE = re.compile(r"```(?:json)?\s*(?=\{)", re.IGNORECASE)
_CLOSED = re.compile(r"\s*```")
_TURN_END = re.compile(r"(?:<\|\w{1,20}\|>|</s>|<end_of_turn>)\Z")
_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A reply, or a part of it, that cannot be read."""

    why: str
    """The reason, worded for the LM, which is told it when it is asked again."""


MIXED = Unreadable("it has fields in two forms; give each field once, under its header")

Contents = dict[str, tuple[str, ...]]
"""Field -> the different contents that it has; an unambiguous reply gives it one."""


class _Objects(NamedTuple):
    """The parts of a reply that look like JSON objects."""

    pieces: list[str]
    around: list[str]
    """The text before the first of them, or the fence around it, between them, and after the last."""
    fenced: bool


def split(text: str, names: Sequence[str]) -> Contents | Unreadable:
    """The fields of an answer, see `answer_of`; empty if it has none of the forms."""
    # A header inside an object is in one of its strings.
    if not _is_json(text) and any(head[1].lower() in names for head in HEADER.finditer(text)):
        return under_headers(text, names)
    labels = list(label_of(tuple(names)).finditer(text))
    objects = _objects(text)
    if objects is None or (labels and labels[0].start() < len(objects.around[0])):
        return _by_labels(text, labels, names)
    fields = _by_json(text, objects, names)
    if not fields:
        return _by_labels(text, labels, names)
    if isinstance(fields, Unreadable):
        return fields
    if label_of(tuple(names)).search("".join(objects.around)):
        return MIXED
    return fields if _is_own(fields, objects, names) or any(len(t) > 1 for t in fields.values()) else {}


def under_headers(text: str, names: Sequence[str]) -> Contents | Unreadable:
    """The contents of a reply with headers; what looks like another form in it may be quoted, and is text."""
    heads = list(HEADER.finditer(text))
    # Where labels stand before the first header, the headers may be the ones that are quoted.
    mixed = label_of(tuple(names)).search(text, 0, heads[0].start())
    return MIXED if mixed else under(heads, text, names)


def under(heads: Sequence[re.Match[str]], text: str, names: Sequence[str]) -> Contents:
    """The contents under headers or labels; text before the first one is the first field's if that has none."""
    ends = [*(head.start() for head in heads[1:]), len(text)]
    contents = _collect(((name_of(h), text[h.end() : end]) for h, end in zip(heads, ends, strict=True)), names)
    opening = text[: heads[0].start()].strip() if contents else ""
    return {names[0]: (opening,), **contents} if opening else contents


# --- what of a reply is its answer ---


def answer_of(reply: str, names: Sequence[str], decisive: str = "") -> str | Unreadable:
    """A reply without its thinking, end-of-turn tokens and a fence around it.

    Args:
        reply: The LM's reply.
        names: Its fields.
        decisive: The field without which a draft is no reply; by default any two fields are enough.
    """
    reply = reply.strip()
    if _is_json(unfenced(reply)):
        return unfenced(reply)  # Tags in it are in one of its strings.
    text = _without_thinking(reply, names, decisive) if TAG.search(reply) else reply
    if isinstance(text, Unreadable):
        return text
    text = text.strip()
    # Servers with a wrong chat template leave these tokens in a reply.
    for _ in range(3):
        end = _TURN_END.search(text, max(0, len(text) - 24))
        text = text if end is None else text[: end.start()].rstrip()
    return unfenced(text) or Unreadable("the reply was empty")


def _without_thinking(reply: str, names: Sequence[str], decisive: str) -> str | Unreadable:
    """A reply without its thinking, which a closing tag ends. A tag may also be quoted, and then is text."""
    fields, headers = _fields_between(reply, names), [head.start() for head in HEADER.finditer(reply)]
    kept: list[str] = []
    begun = start = 0
    opened = False
    for tag in TAG.finditer(reply):
        first, last = tag.span()
        if not tag[1]:
            if not opened:
                kept.append(reply[start:first])
                start, opened = first, True
            continue
        before = fields(begun, start if opened else first)
        if opened:
            if before and fields(start, first) - before - fields(last, len(reply)):
                return Unreadable("a field stood in thinking tags only")
            begun = begun if before else last
        else:
            # Thinking may have begun in the prompt, but does not begin with a field. If a whole reply stands before the
            # tag and another one after it, either may be quoted.
            whole = not begun and bool(fields(0, 1) or headers[:1] == [0])
            whole = whole or (decisive in before if decisive else len(before) >= min(2, len(names)))
            notes = decisive and not whole and bisect_left(headers, begun) == bisect_left(headers, first)
            if not notes and before - fields(last, len(reply)):
                continue
            # Compared once, because each time costs a pass over the reply.
            if whole and (begun or split(reply[:first], names) != split(reply[last:], names)):
                return Unreadable(
                    f"different replies stood before and after {tag[0]}; give one, and do not write that tag"
                )
            kept.clear()
            begun = last
        start, opened = last, False
    # An opening tag without a closing one is text, but not at the beginning of a reply.
    if opened and not "".join(kept).strip():
        return Unreadable("the reply ended before the thinking did")
    return "".join(kept) + reply[start:]


def _fields_between(reply: str, names: Sequence[str]) -> Callable[[int, int], set[str]]:
    """A function that tells which fields begin between two places of a reply, in any of the forms."""
    keys = re.compile('"(' + "|".join(map(re.escape, names)) + r')"\s*:', re.IGNORECASE)
    places: dict[str, list[int]] = {name: [] for name in names}
    heads = [head for pattern in (HEADER, label_of(tuple(names)), keys) for head in pattern.finditer(reply)]
    for place, name in sorted((head.start(), name_of(head)) for head in heads):
        places.get(name, []).append(place)

    def fields(first: int, last: int) -> set[str]:
        positions = ((name, occurrences, bisect_left(occurrences, first)) for name, occurrences in places.items())
        return {
            name for name, occurrences, place in positions if place < len(occurrences) and occurrences[place] < last
        }

    return fields


def unfenced(text: str) -> str:
    """The content of a code fence around the whole text; any other text unchanged."""
    if not (len(text) >= 6 and text.startswith("```") and text.endswith("```")):
        return text
    content = _LANGUAGE.sub("", text[3:-3]).strip()
    # The strings of an object may quote another fence.
    return content if text.count("```") == 2 or _is_json(content) else text


def _is_json(text: str) -> bool:
    """Whether a text is one object or list of JSON."""
    return _end_of_value(text, 0) == len(text)


# --- labels ---


@lru_cache(maxsize=256)
def label_of(names: tuple[str, ...]) -> re.Pattern[str]:
    """The pattern of a label: a line that begins with one of the names and a colon, or is a heading of the name."""
    known = "|".join(re.escape(name).replace("_", "[ _-]") for name in names)
    marks = "[ \t*_`#-]*"
    span = r"[(\[]\d{1,3}(?:-|–| to )\d{1,3}[)\]]"
    return re.compile(
        rf"^(?:{marks}(?:final[ \t])?({known})[*_`]*[ \t]*(?:{span}[*_`]*)?[:：=][*_`]*"
        rf"|[ \t]*(?:#+|\*\*)[ \t*_]*({known})[*_`]*[ \t]*$)",
        re.IGNORECASE | re.MULTILINE,
    )


def name_of(head: re.Match[str]) -> str:
    """The field that a header or label names."""
    return _field(next(filter(None, head.groups())))


def _field(label: str) -> str:
    return re.sub("[ -]", "_", label.strip().lower())


def _by_labels(text: str, labels: Sequence[re.Match[str]], names: Sequence[str]) -> Contents | Unreadable:
    if len(labels) == 1 and text[: labels[0].start()].strip() and "\n" in text[labels[0].end() :].strip():
        # With text before and after it, a line `Score: 5` may be a quotation.
        return Unreadable(f"it is not clear where the field {name_of(labels[0])!r} ends")
    return under(labels, text, names) if labels else {}


# --- JSON ---


def _by_json(text: str, objects: _Objects, names: Sequence[str]) -> Contents | Unreadable:
    members: list[tuple[str, str]] = []
    for piece in objects.pieces:
        try:
            value = json.loads(piece, strict=False, object_pairs_hook=_without_repeats)
        except (ValueError, RecursionError):
            if text.startswith("{"):
                return Unreadable("the reply looked like a JSON object but was not a valid one")
            continue
        for key, v in value.items():
            if v is not None:
                members.append((_field(key), v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)))
    return _collect(members, names)


def _is_own(fields: Contents, objects: _Objects, names: Sequence[str]) -> bool:
    """Whether the JSON is the reply's answer and not a quotation in it.

    An answer is the whole reply, or is introduced with a colon and ends the reply, or is a fenced block that has all of
    several requested fields. Anything else with text around it may be a quotation.
    """
    before, after = objects.around[0].strip(), "".join(objects.around[1:]).strip()
    whole = all(name in fields for name in names)
    if not before and not after:
        return True
    if objects.fenced:
        return whole and (len(names) > 1 or not after)
    return whole and not after and before.endswith((":", "："))


def _objects(text: str) -> _Objects | None:
    """The parts that look like JSON objects: fenced blocks, else the text from the first brace to the last."""
    if not text.startswith("{") and (blocks := list(_blocks(text))):
        ends = [0, *(end for _, _, end in blocks)]
        starts = [*(start for start, _, _ in blocks), len(text)]
        around = [text[end:start] for end, start in zip(ends, starts, strict=True)]
        return _Objects([piece for _, piece, _ in blocks], around, True)
    # Without a closing brace, all that follows the first one is taken for a broken object.
    start, end = text.find("{"), text.rfind("}") + 1 or len(text)
    return None if start < 0 else _Objects([text[start:end]], [text[:start], text[end:]], False)


def _blocks(text: str) -> Iterator[tuple[int, str, int]]:
    """Start, content and end of each code fence around a JSON object."""
    done = 0
    for fence in islice(_FENCE.finditer(text), MAX_BLOCKS):
        end = _end_of_value(text, fence.end()) if fence.start() >= done else None
        closing = None if end is None else _CLOSED.match(text, end)
        if closing is not None:
            done = closing.end()
            yield fence.start(), text[fence.end() : end], done


def _end_of_value(text: str, start: int) -> int | None:
    """Where the JSON object or list that begins at `start` ends; None where there is none."""
    try:
        return _DECODER.raw_decode(text, start)[1] if text.startswith(("{", "["), start) else None
    except (ValueError, RecursionError):
        return None


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key occurs twice")
    return members


def _collect(bodies: Iterable[tuple[str, str]], names: Sequence[str]) -> Contents:
    contents: dict[str, dict[str, None]] = {}
    for name, body in bodies:
        if name in names and body.strip():
            contents.setdefault(name, {})[body.strip()] = None
    return {name: tuple(different) for name, different in contents.items()}


# --- what stands in prompts, and the fields of a reply ---

NO_ISSUE = "NO ISSUE"
"""The decision of a Critic who has no objection (DEBATE, Algorithm 1, line 8)."""

REQUEST = "Reply with these fields"
"""The line of a prompt before the headers of the requested fields."""

FIELDS = (
    *("rationale", "score", "score_1", "score_2", "review", "decision", "feedback", "reasoning", "side", "final_score"),
    *("opinion", "factuality", "severity", "facts", "claims", "steps", "summary", "query_1", "query_2"),
)
"""Names of the fields that the judges of this project ask for."""


_BRACKETS = re.compile(r"\[(?=\[\s*#\s*#)")
_SPACED_TAG = re.compile(r"<[^\S\n]*+(/?)[^\S\n]*+(think|thinking|thought|reasoning)[^\S\n]*+>", re.IGNORECASE)
"""A thinking tag, also with spaces in it, which an LM that quotes the tag may leave out."""


def escape(text: str) -> str:
    """Break everything in a text that `sections` would take for structure: headers, labels and thinking tags.

    Headers are broken by a space, tags get round brackets, and a line that begins with the name of a field is marked as
    a quotation, so the text stays readable. Escaping twice is the same as escaping once.
    """
    return label_of(FIELDS).sub(r"> \g<0>", _SPACED_TAG.sub(r"(\1\2)", _BRACKETS.sub(r"\g<0> ", text)))


escaped = lru_cache(maxsize=1024)(escape)
"""The same, kept: a source is in every prompt about any of its candidates."""


def excerpt(text: str, most: int = 100) -> str:
    """The beginning of a reply for messages: one line, escaped and without control characters."""
    line = escape(" ".join("".join(c if c.isprintable() else " " for c in text[: 4 * most]).split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def sections(reply: str, names: Sequence[str]) -> dict[str, str] | Unreadable:
    """Split a reply into the named fields.

    Text before the first header belongs to the first field if that has no header of its own. A field that occurs twice
    with different content is refused, because one of the two may come from the text under evaluation. A reply without
    any structure is returned as a whole under the only name, or under "" if several fields were asked for.
    """
    text = answer_of(reply, names)
    if isinstance(text, Unreadable):
        return text
    contents = split(text, names)
    if isinstance(contents, Unreadable):
        return contents
    for name, different in contents.items():
        if len(different) > 1:
            return Unreadable(f"the field {name!r} {TWICE}")
    return {n: different[0] for n, different in contents.items()} or {names[0] if len(names) == 1 else "": text}


# --- scores ---

_NUMBER = r"[-+−]?(?:\d{1,9}(?:\.\d{1,15}|,\d{1,2}(?!\d))?|\.\d{1,15})"
_OF = rf"(?:[\s*_`]*\(?(?:/|(?:out )?of\b)\s*({_NUMBER})|\s*(%))?"
"""What a score is out of: `/5`, `of 5`, `%`."""
_ALONE = re.compile(rf"[\s*_`'\"“‘«(\[:=]*({_NUMBER}){_OF}(?:\s*points?)?[\s*_`'\"”’»)\].!,;]*", re.IGNORECASE)
"""A score in any markup, with nothing beside it."""
_REASON = re.compile(r"(?<=[\d)*])[ \t]*[–—-][ \t]+[^\W\d_]")
"""The beginning of a reason after a score: `4 - it is fair`."""
_MARKS = r"[ \t*_`]*"
_MARKUP = " \t\r\n`*_\"'"
_LABEL_TAG = re.compile(r"</?(?:final[ _-]?)?(?:score|rating|answer)>", re.IGNORECASE)
_RANGE = re.compile(r"[(\[]\s*\d+(?:\.\d+)?\s*(?:-|–|to)\s*\d+(?:\.\d+)?\s*[)\]]")
"""The ends of a scale: `(1-5)`, which are no scores."""
_QUOTED = re.compile(r"\"[^\"]*\"|“[^“”]*”|«[^«»]*»|^[ \t]*>.*$", re.MULTILINE)


def score(text: str, scale: Scale, aspect: str = "") -> float | Unreadable:
    """Read one number on the scale. A number outside the scale is refused and never clamped.

    Accepted, with digits of any script, are a number alone on the first line, perhaps followed by a dash and a reason;
    and a number with a label such as `Score:`, or the aspect's name, at the start of a sentence or list item in the
    first or the last line. Refused are numbers in prose, in words or in quotation marks, and several different ones.
    """
    lines = _RANGE.sub("", _LABEL_TAG.sub(" ", text)).split("\n")
    bare = _bare("\n".join(map(_without_reason, lines)))
    first = _bare(bare.partition("\n")[0])
    cli_name = {"yes": scale.high, "true": scale.high, "no": scale.low, "false": scale.low}.get(first.lower())
    if scale.binary and cli_name is not None:
        return float(cli_name)
    number_alone = _ALONE.fullmatch(first)
    # Text in quotation marks is not the LM's own: a candidate may claim a score for itself.
    claims = [*([number_alone] if number_alone else []), *_at_either_end(_labelled(aspect), unquoted(bare).strip())]
    # What a reason quotes may be another score: `2 - it says: my score is 5`.
    leading = _ALONE.fullmatch(first[: reason.start()]) if claims and (reason := _REASON.search(first)) else None
    values = {_number(claim[1]) for claim in [*claims, *([leading] if leading else [])]}
    if len(values) != 1:
        several = ", ".join(f"{value:g}" for value in sorted(values))
        why = f"several different scores were given ({several})" if values else "no score could be found"
        return Unreadable(f"{why if text.strip() else 'the score was missing'}; give one number from {scale}")
    for claim in claims:
        ceiling = claim[2] or ("100" if claim[3] else None)
        if ceiling is not None and _number(ceiling) != scale.high:
            return Unreadable(f"the score was given on another scale (of {ceiling}); give one number from {scale}")
    value = values.pop()
    if not scale.contains(value):
        return Unreadable(f"the score {value:g} is outside the scale; give one number from {scale}")
    return value


def unquoted(text: str) -> str:
    """A text without what stands in quotation marks or in lines marked as a quotation."""
    return _QUOTED.sub("", text)


def _without_reason(line: str) -> str:
    """A line without the dash and the words after its last number."""
    last = max((place for place, c in enumerate(line) if c.isdigit()), default=-1)
    reason = _REASON.search(line, last + 1)
    return line if reason is None else line[: reason.start()]


def _at_either_end(label: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """The matches in the first or last line; lines in between may be quotations without marks."""
    first, last = text.find("\n") % (len(text) + 1), text.rfind("\n")
    return (claim for claim in label.finditer(text) if claim.start() <= first or claim.end() > last)


@lru_cache(maxsize=256)
def _labelled(aspect: str) -> re.Pattern[str]:
    """The pattern of a labelled score; the aspect's name may be the label, or come before it."""
    name = "[ _-]".join(map(re.escape, re.split("[ _-]+", aspect))) if aspect else r"(?!)"
    label = rf"(?:(?:score|rating){_MARKS}(?:[:：=]|is\b)|{name}{_MARKS}[:：=])"
    return re.compile(
        rf"(?:^|(?<=[.!?;]\s))[ \t*_`#•–-]*(?:(?:the|my|final|overall|revised|updated|new|{name})[ \t]+){{0,3}}{label}"
        rf"[\s*_`(\[]*({_NUMBER}){_OF}(?:\s*points?)?(?=[\s*_`)\]]*(?:[.!,;(\n]|\Z))(?![.,]\d)",
        re.IGNORECASE | re.MULTILINE,
    )


def _bare(text: str) -> str:
    text = text.strip(_MARKUP).rstrip(_MARKUP + ".!")
    return text[1:-1].strip(_MARKUP) if text.startswith("<") and text.endswith(">") else text


def _number(text: str) -> float:
    return float(text.replace(",", ".").replace("−", "-"))
