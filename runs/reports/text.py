"""Figures of agreement as text. Only renders; computes no result."""

from __future__ import annotations

from typing import Literal, Protocol

from debate_judge.data.agreement.intervals import MIN_EFFECT, POWER, statistical_power
from debate_judge.data.agreement.results import Agreement, Difference


class HasInterval(Protocol):
    """A value with the ends of its interval, where there are such."""

    @property
    def value(self) -> float | None: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


def interval(figure: HasInterval | None, sign: Literal["", "+"] = "") -> str:
    """`0.43 [0.36, 0.49]`, or a dash where there is no value; with the sign "+", positive numbers have one."""
    if figure is None or figure.value is None:
        return "–"
    if figure.low is None or figure.high is None:
        return f"{figure.value:{sign}.2f}"
    return f"{figure.value:{sign}.2f} [{figure.low:{sign}.2f}, {figure.high:{sign}.2f}]"


def value_text(value: float | None) -> str:
    """Two decimals, or a dash where there is no value."""
    return "–" if value is None else f"{value:.2f}"


def interval_metrics(name: str, figure: HasInterval | None) -> dict[str, float | None]:
    """A figure as metrics of a run: NAME, and the ends of its interval, NAME_low and NAME_high; empty for None."""
    return {} if figure is None else {name: figure.value, f"{name}_low": figure.low, f"{name}_high": figure.high}


def agreement_description(agreement: Agreement) -> str:
    """Level and name of a correlation."""
    name = {"pearson": "Pearson", "spearman": "Spearman", "kendall": "Kendall tau-b"}[agreement.statistic]
    return f"{agreement.level}-level {name}"


def correlation_label(agreement: Agreement) -> str:
    """Level and name of a correlation, with its numbers of groups, undefined groups and unscored items."""
    name, groups = agreement_description(agreement), agreement.groups
    undefined = f", {agreement.undefined} left out for equal ratings" if agreement.undefined else ""
    unscored = f", {agreement.unscored} items unscored" if agreement.unscored else ""
    return f"{name} with the mean human rating, {groups} groups{undefined}{unscored}"


def p_text(p_value: float | None) -> str:
    """`p = 0.012`, or `p < 0.001`; `no p` where there are too few groups for one."""
    if p_value is None:
        return "no p"
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def p_cell(p_value: float | None) -> str:
    """A p-value in a table: `0.012`, `< 0.001`, or a dash."""
    return "–" if p_value is None else p_text(p_value)[2:].lstrip("= ")


def power_text(difference: Difference, units: str = "sources") -> str:
    """The difference that a comparison on these sources would detect, and the sources needed to detect a small one."""
    power = statistical_power(difference)
    if power is None:
        return ""
    more = f"takes about {power.more_for_small:,} more {units}" if power.more_for_small else "is within reach, too"
    return (
        f"{power.groups} {units} detect a difference of {power.detectable:.2g} with {100 * POWER:.0f} % power "
        f"(paired t-test, SD {difference.deviation:.2g}); detecting {MIN_EFFECT:g} {more}"
    )
