"""The rubrics of the offline LM: which readings count for which aspect, with which weight, and which role uses them.

A ramp turns a reading into a merit between 0 and 1. The Scorer's first look is the mean of a few merits, assuming that
the others are the same; the Critic can raise the others, one in each round, in the order given here.

The tables were chosen by hand on half of the sources of SummEval and of Topical-Chat: features whose meaning
fits the aspect and whose correlation had the same sign in nearly every fifth of those sources, with mostly equal
weights. Other weights are not significantly worse; the choice of features is what counts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from debate_judge.programs.offline.readings.summary import Measurement

Kind = Literal["summary", "dialogue"]


@dataclass(frozen=True, slots=True)
class Feature:
    """How a reading is named in text. Other roles recognise a reading in the debate by its phrase."""

    phrase: str
    share: bool = False
    """Whether the value is a share, written in percent."""

    def spoken(self, reading: Measurement) -> str:
        """The phrase with the value."""
        value = reading.value or 0.0
        return f"{self.phrase} ({value:.0%})" if self.share else f"{self.phrase} ({value:.3g})"


FEATURES: Mapping[str, Feature] = MappingProxyType(
    {
        "support": Feature("words known from the source", share=True),
        "passage": Feature("sentences backed by a single passage", share=True),
        "wording": Feature("the sentence furthest from the source's wording", share=True),
        "whole": Feature("source sentences kept whole", share=True),
        "joints": Feature("new joints between source words", share=True),
        "fragments": Feature("places where copied fragments are spliced"),
        "numbers": Feature("numbers that the source does not have"),
        "order": Feature("agreement with the order of the source"),
        "opening": Feature("an opening on the main topic", share=True),
        "repeats": Feature("repeated word pairs", share=True),
        "overlap": Feature("overlap between two sentences", share=True),
        "echoes": Feature("words repeated within a sentence", share=True),
        "topic": Feature("closeness to the main topic", share=True),
        "cuts": Feature("sentences cut short"),
        "shortest": Feature("length of the shortest sentence"),
        "slips": Feature("slips of grammar"),
        "unfinished": Feature("a missing end"),
        "specific": Feature("specific words"),
        "sentences": Feature("number of sentences"),
        "selftalk": Feature("clauses of the kind I think, I guess"),
        "variety": Feature("variety of words", share=True),
        "runon": Feature("run-on clauses"),
        "links": Feature("words taken up from the conversation"),
        "parroted": Feature("word triples repeated from the conversation", share=True),
        "fact": Feature("words shared with the fact"),
        "newfact": Feature("words that the fact adds to the conversation"),
        "factrun": Feature("words in a row from the fact"),
    }
)


@dataclass(frozen=True, slots=True)
class Weighting:
    """The weight of one reading in an aspect."""

    name: str
    worst: float
    """The value of merit 0."""
    best: float
    """The value of merit 1."""
    weight: float
    fault: bool = False
    """Whether it can only lower the score, by its weight at most."""

    def merit(self, reading: Measurement) -> float | None:
        """The reading's place between worst (0) and best (1), or None without a value."""
        if reading.value is None:
            return None
        return min(1.0, max(0.0, (reading.value - self.worst) / (self.best - self.worst)))


@dataclass(frozen=True, slots=True)
class Rubric:
    """The weighted readings of one aspect."""

    first: tuple[Weighting, ...]
    """The Scorer's first look."""
    later: tuple[Weighting, ...]
    """What the Critic can raise, in this order."""
    enough: float = 1.0
    """The merit that gets the top of the scale: in some aspects raters forgive small faults."""

    @property
    def items(self) -> tuple[Weighting, ...]:
        return self.first + self.later


def first_look(rubric: Rubric, readings: Mapping[str, Measurement]) -> float:
    """The merit of the Scorer's first look; 1 if none of its readings has a value."""
    known = [(i.weight, m) for i in rubric.first if (m := i.merit(readings[i.name])) is not None]
    return math.fsum(w * m for w, m in known) / math.fsum(w for w, _ in known) if known else 1.0


def effects(rubric: Rubric, readings: Mapping[str, Measurement]) -> list[tuple[Weighting, float]]:
    """Each later item with the change of the score when it is raised, as a share of the scale.

    The changes add up and do not depend on what was raised before, so a lower threshold can only lengthen the list of
    items to raise. The ends of the scale are ignored here.
    """
    start = first_look(rubric, readings)
    weights = math.fsum(i.weight for i in rubric.items if not i.fault)
    changes = []
    for item in rubric.later:
        merit = item.merit(readings[item.name])
        if merit is None:
            change = 0.0
        elif item.fault:
            change = item.weight * (merit - 1)
        else:
            change = item.weight * (merit - start) / weights
        changes.append((item, change / rubric.enough))
    return changes


def weigh(rubric: Rubric, readings: Mapping[str, Measurement], raised: Collection[str]) -> float:
    """The score, 0 to 1, by the first look and the raised items; the others are assumed to have the same merit.

    With this assumption a reading that confirms the first look need not be raised, and candidates judged by different
    readings stay comparable.
    """
    changes = (change for item, change in effects(rubric, readings) if item.name in raised)
    merit = math.fsum((first_look(rubric, readings) / rubric.enough, *changes))
    return min(1.0, max(0.0, merit))


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
            "fluency": _rubric(
                "slips 2>0 1, shortest 5>12 1",
                "fragments 15>0 1, cuts 4>0 1, wording .4>1 1, echoes .2>0 1, unfinished 1>0 -.1",
                enough=0.85,
            ),
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
    found = next((rubric for rubric, keys in _KEYWORDS[kind] if any(key in name for key in keys)), "overall")
    return RUBRICS[kind][found]
