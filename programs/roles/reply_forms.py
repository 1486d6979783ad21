"""The forms that a reply can have (marker headers, a JSON object, labels at the start of lines) and its fields in each.

The form is decided once for the whole reply, and one reader then reads it: structure inside a field's text is never
read as fields. If two forms are mixed so that either could be the reply's own, nothing is read and the LM is asked
again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

HEADER = re.compile(r"^[ \t*_`#]*\[\[\s*##\s*(\w+)\s*##\s*\]\][ \t*_`]*:?[ \t]*", re.MULTILINE)

_LANGUAGE = re.compile(r"\A(?:json\b|[a-z]*[ \t]*\n)", re.IGNORECASE)
_FENCE = re.compile(r"```(?:json)?\s*(?=\{)", re.IGNORECASE)
MOST_BLOCKS = 100
"""Most code fences that are parsed, because every broken object costs a pass over the text."""
_CLOSED = re.compile(r"\s*```")
_DECODER = json.JSONDecoder(strict=False)
_MIXED = "it has fields in two forms; give each field once, under its header"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A reply, or a part of it, that cannot be read."""

    why: str
    """The reason, worded for the LM, which is told it when it is asked again."""


Found = dict[str, str] | Unreadable


@dataclass(frozen=True, slots=True)
class _Objects:
    """The parts of a reply that look like JSON objects."""

    pieces: tuple[str, ...]
    start: int
    """Where the first of them, or the fence around it, begins in the reply."""
    rest: str
    """The reply without them."""
    fenced: bool
    """Whether they are in code fences."""


def split(text: str, names: Sequence[str]) -> Found:
    """The fields of a reply whose thinking was removed; empty if it has none of the forms."""
    if any(head[1].lower() in names for head in HEADER.finditer(text)):
        return _under_heads(text, list(HEADER.finditer(text)), names)
    labels = list(label_of(tuple(names)).finditer(text))
    objects = _objects(text)
    if objects is None or (labels and labels[0].start() < objects.start):
        return _by_labels(text, labels, names)
    found = _by_json(text, objects, names)
    if not found:
        return _by_labels(text, labels, names)
    if isinstance(found, Unreadable):
        return found
    if label_of(tuple(names)).search(objects.rest):
        return Unreadable(_MIXED)
    return found if _is_own(found, objects, names) else {}


def heads_in(text: str, names: Sequence[str]) -> dict[str, list[int]]:
    """Field -> the places, in ascending order, where the field begins in a text, in any of the forms."""
    found: dict[str, list[int]] = {}
    keys = re.compile('"(' + "|".join(map(re.escape, names)) + r')"\s*:', re.IGNORECASE)
    heads = [*HEADER.finditer(text), *label_of(tuple(names)).finditer(text), *keys.finditer(text)]
    for place, name in sorted((head.start(), _name(head)) for head in heads):
        if name in names:
            found.setdefault(name, []).append(place)
    return found


def unfenced(text: str) -> str:
    """The content of a code fence around the whole reply; any other text unchanged."""
    if not (len(text) >= 6 and text.startswith("```") and text.endswith("```")):
        return text
    content = _LANGUAGE.sub("", text[3:-3]).strip()
    # The strings of an object may quote another fence.
    return content if text.count("```") == 2 or _end_of_object(content, 0) == len(content) else text


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


def _by_labels(text: str, labels: list[re.Match[str]], names: Sequence[str]) -> Found:
    if len(labels) == 1 and text[: labels[0].start()].strip():
        body = text[labels[0].end() :].strip()
        if "\n" in body:
            # With text before and after it, a line `Score: 5` may be a quotation.
            return Unreadable(f"it is not clear where the field {_name(labels[0])!r} ends")
    return _under_heads(text, labels, names)


def _under_heads(text: str, heads: list[re.Match[str]], names: Sequence[str]) -> Found:
    if not heads:
        return {}
    ends = [*(head.start() for head in heads[1:]), len(text)]
    bodies = ((_name(head), text[head.end() : end]) for head, end in zip(heads, ends, strict=True))
    found = _collect(bodies, names)
    opening = text[: heads[0].start()].strip()
    if found and not isinstance(found, Unreadable) and opening:
        found.setdefault(names[0], opening)
    return found


def _name(head: re.Match[str]) -> str:
    return _field(next(filter(None, head.groups())))


def _field(label: str) -> str:
    return re.sub("[ -]", "_", label.strip().lower())


def _by_json(text: str, objects: _Objects, names: Sequence[str]) -> Found:
    found: list[tuple[str, str]] = []
    for piece in objects.pieces:
        try:
            value = json.loads(piece, strict=False, object_pairs_hook=_without_repeats)
        except (ValueError, RecursionError):
            if text.startswith("{"):
                return Unreadable("the reply looked like a JSON object but was not a valid one")
            continue
        found += [(_field(key), _as_text(v)) for key, v in value.items() if v is not None]
    return _collect(found, names)


def _is_own(found: dict[str, str], objects: _Objects, names: Sequence[str]) -> bool:
    """Whether the JSON is the reply's answer and not a quotation in it.

    An answer is the whole reply, or is introduced with a colon and ends the reply, or is a fenced block that has all of
    several requested fields. Anything else with text around it may be a quotation.
    """
    before, after = (part.strip() for part in (objects.rest[: objects.start], objects.rest[objects.start :]))
    whole = all(name in found for name in names)
    if not before and not after:
        return True
    if objects.fenced:
        return whole and (len(names) > 1 or not after)
    return whole and not after and before.endswith((":", "："))


def _objects(text: str) -> _Objects | None:
    """The parts that look like JSON objects: fenced blocks, else the text from the first brace to the last."""
    if not text.startswith("{"):
        blocks = list(_blocks(text))
        if blocks:
            ends = [0, *(end for _, _, end in blocks)]
            starts = [*(start for start, _, _ in blocks), len(text)]
            rest = "".join(text[end:start] for end, start in zip(ends, starts, strict=True))
            return _Objects(tuple(piece for _, piece, _ in blocks), starts[0], rest, True)
    start, end = text.find("{"), text.rfind("}") + 1
    if start < 0:
        return None
    # Without a closing brace, all that follows the first one is taken for a broken object.
    end = end or len(text)
    return _Objects((text[start:end],), start, text[:start] + text[end:], False)


def _blocks(text: str) -> Iterator[tuple[int, str, int]]:
    """Start, content and end of each code fence around a JSON object."""
    done = 0
    for fence in islice(_FENCE.finditer(text), MOST_BLOCKS):
        end = _end_of_object(text, fence.end()) if fence.start() >= done else None
        closing = None if end is None else _CLOSED.match(text, end)
        if closing is not None:
            done = closing.end()
            yield fence.start(), text[fence.end() : end], done


def _end_of_object(text: str, start: int) -> int | None:
    """Where the JSON object that begins at `start` ends; None where there is none."""
    try:
        return _DECODER.raw_decode(text, start)[1] if text.startswith("{", start) else None
    except (ValueError, RecursionError):
        return None


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _collect(bodies: Iterable[tuple[str, str]], names: Sequence[str]) -> Found:
    found: dict[str, str] = {}
    for name, body in bodies:
        content = body.strip()
        if name not in names or not content:
            continue
        if found.setdefault(name, content) != content:
            return Unreadable(f"the field {name!r} stood twice with different content")
    return found
