"""A judge for tools that pass one text at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from debate_judge.data.schema import is_visible
from debate_judge.programs.compiled import ScoreScale
from debate_judge.programs.grouping import Item
from debate_judge.programs.lm import loop
from debate_judge.programs.transcript import EMPTY
from debate_judge.runs.export.folder import load_in_tool
from debate_judge.runs.export.loaded import LoadedJudge
from debate_judge.runs.runner.streaming import Score

Scores = dict[str, Score]
"""Name of an aspect -> score."""


def empty_text_score() -> Score:
    """The unscored result of an empty text, which is not sent to the judge."""
    detail = "the text is empty"
    return Score(None, None, None, None, "no text", detail, f"no text: {detail}", 0, EMPTY)


class SingleTextScorer:
    """Scores single texts with an exported judge, in any thread and on any event loop. A repeated text costs nothing,
    because the judge's store has its replies.

    Args:
        judge: A loaded judge; or an export as for `load`, which is loaded on first use, with settings from the
            environment (`load_in_tool`).
        aspects: Which aspects; all of the judge's by default.
        scale: Of the scores, as for `LoadedJudge.score`.
    """

    def __init__(
        self,
        judge: LoadedJudge | str | Path,
        aspects: Sequence[str] | str | None = None,
        *,
        scale: ScoreScale = "judge",
    ) -> None:
        self._judge_or_export = judge
        self._aspects = aspects
        self._scale: ScoreScale = scale

    @cached_property
    def judge(self) -> LoadedJudge:
        """The loaded judge."""
        export = self._judge_or_export
        if isinstance(export, LoadedJudge):
            return export
        return load_in_tool(export)

    def score(self, *, source: str, text: str, context: str = "", aspects: Sequence[str] | str | None = None) -> Scores:
        """Score a text. One that is empty has no score.

        Args:
            source: As for `LoadedJudge.score`.
            text: The candidate.
            context: As for `LoadedJudge.score`.
            aspects: Which aspects; by default those of the constructor.

        Raises:
            InputError: An argument is no text, or the export cannot be used.
            dspy.LMError: The LM cannot be used at all.
        """
        return loop.run(self.ascore(source=source, text=text, context=context, aspects=aspects))

    async def ascore(
        self, *, source: str, text: str, context: str = "", aspects: Sequence[str] | str | None = None
    ) -> Scores:
        """As `score`, on any event loop."""
        items, empty = self._items(source, text, context, aspects)
        if empty:
            return empty
        scores = await loop.on_loop(self.judge.ascore_items(items, self._scale))
        return {item.aspect.name: score for item, score in zip(items, scores, strict=True)}

    def _items(
        self, source: str, text: str, context: str, aspects: Sequence[str] | str | None
    ) -> tuple[list[Item], Scores]:
        """The items of a text; for an empty one no items, but its unscored results."""
        names = self._aspects if aspects is None else aspects
        if isinstance(text, str) and not is_visible(text):
            return [], {aspect.name: empty_text_score() for aspect in self.judge.select_aspects(names)}
        return self.judge.row_items({"source": source, "text": text, "context": context}, names), {}
