"""The table of all judges and its legend. Only renders; computes no figure."""

from __future__ import annotations

from collections.abc import Mapping

from debate_judge.data.agreement.intervals import METHODS
from debate_judge.data.agreement.results import STATISTIC_NAMES, WHY_NO_P_VALUE
from debate_judge.data.agreement.tables import Agreement, Statistic
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.comparison.plan import ComparisonContext
from debate_judge.runs.comparison.results import Comparison, JudgeResult
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.text import interval, p_cell, power_text

SYMBOLS: Mapping[Statistic, str] = {"pearson": "r", "spearman": "ρ", "kendall": "τ-b"}


def judges_table(comparison: Comparison, *, all_intervals: bool = False, caption: str = "") -> DataTable:
    """Aspects x statistics, average, LM calls and cost per item, paired difference to the baseline with p-value.

    Args:
        comparison: The results; a value that is the best of its column has a star (`Comparison.best`).
        all_intervals: Show intervals in all columns, and not only in that of the average.
        caption: The table's caption.
    """
    symbols = "/".join(SYMBOLS[s] for s in comparison.setup.statistics)
    columns, priced = comparison.setup.columns, any(result.judge.usd_per_thousand for result in comparison.rows)
    has_unscored = any(result.judge.unscored for result in comparison.rows)
    timed = any(result.judge.seconds_per_item for result in comparison.rows)
    rows = []
    for result in comparison.rows:
        cells = []
        for column in columns:
            agreements = [result.agreement(column)[s] for s in comparison.setup.statistics]
            values = "/".join(format_value(a.value) for a in agreements) + " *" * (
                comparison.best[column] == result.name
            )
            cells.append(values + (_interval_suffix(agreements[0]) if all_intervals or column == columns[-1] else ""))
        name = f"{result.name} (compiled on these sources)" if result.judge.compiled_on else result.name
        rows.append([name, *cells, *_last_cells(comparison, result, timed, priced, has_unscored)])
    usd, unscored = ["$ per 1,000 items"] * priced, ["unscored"] * has_unscored
    last_columns = [
        "LM calls per item",
        *["LM seconds per item"] * timed,
        *usd,
        f"Δ to {comparison.baseline}",
        "p (Holm)",
        *unscored,
    ]
    return DataTable(["judge", *(f"{column} {symbols}" for column in columns), *last_columns], rows, caption)


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


def _last_cells(
    comparison: Comparison, result: JudgeResult, timed: bool, priced: bool, has_unscored: bool
) -> list[str]:
    seconds, usd = result.judge.seconds_per_item, result.judge.usd_per_thousand
    difference = comparison.differences.get(result.name)
    return [
        "–" if result.judge.calls is None else f"{result.judge.calls:.2f}",
        *(["–" if seconds is None else f"{seconds:.2f}"] if timed else []),
        *(["–" if usd is None else format_usd(usd)] if priced else []),
        "–" if difference is None else interval(difference),
        "–" if difference is None else p_cell(comparison.corrected_p_values[result.name]),
        *([str(sum(result.judge.unscored.values()))] if has_unscored else []),
    ]


# --- the legend ---


def legend(comparison: Comparison, context: ComparisonContext) -> str:
    """What the numbers are, which groups they come from, and their limits."""
    setup = comparison.setup
    lines = [
        f"{setup.level}-level {' / '.join(STATISTIC_NAMES[s] for s in setup.statistics)} with the mean human rating; "
        f"{context.groups}",
        *_in_sample_notes(comparison),
        *_interval_notes(comparison),
        *(
            [
                "*: differs from every other judge in its column (p < 0.05, Holm over all columns)"
                if any(comparison.best.values())
                else "no *: in no column does a judge differ from every other one (p < 0.05, Holm over all columns)"
            ]
            if len(comparison.results) > 1
            else []
        ),
        *(
            f"{name} against {comparison.baseline}: {text}"
            for name, difference in comparison.differences.items()
            if (text := power_text(difference, "groups"))
        ),
        *_constant_group_notes(comparison),
        *(
            ["LM seconds: of a judge's calls one after the other; – where an earlier run had stored a reply"]
            if any(result.judge.seconds_per_item for result in comparison.rows)
            else []
        ),
        _price_note(comparison, context),
        *([context.lm_note] if context.stand_in else []),
        *(f"{result.name}: {result.judge.note}" for result in comparison.rows if result.judge.note),
        *_shared_call_notes(comparison),
        *_unscored_notes(comparison),
        *(f"{name} has no row, because it could score nothing: {why}" for name, why in comparison.failed.items()),
    ]
    if comparison.baseline in comparison.failed:
        lines.append(f"no differences: the baseline {comparison.baseline} has no row")
    return "\n".join(lines)


def _in_sample_notes(comparison: Comparison) -> list[str]:
    count = len(comparison.setup.corpus.groups)
    return [
        f"{result.name} was compiled on {result.judge.compiled_on} of these {count} groups: its figures are no "
        "evidence, and it is compared with no judge"
        for result in comparison.in_sample
    ]


def _shared_call_notes(comparison: Comparison) -> list[str]:
    """Which judges read several candidates in one call, and how many at most."""
    by_size: dict[int, list[str]] = {}
    for result in comparison.rows:
        by_size.setdefault(result.judge.together, []).append(result.name)
    return [
        f"{', '.join(names)}: up to {size} candidates of a source were judged side by side, in shared calls"
        for size, names in by_size.items()
        if size > 1
    ]


def _interval_notes(comparison: Comparison) -> list[str]:
    """How intervals and p-values of the first statistic are made."""
    setup = comparison.setup
    tables = [table for r in comparison.rows for table in (*r.table.aspects.values(), r.table.average)]
    cells = [table[setup.level][setup.statistics[0]] for table in tables]
    used = {cell.method for cell in cells} | {d.method for d in comparison.differences.values()}
    if setup.level == "system":
        return [
            "correlations over systems have no intervals and no p-values: few groups leave the systems' means noisy, "
            "which pulls these correlations towards 0"
        ]
    lines = [f"95 % intervals of the first statistic: {'; '.join(METHODS[m] for m in METHODS if m in used)}"]
    if any(p is None for p in comparison.corrected_p_values.values()):
        lines.append(f"differences are paired; no p-value is given: {WHY_NO_P_VALUE}")
    elif comparison.corrected_p_values:
        lines.append(
            "differences are paired; p-values by flipping the signs of groups (all patterns with up to 16 groups, else "
            f"100,000 random ones), corrected over {len(comparison.corrected_p_values)} comparisons (Holm)"
        )
    return lines


def _constant_group_notes(comparison: Comparison) -> list[str]:
    """How many groups have constant scores (counted as 0; also the value without them) or ratings (left out)."""
    level, statistic = comparison.setup.level, comparison.setup.statistics[0]
    cells = {result.name: result.table.average[level][statistic] for result in comparison.rows}
    lines = []
    if any(cell.constant for cell in cells.values()):
        by_judge = ", ".join(
            f"{name} {cell.constant} (without them {format_value(cell.value_without_constant)})"
            for name, cell in cells.items()
            if cell.constant
        )
        lines.append(
            f"groups to which a judge gave equal scores count 0, in cells and differences; over all aspects: {by_judge}"
        )
    counts = {name: cell.undefined for name, cell in cells.items()}
    if any(counts.values()):
        all_equal = len(set(counts.values())) == 1
        by_judge = str(counts.popitem()[1]) if all_equal else ", ".join(f"{n} {count}" for n, count in counts.items())
        lines.append(f"groups whose ratings are all equal, left out, over all aspects: {by_judge}")
    return lines


def _price_note(comparison: Comparison, context: ComparisonContext) -> str:
    if set(context.lms) <= {OFFLINE}:
        return "no price: the offline LM is free; with a real LM $ is what each judge would cost alone"
    judges = [result.judge for result in comparison.rows]
    unpriced = dict.fromkeys(j.lm for j in judges if j.lm not in ("", OFFLINE) and j.price is None)
    if unpriced:
        return f"no price is known for {', '.join(unpriced)}: --config prices=FILE would give $"
    return "$: what each judge would cost alone, replies that it shares with others or that were stored included"


def _unscored_notes(comparison: Comparison) -> list[str]:
    return [
        f"{result.name} left {sum(result.judge.unscored.values())} unscored: "
        + ", ".join(f"{reason} {count}" for reason, count in result.judge.unscored.items())
        for result in comparison.rows
        if result.judge.unscored
    ]
