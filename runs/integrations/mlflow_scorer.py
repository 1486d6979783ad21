"""MLflow: a judge as a scorer of `mlflow.genai.evaluate`."""

from __future__ import annotations

from typing import Any

from mlflow.entities import AssessmentError, AssessmentSource, AssessmentSourceType, Feedback
from mlflow.genai.scorers import Scorer
from pydantic import PrivateAttr

from debate_judge.runs.export.loaded import LoadedJudge
from debate_judge.runs.integrations.batching import SourceBatcher
from debate_judge.runs.integrations.units import text_in
from debate_judge.runs.runner.streaming import Score


class DebateScorer(Scorer):
    """A feedback for each aspect, named like it, with the score on the aspect's scale and the judge's reason.

    A text without a score has an error in place of a value, which MLflow leaves out of means.

    Args:
        judge: As for `SourceBatcher`.
        source_key: Key of the source in `inputs`; needed where they hold several texts and none is called `source`.
        text_key: The same for `outputs` that are a mapping, and `text`.
        aspects: Which aspects; all of the judge's by default.
        name: Of the scorer; feedback is named by the aspects.
    """

    name: str = "debate_judge"
    judge: Any
    source_key: str | None = None
    text_key: str | None = None
    aspects: list[str] | None = None
    _batcher: SourceBatcher = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._batcher = SourceBatcher(self.judge, self.aspects)

    # MLflow passes by name what the signature has. An async one would be refused.
    def __call__(self, *, inputs: Any = None, outputs: Any = None) -> list[Feedback]:
        """Score one row, e.g. `inputs={"source": "..."}` and `outputs="..."`.

        Raises:
            InputError: There is no text, or several and none is named.
        """
        source, text = text_in(inputs, "source", self.source_key), text_in(outputs, "text", self.text_key)
        scores = self._batcher.score(source=source, text=text)
        return [feedback_of(self._batcher.judge, name, score) for name, score in scores.items()]


def feedback_of(judge: LoadedJudge, aspect: str, score: Score, value: Any = None) -> Feedback:
    """A judge's score of an aspect as MLflow's feedback, whose value may be another one, e.g. True."""
    error = None
    if score.score is None:
        error = AssessmentError(error_code="UNSCORED", error_message=score.reason)
    return Feedback(
        name=aspect,
        value=score.score if value is None else value,
        error=error,
        rationale=None if error else score.reason,
        source=AssessmentSource(AssessmentSourceType.LLM_JUDGE, f"debate-judge/{judge.fingerprint}"),
        metadata={
            "aspect": aspect,
            "rounds": str(score.rounds or 0),
            "stop_reason": score.stop_reason or "",
            "calls": f"{score.calls:g}",
        },
    )
