"""LangSmith and OpenEvals: a judge as an evaluator function, for `langsmith.evaluate`, `aevaluate` and pytest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from debate_judge.runs.export.loaded import LoadedJudge
from debate_judge.runs.integrations.batching import SourceBatcher
from debate_judge.runs.integrations.common import text_in


def langsmith_evaluator(
    judge: LoadedJudge | str | Path,
    *,
    source_key: str | None = None,
    text_key: str | None = None,
    aspects: Sequence[str] | str | None = None,
) -> Callable[..., list[dict[str, Any]]]:
    """Make `f(*, inputs, outputs, reference_outputs=None, **kw)` -> a list of key, score, comment and metadata.

    A text without a score has the score None, which no mean counts, and the comment says why.

    Args:
        judge: As for `SourceBatcher`.
        source_key: Key of the source in `inputs`; needed where they hold several texts and none is called `source`.
        text_key: The same for `outputs`, and `text`.
        aspects: Which aspects; all of the judge's by default.
    """
    batcher = SourceBatcher(judge, aspects)

    def debate_judge(
        *, inputs: Any, outputs: Any, reference_outputs: Any = None, **ignored: Any
    ) -> list[dict[str, Any]]:
        source, text = text_in(inputs, "source", source_key), text_in(outputs, "text", text_key)
        return [
            {
                "key": name,
                "score": score.score,
                "comment": score.reason,
                "metadata": {"rounds": score.rounds, "stop_reason": score.stop_reason, "unscored": score.unscored},
            }
            for name, score in batcher.score(source=source, text=text).items()
        ]

    return debate_judge
