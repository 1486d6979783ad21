"""What the sample is made from: articles and dialogues as their author wrote them, cut into sentences here.

The texts keep to a plain house style (no abbreviations with a full stop, straight quotes), so that a full
stop, question mark or exclamation mark before a space always ends a sentence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Swap = tuple[str, str]
"""The right words of a text, and the wrong ones that a defect puts in their place."""


@dataclass(frozen=True, slots=True)
class Article:
    """An invented news article with what is needed to write good and bad summaries of it."""

    id: str
    text: str
    summary: str
    """A good summary in three sentences that follow the article's order; the bad ones are made from it."""
    reference: str
    """A second good summary in other words, kept apart from the candidates."""
    wrong: tuple[Swap, Swap]
    """Numbers of the summary, each with a number that the article does not contain."""
    unsupported: tuple[str, str]
    """Claims that fit the topic and are not in the article."""


@dataclass(frozen=True, slots=True)
class Dialogue:
    """The first turns of an invented conversation, a fact, and what could be said next."""

    id: str
    turns: tuple[str, ...]
    fact: str
    reply: str
    """A good next turn that uses the fact."""
    wrong: Swap
    """The part of the fact that the reply must get right, and a wrong one."""
    ungrounded: str
    """A pleasant next turn that does not use the fact."""


def flat(text: str) -> str:
    """Return the text on one line, with single spaces."""
    return " ".join(text.split())


def sentences(text: str) -> tuple[str, ...]:
    """Cut a text of this folder into its sentences."""
    return tuple(re.split(r'(?<=[.?!])\s|(?<=[.?!]")\s', flat(text)))
