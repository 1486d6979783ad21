"""A judge for tools that pass one text at a time.

The agreement of a judge that was compiled to read candidates side by side was measured in that way only. So concurrent
calls about one source are collected for a moment and judged together. A text that comes alone is read alone, with a
warning at the first one.
"""

from __future__ import annotations

import asyncio
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from debate_judge.programs.compiled import ScoreScale
from debate_judge.programs.grouping import Item, source_key
from debate_judge.programs.lm import loop
from debate_judge.programs.transcript import EMPTY
from debate_judge.runs.export.folder import load_in_tool
from debate_judge.runs.export.loaded import LoadedJudge
from debate_judge.runs.runner.streaming import Score

WAIT = 0.2
"""Seconds to wait for further candidates of a source, where the judge reads them side by side."""

_MAX_CACHED = 10_000
"""Texts whose scores are cached, so that a repeated call gets the same score at no cost."""

Scores = dict[str, Score]
"""Name of an aspect -> score."""


def empty_text_score() -> Score:
    """The unscored result of an empty text, which is not sent to the judge."""
    detail = "the text is empty"
    return Score(None, None, None, None, "no text", detail, f"no text: {detail}", 0, 1, 1, EMPTY)


class SourceBatcher:
    """Scores single texts with an exported judge; concurrent calls about one source are judged together.

    It may be called in any thread and on any event loop. Scores are cached by text, except missing ones, for which
    the judge is called again.

    Args:
        judge: A loaded judge; or an export as for `load`, which is loaded on first use, with settings from the
            environment (`load_in_tool`).
        aspects: Which aspects; all of the judge's by default.
        scale: Of the scores, as for `LoadedJudge.score`.
        wait: Seconds to wait for further candidates of a source, where the judge reads side by side.
    """

    def __init__(
        self,
        judge: LoadedJudge | str | Path,
        aspects: Sequence[str] | str | None = None,
        *,
        scale: ScoreScale = "judge",
        wait: float = WAIT,
    ) -> None:
        self._judge_or_export = judge
        self._aspects = aspects
        self._scale: ScoreScale = scale
        self._wait = wait
        self._warned = False
        self.read_alone = 0
        """Texts that were read alone although the judge reads side by side, because no other of their source came."""
        self._scores: OrderedDict[tuple[object, ...], asyncio.Task[Scores]] = OrderedDict()
        self._batches: dict[tuple[object, ...], tuple[list[Item], asyncio.Future[dict[Item, Score]]]] = {}

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
        items, empty = self._items(source, text, context, aspects)
        return empty or self._warn_if_alone(loop.run(self._cached_scores(items)))

    async def ascore(
        self, *, source: str, text: str, context: str = "", aspects: Sequence[str] | str | None = None
    ) -> Scores:
        """As `score`, on any event loop."""
        items, empty = self._items(source, text, context, aspects)
        return empty or self._warn_if_alone(await loop.on_loop(self._cached_scores(items)))

    def _items(
        self, source: str, text: str, context: str, aspects: Sequence[str] | str | None
    ) -> tuple[list[Item], Scores]:
        """The items of a text; for an empty one no items, but its unscored results."""
        names = self._aspects if aspects is None else aspects
        if isinstance(text, str) and not text.strip():
            return [], {aspect.name: empty_text_score() for aspect in self.judge.select_aspects(names)}
        return self.judge.row_items({"source": source, "text": text, "context": context}, names), {}

    def _warn_if_alone(self, scores: Scores) -> Scores:
        if self.read_alone and not self._warned:
            self._warned = True
            warnings.warn(
                "this judge was compiled to read candidates of a source side by side, and a text came alone: it is "
                "read alone, but agreement with the raters was measured side by side (a compile with --config "
                "read-alone=true measures both). Pass the candidates of a source together (score_frame, "
                "LoadedJudge.score_group, or concurrent calls), or compile a judge with -J together=0",
                stacklevel=3,
            )
        return scores

    # --- on the loop of all LM calls ---

    async def _cached_scores(self, items: Sequence[Item]) -> Scores:
        key = (*_batch_key(items), items[0].text)
        task = self._scores.get(key)
        if task is None or (task.done() and not _has_all_scores(task)):
            task = self._scores[key] = asyncio.ensure_future(self._score_items(items))
        self._scores.move_to_end(key)
        while len(self._scores) > _MAX_CACHED:
            self._scores.popitem(last=False)
        # A caller that is cancelled must not cancel the call for the others.
        return await asyncio.shield(task)

    async def _score_items(self, items: Sequence[Item]) -> Scores:
        # Texts without a source are no candidates of the same source.
        batch_size = max(self.judge.judges[item.aspect.name].together for item in items)
        if batch_size < 2 or not items[0].source:
            self.read_alone += batch_size > 1
            scores = dict(zip(items, await self.judge.ascore_items(items, self._scale), strict=True))
        else:
            scores = await self._score_in_batch(items, batch_size)
        return {item.aspect.name: scores[item] for item in items}

    async def _score_in_batch(self, items: Sequence[Item], batch_size: int) -> dict[Item, Score]:
        key = _batch_key(items)
        if key not in self._batches:
            event_loop = asyncio.get_running_loop()
            self._batches[key] = ([], event_loop.create_future())
            event_loop.call_later(self._wait, self._submit_batch, key, self._batches[key][0])
        batch, future = self._batches[key]
        batch.extend(items)
        if len({item.text for item in batch}) >= batch_size:
            self._submit_batch(key, batch)
        return await future

    def _submit_batch(self, key: tuple[object, ...], batch: list[Item]) -> None:
        """Judge a batch, unless it has been submitted because it was full."""
        pending = self._batches.get(key)
        if pending is None or pending[0] is not batch:
            return
        del self._batches[key]
        self.read_alone += len({item.text for item in batch}) == 1
        task = asyncio.ensure_future(self.judge.ascore_items(batch, self._scale))
        task.add_done_callback(lambda done: _resolve(pending[1], done, batch))


def _batch_key(items: Sequence[Item]) -> tuple[object, ...]:
    """The key of texts that are judged together: source, task and aspects."""
    return (*source_key(items[0]), *(item.aspect.name for item in items))


def _resolve(future: asyncio.Future[dict[Item, Score]], task: asyncio.Task[list[Score]], items: Sequence[Item]) -> None:
    """Set the future to the outcome of a finished task."""
    if task.cancelled():
        future.cancel()
    elif (error := task.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(dict(zip(items, task.result(), strict=True)))


def _has_all_scores(task: asyncio.Task[Scores]) -> bool:
    """Whether a finished task has all scores, so that they can be returned again."""
    if task.cancelled() or task.exception() is not None:
        return False
    return all(score.score is not None for score in task.result().values())
