"""Parses the Critic's reply: the words NO ISSUE, which end the debate, or a criticism."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from debate_judge.programs.roles.parsing import NO_ISSUE, Unreadable


class Feedback(NamedTuple):
    """What the Critic replied about one text."""

    no_issue: bool
    text: str
    """What the other roles are shown."""


_NO_ISSUE = re.compile(
    r"(?:decision |feedback )?(?:there (?:is|are) )?no ?issues?(?: (?:found|remains?|remaining|left))?", re.IGNORECASE
)
_WITH_EXPLANATION = re.compile(r"(.{2,40}?)\s*(?:[.:(–—]|\s-\s)\s*(.*\S.*)")
"""NO ISSUE and its explanation: `NO ISSUE: I agree`."""
_LIMITATION = re.compile(
    r"\A(?:with|in|on|about|regarding|concerning|as|for|of|apart|other|besides|beyond|only|here)\b"
    r"|\b(?:but|however|though|although|except|yet|still|unless|issues?|wrong\w*|false|incorrect\w*|inaccura\w*"
    r"|errors?|mistakes?|problems?|missing|lacks?|fails?|too|not|never|contradict\w*|unsupported|invent\w*)\b|n['’]t\b",
    re.IGNORECASE,
)
"""Words in an explanation that restrict a NO ISSUE to a part of the text, or take it back."""


def parse_feedback(text: str) -> Feedback | Unreadable:
    """Parse a criticism. NO ISSUE counts on the first line and alone, in any case, punctuation and markup.

    Elsewhere the words may be quoted from a text under evaluation.
    """
    text = text.strip()
    if not text:
        return Unreadable("the feedback was missing")
    return Feedback(True, NO_ISSUE) if _says_no_issue(text.splitlines()[0]) else Feedback(False, text)


def parse_briefs(fields: Mapping[str, str]) -> Feedback | Unreadable:
    """Parse two briefs; NO ISSUE in place of both ends the debate."""
    less, more = (parse_feedback(fields[name]) for name in ("case_for_less", "case_for_more"))
    if isinstance(less, Unreadable) or isinstance(more, Unreadable):
        return Unreadable("a case for less and a case for more are both needed")
    if less.no_issue and more.no_issue:
        return less
    return Feedback(False, f"The case for less: {less.text}\n\nThe case for more: {more.text}")


def _says_no_issue(line: str) -> bool:
    """Whether a line says NO ISSUE and nothing that takes it back."""
    explained = _WITH_EXPLANATION.fullmatch(line.strip())
    if explained and not _LIMITATION.search(explained[2]):
        line = explained[1]
    return _NO_ISSUE.fullmatch(re.sub(r"[\W_]+", " ", line).strip()) is not None
