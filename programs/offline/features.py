"""The text statistics of the offline LM: six to nine measurements of a text, each between its worst and its best value.

All are counts over words and characters. Nothing depends on the order of a set, so equal texts give equal numbers in
every process.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, NamedTuple

TextKind = Literal["summary", "dialogue"]
"""A text that was made from a source, or a reply in a conversation."""


class Measurement(NamedTuple):
    """What a text has of a feature, 0 (worst) to 1 (best), and the part of the text that shows it (may be empty)."""

    merit: float
    evidence: str = ""


# --- words ---


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


STOP_WORDS = _set(
    "a an the and or but nor so yet if then than that this these those there here it its it's he him his she her "
    "hers they them their theirs we us our ours you your yours i me my mine myself himself herself itself "
    "themselves who whom whose which what when where why how all any both each few more most other some such no "
    "not only own same too very can will just do does did doing done have has had having be am is are was were "
    "been being would could should may might must shall of in on at by for with about against between into "
    "through during before after above below to from up down out off over under again further once as because "
    "until while also n't 's 'm 're 've 'd 'll s t don't didn't doesn't isn't wasn't aren't weren't can't won't "
    "wouldn't couldn't shouldn't haven't hasn't hadn't i'm that's you're they're we're i've oh yes no yeah ya "
    "well like get got go really much many lot one two said say says told"
)
"""Words that carry grammar rather than content."""

EVERYDAY_WORDS = _set(
    "think know guess believe suppose wonder hope love enjoy agree prefer want need see look hear heard feel find "
    "try use make made take going goes come came keep good great nice cool bad best better worst interesting "
    "funny crazy amazing awesome weird strange scary sad fun wild neat pretty sure right true wrong big little "
    "old new different hard easy thing stuff something anything everything nothing someone everyone anyone people "
    "person guy man woman kid way time day year idea fact point kind sort bit reason part place maybe probably "
    "actually definitely totally absolutely haha lol wow ok okay hello hi hey bye thanks yep nope nah even still "
    "never always ever sometimes often watch seen play read happen seem sound work give gave let put mean talk "
    "tell call ask start stop help hate remember imagine bet wish care first last next long high early late able "
    "back around today now already soon ago since enough almost mind"
)
"""Words that fit any conversation."""

SELF_TALK = _set(
    "do don't dont would wouldn't think thought guess know knew wonder love loved like liked was am 'm m have haven't "
    "'ve ve agree believe suppose"
)
"""Words after `I` by which speakers talk about themselves."""

ABBREVIATIONS = _set(
    "mr mrs ms dr st sen rep gov gen lt col sgt capt prof rev jr sr vs etc inc corp co ltd jan feb mar apr jun "
    "jul aug sept sep oct nov dec"
)

_DETERMINERS = _set("a an the his her their its my our your every")
_BE = _set("is was are were am")
_HAVE = _set("has have had")
_MODAL = _set("will would can could should may might must")
_SUBJECT = _set("he she they we i")
_LINK = _set("and or but nor")
_PREPOSITIONS = _set("of in on at by for with about against between into through during from to than as")
_END_MARKS = frozenset(".?!,;:")
_VERBS = _BE | _HAVE | _MODAL
_IMPOSSIBLE_PAIRS: tuple[tuple[frozenset[str], frozenset[str]], ...] = (
    (_DETERMINERS, _DETERMINERS | _set("of against between into through during from")
        | _LINK | _VERBS | _SUBJECT | _END_MARKS),
    (_PREPOSITIONS, _LINK | _BE | (_HAVE - {"have"}) | (_MODAL - {"will", "may", "can"})),
    (_set("of from into than during between"), _END_MARKS | _set("of from to")),
    (_LINK, _LINK | _END_MARKS),
    (_MODAL, (_DETERMINERS - {"her"}) | _BE | frozenset(("has", "had")) | _MODAL),
    (_BE, _VERBS),
    (_HAVE, _BE | _MODAL | frozenset(("has", "have"))),
    (frozenset((",",)), frozenset((".", ",", ";"))),
)  # fmt: skip
"""(words, words that cannot follow them in English, with few exceptions)."""

_WORD = re.compile(r"[^\W_]+(?:[.,'-][^\W_]+)*|'[a-z]+")
_TOKEN = re.compile(rf"{_WORD.pattern}|[.,;:?!]")
_END = re.compile(r"[.?!]+(?=\s|$)(?:\s*(?:''|[\"')]))*|\n+")
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


def content_stems(text: str) -> list[str]:
    """The stems of the words that carry content, in order, with repetitions."""
    return [stem(word) for word in words(text) if word not in STOP_WORDS]


_EVERYDAY_STEMS = frozenset(stem(word) for word in EVERYDAY_WORDS)


def sentences(text: str) -> list[str]:
    """Split at . ? ! and line ends, but not after initials and common abbreviations."""
    text, start = text.translate(_STRAIGHT_QUOTES), 0
    parts: list[str] = []
    for match in _END.finditer(text):
        last = text[start : match.start()].split(" ")[-1].lower()
        if match.group().strip() != "." or not (len(last) == 1 or last in ABBREVIATIONS):
            parts.append(text[start : match.end()].strip())
            start = match.end()
    return [part for part in [*parts, text[start:].strip()] if words(part)]


def numbers_in(text: str) -> frozenset[str]:
    """The numbers that a text has in digits, in one spelling: 14,000 and 14000 are equal."""
    return frozenset(_DIGITS.findall(re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)))


def impossible_pairs(sentence: str) -> list[str]:
    """Adjacent words that are ungrammatical, such as `the of`, `is has`, or a doubled word."""
    tokens = _TOKEN.findall(sentence.translate(_STRAIGHT_QUOTES).lower())
    if not tokens or tokens[-1] not in ".?!":
        tokens.append(".")
    return [
        f"{a} {b}"
        for a, b in pairwise(tokens)
        if (a == b and a.isalpha() and a not in ("had", "that"))
        or any(a in first and b in second for first, second in _IMPOSSIBLE_PAIRS)
    ]


# --- measurements ---


@lru_cache(maxsize=256)
def _salience(source: str) -> Mapping[str, float]:
    """Content stem -> its occurrences in the source, each discounted by how late its sentence comes."""
    salience: dict[str, float] = {}
    for number, sentence in enumerate(sentences(source)):
        for word in content_stems(sentence):
            salience[word] = salience.get(word, 0.0) + 1 / (1 + number / 4)
    norm = math.sqrt(math.fsum(value * value for value in salience.values())) or 1.0
    return {word: value / norm for word, value in salience.items()}


@lru_cache(maxsize=2048)
def measure(kind: TextKind, source: str, context: str, candidate: str) -> Mapping[str, Measurement]:
    """Name of a feature, as in `programs.offline.features.PHRASES` -> its measurement on the candidate.

    The source is the text that the candidate was made from, or the conversation so far; the context is the fact that a
    reply may use.
    """
    return _reply(source, context, candidate) if kind == "dialogue" else _summary(source, candidate)


def _summary(source: str, text: str) -> dict[str, Measurement]:
    parts, salience, counts = sentences(text), _salience(source), Counter(content_stems(text))
    if not parts:
        return dict.fromkeys(SUMMARY_FEATURES, Measurement(0.0))
    total = sum(counts.values())
    unknown = [word for word in counts if word not in salience]
    numbers = sorted(numbers_in(text) - numbers_in(source))
    pairs = [p for part in parts for p in pairwise(words(part)) if not STOP_WORDS.issuperset(p)]
    twice = [" ".join(pair) for pair, count in Counter(pairs).items() if count > 1]
    impossible = [pair for part in parts for pair in impossible_pairs(part)]
    lengths = [len(words(part)) for part in parts]
    missing = [word for word in sorted(salience, key=lambda word: -salience[word])[:10] if word not in counts]
    complete = text.rstrip()[-1:] in tuple(".?!)'\"`”’…")
    order, backward = _order(source, parts)
    return {
        "support": _ramp(1 - sum(counts[word] for word in unknown) / max(1, total), 0.6, 1, ", ".join(unknown[:3])),
        "numbers": _ramp(len(numbers), 1, 0, ", ".join(numbers[:3])),
        "order": _ramp(order, 0, 1, backward),
        "opening": _ramp(_cosine(Counter(content_stems(parts[0])), salience), 0.3, 0.7, quote(parts[0])),
        "topic": _ramp(_cosine(counts, salience), 0.4, 0.8, ", ".join(missing[:3])),
        "repetition": _ramp(len(pairs) - len(set(pairs)), 0.15 * len(pairs), 0, ", ".join(twice[:1])),
        "shortest": _ramp(min(lengths), 5, 12, quote(parts[lengths.index(min(lengths))])),
        "grammar": _ramp(len(impossible), 2, 0, ", ".join(impossible[:3])),
        "unfinished": _ramp(not complete, 1, 0, "" if complete else quote(parts[-1])),
    }


def _reply(conversation: str, fact: str, text: str) -> dict[str, Measurement]:
    content, spoken = list(dict.fromkeys(content_stems(text))), words(text)
    before, known = frozenset(content_stems(conversation)), frozenset(content_stems(fact))
    specific = [word for word in content if word not in _EVERYDAY_STEMS]
    self_talk = [f"{a} {b}" for a, b in pairwise(spoken) if a == "i" and b in SELF_TALK]
    self_talk += [word for word in spoken if word in ("i'm", "i've", "i'd")]
    shared = [word for word in content if word in before]
    new = [word for word in content if word in known and word not in before]
    return {
        "specific": _ramp(len(specific), 1, 10, ", ".join(specific[:4])),
        "sentences": _ramp(len(sentences(text)), 1, 4),
        "variety": _ramp(len(set(spoken)) / max(1, len(spoken)), 0.5, 1),
        "self_talk": _ramp(len(self_talk), 3, 0, ", ".join(self_talk[:3])),
        "shared_words": _ramp(len(shared), 0, 4, ", ".join(shared[:3])),
        "new_fact_words": _ramp(len(new), 0, 4, ", ".join(new[:4])),
    }


SUMMARY_FEATURES = (
    *("support", "numbers", "order", "opening", "topic", "repetition", "shortest", "grammar", "unfinished"),
)
DIALOGUE_FEATURES = ("specific", "sentences", "variety", "self_talk", "shared_words", "new_fact_words")


def _ramp(value: float, worst: float, best: float, evidence: str = "") -> Measurement:
    """The position of a value between worst (0) and best (1)."""
    share = (value - worst) / (best - worst) if best != worst else 1.0
    return Measurement(min(1.0, max(0.0, share)), evidence)


def _cosine(counts: Mapping[str, int], salience: Mapping[str, float]) -> float:
    length = math.sqrt(sum(count * count for count in counts.values())) or 1.0
    return math.fsum(count * salience.get(word, 0.0) for word, count in counts.items()) / length


@lru_cache(maxsize=256)
def _originals(source: str) -> list[frozenset[str]]:
    """The content stems of each sentence of the source."""
    return [frozenset(content_stems(sentence)) for sentence in sentences(source)] or [frozenset()]


def _order(source: str, parts: list[str]) -> tuple[float, str]:
    """Kendall's tau between the order of the sentences and that of their best matches in the source, and the first
    sentence that goes back."""
    positions = []
    for content in map(content_stems, parts):
        shared = [len(original.intersection(content)) for original in _originals(source)]
        positions.append(shared.index(max(shared)))
    directions = [(b > a) - (b < a) for i, a in enumerate(positions) for b in positions[i + 1 :]]
    backward = next((part for part, (a, b) in zip(parts[1:], pairwise(positions), strict=True) if b < a), "")
    return (sum(directions) / len(directions) if directions else 1.0), quote(backward)


def quote(sentence: str) -> str:
    """The beginning of a sentence."""
    tokens = sentence.split()
    return " ".join(tokens[:12]) + (" …" if len(tokens) > 12 else "")


Features = Mapping[str, Measurement]

PHRASES: Mapping[str, str] = MappingProxyType(
    {
        "support": "words known from the source",
        "numbers": "numbers that the source does not have",
        "order": "agreement with the order of the source",
        "opening": "an opening on the main topic",
        "topic": "closeness to the main topic",
        "repetition": "repeated word pairs",
        "shortest": "length of the shortest sentence",
        "grammar": "slips of grammar",
        "unfinished": "a missing end",
        "specific": "specific words",
        "sentences": "number of sentences",
        "variety": "variety of words",
        "self_talk": "clauses of the kind I think, I guess",
        "shared_words": "words taken up from the conversation",
        "new_fact_words": "words that the fact adds to the conversation",
    }
)
"""Name of a feature -> its phrase in texts, by which other roles recognise it in the debate."""

FIRST, FIRST_OF_GUIDE = 2, 4
"""Number of features in the Scorer's first score, without a guide and with one, which says what else to look at."""


@dataclass(frozen=True, slots=True)
class Rubric:
    """The features of an aspect with their weights, in the order in which they are used."""

    weights: Mapping[str, float]
    low: float = 0.0
    """The score for merit 0, as a share of the scale or, in a guide, in its points."""
    high: float = 1.0
    """The score for merit 1."""
    first_count: int = FIRST

    @property
    def first(self) -> tuple[str, ...]:
        """The features of the Scorer's first score."""
        return tuple(self.weights)[: self.first_count]

    @property
    def later(self) -> tuple[str, ...]:
        """The features that the Critic can raise, in this order."""
        return tuple(self.weights)[self.first_count :]

    def effects(self, features: Features) -> dict[str, float]:
        """Each later feature with the change of the merit if it is raised; the changes add up."""
        first, total = self._first_merit(features), math.fsum(self.weights.values())
        return {name: self.weights[name] * (features[name].merit - first) / total for name in self.later}

    def merit(self, features: Features, raised: Collection[str]) -> float:
        """The merit, 0 to 1, from the first and the raised features, as if the others were equal to the first."""
        changes = (change for name, change in self.effects(features).items() if name in raised)
        return min(1.0, max(0.0, math.fsum((self._first_merit(features), *changes))))

    def _first_merit(self, features: Features) -> float:
        weight = math.fsum(self.weights[name] for name in self.first)
        return math.fsum(self.weights[name] * features[name].merit for name in self.first) / weight


_RUBRICS: Mapping[TextKind, Mapping[str, str]] = MappingProxyType(
    {
        "summary": {
            "coherence": "order opening repetition shortest unfinished",
            "consistency": "support numbers order topic",
            "fluency": "grammar shortest repetition unfinished",
            "relevance": "topic opening support repetition shortest",
            "overall": "topic support repetition numbers order opening grammar shortest",
        },
        "dialogue": {
            "naturalness": "specific sentences variety self_talk",
            "coherence": "specific shared_words sentences self_talk variety",
            "engagingness": "specific sentences variety self_talk new_fact_words shared_words",
            "groundedness": "new_fact_words specific shared_words",
            "understandability": "sentences variety self_talk",
            "overall": "specific sentences variety self_talk shared_words new_fact_words",
        },
    }
)
_FACTUAL = "consisten faithful factual ground accura halluc truth correct support knowledge"
_KEYWORDS: Mapping[TextKind, Mapping[str, str]] = MappingProxyType(
    {
        "summary": {
            "coherence": "coheren structur organi",
            "consistency": _FACTUAL,
            "fluency": "fluen gramma natural readab understand clarity",
            "relevance": "relevan coverage informative content salien",
        },
        "dialogue": {
            "naturalness": "natural fluen gramma human",
            "coherence": "coheren relevan topic context",
            "engagingness": "engag interest",
            "groundedness": _FACTUAL,
            "understandability": "understand clarity readab",
        },
    }
)


def rubric_for(kind: TextKind, aspect: str) -> Rubric:
    """The rubric with a keyword that is in the aspect's name, else the one for overall quality."""
    name, keywords = aspect.lower(), _KEYWORDS[kind]
    found = next((rubric for rubric, keys in keywords.items() if any(key in name for key in keys.split())), "overall")
    return Rubric(dict.fromkeys(_RUBRICS[kind][found].split(), 1.0))


# --- guides to the raters ---

_WEIGHT = re.compile(r"^Weight (\d+(?:\.\d+)?) for (.+?)\.$", re.MULTILINE)
_SCORE_RANGE = re.compile(r"^Scores run from (-?\d+(?:\.\d+)?) to (-?\d+(?:\.\d+)?)\.", re.MULTILINE)
_NAMES: Mapping[str, str] = {phrase: name for name, phrase in PHRASES.items()}


def guide_text(rubric: Rubric) -> str:
    """A fitted rubric as the sentences of a guide, the heaviest feature first."""
    weights = sorted(rubric.weights.items(), key=lambda pair: -pair[1])
    lines = [f"Weight {weight:.1f} for {PHRASES[name]}." for name, weight in weights]
    return "\n".join([f"Scores run from {rubric.low:.2f} to {rubric.high:.2f}.", *lines])


@lru_cache(maxsize=256)
def read_guide(text: str) -> Rubric | None:
    """The rubric in a guide, or None if the text has none in the offline LM's sentences."""
    weights = {_NAMES[phrase]: float(number) for number, phrase in _WEIGHT.findall(text) if phrase in _NAMES}
    score_range = _SCORE_RANGE.search(text)
    if not any(weights.values()) or score_range is None:
        return None
    return Rubric(weights, float(score_range[1]), float(score_range[2]), FIRST_OF_GUIDE)
