"""The rubrics of the offline LM: which features count for which aspect, with which weight, and which role uses them.

A ramp turns a feature, which is a measurement of `programs.offline.features`, into a merit between 0 and 1. The
Scorer's first look is the mean of a few merits, assuming that the others are the same; the Critic can raise the others,
one in each round, in the order given here.

The tables were chosen by hand on half of the sources of SummEval and of Topical-Chat: features whose meaning
fits the aspect and whose correlation had the same sign in nearly every fifth of those sources, with mostly equal
weights. Other weights are not significantly worse; the choice of features is what counts. A guide to the raters
replaces the weights: its sentences are the only connection between a prompt in which it was fitted to ratings
(`programs.offline.tuning`) and one that contains it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from debate_judge.programs.offline.features import Kind, Measurement

Features = Mapping[str, Measurement]

PHRASES: Mapping[str, str] = MappingProxyType(
    {
        "support": "words known from the source",
        "passage": "sentences backed by a single passage",
        "wording": "the sentence furthest from the source's wording",
        "whole": "source sentences kept whole",
        "joints": "new joints between source words",
        "fragments": "places where copied fragments are spliced",
        "numbers": "numbers that the source does not have",
        "order": "agreement with the order of the source",
        "opening": "an opening on the main topic",
        "repeats": "repeated word pairs",
        "overlap": "overlap between two sentences",
        "echoes": "words repeated within a sentence",
        "topic": "closeness to the main topic",
        "cuts": "sentences cut short",
        "shortest": "length of the shortest sentence",
        "slips": "slips of grammar",
        "unfinished": "a missing end",
        "specific": "specific words",
        "sentences": "number of sentences",
        "selftalk": "clauses of the kind I think, I guess",
        "variety": "variety of words",
        "runon": "run-on clauses",
        "links": "words taken up from the conversation",
        "parroted": "word triples repeated from the conversation",
        "fact": "words shared with the fact",
        "newfact": "words that the fact adds to the conversation",
        "factrun": "words in a row from the fact",
    }
)
"""Name of a feature -> how text names it. Other roles recognise a feature in the debate by its phrase."""

_SHARES = (
    *("support", "passage", "wording", "whole", "joints", "opening", "repeats", "overlap", "echoes", "topic"),
    *("variety", "parroted"),
)
"""Features that are written in percent."""


def spoken(name: str, feature: Measurement) -> str:
    """The phrase of a feature with its value."""
    value = feature.value or 0.0
    return f"{PHRASES[name]} ({value:.0%})" if name in _SHARES else f"{PHRASES[name]} ({value:.3g})"


@dataclass(frozen=True, slots=True)
class Weighting:
    """The weight of one feature in an aspect."""

    name: str
    worst: float
    """The value of merit 0."""
    best: float
    """The value of merit 1."""
    weight: float
    fault: bool = False
    """Whether it can only lower the score, by its weight at most."""

    def merit(self, features: Features) -> float | None:
        """The feature's place between worst (0) and best (1), or None without a value."""
        value = features[self.name].value
        return None if value is None else min(1.0, max(0.0, (value - self.worst) / (self.best - self.worst)))


@dataclass(frozen=True, slots=True)
class Rubric:
    """The weighted features of one aspect."""

    first: tuple[Weighting, ...]
    """The Scorer's first look."""
    later: tuple[Weighting, ...]
    """What the Critic can raise, in this order."""
    enough: float = 1.0
    """The merit that gets the top of the scale: in some aspects raters forgive small faults."""

    @property
    def items(self) -> tuple[Weighting, ...]:
        return self.first + self.later

    def first_look(self, features: Features) -> float:
        """The merit of the Scorer's first look; 1 if none of its features has a value."""
        known = [(item.weight, merit) for item in self.first if (merit := item.merit(features)) is not None]
        return math.fsum(w * m for w, m in known) / math.fsum(w for w, _ in known) if known else 1.0

    def effects(self, features: Features) -> list[tuple[Weighting, float]]:
        """Each later item with the change of the score when it is raised, as a share of the scale.

        The changes add up and do not depend on what was raised before, so a lower threshold can only lengthen the list
        of items to raise. The ends of the scale are ignored here.
        """
        start = self.first_look(features)
        weights = math.fsum(item.weight for item in self.items if not item.fault)
        changes = []
        for item in self.later:
            merit = item.merit(features)
            if merit is None:
                change = 0.0
            elif item.fault:
                change = item.weight * (merit - 1)
            else:
                change = item.weight * (merit - start) / weights
            changes.append((item, change / self.enough))
        return changes

    def weigh(self, features: Features, raised: Collection[str]) -> float:
        """The score, 0 to 1, by the first look and the raised items; the others are assumed to have the same merit.

        With this assumption a feature that confirms the first look need not be raised, and candidates judged by
        different features stay comparable.
        """
        changes = (change for item, change in self.effects(features) if item.name in raised)
        return min(1.0, max(0.0, math.fsum((self.first_look(features) / self.enough, *changes))))


def _items(table: str) -> tuple[Weighting, ...]:
    """Parse `name worst>best weight`, items separated by commas; a minus sign before the weight marks a fault."""
    items = []
    for entry in table.split(","):
        name, ramp, weight = entry.split()
        worst, best = ramp.split(">")
        items.append(Weighting(name, float(worst), float(best), abs(float(weight)), weight.startswith("-")))
    return tuple(items)


def _rubric(first: str, later: str, enough: float = 1.0) -> Rubric:
    return Rubric(_items(first), _items(later), enough)


RUBRICS: Mapping[Kind, Mapping[str, Rubric]] = MappingProxyType(
    {
        "summary": {
            "coherence": _rubric(
                "order 0>1 1, opening .3>.7 1", "repeats .15>0 1.5, cuts 4>0 1.5, overlap 1>.1 1, shortest 5>12 1"
            ),
            "consistency": _rubric(
                "support .6>1 1",
                "numbers 1>0 -.3, wording .4>1 1, whole .3>1 1, joints .2>0 1, passage .6>1 1",
                enough=0.8,
            ),
            # Judged without the source, so by nothing that is measured against it.
            "fluency": _rubric("slips 2>0 1, shortest 5>12 1", "echoes .2>0 1, repeats .15>0 1, unfinished 1>0 -.1"),
            "relevance": _rubric(
                "topic .4>.8 1.5", "opening .3>.7 1.5, repeats .15>0 1, overlap 1>.1 1, shortest 5>12 1"
            ),
            "overall": _rubric(
                "topic .4>.8 1, support .6>1 1",
                "numbers 1>0 -.3, wording .4>1 1.5, repeats .15>0 1.5, cuts 4>0 1.5, opening .3>.7 1, order 0>1 1, "
                "shortest 5>12 1",
            ),
        },
        "dialogue": {
            "naturalness": _rubric("specific 1>10 1, sentences 1>4 1", "variety .75>1 1, selftalk 3>0 1, runon 2>0 1"),
            "coherence": _rubric(
                "specific 1>10 1, sentences 1>4 1",
                "links 0>4 1, selftalk 3>0 1, variety .75>1 1, runon 2>0 1, parroted .3>0 1",
            ),
            "engagingness": _rubric(
                "specific 1>10 2, sentences 1>4 1", "variety .75>1 1, selftalk 3>0 1, newfact 0>4 1, links 0>4 1"
            ),
            "groundedness": _rubric("fact 0>4 1", "newfact 0>4 3, factrun 0>3 1.5"),
            "understandability": _rubric("sentences 1>4 1", "variety .75>1 1, selftalk 3>0 1, runon 2>0 1"),
            "overall": _rubric(
                "specific 1>10 2, sentences 1>4 1",
                "variety .75>1 1, selftalk 3>0 1, links 0>4 1, newfact 0>4 1, runon 2>0 1",
            ),
        },
    }
)

_TRUTH = ("consisten", "faithful", "factual", "ground", "accura", "halluc", "truth", "correct", "support", "knowledge")
_KEYWORDS: Mapping[Kind, tuple[tuple[str, tuple[str, ...]], ...]] = MappingProxyType(
    {
        "summary": (
            ("coherence", ("coheren", "structur", "organi")),
            ("consistency", _TRUTH),
            ("fluency", ("fluen", "gramma", "natural", "readab", "understand", "clarity")),
            ("relevance", ("relevan", "coverage", "informative", "content", "salien")),
        ),
        "dialogue": (
            ("naturalness", ("natural", "fluen", "gramma", "human")),
            ("coherence", ("coheren", "relevan", "topic", "context")),
            ("engagingness", ("engag", "interest")),
            ("groundedness", _TRUTH),
            ("understandability", ("understand", "clarity", "readab")),
        ),
    }
)


def rubric_for(kind: Kind, aspect: str) -> Rubric:
    """The rubric whose keyword is in the aspect's name, else the one for the overall quality."""
    name = aspect.lower()
    rubric_name = next((rubric for rubric, keys in _KEYWORDS[kind] if any(key in name for key in keys)), "overall")
    return RUBRICS[kind][rubric_name]


@lru_cache(maxsize=4)
def ramps(kind: Kind) -> Mapping[str, Weighting]:
    """Every feature of a kind with its ramp from worst to best, which is the same in all rubrics of the kind."""
    return {item.name: item for rubric in RUBRICS[kind].values() for item in rubric.items}


# --- guides to the raters ---

_FIRST = 2
"""Number of a guide's features that the Scorer looks at in addition to its rubric's; the Critic raises the others."""

_WEIGHT = re.compile(r"^Weight (\d+(?:\.\d+)?) for (.+?)\.$", re.MULTILINE)
_ENDS = re.compile(r"^Scores run from (-?\d+(?:\.\d+)?) to (-?\d+(?:\.\d+)?)\.", re.MULTILINE)

_NAMES: Mapping[str, str] = {phrase: name for name, phrase in PHRASES.items()}


@dataclass(frozen=True, slots=True)
class Guide:
    """A guide to the raters."""

    weights: tuple[tuple[str, float], ...]
    """(feature, weight), the heaviest first."""
    low: float
    """The score of merit 0."""
    high: float
    """The score of merit 1."""

    def __str__(self) -> str:
        lines = [f"Weight {weight:.1f} for {PHRASES[name]}." for name, weight in self.weights]
        return "\n".join([f"Scores run from {self.low:.2f} to {self.high:.2f}.", *lines])

    def applied(self, kind: Kind, rubric: Rubric) -> Rubric:
        """The rubric with the weights of the guide."""
        known = ramps(kind)
        items = [replace(known[n], weight=w, fault=False) for n, w in self.weights if n in known]
        first_names = {item.name for item in rubric.first}
        chosen = [item for item in items if item.name in first_names]
        chosen += [item for item in items if item.name not in first_names][:_FIRST]
        return Rubric(tuple(chosen), tuple(item for item in items if item not in chosen))


@lru_cache(maxsize=256)
def read_guide(text: str) -> Guide | None:
    """The guide in a text, or None if it contains none in the sentences of the offline LM."""
    weights = tuple((_NAMES[phrase], float(number)) for number, phrase in _WEIGHT.findall(text) if phrase in _NAMES)
    ends = _ENDS.search(text)
    return Guide(weights, float(ends[1]), float(ends[2])) if weights and ends else None
