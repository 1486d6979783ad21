"""What the figures show, read from their axes."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from debate_judge.data.agreement.tables import LEVELS, STATISTICS, Agreement, AgreementTable
from debate_judge.runs.reports.figures import agreement_by_rounds, held_out_agreement, pareto

NOTE = "offline LM: text statistics, a stand-in, not an LLM"


def _agreement(value: float | None, *, interval: bool = True) -> Agreement:
    known = value is not None and interval
    low, high = (value - 0.1, value + 0.2) if known and value is not None else (None, None)
    return Agreement("spearman", "summary", value, low, high, groups=9, undefined=1, unscored=0,
                     value_undefined_as_zero=value)  # fmt: skip


def _table(*values: float) -> AgreementTable:
    def cell(value: float) -> Any:
        return {level: {s: _agreement(value + i / 100) for i, s in enumerate(STATISTICS)} for level in LEVELS}

    aspects = {f"aspect {i}": cell(v) for i, v in enumerate(values)}
    return AgreementTable(aspects, cell(sum(values) / len(values)))


def _axes(figure: Figure) -> Axes:
    (axes,) = figure.axes
    figure.draw_without_rendering()
    return axes


def _legend(axes: Axes) -> list[str]:
    legend = axes.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def _line(axes: Axes, label: str) -> list[tuple[float, float]]:
    (line,) = [line for line in axes.lines if line.get_label() == label]
    return list(zip(map(float, line.get_xdata()), map(float, line.get_ydata()), strict=True))  # type: ignore[arg-type]


def _bars(axes: Axes) -> list[list[tuple[float, float]]]:
    return [[(float(x), float(y)) for x, y in s] for c in axes.collections for s in c.get_segments()]  # type: ignore[attr-defined]


@pytest.fixture
def rounds() -> Axes:
    series = {"plain": [_agreement(0.3), _agreement(0.4)], "strict": [_agreement(0.3), _agreement(None)]}
    return _axes(agreement_by_rounds(series, title="coherence", chosen=("plain", 1), note=NOTE))


def test_one_line_per_persona_with_its_defined_values(rounds: Axes) -> None:
    assert _legend(rounds) == ["plain", "strict", "chosen: plain, n = 1"]
    plain, strict = _line(rounds, "plain"), _line(rounds, "strict")
    assert [y for _, y in plain] == [0.3, 0.4]
    assert [y for _, y in strict] == [0.3]
    assert [round(x) for x, _ in plain] == [0, 1]
    assert plain[0][0] < strict[0][0], "points of equal n must not hide one another"


def test_every_defined_value_has_its_interval(rounds: Axes) -> None:
    ends = sorted((round(a[1], 3), round(b[1], 3)) for a, b in _bars(rounds))
    assert ends == [(0.2, 0.5), (0.2, 0.5), (0.3, 0.6)]


def test_the_choice_is_ringed_and_the_axis_says_what_is_measured(rounds: Axes) -> None:
    ring = [line for line in rounds.lines if line.get_markersize() > 10]
    assert [list(map(float, line.get_ydata())) for line in ring] == [[0.4]]  # type: ignore[arg-type]
    assert rounds.get_ylabel() == "dev summary-level Spearman, 10 groups"
    assert rounds.get_title(loc="left") == "coherence"


def test_a_note_is_written_under_the_figure_only_when_given() -> None:
    series = {"plain": [_agreement(0.3)]}
    noted = agreement_by_rounds(series, title="t", note=NOTE)
    assert noted.get_supxlabel() == NOTE
    assert agreement_by_rounds(series, title="t").get_supxlabel() == ""


def test_held_out_has_a_row_per_aspect_and_the_average_and_a_colour_per_judge() -> None:
    tables = {"single": _table(0.1, 0.3), "uncompiled": _table(0.2, 0.4), "compiled": _table(0.5, 0.7)}
    axes = _axes(held_out_agreement(tables, "kendall", level="summary", note=NOTE))
    assert [t.get_text() for t in axes.get_yticklabels()] == ["aspect 0", "aspect 1", "average"]
    assert _legend(axes) == list(tables)
    # kendall stands two hundredths above the first statistic
    assert [round(x, 3) for x, _ in _line(axes, "compiled")] == [0.52, 0.72, 0.62]
    assert [round(y) for _, y in _line(axes, "compiled")] == [0, 1, 2]
    assert len(_bars(axes)) == 3 * 3
    assert len({to_hex(line.get_color()) for line in axes.lines if line.get_label() in tables}) == 3
    assert "10 groups, 95 % intervals" in axes.get_xlabel()


def test_values_without_an_interval_are_drawn_without_one() -> None:
    series = {"plain": [_agreement(0.3, interval=False)]}
    axes = _axes(agreement_by_rounds(series, title="t"))
    assert [y for _, y in _line(axes, "plain")] == [0.3]
    assert _bars(axes) == []


def test_the_front_is_numbered_by_cost_and_named_beside() -> None:
    tried = [(1.0, 0.3, "a"), (3.0, 0.5, "b"), (2.0, 0.2, "c")]
    front = [(3.0, 0.5, "b"), (1.0, 0.3, "a")]
    axes = _axes(pareto(tried, front, (1.0, 0.3, "a"), title="t", measure="dev summary-level Spearman"))
    assert _legend(axes) == ["tried", "a", "b", "chosen: a"]
    assert _line(axes, "tried") == [(1.0, 0.3), (3.0, 0.5), (2.0, 0.2)]
    assert [(t.get_text(), t.xy) for t in axes.texts] == [("1", (1.0, 0.3)), ("2", (3.0, 0.5))]  # type: ignore[attr-defined]
    assert axes.get_ylabel() == "dev summary-level Spearman"
    assert axes.get_xlabel() == "LM calls per item"


def test_no_figure_is_registered_with_pyplot() -> None:
    pareto([(1.0, 0.3, "a")], [(1.0, 0.3, "a")], (1.0, 0.3, "a"), title="t")
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []
