"""What a comparison shows besides correlations, for the terminal, the report and JSON of `compare` and the compile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from debate_judge.runs.comparison.results import Comparison
from debate_judge.runs.reports import absolute_agreement, breakdowns, decisions, raters
from debate_judge.runs.reports.tables import DataTable


@dataclass(frozen=True)
class EvidenceSection:
    """One kind of further figures."""

    title: str
    """Of the report's section."""
    tables: tuple[DataTable, ...]
    record: Mapping[str, Any]
    """Key -> JSON values."""


def evidence(comparison: Comparison, names: Mapping[str, str] | None = None) -> list[EvidenceSection]:
    """The kinds of figures that these data and judges have.

    Args:
        comparison: The judges.
        names: Judge -> its name in tables, for judges that have another one there.
    """
    setup, results = comparison.setup, comparison.results

    def named(by_judge: Mapping[str, Any]) -> dict[str, Any]:
        return {(names or {}).get(judge, judge): figures for judge, figures in by_judge.items()}

    found = []
    if by_judge := comparison.absolute_agreement:
        table = absolute_agreement.table(named(by_judge))
        record = {"absolute_agreement": absolute_agreement.to_json(by_judge)}
        found.append(EvidenceSection("Absolute agreement", (table,), record))
    if decided := comparison.decisions:
        tables = tuple(decisions.tables(named(decided)))
        found.append(EvidenceSection("Decisions", tables, {"decisions": decisions.to_json(decided)}))
        scores = {result.name: result.judge.scores for result in results if result.judge.on_scale}
        if by_category := breakdowns.decisions_by_category(scores, setup.decision_rules, setup.corpus):
            tables = tuple(breakdowns.category_tables(by_category))
            found.append(EvidenceSection("Decisions by category", tables, {"decisions_by_category": by_category}))
    on_scale = {result.name: result.judge.scores for result in results if setup.on_scale(result.judge)}
    rated = [aspect for aspect in setup.aspects if aspect.name not in setup.decision_rules]
    if shares := breakdowns.score_shares(on_scale, rated):
        tables = tuple(breakdowns.score_shares_tables({aspect: named(rows) for aspect, rows in shares.items()}))
        found.append(EvidenceSection("Shares of scores", tables, {"score_shares": shares}))
    if compared := comparison.rater_agreement:
        table = raters.table(named(compared), setup.level, setup.statistics[0])
        found.append(EvidenceSection("Judge vs. individual raters", (table,), {"raters": raters.to_json(compared)}))
    return found
