"""DeepEval: a judge as a metric, for `evaluate`, `assert_test` and datasets. Needs the extra `deepeval`."""

from __future__ import annotations

from typing import Any

from deepeval.metrics import BaseMetric
from deepeval.test_case import LLMTestCase

from debate_judge.runs.integrations.batching import Scores, SourceBatcher
from debate_judge.runs.integrations.common import text_in, to_unit


class DebateMetric(BaseMetric):  # type: ignore[misc, unused-ignore]
    """One aspect of a judge, from 0 to 1; make a metric for each aspect.

    `input` of a test case is the source, and `actual_output` the text. DeepEval copies a metric for every test case by
    calling its constructor; copies share the judge.

    Args:
        judge: A `SourceBatcher`, or what it takes: a loaded judge, or an export.
        aspect: Which aspect.
        threshold: The lowest score, from 0 to 1, that passes.
        async_mode: As for DeepEval's own metrics.
    """

    def __init__(self, judge: Any, aspect: str, threshold: float = 0.5, async_mode: bool = True) -> None:
        # Copies are made from the attributes that are named like these arguments.
        self.judge = judge if isinstance(judge, SourceBatcher) else SourceBatcher(judge)
        self.aspect, self.threshold, self.async_mode = aspect, threshold, async_mode
        self.include_reason = True

    @property
    def __name__(self) -> str:
        return f"{self.aspect} (debate judge)"

    def measure(self, test_case: LLMTestCase, *args: Any, **kwargs: Any) -> float:
        """Score a test case.

        Raises:
            UnscoredError: It has no score.
        """
        return self._set_result(self.judge.score(**self._arguments(test_case)))

    async def a_measure(self, test_case: LLMTestCase, *args: Any, **kwargs: Any) -> float:
        """As `measure`, on an event loop."""
        return self._set_result(await self.judge.ascore(**self._arguments(test_case)))

    def is_successful(self) -> bool:
        """Whether the score reaches the threshold; False without a score."""
        return bool(self.success)

    def _arguments(self, test_case: LLMTestCase) -> dict[str, Any]:
        source, text = text_in(test_case.input, "source"), text_in(test_case.actual_output, "text")
        return {"source": source, "text": text, "aspects": self.aspect}

    def _set_result(self, scores: Scores) -> float:
        score = scores[self.aspect]
        self.reason, self.error = score.reason, None
        unit = to_unit(score.score, self.judge.judge.task.aspect(self.aspect))
        self.score, self.success = unit, unit is not None and unit >= self.threshold
        if unit is None:
            self.error = score.reason
            raise UnscoredError(score.reason)
        return unit


class UnscoredError(RuntimeError):
    """A text that the judge could not score; DeepEval reports it as the metric's error (`ErrorConfig`)."""
