"""Tells an LM that is down from an item that it cannot answer, before rows without scores fill the file.

An item that the LM cannot answer has a row with the reason. While a provider is down, every item fails like that, and
the run should stop instead. So rows are held back from the first failure on, until enough items in a row have been
answered again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from debate_judge.programs.judge import Item
    from debate_judge.runs.runner.streaming import Score

PROVIDER_FAILED: frozenset[str] = frozenset({"lm error", "search error"})
"""Reasons that are a provider's failure, so that a later attempt may fare better."""

OUTAGE = 64
"""Failures that make an outage, if they are of several groups and more than half of the latest items."""

_GROUPS = 3
"""Groups that must fail: one source that the LM cannot take fails with all its candidates and aspects."""


class OutageError(Exception):
    """The LM has stopped answering."""


class RowSink(Protocol):
    """Where rows go: `runs.scoring.output.Results`, or one part of many."""

    def add(self, item: Item, score: Score) -> None: ...


class OutageGuard:
    """Passes rows on, in order.

    Args:
        results: Where the rows go.
        window: Items in flight at once; failures of one outage are no further apart.
        patient: Whether to pass on every row at once and never stop.
    """

    def __init__(self, results: RowSink, window: int, patient: bool) -> None:
        self._results = results
        self._window = window
        self._patient = patient
        self._held: list[tuple[Item, Score]] = []
        self._answered = 0

    def add(self, item: Item, score: Score) -> None:
        """Take one row.

        Raises:
            OutageError: the LM is down; the rows that are held back are dropped.
        """
        if self._patient:
            self._results.add(item, score)
            return
        self._held.append((item, score))
        if score.unscored in PROVIDER_FAILED:
            self._answered = 0
            self._check()
        else:
            self._answered += 1
        calm = self._answered >= self._window or len(self._held) == self._answered
        if calm or len(self._held) >= 4 * max(self._window, OUTAGE):
            self.finish()

    def finish(self) -> None:
        """Pass on the rows that are held back."""
        for row in self._held:
            self._results.add(*row)
        self._held.clear()
        self._answered = 0

    def _check(self) -> None:
        failed = [(item, score) for item, score in self._held if score.unscored in PROVIDER_FAILED]
        if len(failed) < OUTAGE or 2 * len(failed) <= len(self._held):
            return
        if len({item.group for item, _ in failed}) >= _GROUPS:
            raise OutageError(
                f"no answer for {len(failed)} of the last {len(self._held)} items; {failed[-1][1].detail}"
            )
