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

Measurement = tuple[float, str]
"""The merit from 0 (worst) to 1 (best), and the part of the text that shows it."""

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


def _quote(sentence: str) -> str:
    tokens = sentence.split()
    return " ".join(tokens[:12]) + (" …" if len(tokens) > 12 else "")


def _ramp(value: float, worst: float, best: float, evidence: str = "") -> Measurement:
    """The position of a value between worst (0) and best (1)."""
    share = (value - worst) / (best - worst) if best != worst else 1.0
    return min(1.0, max(0.0, share)), evidence


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


def _support(source: str, text: str) -> Measurement:
    stems = content_stems(text)
    unknown = [word for word in stems if word not in _salience(source)]
    return _ramp(1 - len(unknown) / max(1, len(stems)), 0.6, 1, ", ".join([*dict.fromkeys(unknown)][:3]))


def _numbers(source: str, text: str) -> Measurement:
    numbers = sorted(numbers_in(text) - numbers_in(source))
    return _ramp(len(numbers), 1, 0, ", ".join(numbers[:3]))


def _order(source: str, text: str) -> Measurement:
    """Kendall's tau between the order of the sentences and that of their best matches in the source."""
    originals = [frozenset(content_stems(sentence)) for sentence in sentences(source)] or [frozenset()]
    shared = [[len(original.intersection(content_stems(part))) for original in originals] for part in sentences(text)]
    positions = [counts.index(max(counts)) for counts in shared]
    directions = [(b > a) - (b < a) for i, a in enumerate(positions) for b in positions[i + 1 :]]
    backward = [part for part, (a, b) in zip(sentences(text)[1:], pairwise(positions), strict=True) if b < a]
    return _ramp(sum(directions) / len(directions) if directions else 1, 0, 1, _quote("".join(backward[:1])))


def _opening(source: str, text: str) -> Measurement:
    first = sentences(text)[0]
    return _ramp(_closeness(first, source), 0.3, 0.7, _quote(first))


def _topic(source: str, text: str) -> Measurement:
    salience = _salience(source)
    foremost = sorted(salience, key=lambda word: -salience[word])[:10]
    missing = [word for word in foremost if word not in content_stems(text)]
    return _ramp(_closeness(text, source), 0.4, 0.8, ", ".join(missing[:3]))


def _repetition(source: str, text: str) -> Measurement:
    pairs = [p for part in sentences(text) for p in pairwise(words(part)) if not STOP_WORDS.issuperset(p)]
    twice = [" ".join(pair) for pair, count in Counter(pairs).items() if count > 1]
    return _ramp(len(pairs) - len(set(pairs)), 0.15 * len(pairs), 0, ", ".join(twice[:1]))


def _shortest(source: str, text: str) -> Measurement:
    shortest = min(sentences(text), key=lambda sentence: len(words(sentence)))
    return _ramp(len(words(shortest)), 5, 12, _quote(shortest))


_OPENERS = _set("a an the his her their its my our your every of for from and or but nor")
_NO_OPENED = _set("of had and or but nor . ,")
"""What cannot follow one of `_OPENERS` in English, with few exceptions: `the of`, `and had`."""


def _grammar(source: str, text: str) -> Measurement:
    slips = []
    for sentence in sentences(text):
        tokens = _TOKEN.findall(sentence.translate(_STRAIGHT_QUOTES).lower())
        for a, b in pairwise(tokens if tokens[-1] in ".?!" else [*tokens, "."]):
            doubled = a == b and a.isalpha() and a not in ("had", "that")
            if doubled or (a in _OPENERS and b in _NO_OPENED):
                slips.append(f"{a} {b}")
    return _ramp(len(slips), 2, 0, ", ".join(slips[:3]))


def _unfinished(source: str, text: str) -> Measurement:
    complete = text.rstrip().endswith(tuple(".?!)'\"`”’…"))
    return _ramp(complete, 0, 1, "" if complete else _quote(sentences(text)[-1]))


FEATURES: Mapping[str, tuple[str, Callable[[str, str], Measurement]]] = {
    "support": ("words known from the source", _support),
    "numbers": ("numbers that the source does not have", _numbers),
    "order": ("agreement with the order of the source", _order),
    "opening": ("an opening on the main topic", _opening),
    "topic": ("closeness to the main topic", _topic),
    "repetition": ("repeated word pairs", _repetition),
    "shortest": ("length of the shortest sentence", _shortest),
    "grammar": ("slips of grammar", _grammar),
    "unfinished": ("a missing end", _unfinished),
}
"""Name of a feature -> its phrase, by which roles recognise it in a debate, and its function of source and text."""


@lru_cache(maxsize=2048)
def measure(source: str, text: str) -> Mapping[str, Measurement]:
    """Name of a feature -> its measurement; a text without a word has none of anything."""
    if not sentences(text):
        return dict.fromkeys(FEATURES, (0.0, ""))
    return {name: feature(source, text) for name, (_, feature) in FEATURES.items()}
