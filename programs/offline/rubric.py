"""The rubrics of the offline LM: the features of each aspect, their weights, and which role uses them.

A ramp maps a feature, a measurement of `programs.offline.features`, to a merit between 0 and 1. The Scorer's first
score is the mean of a few merits, assuming that the others are equal to it; the Critic can raise the others, one in
each round, in the order given here.

The tables were chosen by hand on half of the sources of SummEval and of Topical-Chat: features whose meaning
fits the aspect and whose correlation had the same sign in nearly every fifth of those sources, with mostly equal
weights. Other weights are not significantly worse; the choice of features is what counts. A guide to the raters
replaces the weights: its sentences are all that is transferred from the prompt in which it was fitted to ratings
(`programs.offline.tuning`) to the prompts that contain it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from debate_judge.programs.offline.features import Measurement, TextKind

Features = Mapping[str, Measurement]

PHRASES: Mapping[str, str] = MappingProxyType(
    {
        "support": "words known from the source",
        "passage": "sentences backed by a single passage",
        "wording": "the sentence furthest from the source's wording",
        "alignment": "source sentences kept whole",
        "new_bigrams": "new joints between source words",
        "fragments": "places where copied fragments are spliced",
        "numbers": "numbers that the source does not have",
        "order": "agreement with the order of the source",
        "opening": "an opening on the main topic",
        "repeated_bigrams": "repeated word pairs",
        "overlap": "overlap between two sentences",
        "repeated_words": "words repeated within a sentence",
        "topic": "closeness to the main topic",
        "truncated": "sentences cut short",
        "shortest": "length of the shortest sentence",
        "ungrammatical": "slips of grammar",
        "unfinished": "a missing end",
        "specific": "specific words",
        "sentences": "number of sentences",
        "self_talk": "clauses of the kind I think, I guess",
        "variety": "variety of words",
        "run_ons": "run-on clauses",
        "shared_words": "words taken up from the conversation",
        "copied_trigrams": "word triples repeated from the conversation",
        "fact_words": "words shared with the fact",
        "new_fact_words": "words that the fact adds to the conversation",
        "fact_run": "words in a row from the fact",
    }
)
"""Name of a feature -> its phrase in texts, by which other roles recognise it in the debate."""

_PERCENTAGES = (
    *("support", "passage", "wording", "alignment", "new_bigrams", "opening", "repeated_bigrams", "overlap"),
    *("repeated_words", "topic", "variety", "copied_trigrams"),
)
"""Features that are written as percentages."""


def feature_text(name: str, feature: Measurement) -> str:
    """The phrase of a feature with its value."""
    value = feature.value or 0.0
    return f"{PHRASES[name]} ({value:.0%})" if name in _PERCENTAGES else f"{PHRASES[name]} ({value:.3g})"


@dataclass(frozen=True, slots=True)
class RubricItem:
    """A feature of a rubric, with its ramp and its weight."""

    name: str
    worst: float
    """The value with merit 0."""
    best: float
    """The value with merit 1."""
    weight: float
    penalty: bool = False
    """Whether it can only lower the score, by at most its weight."""

    def merit(self, features: Features) -> float | None:
        """The feature's position between worst (0) and best (1), or None without a value."""
        value = features[self.name].value
        return None if value is None else min(1.0, max(0.0, (value - self.worst) / (self.best - self.worst)))


@dataclass(frozen=True, slots=True)
class Rubric:
    """The weighted features of one aspect."""

    first: tuple[RubricItem, ...]
    """Items of the Scorer's first score."""
    later: tuple[RubricItem, ...]
    """Items that the Critic can raise, in this order."""
    full_merit: float = 1.0
    """The merit that gets the top of the scale: in some aspects raters ignore small faults."""

    @property
    def items(self) -> tuple[RubricItem, ...]:
        return self.first + self.later

    def first_merit(self, features: Features) -> float:
        """The weighted mean merit of the first items; 1 if none of their features has a value."""
        with_value = [(item.weight, merit) for item in self.first if (merit := item.merit(features)) is not None]
        return math.fsum(w * m for w, m in with_value) / math.fsum(w for w, _ in with_value) if with_value else 1.0

    def effects(self, features: Features) -> list[tuple[RubricItem, float]]:
        """Each later item with the change of the score if it is raised, as a share of the scale.

        The changes are additive and independent of the items raised before, so a lower threshold can only lengthen the
        list of items to raise. Scores are not clipped to the scale here.
        """
        first_merit = self.first_merit(features)
        weights = math.fsum(item.weight for item in self.items if not item.penalty)
        changes = []
        for item in self.later:
            merit = item.merit(features)
            if merit is None:
                change = 0.0
            elif item.penalty:
                change = item.weight * (merit - 1)
            else:
                change = item.weight * (merit - first_merit) / weights
            changes.append((item, change / self.full_merit))
        return changes

    def score(self, features: Features, raised_names: Collection[str]) -> float:
        """The score, 0 to 1, from the first and the raised items, assuming that the others have the merit of the first.

        With this assumption a feature that confirms the first score need not be raised, and candidates judged by
        different features stay comparable.
        """
        changes = (change for item, change in self.effects(features) if item.name in raised_names)
        return min(1.0, max(0.0, math.fsum((self.first_merit(features) / self.full_merit, *changes))))


def _items(table: str) -> tuple[RubricItem, ...]:
    """Parse `name worst>best weight`, items separated by commas; a negative weight marks a penalty."""
    items = []
    for entry in table.split(","):
        name, ramp, weight = entry.split()
        worst, best = ramp.split(">")
        items.append(RubricItem(name, float(worst), float(best), abs(float(weight)), weight.startswith("-")))
    return tuple(items)


def _rubric(first: str, later: str, full_merit: float = 1.0) -> Rubric:
    return Rubric(_items(first), _items(later), full_merit)


RUBRICS: Mapping[TextKind, Mapping[str, Rubric]] = MappingProxyType(
    {
        "summary": {
            "coherence": _rubric(
                "order 0>1 1, opening .3>.7 1",
                "repeated_bigrams .15>0 1.5, truncated 4>0 1.5, overlap 1>.1 1, shortest 5>12 1",
            ),
            "consistency": _rubric(
                "support .6>1 1",
                "numbers 1>0 -.3, wording .4>1 1, alignment .3>1 1, new_bigrams .2>0 1, passage .6>1 1",
                full_merit=0.8,
            ),
            # Judged without the source, so no feature here is measured against it.
            "fluency": _rubric(
                "ungrammatical 2>0 1, shortest 5>12 1",
                "repeated_words .2>0 1, repeated_bigrams .15>0 1, unfinished 1>0 -.1",
            ),
            "relevance": _rubric(
                "topic .4>.8 1.5",
                "opening .3>.7 1.5, repeated_bigrams .15>0 1, overlap 1>.1 1, shortest 5>12 1",
            ),
            "overall": _rubric(
                "topic .4>.8 1, support .6>1 1",
                "numbers 1>0 -.3, wording .4>1 1.5, repeated_bigrams .15>0 1.5, truncated 4>0 1.5, opening .3>.7 1, "
                "order 0>1 1, shortest 5>12 1",
            ),
        },
        "dialogue": {
            "naturalness": _rubric(
                "specific 1>10 1, sentences 1>4 1", "variety .75>1 1, self_talk 3>0 1, run_ons 2>0 1"
            ),
            "coherence": _rubric(
                "specific 1>10 1, sentences 1>4 1",
                "shared_words 0>4 1, self_talk 3>0 1, variety .75>1 1, run_ons 2>0 1, copied_trigrams .3>0 1",
            ),
            "engagingness": _rubric(
                "specific 1>10 2, sentences 1>4 1",
                "variety .75>1 1, self_talk 3>0 1, new_fact_words 0>4 1, shared_words 0>4 1",
            ),
            "groundedness": _rubric("fact_words 0>4 1", "new_fact_words 0>4 3, fact_run 0>3 1.5"),
            "understandability": _rubric("sentences 1>4 1", "variety .75>1 1, self_talk 3>0 1, run_ons 2>0 1"),
            "overall": _rubric(
                "specific 1>10 2, sentences 1>4 1",
                "variety .75>1 1, self_talk 3>0 1, shared_words 0>4 1, new_fact_words 0>4 1, run_ons 2>0 1",
            ),
        },
    }
)

_FACTUAL = (
    "consisten",
    "faithful",
    "factual",
    "ground",
    "accura",
    "halluc",
    "truth",
    "correct",
    "support",
    "knowledge",
)
_KEYWORDS: Mapping[TextKind, tuple[tuple[str, tuple[str, ...]], ...]] = MappingProxyType(
    {
        "summary": (
            ("coherence", ("coheren", "structur", "organi")),
            ("consistency", _FACTUAL),
            ("fluency", ("fluen", "gramma", "natural", "readab", "understand", "clarity")),
            ("relevance", ("relevan", "coverage", "informative", "content", "salien")),
        ),
        "dialogue": (
            ("naturalness", ("natural", "fluen", "gramma", "human")),
            ("coherence", ("coheren", "relevan", "topic", "context")),
            ("engagingness", ("engag", "interest")),
            ("groundedness", _FACTUAL),
            ("understandability", ("understand", "clarity", "readab")),
        ),
    }
)


def rubric_for(kind: TextKind, aspect: str) -> Rubric:
    """The rubric with a keyword that is in the aspect's name, else the one for overall quality."""
    name = aspect.lower()
    rubric_name = next((rubric for rubric, keys in _KEYWORDS[kind] if any(key in name for key in keys)), "overall")
    return RUBRICS[kind][rubric_name]


@lru_cache(maxsize=4)
def ramps(kind: TextKind) -> Mapping[str, RubricItem]:
    """Feature -> an item with its ramp, which is the same in all rubrics of the kind."""
    return {item.name: item for rubric in RUBRICS[kind].values() for item in rubric.items}


# --- guides to the raters ---

_MAX_EXTRA_FIRST = 2
"""Number of a guide's features that the Scorer uses besides its rubric's first items; the Critic raises the others."""

_WEIGHT = re.compile(r"^Weight (\d+(?:\.\d+)?) for (.+?)\.$", re.MULTILINE)
_SCORE_RANGE = re.compile(r"^Scores run from (-?\d+(?:\.\d+)?) to (-?\d+(?:\.\d+)?)\.", re.MULTILINE)

_FEATURES: Mapping[str, str] = {phrase: name for name, phrase in PHRASES.items()}


@dataclass(frozen=True, slots=True)
class Guide:
    """A guide to the raters, as fitted weights."""

    weights: tuple[tuple[str, float], ...]
    """(feature, weight), the heaviest first."""
    low: float
    """The score for merit 0."""
    high: float
    """The score for merit 1."""

    def __str__(self) -> str:
        lines = [f"Weight {weight:.1f} for {PHRASES[name]}." for name, weight in self.weights]
        return "\n".join([f"Scores run from {self.low:.2f} to {self.high:.2f}.", *lines])

    def apply_to(self, rubric: Rubric, kind: TextKind) -> Rubric:
        """The rubric with the weights of the guide."""
        all_items = ramps(kind)
        items = [replace(all_items[n], weight=w, penalty=False) for n, w in self.weights if n in all_items]
        first_names = {item.name for item in rubric.first}
        first = [item for item in items if item.name in first_names]
        first += [item for item in items if item.name not in first_names][:_MAX_EXTRA_FIRST]
        return Rubric(tuple(first), tuple(item for item in items if item not in first))


@lru_cache(maxsize=256)
def read_guide(text: str) -> Guide | None:
    """The guide in a text, or None if it has none in the offline LM's sentences."""
    matches = _WEIGHT.findall(text)
    weights = tuple((_FEATURES[phrase], float(number)) for number, phrase in matches if phrase in _FEATURES)
    score_range = _SCORE_RANGE.search(text)
    return Guide(weights, float(score_range[1]), float(score_range[2])) if weights and score_range else None
