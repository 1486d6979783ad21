"""From an LM's reply to typed values, or to a reason why not. The only parser of replies in the project.

The rule is to read what is unmistakable and to refuse the rest: a refused reply is asked for once more, a
misread one goes unnoticed. Texts that come from a data set or from another agent are escaped here before they
enter a prompt, so that a reply which quotes them cannot be taken for one that says what they say.

A reply may be long and odd, so every pattern is written to take linear time: no repetition is followed by
another one that could match the same characters, and no line's prefix can run over the end of the line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from debate_judge.data.schema import Scale

REQUEST = "Reply with these fields:"
"""What closes a prompt, before the headers of the fields."""

NO_ISSUE = "NO ISSUE"
"""The protocol's words for a Critic who is content (DEBATE, Algorithm 1, line 8)."""

_THOUGHT = r"/?(?:think|thinking|thought|reasoning)>"
_TAG = re.compile(rf"<{_THOUGHT}", re.IGNORECASE)
_HEADER = re.compile(r"^[ \t*_`#]*\[\[\s*##\s*(\w+)\s*##\s*\]\][ \t*_`]*:?[ \t]*", re.MULTILINE)
_ARMED = re.compile(rf"\[(?=\[\s*#\s*#)|<(?={_THOUGHT})", re.IGNORECASE)

_CLOSING = re.compile(r"(?:<\|\w{1,20}\|>|</s>|<end_of_turn>)\Z")

_LANGUAGE = re.compile(r"\A(?:json\b|[a-z]*[ \t]*\n)", re.IGNORECASE)

_NUMBER = r"[-+−]?(?:\d{1,9}(?:\.\d{1,15}|,\d{1,2}(?!\d))?|\.\d{1,15})"
_OF = rf"(?:[\s*_`]*\(?(?:/|(?:out )?of\b)\s*({_NUMBER})|\s*(%))?"
_ALONE = re.compile(rf"[\s*_`'\"“‘«(\[:=]*({_NUMBER}){_OF}(?:\s*points?)?[\s*_`'\"”’»)\].!,;]*", re.IGNORECASE)
_REASONED = re.compile(r"(?<=[\d)*])[ \t]*[–—-][ \t]+[^\W\d_][^\d\n]*$", re.MULTILINE)
_MARKS = r"[ \t*_`]*"
_MARKUP = " \t\r\n`*_\"'"
_LABEL_TAG = re.compile(r"</?(?:final[ _-]?)?(?:score|rating|answer)>", re.IGNORECASE)
_RANGE = re.compile(r"[(\[]\s*\d+(?:\.\d+)?\s*(?:-|–|to)\s*\d+(?:\.\d+)?\s*[)\]]")
_QUOTED = re.compile(r"\"[^\"]*\"|“[^“”]*”|«[^«»]*»|^[ \t]*>.*$", re.MULTILINE)

_EXPLAINED = re.compile(r"(.{2,40}?)\s*(?::|\(|–|—|\s-\s)\s*(.*\S.*)")
_HEDGE = re.compile(r"\b(?:but|however|though|although|except|yet|still|unless|issues?)\b", re.IGNORECASE)
_NOTHING = re.compile(r"\b(?:none|nothing|no)\b", re.IGNORECASE)
_DECISION = re.compile(
    r"(?:decision )?(?:there (?:is|are) )?(?:(no ?)|an )?issues?(?: (?:found|remains?|remaining|left))?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A reply, or a part of it, that says nothing the protocol can use."""

    why: str
    """Worded for the LM, which is told it when it is asked again."""


def escape(text: str) -> str:
    """Break everything in a text that `sections` would take for structure: field headers and thinking tags.

    A space is all it takes, so the text stays readable; a second pass changes nothing more.
    """
    return _ARMED.sub(r"\g<0> ", text)


def excerpt(text: str, most: int = 100) -> str:
    """The beginning of a reply on one line, for people: nothing in it can move a cursor or pass for structure."""
    line = escape(" ".join("".join(c if c.isprintable() else " " for c in text[: 4 * most]).split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def sections(reply: str, names: Sequence[str]) -> dict[str, str] | Unreadable:
    """Split a reply into the named fields.

    Understood are marker headers, a JSON object, and lines that start with `name:`; thinking is dropped. What
    stands before the first header belongs to the first field if that has no header of its own. A field that
    stands twice with different content is refused: one of the two may come from the text under evaluation.

    Returns:
        Field name -> text, for the fields that were found. A reply without any structure is returned whole
        under the only name, or under "" where several were asked for.
    """
    spoken = _spoken(reply)
    if isinstance(spoken, Unreadable):
        return spoken
    text = _unfenced(_unclosed(spoken))
    if not text:
        return Unreadable("the reply was empty")
    for split in (_by_markers, _by_json, _by_labels):
        found = split(text, names)
        if isinstance(found, Unreadable) or found:
            return found
    return {names[0] if len(names) == 1 else "": text}


def _spoken(reply: str) -> str | Unreadable:
    """The reply without its thinking.

    A closing tag without an opening one ends thoughts that began in the prompt. An opening tag without a closing one
    is refused where a reply begins with it, and is a word like any other further on.
    """
    kept: list[str] = []
    start, thinking = 0, False
    for tag in _TAG.finditer(reply):
        if tag[0].startswith("</"):
            if not thinking:
                kept.clear()
            start, thinking = tag.end(), False
        elif not thinking:
            kept.append(reply[start : tag.start()])
            start, thinking = tag.start(), True
    before = "".join(kept)
    if thinking and not before.strip():
        return Unreadable("the reply ended before the thinking did")
    return before + reply[start:]


def _unclosed(text: str) -> str:
    """The reply without the tokens that end a turn, which servers with another chat template let through."""
    text = text.strip()
    for _ in range(3):
        end = _CLOSING.search(text, max(0, len(text) - 24))
        if end is None:
            break
        text = text[: end.start()].rstrip()
    return text


def _unfenced(text: str) -> str:
    """The content of a code fence that holds the whole reply; any other text as it is."""
    if text.count("```") == 2 and text.startswith("```") and text.endswith("```"):
        return _LANGUAGE.sub("", text[3:-3]).strip()
    return text


def _by_markers(text: str, names: Sequence[str]) -> dict[str, str] | Unreadable:
    return _under_heads(text, list(_HEADER.finditer(text)), names)


def _by_labels(text: str, names: Sequence[str]) -> dict[str, str] | Unreadable:
    known = "|".join(re.escape(name).replace("_", "[ _-]") for name in names)
    marks = "[ \t*_`#-]*"
    span = r"[(\[]\d{1,3}(?:-|–| to )\d{1,3}[)\]]"
    label = re.compile(
        rf"^(?:{marks}(?:final[ \t])?({known})[*_`]*[ \t]*(?:{span}[*_`]*)?[:：=][*_`]*"
        rf"|[ \t]*(?:#+|\*\*)[ \t*_]*({known})[*_`]*[ \t]*$)",
        re.IGNORECASE | re.MULTILINE,
    )
    return _under_heads(text, list(label.finditer(text)), names)


def _under_heads(text: str, heads: list[re.Match[str]], names: Sequence[str]) -> dict[str, str] | Unreadable:
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


def _by_json(text: str, names: Sequence[str]) -> dict[str, str] | Unreadable:
    found: list[tuple[str, str]] = []
    for piece in _objects(text):
        try:
            value = json.loads(piece, strict=False, object_pairs_hook=_without_repeats)
        except (ValueError, RecursionError):
            if text.startswith("{"):
                return Unreadable("the reply looked like a JSON object but was not a valid one")
            continue
        found += [(_field(key), _as_text(v)) for key, v in value.items() if v is not None]
    return _collect(found, names)


def _objects(text: str) -> list[str]:
    """What may be JSON objects: the fenced blocks that look like one, else all from the first brace to the last."""
    if not text.startswith("{"):
        blocks = [block.strip().removeprefix("json").strip() for block in text.split("```")[1::2]]
        fenced = [block for block in blocks if block.startswith("{") and block.endswith("}")]
        if fenced:
            return fenced
    start, end = text.find("{"), text.rfind("}") + 1
    return [text[start : end or None]] if start >= 0 else []


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _collect(bodies: Iterable[tuple[str, str]], names: Sequence[str]) -> dict[str, str] | Unreadable:
    found: dict[str, str] = {}
    for name, body in bodies:
        content = body.strip()
        if name not in names or not content:
            continue
        if found.setdefault(name, content) != content:
            return Unreadable(f"the field {name!r} stood twice with different content")
    return found


def score(text: str, scale: Scale, aspect: str = "") -> float | Unreadable:
    """Read one number on the scale. What the scale does not contain is refused, never clamped.

    Read are a number that has its line to itself, the first, or a reason behind a dash with it, and one that a label at
    the start of a sentence or of a list's point calls the score; digits of any script. Refused are numbers in prose, in
    words or in quotation marks, and different ones side by side.

    Args:
        text: A reply, or the field of one.
        scale: Of the aspect.
        aspect: Its name, a label too: filled-in forms say `Coherence: 3`.
    """
    bare = _bare(_REASONED.sub("", _RANGE.sub("", _LABEL_TAG.sub(" ", text))))
    first = _bare(bare.partition("\n")[0])
    spelled = {"yes": scale.high, "true": scale.high, "no": scale.low, "false": scale.low}.get(first.lower())
    if scale.binary and spelled is not None:
        return float(spelled)
    alone = _ALONE.fullmatch(first)
    # What stands in quotation marks was said by another: a candidate may claim a score for itself.
    claims = [*([alone] if alone else []), *_labelled(aspect).finditer(_QUOTED.sub("", bare))]
    values = {_number(claim[1]) for claim in claims}
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


@lru_cache(maxsize=256)
def _labelled(aspect: str) -> re.Pattern[str]:
    """What finds a labelled score; the aspect's name may be the label, or stand before it."""
    name = "[ _-]".join(map(re.escape, re.split("[ _-]+", aspect))) if aspect else r"(?!)"
    label = rf"(?:(?:score|rating){_MARKS}(?:[:=]|is\b)|{name}{_MARKS}[:=])"
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


def no_issue(text: str) -> bool | Unreadable:
    """Read the Critic's decision: True for NO ISSUE, False for an issue, else why it cannot be told.

    The decision must have the first line to itself, whatever its case, punctuation and markup, and no other
    line may say the opposite.
    """
    lines = [_decision(line) for line in text.splitlines() if line.strip()]
    decision = lines[0] if lines else None
    if decision is None or (not decision) in lines:
        both = "the decision was both; " if {True, False} <= set(lines) else ""
        missing = "" if lines else "the decision was missing; "
        return Unreadable(f"{both or missing}the decision must be {NO_ISSUE} or ISSUE and nothing else")
    return decision


def _decision(line: str) -> bool | None:
    explained = _EXPLAINED.fullmatch(line.strip())
    if explained and not _HEDGE.search(explained[2]):
        content = _decision(explained[1])
        # "ISSUE: none" is no decision.
        return None if content is False and _NOTHING.search(explained[2]) else content
    match = _DECISION.fullmatch(re.sub(r"[\W_]+", " ", line).strip())
    return None if match is None else match[1] is not None
