"""The table of all judges, the findings and the notes about it. Only renders; computes no figure."""

from __future__ import annotations

from collections.abc import Mapping

from debate_judge.data.agreement.intervals import INTERVALS
from debate_judge.data.agreement.results import STATISTIC_NAMES, WHY_NO_P_VALUE
from debate_judge.data.agreement.tables import Agreement, Statistic
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.comparison.plan import ComparisonPlan
from debate_judge.runs.comparison.results import AVERAGE, Comparison
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
    judges = [result.judge for result in comparison.rows]
    priced, incomplete = any(judge.usd_per_thousand for judge in judges), any(judge.unscored for judge in judges)
    header = ["judge", *(f"{column} {symbols}" for column in columns), "LM calls per item"]
    header += ["$ per 1,000 items"] * priced
    header += [f"Δ to {comparison.baseline}", "p (Holm)", *["unscored"] * incomplete]
    rows = []
    for result in comparison.rows:
        judge, name = result.judge, result.name
        row = [f"{name} (compiled on these sources)" if judge.compiled_on else name]
        for column in columns:
            agreements = [result.agreement(column)[s] for s in statistics]
            star = " *" if comparison.best[column] == name else ""
            with_interval = all_intervals or column == columns[-1]
            values = "/".join(format_value(a.value) for a in agreements)
            row.append(values + star + (_interval_suffix(agreements[0]) if with_interval else ""))
        row.append("–" if judge.calls is None else f"{judge.calls:.2f}")
        if priced:
            row.append("–" if judge.usd_per_thousand is None else format_usd(judge.usd_per_thousand))
        difference = comparison.differences.get(name)
        row.append("–" if difference is None else interval(difference))
        row.append("–" if difference is None else p_cell(comparison.corrected_p_values[name]))
        rows.append([*row, *[str(sum(judge.unscored.values()))] * incomplete])
    return DataTable(header, rows)


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


def heading(comparison: Comparison, plan: ComparisonPlan) -> str:
    """What the numbers of the table are, and which groups they are from."""
    setup = comparison.setup
    names = " / ".join(STATISTIC_NAMES[statistic] for statistic in setup.statistics)
    return f"{setup.level}-level {names} with the mean human rating; {plan.groups}"


def verdict(comparison: Comparison) -> list[str]:
    """Which judge is the best, and judges whose figures are no evidence or missing."""
    best, count = comparison.best[AVERAGE], comparison.setup.corpus.sources
    groups, lines = len(comparison.setup.corpus.groups), []
    if len(comparison.results) > 1:
        lines.append(
            f"{best} is the best judge on average: it differs from all others (p < 0.05, Holm over all columns)."
            if best
            else f"{count} sources are too few to tell which judge is the best on average: none differs from all "
            "others (p < 0.05, Holm over all columns)."
        )
    lines += [
        f"{result.name} was compiled on {result.judge.compiled_on} of these {groups} groups: its figures are no "
        "evidence, so it is not compared with the others."
        for result in comparison.rows
        if result.judge.compiled_on
    ]
    lines += [f"{name} has no row, because it scored nothing: {why}" for name, why in comparison.failed.items()]
    if comparison.baseline in comparison.failed:
        lines.append(f"No differences are shown, because the baseline {comparison.baseline} has no row.")
    return lines


def notes(comparison: Comparison, plan: ComparisonPlan) -> list[str]:
    """How the figures were made, and their limits."""
    lines = [heading(comparison, plan), *_interval_notes(comparison)]
    if any(comparison.best.values()):
        lines.append("*: differs from every other judge in its column")
    for name, difference in comparison.differences.items():
        if text := power_text(difference, "groups"):
            lines.append(f"{name} against {comparison.baseline}: {text}")
    lines += [*group_notes(comparison, {result.name: result.name for result in comparison.rows})]
    lines += [_price_note(comparison), *([plan.stand_in] if plan.stand_in else [])]
    for result in comparison.rows:
        judge = result.judge
        if judge.together > 1:
            lines.append(f"{result.name}: up to {judge.together} candidates of a source in one call")
        if judge.unscored:
            reasons = ", ".join(f"{reason} {count}" for reason, count in judge.unscored.items())
            lines.append(f"{result.name} left {sum(judge.unscored.values())} unscored: {reasons}")
    return lines


def _interval_notes(comparison: Comparison) -> list[str]:
    """How intervals and p-values of the first statistic are made."""
    setup = comparison.setup
    if setup.level == "system":
        return [
            "correlations over systems have no intervals and no p-values: few groups leave the systems' means noisy, "
            "which pulls these correlations towards 0"
        ]
    lines = [f"95 % intervals of the first statistic: {INTERVALS}"]
    if any(p is None for p in comparison.corrected_p_values.values()):
        lines.append(f"no p-values of the paired differences: {WHY_NO_P_VALUE}")
    elif comparison.corrected_p_values:
        lines.append(
            "p-values of paired differences: sign-flip test over groups (exact up to 16 groups, else 100,000 random "
            f"flips), corrected over {len(comparison.corrected_p_values)} comparisons (Holm)"
        )
    return lines


def group_notes(comparison: Comparison, names: Mapping[str, str]) -> list[str]:
    """How many groups have constant scores (counted as 0) or ratings (left out).

    `names` has the name of each judge in the notes.
    """
    level, statistic = comparison.setup.level, comparison.setup.statistics[0]
    cells = {names[result.name]: result.table.average[level][statistic] for result in comparison.rows}
    constant = ", ".join(f"{name} {cell.constant}" for name, cell in cells.items() if cell.constant)
    undefined = ", ".join(f"{name} {cell.undefined}" for name, cell in cells.items() if cell.undefined)
    return [
        *([f"groups with equal scores from a judge count 0; over all aspects: {constant}"] if constant else []),
        *([f"groups with equal ratings are left out; over all aspects: {undefined}"] if undefined else []),
    ]


def _price_note(comparison: Comparison) -> str:
    """What the US dollars are, or why there are none."""
    judges = [result.judge for result in comparison.rows]
    if unpriced := dict.fromkeys(j.lm for j in judges if j.lm not in ("", OFFLINE) and j.price is None):
        return f"no price is known for {', '.join(unpriced)}; set one with --prices FILE"
    if any(judge.price for judge in judges):
        return "$: what each judge would cost alone, shared and cached replies included"
    return "no column of costs: the offline LM is free"
