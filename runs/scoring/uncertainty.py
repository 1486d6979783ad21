"""Intervals in the rows of a scoring run, and scores that are left to people because theirs is too wide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from debate_judge.data.inference.conformal import ConformalIntervals
    from debate_judge.programs.judge import Item
    from debate_judge.runs.runner.streaming import Score

USUAL_LEVEL = 0.9


def interval_fields(level: float | None, widest: float | None) -> tuple[str, ...]:
    """The fields of a `Score` that rows have besides others."""
    return (*["low", "high"] * (level is not None), *["to_people"] * (widest is not None))


class RowIntervals:
    """Gives scores their intervals, and counts those that are left to people.

    Args:
        intervals: Aspect -> its intervals; empty for none.
        widest: Width from which on a text is left to people; None for any.
    """

    def __init__(self, intervals: Mapping[str, ConformalIntervals], widest: float | None) -> None:
        self._intervals = intervals
        self._widest = widest
        self.left: Counter[str] = Counter()
        """Aspect -> texts that are left to people."""
        self.scored: Counter[str] = Counter()

    def applied(self, item: Item, score: Score) -> Score:
        """The score, which is on the raters' scale, with its interval; what has no score is left to people."""
        if not self._intervals:
            return score
        name = item.aspect.name
        self.scored[name] += 1
        if score.score is None:
            self.left[name] += 1
            return replace(score, to_people=True)
        found = self._intervals[name].at(score.score)
        wide = self._widest is not None and found.width > self._widest
        self.left[name] += wide
        return replace(score, low=found.low, high=found.high, to_people=wide)
