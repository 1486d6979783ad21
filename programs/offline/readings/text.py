"""The tools of the offline LM: words, sentences, copies and slips. Standard library only, no LM, no prompt.

Everything here is a count over the letters of a text. Nothing depends on the order of a set, so that equal
texts give equal numbers in every process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from debate_judge.programs.offline.readings.words import (
    ABBREVIATIONS,
    EVERYDAY,
    IMPOSSIBLE,
    MAY_REPEAT,
    NUMBER_VALUES,
    STOP,
)

_WORD = re.compile(r"[^\W_]+(?:[.,'-][^\W_]+)*|'[a-z]+")
_TOKEN = re.compile(r"[^\W_]+(?:[.,'-][^\W_]+)*|'[a-z]+|[.,;:?!]")
_END = re.compile(r"[.?!]+(?=\s|$)(?:\s*(?:''|[\"')]))*|\n+")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_NUMBER = re.compile(r"\d+(?:\.\d+)?|[a-z]+")
_STRAIGHT = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"'})


def straight(text: str) -> str:
    """The text with typewriter quotation marks."""
    return text.translate(_STRAIGHT)


def words(text: str) -> list[str]:
    """Lower-cased words and numbers, in order."""
    return _WORD.findall(straight(text).lower())


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """A crude stem: enough that plural and past tense meet their base form."""
    word = word.removesuffix("'s")
    if len(word) > 5 and word.endswith("ies"):
        return word[:-3] + "y"
    for ending in ("ingly", "edly", "ing", "ed", "es", "ly", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word[: -len(ending)]
            if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


PLAIN = frozenset(stem(word) for word in EVERYDAY)
"""Stems of everyday words that fit any conversation; what is left is specific to a topic."""


def sentences(text: str) -> list[str]:
    """Cut at . ? ! and line ends, but not after initials and common abbreviations."""
    text, start = straight(text), 0
    out: list[str] = []
    for match in _END.finditer(text):
        if match.group().strip() == "." and _abbreviates(text[start : match.start()]):
            continue
        _append(out, text[start : match.end()].strip())
        start = match.end()
    _append(out, text[start:].strip())
    return out


def _abbreviates(before: str) -> bool:
    if not before or before[-1].isspace():
        return False
    last = before.split()[-1].lower()
    return len(last) == 1 or last in ABBREVIATIONS or ("." in last and last.replace(".", "").isalpha())


def _append(out: list[str], sentence: str) -> None:
    if _WORD.search(sentence.lower()):
        out.append(sentence)
    elif sentence and out:
        out[-1] += " " + sentence


@dataclass(frozen=True, slots=True)
class Text:
    """A text cut into sentences, words and content stems."""

    raw: str
    sentences: tuple[str, ...]
    words: tuple[tuple[str, ...], ...]
    """Words of each sentence."""
    content: tuple[tuple[str, ...], ...]
    """Stems of the content words of each sentence, in order, with repetitions."""
    sets: tuple[frozenset[str], ...]
    """The same as sets."""
    all_words: tuple[str, ...]
    all_content: tuple[str, ...]
    vocabulary: frozenset[str]
    """All content stems."""

    @property
    def distinct(self) -> tuple[str, ...]:
        """Content stems without repetition, in order of appearance."""
        return tuple(dict.fromkeys(self.all_content))


def read(text: str) -> Text:
    """Split a text once for all measurements."""
    cut = tuple(sentences(text))
    by_sentence = tuple(tuple(words(s)) for s in cut)
    content = tuple(tuple(stem(w) for w in ws if w not in STOP) for ws in by_sentence)
    everything = tuple(c for cs in content for c in cs)
    return Text(
        text,
        cut,
        by_sentence,
        content,
        tuple(frozenset(c) for c in content),
        tuple(w for ws in by_sentence for w in ws),
        everything,
        frozenset(everything),
    )


def pairs(sequence: Sequence[str]) -> list[tuple[str, str]]:
    """Adjacent pairs."""
    return list(pairwise(sequence))


def grams(sequence: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """All runs of `size` words."""
    return [tuple(sequence[i : i + size]) for i in range(len(sequence) - size + 1)]


def common_subsequences(a: Sequence[str], others: Iterable[Sequence[str]]) -> list[int]:
    """Length of the longest common subsequence of `a` with each other, by the bit-parallel rows of Hyyrö (2004)."""
    places: dict[str, int] = {}
    for i, word in enumerate(a):
        places[word] = places.get(word, 0) | (1 << i)
    full = (1 << len(a)) - 1
    lengths = []
    for other in others:
        row = full
        for word in other:
            if word in places:
                hit = row & places[word]
                row = ((row + hit) | (row - hit)) & full
        lengths.append(len(a) - row.bit_count())
    return lengths


def longest_run(a: Sequence[str], b: Sequence[str]) -> int:
    """Length of the longest run of words that stands in both."""
    best, row = 0, [0] * (len(b) + 1)
    for word in a:
        previous = 0
        for j, other in enumerate(b, 1):
            above = row[j]
            row[j] = previous + 1 if word == other else 0
            best = max(best, row[j])
            previous = above
    return best


def pieces(sentence: Sequence[str], source: Sequence[str], places: dict[str, list[int]]) -> int:
    """How many fragments a sentence is made of when each is copied from the source as long as possible.

    A word that the source does not have is a fragment of its own. `places` maps a word to its positions.
    """
    count = start = 0
    while start < len(sentence):
        longest = 1
        for place in places.get(sentence[start], ()):
            length = 1
            while (
                start + length < len(sentence)
                and place + length < len(source)
                and sentence[start + length] == source[place + length]
            ):
                length += 1
            longest = max(longest, length)
        start += longest
        count += 1
    return count


def repeated_share(grams: Sequence[tuple[str, str]]) -> float:
    """Share of pairs that occurred before."""
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def slips(sentence: str) -> list[str]:
    """Word pairs that cannot stand next to each other, such as `the of`, `is has`, or a doubled word."""
    tokens = _TOKEN.findall(straight(sentence).lower())
    if not tokens or tokens[-1] not in ".?!":
        tokens.append(".")
    found = []
    for a, b in pairs(tokens):
        if (a == b and a not in MAY_REPEAT and not a.isdigit()) or any(
            a in first and b in second for first, second in IMPOSSIBLE
        ):
            found.append(f"{a} {b}")
    return found


def digits(text: str) -> list[str]:
    """Numbers written in digits, in one spelling: 14,000 and 14000 are equal."""
    return [_spelling(t) for t in _numeric_tokens(text) if t[0].isdigit()]


def values(text: str) -> frozenset[str]:
    """Every number that a text mentions, in digits or in words."""
    tokens = _numeric_tokens(text)
    return frozenset(
        _spelling(t) if t[0].isdigit() else NUMBER_VALUES[t] for t in tokens if t[0].isdigit() or t in NUMBER_VALUES
    )


def _numeric_tokens(text: str) -> list[str]:
    return _NUMBER.findall(_THOUSANDS.sub("", straight(text).lower()))


def _spelling(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number.lstrip("0") or "0"
