"""Figures of agreement as text. Only renders; every number comes in finished."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from debate_judge.data.agreement.differences import MIN_EFFECT, statistical_power
from debate_judge.data.agreement.intervals import POWER
from debate_judge.data.agreement.results import Agreement, Difference


class Figure(Protocol):
    """A value with the ends of its interval, where it has one."""

    @property
    def value(self) -> float | None: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


def interval(figure: Figure | None, sign: Literal["", "+"] = "") -> str:
    """`0.43 [0.36, 0.49]`, or a dash where there is no value; with a `sign`, that of numbers above 0 as well."""
    if figure is None or figure.value is None:
        return "–"
    if figure.low is None or figure.high is None:
        return f"{figure.value:{sign}.2f}"
    return f"{figure.value:{sign}.2f} [{figure.low:{sign}.2f}, {figure.high:{sign}.2f}]"


def with_ends(name: str, figure: Figure | None) -> dict[str, float | None]:
    """A figure as metrics of a run: `NAME`, and `NAME_low` and `NAME_high`, the ends of its interval; none of none."""
    return {} if figure is None else {name: figure.value, f"{name}_low": figure.low, f"{name}_high": figure.high}


def agreement_description(found: Agreement) -> str:
    """Level and name of a correlation."""
    name = {"pearson": "Pearson", "spearman": "Spearman", "kendall": "Kendall tau-b"}[found.statistic]
    return f"{found.level}-level {name}"


def correlation_label(found: Agreement) -> str:
    """Which correlation figures are, and what the last of them rests on: groups, undefined ones, unscored items."""
    flat = f"{found.undefined} left out for equal ratings" if found.undefined else "none undefined"
    unscored = f", {found.unscored} items unscored" if found.unscored else ""
    return f"{agreement_description(found)} with the mean human rating, {found.groups} groups, {flat}{unscored}"


def p_text(p_value: float | None) -> str:
    """`p = 0.012`, or `p < 0.001`; `no p` where there are too few groups for one."""
    if p_value is None:
        return "no p"
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def p_cell(p_value: float | None) -> str:
    """The same in a column of p-values: `0.012`, `< 0.001`, or a dash."""
    return "–" if p_value is None else p_text(p_value)[2:].lstrip("= ")


def power_text(gap: Difference, units: str = "sources") -> str:
    """The difference that a comparison on so many sources detects, and the sources needed to detect a small one."""
    power = statistical_power(gap)
    if power is None:
        return ""
    more = f"needs about {power.more_for_small:,} more {units}" if power.more_for_small else "is within reach, too"
    return (
        f"these {power.groups} {units} would detect a true difference of {power.detectable:.2g} in "
        f"{100 * POWER:.0f} % of cases (paired t-test, deviation {gap.deviation:.2g}); detecting {MIN_EFFECT:g} {more}"
    )


def powers_text(differences: Mapping[str, Difference], units: str = "sources") -> str:
    """In one sentence what comparisons on the same units can find, by what the judge is compared with; empty where none
    of
    them has a power.
    """
    powers = {
        name: power for name, difference in differences.items() if (power := statistical_power(difference)) is not None
    }
    if not powers:
        return ""
    groups = next(iter(powers.values())).groups
    each = ", ".join(f"{power.detectable:.2g} to the {name}" for name, power in powers.items())
    return f"In {100 * POWER:.0f} % of cases these {groups} {units} would detect a true difference of {each}."
