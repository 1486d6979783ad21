"""What the figure of a learning curve shows, read from its axes."""

from __future__ import annotations

import sys

import pytest

from debate_judge.data.agreement.tables import Agreement
from debate_judge.runs.reports.figures import agreement_by_sources

NOTE = "offline LM: text statistics, a stand-in, not an LLM"


def _agreement(value: float | None, *, interval: bool = True) -> Agreement:
    low, high = (value - 0.1, value + 0.2) if interval and value is not None else (None, None)
    return Agreement("spearman", "summary", value, low, high, groups=9, undefined=1, unscored=0,
                     value_undefined_as_zero=value)  # fmt: skip


def test_a_line_per_aspect_with_the_intervals_of_its_defined_values() -> None:
    series = {"clear": [_agreement(0.3), _agreement(0.4)], "sound": [_agreement(0.5, interval=False), _agreement(None)]}
    figure = agreement_by_sources(series, [0, 4], title="what was learnt", note=NOTE)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["clear", "sound"]
    assert [list(map(float, line.get_ydata())) for line in axes.lines] == [[0.3, 0.4], [0.5]]  # type: ignore[arg-type]
    assert axes.lines[0].get_xdata()[0] != axes.lines[1].get_xdata()[0], "points must not hide one another"  # type: ignore[index]
    bars = [(float(a[1]), float(b[1])) for c in axes.collections for a, b in c.get_segments()]  # type: ignore[attr-defined]
    assert sorted(bars) == [pytest.approx((0.2, 0.5)), pytest.approx((0.3, 0.6))]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["0", "4"]
    assert axes.get_ylabel() == "held-out summary-level Spearman, 10 groups"
    assert figure.get_supxlabel() == NOTE
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []
