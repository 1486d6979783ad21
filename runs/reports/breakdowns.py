"""How a judge's results are spread: its scores over the points of the scale, its decisions over kinds of sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from debate_judge.data.agreement.decisions import DecisionRule, evaluate_decisions
from debate_judge.data.agreement.tables import GroupScores
from debate_judge.data.schema import Aspect, Corpus, Scale
from debate_judge.runs.reports.tables import DataTable

Scores = Mapping[str, Sequence[GroupScores]]
"""Aspect -> the scores of one judge."""

RATERS = "raters"
"""The row of the mean ratings."""

MAX_POINTS = 11
"""Scales with more points have no table of shares."""


def score_shares(judges: Mapping[str, Scores], aspects: Sequence[Aspect]) -> dict[str, dict[str, dict[str, float]]]:
    """Aspect -> `RATERS` or judge -> point of the scale -> share of its scores in per cent, rounded to whole points.

    As in table 2 of the DEBATE paper. Mean ratings and scores between two points count for the nearer one, those in
    the middle for the higher one.
    """
    shares: dict[str, dict[str, dict[str, float]]] = {}
    for aspect in aspects:
        points = _points(aspect.scale)
        if not points or not judges:
            continue
        groups = next(iter(judges.values()))[aspect.name]
        values = {RATERS: [rating for group in groups for rating in group.ratings]}
        values |= {name: [s for group in scores[aspect.name] for s in group.scores] for name, scores in judges.items()}
        shares[aspect.name] = {name: _shares(listed, aspect.scale, points) for name, listed in values.items()}
    return shares


def score_shares_tables(shares: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[DataTable]:
    """A table for each aspect with a row for the raters and one for each judge."""
    return [
        DataTable(
            ["", *next(iter(rows.values()))],
            [[name, *(f"{share:.2f}" for share in row.values())] for name, row in rows.items()],
            f"{aspect}: share of scores by point of the scale, in per cent",
        )
        for aspect, rows in shares.items()
    ]


def decisions_by_category(
    judges: Mapping[str, Scores], rules: Mapping[str, DecisionRule], corpus: Corpus
) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """Aspect -> judge -> category of the sources -> `accuracy`, `kappa` and the number of `decisions`.

    As in figure 3 of the ChatEval paper. Empty where no source has a category.
    """
    categories = {group.id: group.category for group in corpus.groups if group.category}
    by_aspect: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
    for name, scores in judges.items():
        for category in dict.fromkeys(categories.values()):
            of_category = {
                aspect: [group for group in groups if categories.get(group.group) == category]
                for aspect, groups in scores.items()
            }
            for aspect, result in evaluate_decisions(of_category, rules, intervals=False).items():
                values = {m: result.measures[m].value if m in result.measures else None for m in ("accuracy", "kappa")}
                counted = {**values, "decisions": sum(result.labels.values())}
                by_aspect.setdefault(aspect, {}).setdefault(name, {})[category] = counted
    return by_aspect


def category_tables(by_aspect: Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]]) -> list[DataTable]:
    """A table for each aspect with a row for each judge and a column for each category."""
    tables = []
    for aspect, judges in by_aspect.items():
        first = next(iter(judges.values()))
        header = ["judge", *(f"{category} ({values['decisions']})" for category, values in first.items())]
        rows = [
            [name, *(f"{_number(values['accuracy'])}/{_number(values['kappa'])}" for values in row.values())]
            for name, row in judges.items()
        ]
        tables.append(DataTable(header, rows, f"{aspect}: accuracy/Cohen's kappa of the decisions by category"))
    return tables


def _points(scale: Scale) -> list[float]:
    count = round((scale.high - scale.low) / scale.step) + 1
    return [scale.low + number * scale.step for number in range(count)] if count <= MAX_POINTS else []


def _shares(values: Iterable[float | None], scale: Scale, points: Sequence[float]) -> dict[str, float]:
    counts = Counter(f"{scale.rounded(value, 'whole'):g}" for value in values if value is not None)
    return {f"{point:g}": 100 * counts[f"{point:g}"] / max(1, counts.total()) for point in points}


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
