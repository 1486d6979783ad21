"""Figures that papers printed for judges on public sets (`published.toml`), as tables of their own.

They were not computed here, and differ in LM, items (all of a set, not a held-out part) and conventions.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from debate_judge.data.agreement.tables import Statistic
from debate_judge.data.schema import Corpus, Level
from debate_judge.runs.comparison.results import EvalSetup
from debate_judge.runs.comparison.table import SYMBOLS, format_value
from debate_judge.runs.reports.tables import DataTable

MEASURES = {
    "accuracy": "accuracy",
    "kappa": "Cohen's kappa",
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
}
"""Measure of decisions -> its heading, in the order of `PublishedRow.values`."""

_FIRST_COLUMNS = ("published, not run here", "LM")


@dataclass(frozen=True)
class PublishedRow:
    """The figures of one judge in a paper."""

    judge: str
    lm: str
    values: tuple[float | None, ...]
    """None where the paper prints no figure."""


@dataclass(frozen=True)
class PublishedTable:
    """Figures of one paper, data set and convention: correlations, or measures of decisions where `level` is None."""

    source: str
    """The paper and its table."""
    data: tuple[str, ...]
    """Names of the set for `--data`."""
    convention: str
    """How the figures were computed, as far as the paper says."""
    rows: tuple[PublishedRow, ...]
    level: Level | None = None
    statistics: tuple[Statistic, ...] = ()
    aspects: tuple[str, ...] = ()
    task: str = ""

    def cell(self, row: PublishedRow, aspect: str | None, statistic: Statistic) -> float | None:
        """A printed correlation, or None; an aspect of None is the average."""
        if statistic not in self.statistics or (aspect is not None and aspect not in self.aspects):
            return None
        column = 0 if aspect is None else 1 + self.aspects.index(aspect)
        return row.values[column * len(self.statistics) + self.statistics.index(statistic)]


@cache
def load_published_tables() -> tuple[PublishedTable, ...]:
    """All tables of `published.toml`."""
    text = resources.files(__package__).joinpath("published.toml").read_text(encoding="utf-8")
    return tuple(_parse_table(entry) for entries in tomllib.loads(text).values() for entry in entries)


def _parse_table(entry: dict[str, Any]) -> PublishedTable:
    rows = tuple(
        PublishedRow(judge, lm, tuple(None if value == "–" else value for value in values))
        for judge, lm, *values in entry.pop("rows")
    )
    data = entry.pop("data")
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
    return PublishedTable(data=(data,) if isinstance(data, str) else tuple(data), rows=rows, **fields)


def matching_correlation_tables(setup: EvalSetup) -> list[PublishedTable]:
    """The tables of correlations of the same set, level and at least one of the statistics."""
    return [
        table
        for table in load_published_tables()
        if setup.corpus.origin.name in table.data
        and table.level == setup.level
        and set(table.statistics) & set(setup.statistics)
    ]


def matching_decision_tables(corpus: Corpus) -> list[PublishedTable]:
    """The tables of decisions of the same set."""
    return [t for t in load_published_tables() if t.task == corpus.task.name and corpus.origin.name in t.data]


def published_tables(setup: EvalSetup) -> list[DataTable]:
    """The matching correlations as one table, with a note on their limits, and each matching table of decisions."""
    tables, decision_tables = matching_correlation_tables(setup), matching_decision_tables(setup.corpus)
    return [*([_correlations(tables, setup)] if tables else []), *map(_decisions, decision_tables)]


def no_published_figures(setup: EvalSetup) -> str | None:
    """A message that no published figures match; None where some do."""
    if matching_correlation_tables(setup) or matching_decision_tables(setup.corpus):
        return None
    statistics = " or ".join(setup.statistics)
    return f"no published figures are kept for {setup.corpus.origin.name} at {setup.level} level in {statistics}"


def _correlations(tables: list[PublishedTable], setup: EvalSetup) -> DataTable:
    def cells(table: PublishedTable, row: PublishedRow, aspect: str | None) -> str:
        if aspect is not None and aspect not in table.aspects:
            return "–"
        return "/".join(format_value(table.cell(row, aspect, s)) for s in setup.statistics)

    symbols, names = "/".join(SYMBOLS[s] for s in setup.statistics), [a.name for a in setup.aspects]
    rows = [
        [
            row.judge,
            row.lm,
            *(cells(table, row, name) for name in names),
            # An average of other aspects than those of the table above would mislead.
            cells(table, row, None) if not table.aspects or set(table.aspects) == set(names) else "–",
            f"[{number}]",
        ]
        for number, table in enumerate(tables, 1)
        for row in table.rows
    ]
    header = [*_FIRST_COLUMNS, *(f"{name} {symbols}" for name in names), f"average {symbols}", "source"]
    caption = "\n".join(f"[{i}] {table.source}: {table.convention}" for i, table in enumerate(tables, 1))
    return DataTable(header, rows, caption, keys=2)


def _decisions(table: PublishedTable) -> DataTable:
    measured = [i for i in range(len(MEASURES)) if any(row.values[i] is not None for row in table.rows)]
    rows = [[row.judge, row.lm, *(format_value(row.values[i]) for i in measured)] for row in table.rows]
    header = [*_FIRST_COLUMNS, *(list(MEASURES.values())[i] for i in measured)]
    return DataTable(header, rows, f"{table.source}: {table.convention}", keys=2)


def published_json(setup: EvalSetup) -> dict[str, Any]:
    """The matching tables as plain values."""

    def correlations(table: PublishedTable, row: PublishedRow) -> dict[str, Any]:
        cells = {name: {s: table.cell(row, name, s) for s in table.statistics} for name in (None, *table.aspects)}
        return {"average": cells.pop(None), "aspects": cells}

    def decisions(table: PublishedTable, row: PublishedRow) -> dict[str, Any]:
        return dict(zip(MEASURES, row.values, strict=True))

    def table_json(
        table: PublishedTable, figures: Callable[[PublishedTable, PublishedRow], dict[str, Any]]
    ) -> dict[str, Any]:
        rows = [
            {"judge": row.judge, "lm": None if row.lm == "–" else row.lm, **figures(table, row)} for row in table.rows
        ]
        level = {"level": table.level} if table.level else {}
        return {"source": table.source, "data": table.data[-1], **level, "convention": table.convention, "rows": rows}

    record = {"published": [table_json(table, correlations) for table in matching_correlation_tables(setup)]}
    if decision_tables := matching_decision_tables(setup.corpus):
        record["published_decisions"] = [table_json(table, decisions) for table in decision_tables]
    return record
