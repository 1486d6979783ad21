"""The table of all judges, the findings and the notes about it. Only renders; computes no figure."""

from __future__ import annotations

from collections.abc import Mapping

from debate_judge.data.agreement.intervals import METHODS
from debate_judge.data.agreement.results import STATISTIC_NAMES, WHY_NO_P_VALUE
from debate_judge.data.agreement.tables import Agreement, Statistic
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.comparison.plan import ComparisonContext
from debate_judge.runs.comparison.results import AVERAGE, Comparison, JudgeResult
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.text import interval, p_cell, power_text

SYMBOLS: Mapping[Statistic, str] = {"pearson": "r", "spearman": "ρ", "kendall": "τ-b"}


def judges_table(comparison: Comparison, *, all_intervals: bool = False) -> DataTable:
    """Aspects x statistics, average, LM calls and cost per item, paired difference to the baseline with p-value.

    Args:
        comparison: The results; a value that is the best of its column has a star (`Comparison.best`).
        all_intervals: Show intervals in all columns, and not only in that of the average.
    """
    statistics, columns = comparison.setup.statistics, comparison.setup.columns
    symbols = "/".join(SYMBOLS[s] for s in statistics)
    last_columns: dict[str, dict[str, str]] = {}
    rows = []
    for result in comparison.rows:
        cells = []
        for column in columns:
            agreements = [result.agreement(column)[s] for s in statistics]
            star = " *" if comparison.best[column] == result.name else ""
            with_interval = all_intervals or column == columns[-1]
            cells.append(
                "/".join(format_value(a.value) for a in agreements)
                + star
                + (_interval_suffix(agreements[0]) if with_interval else "")
            )
        name = f"{result.name} (compiled on these sources)" if result.judge.compiled_on else result.name
        rows.append((name, *cells))
        for heading, cell in _last_cells(comparison, result).items():
            last_columns.setdefault(heading, {})[name] = cell
    header = ("judge", *(f"{column} {symbols}" for column in columns), *last_columns)
    return DataTable(header, [(*row, *(column[row[0]] for column in last_columns.values())) for row in rows])


def format_value(value: float | None) -> str:
    """Three decimals, or a dash where there is no value."""
    return "–" if value is None else f"{value:.3f}"


def format_usd(usd: float) -> str:
    """US dollars, with two significant digits below one dollar."""
    return "0" if usd == 0 else f"{usd:.2f}" if usd >= 1 else f"{usd:.2g}"


def _interval_suffix(agreement: Agreement) -> str:
    if agreement.low is None or agreement.high is None:
        return ""
    return f" [{agreement.low:.3f}, {agreement.high:.3f}]"


def _last_cells(comparison: Comparison, result: JudgeResult) -> dict[str, str]:
    """Heading -> cell, of the columns after those of agreement; columns that no judge needs are left out."""
    judge, rows = result.judge, comparison.rows
    cells = {"LM calls per item": "–" if judge.calls is None else f"{judge.calls:.2f}"}
    if any(row.judge.seconds_per_item for row in rows):
        cells["LM seconds per item"] = "–" if judge.seconds_per_item is None else f"{judge.seconds_per_item:.2f}"
    if any(row.judge.usd_per_thousand for row in rows):
        cells["$ per 1,000 items"] = "–" if judge.usd_per_thousand is None else format_usd(judge.usd_per_thousand)
    difference = comparison.differences.get(result.name)
    cells[f"Δ to {comparison.baseline}"] = "–" if difference is None else interval(difference)
    cells["p (Holm)"] = "–" if difference is None else p_cell(comparison.corrected_p_values[result.name])
    if any(row.judge.unscored for row in rows):
        cells["unscored"] = str(sum(judge.unscored.values()))
    return cells


def heading(comparison: Comparison, context: ComparisonContext) -> str:
    """What the numbers of the table are, and which groups they are from."""
    setup = comparison.setup
    names = " / ".join(STATISTIC_NAMES[statistic] for statistic in setup.statistics)
    return f"{setup.level}-level {names} with the mean human rating; {context.groups}"


def verdict(comparison: Comparison) -> list[str]:
    """Which judge is the best, and judges whose figures are no evidence or missing."""
    best, count = comparison.best[AVERAGE], comparison.setup.corpus.sources
    found = (
        f"{best} is the best judge on average: it differs from all others (p < 0.05, Holm over all columns)."
        if best
        else f"{count} sources are too few to tell which judge is the best on average: none differs from all others "
        "(p < 0.05, Holm over all columns)."
    )
    groups = len(comparison.setup.corpus.groups)
    return [
        *([found] if len(comparison.results) > 1 else []),
        *(
            f"{result.name} was compiled on {result.judge.compiled_on} of these {groups} groups: its figures are no "
            "evidence, so it is not compared with the others."
            for result in comparison.in_sample
        ),
        *(f"{name} has no row, because it scored nothing: {why}" for name, why in comparison.failed.items()),
        *(
            [f"No differences are shown, because the baseline {comparison.baseline} has no row."]
            if comparison.baseline in comparison.failed
            else []
        ),
    ]


def notes(comparison: Comparison, context: ComparisonContext) -> list[str]:
    """How the figures were made, and their limits."""
    return [
        heading(comparison, context),
        *_interval_notes(comparison),
        *(["*: differs from every other judge in its column"] if any(comparison.best.values()) else []),
        *(
            f"{name} against {comparison.baseline}: {text}"
            for name, difference in comparison.differences.items()
            if (text := power_text(difference, "groups"))
        ),
        *group_notes(comparison, {result.name: result.name for result in comparison.rows}),
        *(
            ["LM seconds: of a judge's calls one after the other; – where an earlier run had stored a reply"]
            if any(result.judge.seconds_per_item for result in comparison.rows)
            else []
        ),
        _price_note(comparison, context),
        *([context.lm_note] if context.stand_in else []),
        *(
            f"{result.name}: up to {result.judge.together} candidates of a source in one call"
            for result in comparison.rows
            if result.judge.together > 1
        ),
        *(
            f"{result.name} left {sum(result.judge.unscored.values())} unscored: "
            + ", ".join(f"{reason} {count}" for reason, count in result.judge.unscored.items())
            for result in comparison.rows
            if result.judge.unscored
        ),
    ]


def _interval_notes(comparison: Comparison) -> list[str]:
    """How intervals and p-values of the first statistic are made."""
    setup = comparison.setup
    if setup.level == "system":
        return [
            "correlations over systems have no intervals and no p-values: few groups leave the systems' means noisy, "
            "which pulls these correlations towards 0"
        ]
    tables = [table for r in comparison.rows for table in (*r.table.aspects.values(), r.table.average)]
    cells = [table[setup.level][setup.statistics[0]] for table in tables]
    used = {cell.method for cell in cells} | {d.method for d in comparison.differences.values()}
    lines = [f"95 % intervals of the first statistic: {'; '.join(METHODS[m] for m in METHODS if m in used)}"]
    if any(p is None for p in comparison.corrected_p_values.values()):
        lines.append(f"differences are paired; no p-value is given: {WHY_NO_P_VALUE}")
    elif comparison.corrected_p_values:
        lines.append(
            "differences are paired; p-values by flipping the signs of groups (all patterns with up to 16 groups, else "
            f"100,000 random ones), corrected over {len(comparison.corrected_p_values)} comparisons (Holm)"
        )
    return lines


def group_notes(comparison: Comparison, names: Mapping[str, str]) -> list[str]:
    """How many groups have constant scores (counted as 0; also the value without them) or ratings (left out).

    `names` has the name of each judge in the notes.
    """
    level, statistic = comparison.setup.level, comparison.setup.statistics[0]
    cells = {names[result.name]: result.table.average[level][statistic] for result in comparison.rows}
    constant = ", ".join(
        f"{name} {cell.constant} (without them {format_value(cell.value_without_constant)})"
        for name, cell in cells.items()
        if cell.constant
    )
    undefined = ", ".join(f"{name} {cell.undefined}" for name, cell in cells.items() if cell.undefined)
    return [
        *([f"groups to which a judge gave equal scores count 0; over all aspects: {constant}"] if constant else []),
        *([f"groups whose ratings are all equal, left out, over all aspects: {undefined}"] if undefined else []),
    ]


def _price_note(comparison: Comparison, context: ComparisonContext) -> str:
    """What the US dollars are, or why there are none."""
    if not any(result.judge.price for result in comparison.rows) and context.stand_in:
        return "no price: the offline LM is free; with a real LM $ is what each judge would cost alone"
    judges = [result.judge for result in comparison.rows]
    unpriced = dict.fromkeys(j.lm for j in judges if j.lm not in ("", OFFLINE) and j.price is None)
    if unpriced:
        return f"no price is known for {', '.join(unpriced)}: --prices FILE would give $"
    return "$: what each judge would cost alone, replies that it shares with others or that were stored included"
