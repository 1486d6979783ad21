"""The text statistics of the offline LM: what a text has of each feature, from its worst value (0) to its best (1).

All are counts over words and characters. Nothing depends on the order of a set, so equal texts give equal numbers in
every process.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise

# --- words and sentences ---


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


STOP_WORDS = _set(
    "a about above after again against all also am an and are as at be because been before being below between both "
    "but by can could did do does down during each for from further get go got had has have he her him his how i if "
    "in into is it its just many may me might more most much must my no nor not of on once one only or other our out "
    "over own said same say says she so some than that the their them then there these they this those through to too "
    "two under until up us was we well were what when where which while who whom why will with would you your"
)
"""Words that carry grammar rather than content."""

_WORD = re.compile(r"[^\W_]+(?:[.,'-][^\W_]+)*|'[a-z]+")
_TOKEN = re.compile(rf"{_WORD.pattern}|[.,;:?!]")
_END = re.compile(r"(?<=[.?!])(?<!\b\w\.)\s+|(?<=[.?!][\"')])\s+|\n+")
_DIGITS = re.compile(r"\d+(?:\.\d+)?")
_STRAIGHT_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"'})


def words(text: str) -> list[str]:
    """Lower-cased words and numbers, in order."""
    return _WORD.findall(text.translate(_STRAIGHT_QUOTES).lower())


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """A crude stem: plural and past tense get that of their base form."""
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


@lru_cache(maxsize=4096)
def content_stems(text: str) -> tuple[str, ...]:
    """The stems of the words that carry content, in order, with repetitions."""
    return tuple(stem(word) for word in words(text) if word not in STOP_WORDS)


@lru_cache(maxsize=4096)
def sentences(text: str) -> tuple[str, ...]:
    """Split at . ? ! and line ends, but not after initials."""
    return tuple(part.strip() for part in _END.split(text.translate(_STRAIGHT_QUOTES)) if words(part))


def numbers_in(text: str) -> frozenset[str]:
    """The numbers that a text has in digits, in one spelling: 14,000 and 14000 are equal."""
    return frozenset(_DIGITS.findall(re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)))


def _ramp(value: float, worst: float, best: float) -> float:
    """The position of a value between worst (0) and best (1)."""
    return min(1.0, max(0.0, (value - worst) / (best - worst) if best != worst else 1.0))


# --- features of a text that was made from a source ---


@lru_cache(maxsize=256)
def _salience(source: str) -> Mapping[str, float]:
    """Content stem -> its occurrences in the source, each discounted by how late its sentence comes; of length 1."""
    salience: Counter[str] = Counter()
    for number, sentence in enumerate(sentences(source)):
        for word in content_stems(sentence):
            salience[word] += 1 / (1 + number / 4)  # type: ignore[assignment]
    norm = math.sqrt(math.fsum(value * value for value in salience.values())) or 1.0
    return {word: value / norm for word, value in salience.items()}


def _closeness(text: str, source: str) -> float:
    """The cosine of a text's content and that of the source."""
    counts, salience = Counter(content_stems(text)), _salience(source)
    length = math.sqrt(sum(count * count for count in counts.values())) or 1.0
    return math.fsum(count * salience.get(word, 0.0) for word, count in counts.items()) / length


def _support(source: str, text: str) -> float:
    stems, known = content_stems(text), _salience(source)
    unknown = sum(word not in known for word in stems)
    return _ramp(1 - unknown / max(1, len(stems)), 0.6, 1)


def _numbers(source: str, text: str) -> float:
    return 1.0 if numbers_in(text) <= numbers_in(source) else 0.0


def _order(source: str, text: str) -> float:
    """Kendall's tau between the order of the sentences and that of their best matches in the source."""
    originals = [frozenset(content_stems(sentence)) for sentence in sentences(source)] or [frozenset()]
    shared = [[len(original.intersection(content_stems(part))) for original in originals] for part in sentences(text)]
    positions = [counts.index(max(counts)) for counts in shared]
    directions = [(b > a) - (b < a) for i, a in enumerate(positions) for b in positions[i + 1 :]]
    return _ramp(sum(directions) / len(directions) if directions else 1, 0, 1)


def _repetition(source: str, text: str) -> float:
    pairs = [p for part in sentences(text) for p in pairwise(words(part)) if not STOP_WORDS.issuperset(p)]
    return _ramp(len(pairs) - len(set(pairs)), 0.15 * len(pairs), 0)


_OPENERS = _set("a an the his her their its my our your every of for from and or but nor")
_NO_OPENED = _set("of had and or but nor . ,")
"""What cannot follow one of `_OPENERS` in English, with few exceptions: `the of`, `and had`."""


def _grammar(source: str, text: str) -> float:
    slips = 0
    for sentence in sentences(text):
        tokens = _TOKEN.findall(sentence.translate(_STRAIGHT_QUOTES).lower())
        for a, b in pairwise(tokens if tokens[-1] in ".?!" else [*tokens, "."]):
            doubled = a == b and a.isalpha() and a not in ("had", "that")
            slips += doubled or (a in _OPENERS and b in _NO_OPENED)
    return _ramp(slips, 2, 0)


def _shared(source: str, text: str) -> float:
    return _ramp(sum(word in _salience(source) for word in set(content_stems(text))), 0, 4)


REPLY_FEATURES = ("length", "specific", "shared")
"""Names of those that count for a reply in a conversation; the others count for a text that retells a source."""

FEATURES: Mapping[str, tuple[str, Callable[[str, str], float]]] = {
    "support": ("words known from the source", _support),
    "numbers": ("numbers that the source does not have", _numbers),
    "order": ("agreement with the order of the source", _order),
    "opening": ("an opening on the main topic", lambda s, text: _ramp(_closeness(sentences(text)[0], s), 0.3, 0.7)),
    "topic": ("closeness to the main topic", lambda source, text: _ramp(_closeness(text, source), 0.4, 0.8)),
    "repetition": ("repeated word pairs", _repetition),
    "shortest": (
        "length of the shortest sentence",
        lambda source, text: _ramp(min(len(words(part)) for part in sentences(text)), 5, 12),
    ),
    "grammar": ("slips of grammar", _grammar),
    "unfinished": ("a missing end", lambda source, text: float(text.rstrip().endswith(tuple(".?!)'\"`”’…")))),
    "length": ("number of sentences", lambda source, text: _ramp(len(sentences(text)), 1, 4)),
    "specific": ("specific words", lambda source, text: _ramp(len(set(content_stems(text))), 1, 10)),
    "shared": ("words of the conversation and its fact", _shared),
}
"""Name of a feature -> its phrase, by which roles recognise it in a debate, and its function of source and text."""


@lru_cache(maxsize=2048)
def measure(source: str, text: str) -> Mapping[str, float]:
    """Name of a feature -> its merit, from 0 (worst) to 1 (best); a text without a word has none of anything."""
    if not sentences(text):
        return dict.fromkeys(FEATURES, 0.0)
    return {name: feature(source, text) for name, (_, feature) in FEATURES.items()}
