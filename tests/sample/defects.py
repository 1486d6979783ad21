"""What can be wrong with a text of the sample, how it is made, and what it costs.

A defect makes a text worse in a known way and measures by how much; the measure gives its level (1 is the
mildest). The tables at the end say what a text with that defect and level is rated. No human rated these
texts: their ratings come from the tables alone.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tests.sample.flaws import Swap

T = TypeVar("T")
Lines = tuple[str, ...]
"""A text as its sentences."""


class PortableRandom:
    """A random generator of its own, seeded by a text, whose draws are the same on every Python version.

    Python guarantees this only for `random()`, from which every draw is derived; numpy gives no such guarantee.
    """

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def below(self, limit: int) -> int:
        """A whole number from 0 to limit - 1."""
        return int(self._random.random() * limit)

    def pick(self, values: Sequence[T]) -> T:
        return values[self.below(len(values))]

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """The values in a new order, each order equally likely."""
        left = list(values)
        return [left.pop(self.below(len(left))) for _ in range(len(left))]


def sentences(text: str) -> Lines:
    """The sentences of a text in the sample's plain style: no abbreviations with a full stop, straight quotes."""
    return tuple(re.split(r'(?<=[.?!])\s|(?<=[.?!]")\s', text))


@dataclass(frozen=True, slots=True)
class Source:
    """An article, or a conversation and a fact, with what is needed to write good and bad texts about it."""

    id: str
    text: str
    fact: str
    """What a good reply brings in; empty for an article."""
    good: Lines
    """The good summary or reply, from which the bad ones are made."""
    wrong: tuple[Swap, ...]
    more: Lines
    """Of an article, claims that it does not make; of a conversation, a pleasant reply that does not use the fact."""


@dataclass(frozen=True, slots=True)
class DefectContext:
    """What a defect may use: the source of the text, another source, and random draws."""

    source: Source
    other: Source
    rng: PortableRandom


# fmt: off
FUNCTION_WORDS = frozenset((
    "a", "an", "the", "of", "to", "in", "on", "at", "by", "for", "from", "with", "and", "or", "but", "as", "that",
    "which", "who", "it", "its", "he", "she", "they", "his", "her", "their", "is", "are", "was", "were", "be", "has",
    "have", "had", "will", "would", "you", "your", "we", "our", "if", "so",
))
# fmt: on
SHORT_REPLIES = ("I don't know.", "Not sure, really.", "Okay.", "I have no idea.", "Hm, maybe.", "That is nice.")
KIND_REPLIES = (
    "Oh, that is really interesting. Thank you for telling me about it.",
    "I see what you mean. Life is full of surprises, isn't it?",
    "That sounds nice. I hope that it all works out for you.",
    "Wow, I did not know that. You learn something new every day.",
    "Good question. I would have to think about that some more.",
    "Yes, I feel the same way. It is just one of those things.",
)

Defective = tuple[Lines, int]
"""The worse text and the level of its defect."""


def good(text: Lines, case: DefectContext) -> Defective:
    return text, 1


def repetition(text: Lines, case: DefectContext) -> Defective:
    """Say one or two of the sentences again at the end; the level is their number."""
    again = sorted(case.rng.shuffled(range(len(text)))[: 1 + case.rng.below(2)])
    opener = case.rng.pick(("", "Again: "))
    return (*text, *(opener + text[i] for i in again)), len(again)


def cut_off(text: Lines, case: DefectContext) -> Defective:
    """End inside the last sentence or the one before; level 2 if a third of the words or more is lost."""
    kept = _ended_in(text, max(1, len(text) - 1 - case.rng.below(2)), case.rng)
    lost = 1 - len(" ".join(kept).split()) / len(" ".join(text).split())
    return kept, 2 if lost >= 1 / 3 else 1


def _ended_in(text: Lines, last: int, rng: PortableRandom) -> Lines:
    words = text[last].split()
    stops = range(max(2, round(len(words) * 0.3)), round(len(words) * 0.8))
    # A text that ends in a word such as "the" is clearly incomplete.
    dangling = [i for i in stops if words[i - 1].lower() in FUNCTION_WORDS]
    return (*text[:last], " ".join(words[: rng.pick(dangling or stops)]).rstrip('.,;:!?"'))


def broken_grammar(text: Lines, case: DefectContext) -> Defective:
    """Drop function words, double words and swap neighbours; below 12 % of the words is level 1, below 21 % level 2."""
    words = " ".join(text).split()
    wanted = max(2, round(case.rng.pick((0.08, 0.16, 0.26)) * len(words)))
    places: list[int] = []
    for i in case.rng.shuffled(range(len(words) - 1)):
        plain = words[i].isalpha() and words[i + 1].isalpha()
        if plain and len(places) < wanted and not {i - 1, i + 1} & set(places):
            places.append(i)
    for i in sorted(places, reverse=True):
        words[i : i + 2] = _damaged(words[i], words[i + 1], case.rng)
    share = len(places) / len(" ".join(text).split())
    return (" ".join(words),), 1 + (share >= 0.12) + (share >= 0.21)


def _damaged(word: str, following: str, rng: PortableRandom) -> list[str]:
    if word.lower() in FUNCTION_WORDS and rng.below(3):
        return [following]
    return [word, word, following] if rng.below(2) else [following, word]


def brief(text: Lines, case: DefectContext) -> Defective:
    return text[:1], 1


def copied_lead(text: Lines, case: DefectContext) -> Defective:
    """Copy the first three sentences of the article, or on level 2 only two."""
    level = 1 + case.rng.below(2)
    return sentences(case.source.text)[: 4 - level], level


def details(text: Lines, case: DefectContext) -> Defective:
    """Copy the sentences of the article that share least with the good summary: two, or on level 2 three."""
    summary = _content(" ".join(text))
    article = sentences(case.source.text)

    def shared(i: int) -> float:
        words = _content(article[i])
        return len(words & summary) / len(words)

    level = 1 + case.rng.below(2)
    least = sorted(range(2, len(article)), key=shared)[: 1 + level]
    return tuple(article[i] for i in sorted(least)), level


def _content(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower())) - FUNCTION_WORDS


def shuffled(text: Lines, case: DefectContext) -> Defective:
    """Put the sentences into another order; level 2 if more than one pair of them is the wrong way round."""
    order = list(range(len(text)))
    while order == sorted(order):
        order = case.rng.shuffled(order)
    wrong = sum(a > b for i, a in enumerate(order) for b in order[i + 1 :])
    return tuple(text[i] for i in order), min(2, wrong)


def wrong_number(text: Lines, case: DefectContext) -> Defective:
    """Put one or two numbers wrong; the level is how many."""
    swaps = case.rng.shuffled(case.source.wrong)[: 1 + case.rng.below(2)]
    return tuple(_swapped(line, swaps) for line in text), len(swaps)


def _swapped(line: str, swaps: Sequence[Swap]) -> str:
    for right, wrong in swaps:
        line = re.sub(rf"(?<![\w.,]){re.escape(right)}(?!\w|[.,]\d)", wrong, line)
    return line


def unsupported(text: Lines, case: DefectContext) -> Defective:
    """Add one or two claims that are not in the article; the level is how many."""
    claims = case.rng.shuffled(case.source.more)[: 1 + case.rng.below(2)]
    at = case.rng.pick((len(text) - 1, len(text)))
    return (*text[:at], *claims, *text[at:]), len(claims)


def foreign_summary(text: Lines, case: DefectContext) -> Defective:
    """Summarize another article; on level 1 the first sentence is still about this one."""
    level = 1 + case.rng.below(2)
    return (*text[: 2 - level], *case.other.good[2 - level :]), level


def ungrounded(text: Lines, case: DefectContext) -> Defective:
    return case.source.more, 1


def wrong_fact(text: Lines, case: DefectContext) -> Defective:
    return tuple(_swapped(line, case.source.wrong) for line in text), 1


def copied_fact(text: Lines, case: DefectContext) -> Defective:
    return (case.source.fact,), 1


def generic(text: Lines, case: DefectContext) -> Defective:
    """Say what fits any conversation: a friendly phrase, or on level 2 next to nothing."""
    level = 1 + case.rng.below(2)
    return sentences(case.rng.pick((KIND_REPLIES, SHORT_REPLIES)[level - 1])), level


def echo(text: Lines, case: DefectContext) -> Defective:
    """Say the last turn again, and on level 1 a sentence of one's own."""
    level = 1 + case.rng.below(2)
    return (*sentences(case.source.text.splitlines()[-1]), *case.source.more[: 2 - level]), level


def cut_reply(text: Lines, case: DefectContext) -> Defective:
    """End in the middle of a sentence; level 2 if the fact has not been said by then."""
    kept = _ended_in(text, case.rng.pick([i for i, line in enumerate(text) if len(line.split()) > 4]), case.rng)
    return kept, 1 if case.source.wrong[0][0] in " ".join(kept) else 2


def foreign_reply(text: Lines, case: DefectContext) -> Defective:
    return case.other.good, 1


Make = Callable[[Lines, DefectContext], Defective]


@dataclass(frozen=True, slots=True)
class Table:
    """Defects by name: how each is made, and its ratings of shape (levels, aspects)."""

    aspects: tuple[str, ...]
    defects: Mapping[str, tuple[Make, tuple[tuple[int, ...], ...]]]

    def rate(self, levels: Sequence[tuple[str, int]]) -> dict[str, int]:
        """Rate a text with these defects and levels: in every aspect the worst of them counts."""
        rows = [self.defects[name][1][level - 1] for name, level in levels]
        return {aspect: min(row[i] for row in rows) for i, aspect in enumerate(self.aspects)}


SUMMARY_TABLE = Table(
    aspects=("coherence", "consistency", "fluency", "relevance"),
    defects={
        "good": (good, ((5, 5, 5, 5),)),
        "brief": (brief, ((5, 5, 5, 3),)),
        "copied_lead": (copied_lead, ((4, 5, 5, 4), (4, 5, 5, 3))),
        "details": (details, ((3, 5, 5, 2), (2, 5, 5, 2))),
        "shuffled": (shuffled, ((3, 5, 5, 5), (2, 5, 5, 4))),
        "wrong_number": (wrong_number, ((5, 3, 5, 5), (5, 2, 5, 4))),
        "unsupported": (unsupported, ((4, 3, 5, 4), (3, 2, 5, 3))),
        "repetition": (repetition, ((3, 5, 4, 4), (2, 5, 3, 3))),
        "cut_off": (cut_off, ((4, 5, 3, 4), (3, 5, 2, 3))),
        "broken_grammar": (broken_grammar, ((4, 5, 3, 5), (3, 5, 2, 4), (2, 4, 1, 3))),
        "off_topic": (foreign_summary, ((2, 2, 5, 2), (4, 1, 5, 1))),
    },
)

DIALOGUE_TABLE = Table(
    aspects=("naturalness", "coherence", "engagingness", "groundedness", "understandability", "overall"),
    defects={
        "good": (good, ((3, 3, 3, 1, 1, 5),)),
        "ungrounded": (ungrounded, ((3, 3, 2, 0, 1, 4),)),
        "wrong_fact": (wrong_fact, ((3, 3, 3, 0, 1, 3),)),
        "copied_fact": (copied_fact, ((2, 2, 2, 1, 1, 3),)),
        "generic": (generic, ((3, 2, 1, 0, 1, 2), (2, 2, 1, 0, 1, 1))),
        "echo": (echo, ((2, 2, 1, 0, 1, 2), (1, 2, 1, 0, 1, 1))),
        "repetition": (repetition, ((2, 3, 2, 1, 1, 3), (1, 2, 2, 1, 1, 2))),
        "cut_off": (cut_reply, ((2, 2, 2, 1, 1, 3), (1, 2, 1, 0, 0, 1))),
        "broken_grammar": (broken_grammar, ((2, 3, 3, 1, 1, 4), (1, 2, 2, 1, 1, 2), (1, 2, 1, 1, 0, 1))),
        "off_topic": (foreign_reply, ((2, 1, 1, 0, 0, 1),)),
    },
)
