"""The learning curve of a compile as a figure for its run; all other charts stand in the report (`html.charts`).

Built on `matplotlib.figure.Figure` without pyplot, so nothing global is touched and any thread may draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from debate_judge.runs.reports.html.charts import MARKERS
from debate_judge.runs.reports.text import basis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from debate_judge.data.agreement.tables import Agreement

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Those of Okabe and Ito, told apart with every kind of colour vision."""

_DPI = 140


def agreement_by_sources(
    series: Mapping[str, Sequence[Agreement]], sources: Sequence[int], *, title: str, note: str | None = None
) -> Figure:
    """Draw held-out agreement against the number of train sources learnt from, one line with intervals per series.

    Args:
        series: Aspect -> agreement after each step; undefined values are left out.
        sources: Of the steps; they are drawn at equal distances, for each is about twice the one before.
        title: Title of the figure.
        note: A line under the figure.
    """
    # Importing matplotlib takes a second, which no command that draws nothing should pay.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2), dpi=_DPI, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=11, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#E4E4E4", lw=0.8)
    axes.set_axisbelow(True)
    for number, (name, agreements) in enumerate(series.items()):
        # Side by side, or the intervals would hide one another.
        shift = (number - (len(series) - 1) / 2) * min(0.12, 0.6 / len(series))
        colour, marker = _COLOURS[number % len(_COLOURS)], MARKERS[number % len(MARKERS)]
        known = [(n + shift, a.value) for n, a in enumerate(agreements) if a.value is not None]
        axes.plot([x for x, _ in known], [y for _, y in known], marker, ls="-", color=colour, ms=5, lw=1.2, label=name)
        for n, one in enumerate(agreements):
            if one.low is not None and one.high is not None:
                axes.vlines([n + shift], [one.low], [one.high], color=colour, lw=1.1)
    one = next(a for agreements in series.values() for a in agreements)
    axes.set_xlabel("train sources learnt from")
    axes.set_ylabel(f"held-out {basis(one)}, {one.groups + one.undefined} groups")
    axes.set_xticks(range(len(sources)), [str(size) for size in sources])
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8.5, borderaxespad=0.0)
    if note is not None:
        figure.supxlabel(note, fontsize=8.5, style="italic", color="#444444", x=0.01, ha="left")
    return figure
