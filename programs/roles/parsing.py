"""Parses an LM's reply into typed values, or a reason why that fails; `reply_forms` splits it into its fields.

Only what is unambiguous is read. A refused reply is asked for once more, whereas a misread one would go unnoticed.
Texts from a data set or another agent are escaped here before they enter a prompt, so that what a reply quotes from
them is not taken for its own fields.

Replies may be long and odd, so every pattern takes linear time: no repetition is followed by another one that could
match the same characters, and no line's prefix can run over the end of the line.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache

from debate_judge.data.schema import Scale
from debate_judge.programs.roles.reply_forms import Unreadable, heads_in, label_of, split, unfenced

__all__ = [
    "FIELDS",
    "NO_ISSUE",
    "REQUEST",
    "Unreadable",
    "escape",
    "excerpt",
    "no_issue",
    "score",
    "sections",
    "unquoted",
]

REQUEST = "Reply with these fields:"
"""The line of a prompt before the headers of the requested fields."""

FIELDS = (
    *("rationale", "score", "score_1", "score_2", "review", "decision", "feedback", "reasoning", "side", "final_score"),
    *("opinion", "factuality", "severity", "facts", "claims", "steps", "summary", "query_1", "query_2"),
)
"""Names of the fields that the judges of this project ask for."""


# --- fields ---

_THOUGHT = r"/?(?:think|thinking|thought|reasoning)>"
_TAG = re.compile(rf"<{_THOUGHT}", re.IGNORECASE)
_ARMED = re.compile(rf"\[(?=\[\s*#\s*#)|<(?={_THOUGHT})", re.IGNORECASE)
"""Where a header or a thinking tag begins."""
_CLOSING = re.compile(r"(?:<\|\w{1,20}\|>|</s>|<end_of_turn>)\Z")
"""The token that ends a turn."""


def escape(text: str) -> str:
    """Break everything in a text that `sections` would take for structure: headers, labels and thinking tags.

    Headers and tags are broken by spaces, and a line that begins with the name of a field is marked as a quotation, so
    the text stays readable. Escaping twice is the same as escaping once.
    """
    return label_of(FIELDS).sub(r"> \g<0>", _ARMED.sub(r"\g<0> ", text))


def excerpt(text: str, most: int = 100) -> str:
    """The beginning of a reply for messages: one line, escaped and without control characters."""
    line = escape(" ".join("".join(c if c.isprintable() else " " for c in text[: 4 * most]).split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def sections(reply: str, names: Sequence[str]) -> dict[str, str] | Unreadable:
    """Split a reply into the named fields.

    A reply has one of three forms: marker headers, a JSON object, or lines that start with `name:`. What looks like
    another form inside it is text, and thinking is dropped. Text before the first header belongs to the first field if
    that has no header of its own. A field that occurs twice with different content is refused, because one of the two
    may come from the text under evaluation.

    Returns:
        Field name -> text, for the fields that were found. A reply without any structure is returned as a whole under
        the only name, or under "" if several fields were asked for.
    """
    spoken = _spoken(reply, names)
    if isinstance(spoken, Unreadable):
        return spoken
    text = unfenced(_unclosed(spoken))
    if not text:
        return Unreadable("the reply was empty")
    found = split(text, names)
    return found if isinstance(found, Unreadable) or found else {names[0] if len(names) == 1 else "": text}


def _spoken(reply: str, names: Sequence[str]) -> str | Unreadable:
    """The reply without its thinking.

    A closing tag without an opening one ends thinking that began in the prompt, unless fields before it do not occur
    again after it: then it is text of a field. An opening tag without a closing one is refused at the beginning of a
    reply, and is text further on.
    """
    kept: list[str] = []
    start, thinking, begun = 0, False, 0
    places = heads_in(reply, names) if "</" in reply else {}
    for tag in _TAG.finditer(reply):
        if tag[0].startswith("</"):
            if not thinking:
                if any(_within(at, begun, tag.start()) and at[-1] < tag.end() for at in places.values()):
                    continue
                kept.clear()
                begun = tag.end()
            start, thinking = tag.end(), False
        elif not thinking:
            kept.append(reply[start : tag.start()])
            start, thinking = tag.start(), True
    before = "".join(kept)
    if thinking and not before.strip():
        return Unreadable("the reply ended before the thinking did")
    return before + reply[start:]


def _within(places: Sequence[int], start: int, end: int) -> bool:
    """Whether one of the ascending `places` lies between `start` and `end`."""
    first = bisect_left(places, start)
    return first < len(places) and places[first] < end


def _unclosed(text: str) -> str:
    """The reply without end-of-turn tokens, which servers with a wrong chat template leave in it."""
    text = text.strip()
    for _ in range(3):
        end = _CLOSING.search(text, max(0, len(text) - 24))
        if end is None:
            break
        text = text[: end.start()].rstrip()
    return text


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

    Accepted, with digits of any script, are

    - a number that is alone on the first line, perhaps followed by a dash and a reason;
    - a number with a label such as `Score:` at the start of a sentence or list item, in the first or the last line.

    Refused are numbers in prose, in words or in quotation marks, and several different numbers.

    Args:
        text: A reply, or one of its fields.
        scale: The aspect's scale.
        aspect: The aspect's name, which may be the label: filled-in forms say `Coherence: 3`.
    """
    lines = _RANGE.sub("", _LABEL_TAG.sub(" ", text)).split("\n")
    bare = _bare("\n".join(map(_without_reason, lines)))
    first = _bare(bare.partition("\n")[0])
    spelled = {"yes": scale.high, "true": scale.high, "no": scale.low, "false": scale.low}.get(first.lower())
    if scale.binary and spelled is not None:
        return float(spelled)
    alone = _ALONE.fullmatch(first)
    # Text in quotation marks is not the LM's own: a candidate may claim a score for itself.
    claims = [*([alone] if alone else []), *_at_either_end(_labelled(aspect), unquoted(bare).strip())]
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


# --- decisions ---

NO_ISSUE = "NO ISSUE"
"""The decision of a Critic who has no objection (DEBATE, Algorithm 1, line 8)."""

_EXPLAINED = re.compile(r"(.{2,40}?)\s*(?::|\(|–|—|\s-\s)\s*(.*\S.*)")
"""A decision and its explanation: `NO ISSUE: I agree`, `ISSUE (too high)`."""
_HEDGE = re.compile(r"\b(?:but|however|though|although|except|yet|still|unless|issues?)\b", re.IGNORECASE)
"""Words in an explanation that may take the decision back."""
_LIMITED = re.compile(
    r"\A(?:with|in|on|about|regarding|concerning|as|for|of|apart|other|besides|beyond|only|here)\b"
    r"|\b(?:wrong\w*|false|incorrect\w*|inaccura\w*|errors?|mistakes?|problems?|missing|lacks?|fails?|too|not|never"
    r"|contradict\w*|unsupported|invent\w*)\b|n['’]t\b",
    re.IGNORECASE,
)
"""Words in the explanation of a NO ISSUE that limit it to a part, or turn it into an issue."""
_NOTHING = re.compile(r"\b(?:none|nothing|no)\b", re.IGNORECASE)
_DECISION = re.compile(
    r"(?:decision )?(?:there (?:is|are) )?(?:(no ?)|an )?issues?(?: (?:found|remains?|remaining|left))?", re.IGNORECASE
)


def no_issue(text: str) -> bool | Unreadable:
    """Read the Critic's decision: True for NO ISSUE, False for an issue.

    The decision must be alone on the first line, in any case, punctuation and markup, and no other line may say the
    opposite.
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
        # "ISSUE: none" is no decision, nor is "NO ISSUE - with grammar, the facts are wrong".
        doubtful = None if content is None else _LIMITED if content else _NOTHING
        return None if doubtful is not None and doubtful.search(explained[2]) else content
    match = _DECISION.fullmatch(re.sub(r"[\W_]+", " ", line).strip())
    return None if match is None else match[1] is not None
