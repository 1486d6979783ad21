"""Figures of a comparison and of the ablations: agreement by judge, persona, style and n; distributions; stability."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from debate_judge.data.agreement.results import NAMES
from debate_judge.runs.comparison.ablations.distribution import Distribution, Steadiness
from debate_judge.runs.comparison.ablations.plan import Findings
from debate_judge.runs.comparison.ablations.studies import Study
from debate_judge.runs.comparison.results import AVERAGE, Comparison, EvalSetup
from debate_judge.runs.reports.drawing import COLOURS, GREY, PER_ROW, blank, grid, legend, looks
from debate_judge.runs.reports.figures import agreement_by_rounds, held_out_agreement

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def table_figure(comparison: Comparison, part: str, note: str) -> Figure:
    """Agreement of all judges by aspect and on average, with intervals."""
    setup = comparison.setup
    tables = {s.name: s.table for s in comparison.results}
    title = f"Agreement with the raters, {part}"
    return held_out_agreement(tables, setup.statistics[0], level=setup.level, title=title, note=note)


def ablation_figures(findings: Findings, setup: EvalSetup, part: str, note: str) -> dict[str, Figure]:
    """Name -> figure, for every ablation with results."""
    figures = {study.name: study_figure(study, setup, part, note) for study in findings.studies}
    if findings.distributions:
        figures["distribution"] = distribution_figure(findings.distributions, setup, part, note)
    if findings.stability:
        figures["stability"] = stability_figure(findings.stability, setup, part, note)
    return figures


def study_figure(study: Study, setup: EvalSetup, part: str, note: str) -> Figure:
    """One ablation: lines over n for the rounds, otherwise one mark per variant, aspect by aspect."""
    first, level = setup.statistics[0], setup.level
    tables = {name: variant.table for name, variant in study.variants.items()}
    if study.name != "rounds":
        return held_out_agreement(tables, first, level=level, title=f"{study.title}, {part}", note=note)
    series = {a.name: [t.aspects[a.name][level][first] for t in tables.values()] for a in setup.aspects}
    if len(series) > 1:
        series[AVERAGE] = [t.average[level][first] for t in tables.values()]
    return agreement_by_rounds(series, title=study.title, part=part, note=note)


def distribution_figure(found: Mapping[str, Distribution], setup: EvalSetup, part: str, note: str) -> Figure:
    """Shares of each point of the scale, ratings beside judges, one panel per aspect."""
    groups = len(setup.corpus.groups)
    title = f"Scores and mean human ratings, {part}, {groups} groups\nW: Wasserstein distance of scores and ratings"
    columns, rows = min(PER_ROW, len(found)), -(-len(found) // PER_ROW)
    figure, panels = blank(max(7.2, 2.9 * columns), 3.4 * rows + 0.3, title, note, panels=len(found))
    for i, (axes, (aspect, one)) in enumerate(zip(panels, found.items(), strict=True)):
        _bars(axes, one)
        apart = ", ".join(f"{name} {s.wasserstein:.2f}" for name, s in one.judges.items())
        axes.set_xlabel(f"{aspect}\nW: {apart}", fontsize=9)
        if i % PER_ROW == 0:
            axes.set_ylabel("% of candidates")
    legend(panels[columns - 1])
    return figure


def _bars(axes: Axes, one: Distribution) -> None:
    series = {"human ratings": one.ratings, **one.judges}
    width = 0.8 / len(series)
    for i, (name, spread) in enumerate(series.items()):
        places = [x + (i - (len(series) - 1) / 2) * width for x in range(len(one.points))]
        colour = GREY if i == 0 else COLOURS[(i - 1) % len(COLOURS)]
        axes.bar(places, [100 * share for share in spread.shares], width, color=colour, label=name)
    axes.set_xticks(range(len(one.points)), one.points, rotation=90 if len(one.points) > 7 else 0)
    grid(axes, "y")


def stability_figure(found: Mapping[str, Steadiness], setup: EvalSetup, part: str, note: str) -> Figure:
    """Agreement of each run, with the mean, aspect by aspect and on average."""
    columns = setup.columns
    runs = len(next(iter(found.values())).agreement[AVERAGE])
    title = f"Agreement of {runs} runs of the same judge, {part}"
    if all(one.deviation(c) == 0 for one in found.values() for c in columns):
        title += " (all runs equal)"
    figure, (axes,) = blank(7.2, 1.7 + 0.22 * len(columns) * (len(found) + 1), title, note)
    styles = looks()
    for i, (name, one) in enumerate(found.items()):
        colour, marker = next(styles)
        shift = (i - (len(found) - 1) / 2) * 0.3
        points = [(v, y + shift) for y, c in enumerate(columns) for v in one.agreement[c] if v is not None]
        axes.plot(
            [x for x, _ in points], [y for _, y in points], marker, ls="none", color=colour, ms=4, alpha=0.55,
            label=f"{name}, one run",
        )  # fmt: skip
        means = [(one.mean(c), y + shift) for y, c in enumerate(columns)]
        known = [(m, y) for m, y in means if m is not None]
        axes.plot(
            [m for m, _ in known], [y for _, y in known], "|", ls="none", color=colour, ms=14, mew=2,
            label=f"{name}, mean",
        )  # fmt: skip
    axes.set_yticks(range(len(columns)), columns)
    axes.set_ylim(len(columns) - 0.4, -0.6)
    if len(columns) > 1:
        axes.axhline(len(columns) - 1.5, color=GREY, lw=0.8)
    groups = len(setup.corpus.groups)
    axes.set_xlabel(f"{setup.level}-level {NAMES[setup.statistics[0]]}, {groups} groups, no intervals")
    grid(axes, "x")
    legend(axes)
    return figure
