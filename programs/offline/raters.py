"""The offline LM's guides to the raters: it fits weights of its readings to ratings, and uses such weights.

Asked for a guide, it measures every rated text of the prompt like a candidate, fits how much each reading says about
the ratings, and writes the weights as sentences. If a later prompt contains these sentences, the Scorer uses the
weights and looks at the heaviest readings first, and the Critic raises the others in their order. The sentences are the
only connection between the two.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from debate_judge.programs.offline import prompt as offline_prompt
from debate_judge.programs.offline import rubric as offline_rubric
from debate_judge.programs.offline.prompt import Prompt
from debate_judge.programs.offline.readings import dialogue as offline_dialogue
from debate_judge.programs.offline.readings import summary as offline_summary
from debate_judge.programs.offline.readings.summary import Measurement
from debate_judge.programs.offline.rubric import FEATURES, RUBRICS, Kind, Rubric, Weighting

_SHRINKAGES = (0.05, 0.2, 0.6, 2.0)
"""Strengths, relative to the number of ratings, with which fitted weights are shrunk to those of the aspect's rubric;
one is chosen by cross-validation."""

_CAUTIOUS = 0.6
"""The strength used with too few sources to choose one."""

_FOLDS = 4
"""Number of folds of that cross-validation."""

_PRIOR_SPREAD = 0.7
"""Share of the scale that the rubric's merits are assumed to span before any rating is seen."""

_LEAST_SHARE = 0.02
"""Least share of all weights that is written into a guide."""

_FIRST = 2
"""Number of the guide's readings that the Scorer looks at in addition to its rubric's; the Critic raises the others."""

_WEIGHT = re.compile(r"^Weight (\d+(?:\.\d+)?) for (.+?)\.$", re.MULTILINE)
_ENDS = re.compile(r"^Scores run from (-?\d+(?:\.\d+)?) to (-?\d+(?:\.\d+)?)\.", re.MULTILINE)

_NAMES: Mapping[str, str] = {feature.phrase: name for name, feature in FEATURES.items()}


@dataclass(frozen=True, slots=True)
class Learnt:
    """A parsed guide."""

    weights: tuple[tuple[str, float], ...]
    """(reading, weight), the heaviest first."""
    low: float
    """The score of merit 0."""
    high: float
    """The score of merit 1."""


@lru_cache(maxsize=256)
def learnt(text: str) -> Learnt | None:
    """The guide in a text, or None if it contains none in the sentences of the offline LM."""
    weights = tuple((_NAMES[phrase], float(number)) for number, phrase in _WEIGHT.findall(text) if phrase in _NAMES)
    ends = _ENDS.search(text)
    if not weights or ends is None:
        return None
    return Learnt(weights, float(ends[1]), float(ends[2]))


def under(guide: Learnt, kind: Kind, rubric: Rubric) -> Rubric:
    """The rubric with the weights of a guide."""
    ramps = _ramps(kind)
    items = [_weighed(ramps[name], weight) for name, weight in guide.weights if name in ramps]
    own = {item.name for item in rubric.first}
    chosen = [item for item in items if item.name in own]
    chosen += [item for item in items if item.name not in own][:_FIRST]
    later = [item for item in items if item not in chosen]
    return Rubric(tuple(chosen or items[:_FIRST]), tuple(later if chosen else items[_FIRST:]))


def write_guide(prompt: Prompt) -> dict[str, str]:
    """Write the guide that a prompt asks for; without ratings that differ, a sentence that says so."""
    if "drafts" in prompt.inputs:
        return merge_guides(prompt)
    question = offline_prompt.question(prompt)
    sources = _sources(prompt.input("rated"))
    kind: Kind = "dialogue" if any(s.get("context") for s in sources) else question.kind
    rubric = offline_rubric.rubric_for(kind, question.aspect)
    ramps = _ramps(kind)
    rows, ratings = _table(sources, kind, ramps)
    if not any(len(set(own)) > 1 for own in ratings):
        # With one candidate per source, candidates are compared across sources.
        rows, ratings = [[row for own in rows for row in own]], [[rating for own in ratings for rating in own]]
    if not any(len(set(own)) > 1 for own in ratings):
        return {"analysis": offline_prompt.NOTHING, "guide": "The ratings shown do not differ."}
    weights = _fit(rows, ratings, _prior(rubric, ramps, question.high - question.low))
    low, high = _ends(rows, ratings, weights)
    total = math.fsum(weights)
    named = sorted(zip(ramps, weights, strict=True), key=lambda pair: -pair[1])
    lines = [
        f"Weight {10 * weight / total:.1f} for {FEATURES[name].phrase}."
        for name, weight in named
        if weight > _LEAST_SHARE * total
    ]
    candidates = sum(map(len, ratings))
    analysis = f"{offline_prompt.NOTHING} Weights were fitted to {candidates} rated texts of {len(sources)} sources."
    return {"analysis": analysis, "guide": "\n".join([f"Scores run from {low:.2f} to {high:.2f}.", *lines])}


def merge_guides(prompt: Prompt) -> dict[str, str]:
    """The mean of several guides: of each weight, and of the ends of the scale."""
    drafts = [
        found
        for text in re.split(r"^Guide \d+:$", prompt.input("drafts"), flags=re.MULTILINE)
        if (found := learnt(text))
    ]
    if not drafts:
        return {"guide": offline_prompt.NOTHING}
    names = dict.fromkeys(name for draft in drafts for name, _ in draft.weights)
    means = {name: math.fsum(dict(d.weights).get(name, 0.0) for d in drafts) / len(drafts) for name in names}
    lines = [
        f"Weight {means[name]:.1f} for {FEATURES[name].phrase}." for name in sorted(means, key=lambda n: -means[n])
    ]
    low, high = (math.fsum(ends) / len(drafts) for ends in zip(*((d.low, d.high) for d in drafts), strict=True))
    return {"guide": "\n".join([f"Scores run from {low:.2f} to {high:.2f}.", *lines])}


def _sources(text: str) -> list[dict[str, Any]]:
    found = []
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("candidates"), list):
            found.append(record)
    return found


@lru_cache(maxsize=4)
def _ramps(kind: Kind) -> dict[str, Weighting]:
    """Every reading of a kind with its ramp from worst to best, which is the same in all rubrics of the kind."""
    found: dict[str, Weighting] = {}
    for rubric in RUBRICS[kind].values():
        for item in rubric.items:
            found.setdefault(item.name, item)
    return found


def _weighed(ramp: Weighting, weight: float) -> Weighting:
    return Weighting(ramp.name, ramp.worst, ramp.best, weight)


def _table(
    sources: Sequence[Mapping[str, Any]], kind: Kind, ramps: Mapping[str, Weighting]
) -> tuple[list[list[list[float]]], list[list[float]]]:
    """Merits by source, candidate and reading, and the ratings by source and candidate."""
    rows, ratings = [], []
    for source in sources:
        about, context = str(source.get("source", "")), str(source.get("context", ""))
        measured = [_measure(kind, about, context, str(c.get("candidate", ""))) for c in source["candidates"]]
        rows.append([[_merit(ramp, found) for ramp in ramps.values()] for found in measured])
        ratings.append([float(c.get("raters_mean", 0.0)) for c in source["candidates"]])
    return rows, ratings


def _measure(kind: Kind, source: str, context: str, text: str) -> dict[str, Measurement]:
    if kind == "dialogue":
        return offline_dialogue.readings(source, context, text)
    return offline_summary.readings(source, text)


def _merit(ramp: Weighting, found: Mapping[str, Measurement]) -> float:
    merit = ramp.merit(found[ramp.name])
    return 1.0 if merit is None else merit


def _prior(rubric: Rubric, ramps: Mapping[str, Weighting], span: float) -> list[float]:
    own = {item.name: item.weight for item in rubric.items}
    total = math.fsum(own.values())
    return [_PRIOR_SPREAD * span * own.get(name, 0.0) / total for name in ramps]


def _fit(rows: list[list[list[float]]], ratings: list[list[float]], prior: list[float]) -> list[float]:
    """Non-negative least squares within sources, shrunk to the prior.

    Within sources, because only differences between candidates of one source matter for their ranks; non-negative,
    because each ramp already says which end is worse.

    Args:
        rows: Merits by source, candidate and reading.
        ratings: By source and candidate.
        prior: Weight of each reading in the aspect's rubric.
    """
    import numpy as np

    x = [np.array(own) - np.mean(own, axis=0) for own in rows]
    y = [np.array(own) - np.mean(own) for own in ratings]
    target = np.array(prior)

    def unexplained(pull: float) -> float:
        """Squared error on sources that were left out, summed over the parts."""
        total = 0.0
        for fold in range(_FOLDS):
            kept = [i for i in range(len(x)) if i % _FOLDS != fold]
            weights = _least_squares([x[i] for i in kept], [y[i] for i in kept], target, pull)
            total += sum(float(((y[i] - x[i] @ weights) ** 2).sum()) for i in range(fold, len(x), _FOLDS))
        return total

    pull = min(_SHRINKAGES, key=unexplained) if len(x) >= _FOLDS else _CAUTIOUS
    found: list[float] = _least_squares(x, y, target, pull).tolist()
    return found if math.fsum(found) > 0 else prior


def _least_squares(x: Sequence[Any], y: Sequence[Any], target: Any, pull: float) -> Any:
    """Non-negative weights, shape (readings,), for merits and ratings that are centred within each source."""
    import numpy as np
    from scipy.optimize import nnls

    strength = math.sqrt(pull * sum(map(len, y)))
    left = np.vstack([*x, strength * np.eye(len(target))])
    weights, _ = nnls(left, np.concatenate([*y, strength * target]))
    return weights


def _ends(rows: list[list[list[float]]], ratings: list[list[float]], weights: list[float]) -> tuple[float, float]:
    """The scores of merit 0 and 1 that fit the ratings best on average over all candidates."""
    total = math.fsum(weights)
    merits = [math.fsum(w * m for w, m in zip(weights, row, strict=True)) / total for own in rows for row in own]
    values = [rating for own in ratings for rating in own]
    # The weights already are in points of the scale, so their sum is what lies between merit 0 and 1.
    middle, level = math.fsum(merits) / len(merits), math.fsum(values) / len(values)
    return level - total * middle, level + total * (1 - middle)
