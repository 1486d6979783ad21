"""The table of all judges as text, Markdown or LaTeX. It only renders; all numbers are computed elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from debate_judge.data.agreement.tables import Agreement, Statistic
from debate_judge.runs.comparison.results import AVERAGE, Comparison, JudgeResult
from debate_judge.runs.reports.terminal import Printed, TerminalTable, Verbatim
from debate_judge.runs.reports.text import interval, markdown_table, p_cell

SYMBOLS: Mapping[Statistic, str] = {"pearson": "r", "spearman": "ρ", "kendall": "τ-b"}

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "ρ": r"$\rho$",
    "τ": r"$\tau$",
    "Δ": r"$\Delta$",
    "–": "--",
    "†": r"\textdagger{}",
    "±": r"$\pm$",
}


def render(comparison: Comparison, style: str, *, all_intervals: bool = False) -> Printed:
    """Aspects x statistics, average, LM calls and cost per item, paired difference to the baseline with p-value.

    Args:
        comparison: What to show.
        style: `text`, `markdown` or `latex`. In LaTeX each statistic has its own column; it needs the package booktabs.
        all_intervals: Show the interval in each column, and not only in the last, that of the average.
    """
    if style == "latex":
        return Verbatim(_latex(comparison, all_intervals))
    header, rows = cells(comparison, all_intervals=all_intervals, bold=style == "markdown")
    return plain_table(header, rows, style)


def cells(comparison: Comparison, *, all_intervals: bool, bold: bool = False) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table; the best value of a column, if it is marked, has a star or is bold."""
    marks = "/".join(SYMBOLS[s] for s in comparison.setup.statistics)
    columns = comparison.setup.columns
    rows = []
    for result in comparison.results:
        found = []
        for column in columns:
            row = _row(comparison, result, column)
            shown = "/".join(number(a.value) for a in row)
            extent = _extent(row[0]) if all_intervals or column == columns[-1] else ""
            best = comparison.best[column] == result.name
            found.append((f"**{shown}**" if bold else f"{shown} *") + extent if best else shown + extent)
        rows.append([result.name, *found, *_tail(comparison, result)])
    return ["judge", *(f"{column} {marks}" for column in columns), *_tail_header(comparison)], rows


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]], style: str) -> Printed:
    """Any other table in the same style."""
    if style == "latex":
        return Verbatim(_tabular("l" * len(header), [_line(header)], [_line(row) for row in rows]))
    return Verbatim(markdown_table(header, rows)) if style == "markdown" else TerminalTable(header, rows)


def prose(text: str, style: str) -> str:
    """Lines around a table; in LaTeX each becomes a paragraph, so that the whole output compiles."""
    if style == "latex":
        return Verbatim("\n\n".join(map(latex, text.splitlines())))
    return Verbatim(text) if style == "markdown" else text


def number(value: float | None) -> str:
    """Three digits, or a dash where there is no value."""
    return "–" if value is None else f"{value:.3f}"


def latex(text: str) -> str:
    """`text` with LaTeX's special characters escaped."""
    return "".join(_LATEX.get(c, c) for c in text)


def _row(comparison: Comparison, result: JudgeResult, column: str) -> list[Agreement]:
    table = result.table.average if column == AVERAGE else result.table.aspects[column]
    return [table[comparison.setup.level][s] for s in comparison.setup.statistics]


def _extent(agreement: Agreement) -> str:
    if agreement.low is None or agreement.high is None:
        return ""
    return f" [{agreement.low:.3f}, {agreement.high:.3f}]"


def _tail_header(comparison: Comparison) -> list[str]:
    unscored = ["unscored"] if any(s.entry.unscored for s in comparison.results) else []
    usd = ["$ per 1,000 items"] if _costs_money(comparison) else []
    return ["LM calls per item", *usd, f"Δ to {comparison.baseline}", "p (Holm)", *unscored]


def _tail(comparison: Comparison, result: JudgeResult) -> list[str]:
    difference = comparison.differences.get(result.name)
    entry = result.entry
    unscored = [str(sum(entry.unscored.values()))] if any(s.entry.unscored for s in comparison.results) else []
    return [
        "–" if entry.calls is None else f"{entry.calls:.2f}",
        *(["–" if result.usd is None else money(result.usd)] if _costs_money(comparison) else []),
        "–" if difference is None else interval(difference),
        "–" if difference is None else p_cell(comparison.corrected[result.name]),
        *unscored,
    ]


def _costs_money(comparison: Comparison) -> bool:
    """Whether a price is known of any judge that is not free."""
    return any(result.usd for result in comparison.results)


def money(usd: float) -> str:
    """US dollars, with two significant digits below one dollar."""
    return "0" if usd == 0 else f"{usd:.2f}" if usd >= 1 else f"{usd:.2g}"


def _latex(comparison: Comparison, all_intervals: bool) -> str:
    statistics, width = comparison.setup.statistics, len(comparison.setup.statistics)
    columns = comparison.setup.columns
    tail = _tail_header(comparison)
    rules = "".join(rf"\cmidrule(lr){{{2 + i * width}-{1 + (i + 1) * width}}}" for i in range(len(columns)))
    head = [
        " & ".join(["", *(rf"\multicolumn{{{width}}}{{c}}{{{latex(c)}}}" for c in columns), *("" for _ in tail)])
        + r" \\",
        rules,
        _line(["judge", *(SYMBOLS[s] for _ in columns for s in statistics), *tail]),
    ]
    body = []
    for result in comparison.results:
        cells = [latex(result.name)]
        for column in columns:
            best = comparison.best[column] == result.name
            for i, agreement in enumerate(_row(comparison, result, column)):
                shown = latex(number(agreement.value))
                extent = _extent(agreement) if i == 0 and (all_intervals or column == columns[-1]) else ""
                cells.append((rf"\textbf{{{shown}}}" if best else shown) + extent)
        body.append(" & ".join([*cells, *map(latex, _tail(comparison, result))]) + r" \\")
    return _tabular("l" + "r" * (len(columns) * width + len(tail)), head, body)


def _line(cells: Sequence[str]) -> str:
    return " & ".join(map(latex, cells)) + r" \\"


def _tabular(columns: str, head: Sequence[str], body: Sequence[str]) -> str:
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            *head,
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )
