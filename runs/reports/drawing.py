"""What all figures share: colours, an empty figure with its title and note, intervals, a legend beside it.

Built on `matplotlib.figure.Figure` without pyplot, so nothing global is touched and any thread may draw. Colours
are those of Okabe and Ito, told apart with every kind of colour vision; series differ by marker as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from debate_judge.data.agreement.tables import Agreement

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "#9A9A9A"

_DPI = 140


def looks() -> Iterator[tuple[str, str]]:
    """Colour and marker for each further series; the first 49 all differ."""
    return ((COLOURS[i % len(COLOURS)], MARKERS[(i + i // len(COLOURS)) % len(MARKERS)]) for i in count())


def blank(width: float, height: float, title: str, note: str | None) -> tuple[Figure, Axes]:
    """A figure with a title and a line under it; sizes in inches."""
    # Importing matplotlib takes a second, which no command that draws nothing should pay.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=_DPI, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=11, loc="left")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if note is not None:
        figure.supxlabel(note, fontsize=8.5, style="italic", color="#444444", x=0.01, ha="left")
    return figure, axes


def grid(axes: Axes, axis: str) -> None:
    """Faint lines at the ticks of `axis`: x, y or both."""
    axes.grid(axis=axis, color="#E4E4E4", lw=0.8)  # type: ignore[arg-type]


def intervals(axes: Axes, placed: Sequence[tuple[float, Agreement]], colour: str, *, vertical: bool) -> None:
    """Draw the intervals of agreements, each at its place on the other axis."""
    known = [(x, a.low, a.high) for x, a in placed if a.low is not None and a.high is not None]
    draw = axes.vlines if vertical else axes.hlines
    draw([x for x, _, _ in known], [low for _, low, _ in known], [high for _, _, high in known], color=colour, lw=1.1)


def ring(axes: Axes, x: float, y: float) -> None:
    """Circle a point."""
    axes.plot([x], [y], "o", ms=13, mfc="none", mec="black", mew=1.6, ls="none", zorder=5)


def entry(axes: Axes, marker: str, label: str, **look: Any) -> None:
    """An entry of the legend for what is drawn in parts."""
    axes.plot([], [], marker=marker, label=label, ls="none", **look)


def legend(axes: Axes) -> None:
    """The legend, beside the axes: inside, it would cover intervals sooner or later."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8.5, borderaxespad=0.0)
