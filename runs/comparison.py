"""Several judges on the same items: scores, agreement, paired differences, and which the data can tell apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from data.agreement import AgreementTable, Difference, GroupScores, Level, Statistic, agreement_table, compare, correct
from data.schema import Aspect, Corpus
from programs.compiled import AspectJudge
from programs.judge import Judgement, corpus_items
from runs.report import interval, markdown_table, p_text, text_table
from runs.scoring import Panel, calls_per_item, group_scores


@dataclass(frozen=True)
class Contestant:
    """One row of the table."""

    name: str
    aspects: Mapping[str, AspectJudge]
    """Aspect -> the judge that scores it."""


@dataclass(frozen=True)
class Standing:
    """What one contestant did."""

    name: str
    table: AgreementTable
    calls: float
    """LM calls per item, executed or not."""
    scores: Mapping[str, Sequence[GroupScores]]


@dataclass(frozen=True)
class Comparison:
    """All contestants on one corpus."""

    standings: tuple[Standing, ...]
    level: Level
    statistics: tuple[Statistic, ...]
    baseline: str
    differences: Mapping[str, Difference]
    """Contestant -> its difference to the baseline in the first statistic, averaged over aspects."""
    corrected: Mapping[str, float]
    """Contestant -> p-value of that difference, corrected for the number of comparisons (Holm)."""

    def to_json(self) -> dict[str, object]:
        return {
            "judges": {s.name: {"agreement": s.table.to_json(), "lm_calls_per_item": s.calls} for s in self.standings},
            "level": self.level,
            "baseline": self.baseline,
            "differences": {
                name: {
                    "value": d.value,
                    "low": d.low,
                    "high": d.high,
                    "p_value": d.p_value,
                    "p_corrected": self.corrected[name],
                }
                for name, d in self.differences.items()
            },
        }


def score_all(
    panel: Panel, corpus: Corpus, aspects: Sequence[Aspect], contestant: Contestant
) -> tuple[dict[str, list[GroupScores]], float]:
    """Score every candidate of the corpus; returns scores by aspect and LM calls per item."""
    scores: dict[str, list[GroupScores]] = {}
    everything: list[Judgement] = []
    for aspect in aspects:
        chosen = contestant.aspects[aspect.name]
        found = panel.judge(chosen.judge, corpus_items(corpus, aspect), f"{contestant.name}: {aspect.name}")
        scores[aspect.name] = group_scores(corpus, aspect, found, chosen.granularity)
        everything += found
    return scores, calls_per_item(everything)


def compare_all(
    found: Mapping[str, tuple[dict[str, list[GroupScores]], float]],
    *,
    statistics: tuple[Statistic, ...],
    level: Level,
    baseline: str,
    resamples: int,
    seed: int,
) -> Comparison:
    """Agreement of each contestant, and its paired difference to the baseline with corrected p-values."""
    standings = tuple(
        Standing(name, agreement_table(scores, resamples=resamples, seed=seed), calls, scores)
        for name, (scores, calls) in found.items()
    )
    base = found[baseline][0]
    differences = {
        name: compare(scores, base, statistic=statistics[0], level=level, resamples=resamples, seed=seed)
        for name, (scores, _) in found.items()
        if name != baseline
    }
    p_values = [1.0 if d.p_value is None else d.p_value for d in differences.values()]
    corrected = dict(zip(differences, correct(p_values), strict=True))
    return Comparison(standings, level, statistics, baseline, differences, corrected)


def best(comparison: Comparison, resamples: int, seed: int) -> str | None:
    """The contestant that the data set apart from every other one, or None where they cannot tell."""
    statistic, level = comparison.statistics[0], comparison.level
    ranked = sorted(
        (s for s in comparison.standings if s.table.average[level][statistic].value is not None),
        key=lambda s: -(s.table.average[level][statistic].value or 0.0),
    )
    if len(ranked) < 2:
        return None
    first, others = ranked[0], ranked[1:]
    p_values = [
        compare(first.scores, o.scores, statistic=statistic, level=level, resamples=resamples, seed=seed).p_value
        for o in others
    ]
    return first.name if all(p < 0.05 for p in correct([1.0 if p is None else p for p in p_values])) else None


def render(comparison: Comparison, aspects: Sequence[str], style: str, winner: str | None) -> str:
    """The table as text, Markdown or LaTeX: aspects x statistics, average, calls, difference to the baseline."""
    names = {"pearson": "r", "spearman": "ρ", "kendall": "τ-b"}
    marks = "/".join(names[s] for s in comparison.statistics)
    header = [
        "judge",
        *(f"{a} {marks}" for a in aspects),
        f"average {marks}",
        "LM calls per item",
        f"Δ to {comparison.baseline}",
        "p (Holm)",
    ]
    rows = []
    for standing in comparison.standings:
        cells = [_cell(comparison, standing.table.aspects[a][comparison.level]) for a in aspects]
        difference = comparison.differences.get(standing.name)
        rows.append(
            [
                standing.name + (" *" if standing.name == winner else ""),
                *cells,
                _average(comparison, standing),
                f"{standing.calls:.2f}",
                "–" if difference is None else interval(difference),
                "–" if difference is None else p_text(comparison.corrected[standing.name])[2:].lstrip("= "),
            ]
        )
    if style == "markdown":
        return markdown_table(header, rows)
    if style == "latex":
        return _latex(header, rows)
    return text_table(header, rows)


def _cell(comparison: Comparison, table: Mapping[Statistic, object]) -> str:
    values = [getattr(table[s], "value") for s in comparison.statistics]  # noqa: B009
    return "/".join("–" if v is None else f"{v:.3f}" for v in values)


def _average(comparison: Comparison, standing: Standing) -> str:
    average = standing.table.average[comparison.level]
    first = average[comparison.statistics[0]]
    extent = f" [{first.low:.3f}, {first.high:.3f}]" if first.low is not None and first.high is not None else ""
    return _cell(comparison, average) + extent


def _latex(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        text = " & ".join(cells).replace("ρ", r"$\rho$").replace("τ", r"$\tau$").replace("Δ", r"$\Delta$")
        return text.replace("–", "--").replace("_", r"\_") + r" \\"

    body = "\n".join(line(row) for row in rows)
    columns = "l" + "r" * (len(header) - 1)
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            line(header),
            r"\midrule",
            body,
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )
