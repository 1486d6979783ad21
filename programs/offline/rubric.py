"""The rubrics of the offline LM: which features of a text count in an aspect, and how much.

The Scorer's first score is the mean of the first features of a rubric, as if the others were equal to it; the
Critic can raise the others, one in each round. A guide to the raters replaces the rubric by features and weights that
were fitted to ratings (`programs.offline.tuning`): its sentences are all that a prompt carries of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from debate_judge.programs.offline.features import Measurement, TextKind

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
