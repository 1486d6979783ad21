"""The table of all judges, and the legend that says what its figures are and what they do not show.

It only renders; all numbers are computed elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping

from debate_judge.data.agreement.intervals import METHODS
from debate_judge.data.agreement.results import STATISTIC_NAMES, WHY_NO_P_VALUE
from debate_judge.data.agreement.tables import Agreement, Statistic
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.comparison.results import Comparison, JudgeResult
from debate_judge.runs.comparison.setup import ComparisonContext
from debate_judge.runs.reports.tables import DataTable
from debate_judge.runs.reports.text import interval, p_cell, power_text

SYMBOLS: Mapping[Statistic, str] = {"pearson": "r", "spearman": "ρ", "kendall": "τ-b"}


def judges_table(comparison: Comparison, *, all_intervals: bool = False, caption: str = "") -> DataTable:
    """Aspects x statistics, average, LM calls and cost per item, paired difference to the baseline with p-value.

    Args:
        comparison: What to show; the best value of a column, if it is marked, has a star.
        all_intervals: Show the interval in each column, and not only in the last, that of the average.
        caption: Of the table.
    """
    marks = "/".join(SYMBOLS[s] for s in comparison.setup.statistics)
    columns, priced = comparison.setup.columns, any(result.usd for result in comparison.results)
    left_out = any(result.entry.unscored for result in comparison.results)
    rows = []
    for result in comparison.results:
        built = []
        for column in columns:
            row = [result.at(comparison.setup, column)[s] for s in comparison.setup.statistics]
            shown = "/".join(number(a.value) for a in row) + " *" * (comparison.best[column] == result.name)
            built.append(shown + (_extent(row[0]) if all_intervals or column == columns[-1] else ""))
        rows.append([result.name, *built, *_tail(comparison, result, priced, left_out)])
    usd, unscored = ["$ per 1,000 items"] * priced, ["unscored"] * left_out
    tail = ["LM calls per item", *usd, f"Δ to {comparison.baseline}", "p (Holm)", *unscored]
    return DataTable(["judge", *(f"{column} {marks}" for column in columns), *tail], rows, caption)


def number(value: float | None) -> str:
    """Three digits, or a dash where there is no value."""
    return "–" if value is None else f"{value:.3f}"


def money(usd: float) -> str:
    """US dollars, with two significant digits below one dollar."""
    return "0" if usd == 0 else f"{usd:.2f}" if usd >= 1 else f"{usd:.2g}"


def _extent(agreement: Agreement) -> str:
    if agreement.low is None or agreement.high is None:
        return ""
    return f" [{agreement.low:.3f}, {agreement.high:.3f}]"


def _tail(comparison: Comparison, result: JudgeResult, priced: bool, left_out: bool) -> list[str]:
    difference = comparison.differences.get(result.name)
    return [
        "–" if result.entry.calls is None else f"{result.entry.calls:.2f}",
        *(["–" if result.usd is None else money(result.usd)] if priced else []),
        "–" if difference is None else interval(difference),
        "–" if difference is None else p_cell(comparison.corrected[result.name]),
        *([str(sum(result.entry.unscored.values()))] if left_out else []),
    ]


# --- the legend ---


def legend(comparison: Comparison, setting: ComparisonContext, *, priced: bool) -> str:
    """What the numbers are, which groups they come from, and what they do not show."""
    setup = comparison.setup
    groups = len(setup.corpus.groups)
    if setting.part == "held-out":
        part = f"{groups} held-out groups of {setting.groups_in_file} (the split of a compile with seed {setting.seed})"
    else:
        part = f"all {groups} groups of the data"
    lines = [
        f"{setup.level}-level {' / '.join(STATISTIC_NAMES[s] for s in setup.statistics)} with the mean human rating; "
        f"{part}",
        *_intervals(comparison),
        "marked: differs from every other judge of its column (p < 0.05, Holm over all columns)"
        if any(comparison.best.values())
        else "none is marked: in no column does a judge differ from every other one (p < 0.05, Holm over all columns)",
        *(
            f"{name} against {comparison.baseline}: {text}"
            for name, difference in comparison.differences.items()
            if (text := power_text(difference, "groups"))
        ),
        *_constant(comparison),
        _cost(setting, priced),
        *([setting.note] if setting.lm == OFFLINE else []),
        *(f"{s.name}: {s.entry.note}" for s in comparison.results if s.entry.note),
        *_together(comparison),
        *_unscored(comparison),
        *(f"{name} has no row, it could score nothing: {why}" for name, why in comparison.failed.items()),
    ]
    if comparison.baseline in comparison.failed:
        lines.append(f"no differences: the baseline {comparison.baseline} has no row")
    return "\n".join(lines)


def _together(comparison: Comparison) -> list[str]:
    """Which judges saw candidates or aspects in shared calls, at most how many."""
    by_size: dict[tuple[int, int], list[str]] = {}
    for result in comparison.results:
        by_size.setdefault((result.entry.together, result.entry.joint), []).append(result.name)
    side_by_side = "up to {} candidates of a source were judged side by side"
    notes = []
    for (candidates, aspects), names in by_size.items():
        sizes = [side_by_side.format(candidates)] if candidates > 1 else []
        sizes += [f"up to {aspects} aspects were judged jointly"] if aspects > 1 else []
        notes += [f"{', '.join(names)}: {', '.join(sizes)}, in shared calls"] if sizes else []
    return notes


def _intervals(comparison: Comparison) -> list[str]:
    """How intervals and p-values of the first statistic are made."""
    setup = comparison.setup
    tables = [table for s in comparison.results for table in (*s.table.aspects.values(), s.table.average)]
    cells = [table[setup.level][setup.statistics[0]] for table in tables]
    used = {cell.method for cell in cells} | {d.method for d in comparison.differences.values()}
    lines = [f"95 % intervals of the first statistic: {'; '.join(METHODS[m] for m in METHODS if m in used)}"]
    if setup.level == "system":
        lines.append("system-level intervals and p-values are about these systems")
        lines.append("few groups leave the systems' means noisy, which pulls system-level correlations towards 0")
    if any(p is None for p in comparison.corrected.values()):
        lines.append(f"differences are paired; no p-value is given: {WHY_NO_P_VALUE}")
    elif comparison.corrected:
        lines.append(
            "differences are paired; p-values by flipping the signs of groups (all ways with up to 16 groups, else "
            f"100,000 random ones), corrected over {len(comparison.corrected)} comparisons (Holm)"
        )
    return lines


def _constant(comparison: Comparison) -> list[str]:
    """What counts 0 and what is left out, and the other convention's figure where it differs."""
    level, statistic = comparison.setup.level, comparison.setup.statistics[0]
    cells = {s.name: s.table.average[level][statistic] for s in comparison.results}
    lines = []
    if any(cell.constant for cell in cells.values()):
        shown = ", ".join(
            f"{name} {cell.constant} (without them {number(cell.value_without_constant)})"
            for name, cell in cells.items()
            if cell.constant
        )
        lines.append(
            f"groups to which a judge gave equal scores count 0, in cells and differences; over all aspects: {shown}"
        )
    counts = {name: cell.undefined for name, cell in cells.items()}
    if any(counts.values()):
        same = len(set(counts.values())) == 1
        shown = str(next(iter(counts.values()))) if same else ", ".join(f"{n} {count}" for n, count in counts.items())
        lines.append(f"groups whose ratings are all equal, left out, over all aspects: {shown}")
    return lines


def _cost(setting: ComparisonContext, priced: bool) -> str:
    if setting.lm == OFFLINE:
        return "no price: the offline LM is free; with a real LM $ is what each judge would cost alone"
    if not priced:
        return f"no price is known for {setting.lm}: --config prices=FILE would give $"
    return "$: what each judge would cost alone, replies that it shares with others or that were stored included"


def _unscored(comparison: Comparison) -> list[str]:
    return [
        f"{s.name} left {sum(s.entry.unscored.values())} unscored: "
        + ", ".join(f"{why} {count}" for why, count in s.entry.unscored.items())
        for s in comparison.results
        if s.entry.unscored
    ]
