"""MLflow: a judge as a scorer of `mlflow.genai.evaluate`."""

from __future__ import annotations

from typing import Any

from mlflow.entities import AssessmentError, AssessmentSource, AssessmentSourceType, Feedback
from mlflow.genai.scorers import Scorer
from pydantic import PrivateAttr

from debate_judge.runs.integrations.dspy_metric import text_in
from debate_judge.runs.loaded import LoadedJudge, load_in_tool


class DebateScorer(Scorer):
    """A feedback for each aspect, named like it, with the score on the aspect's scale and the judge's reason.

    A text without a score has an error in place of a value, which MLflow leaves out of means.

    Args:
        judge: A loaded judge, or an export as for `load`, with settings from the environment.
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
    _judge: LoadedJudge = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._judge = load_in_tool(self.judge)

    # MLflow passes the arguments that the signature names, and refuses an async method.
    def __call__(self, *, inputs: Any = None, outputs: Any = None) -> list[Feedback]:
        """Score one row, e.g. `inputs={"source": "..."}` and `outputs="..."`.

        Raises:
            InputError: There is no text, or several and none is named.
        """
        source, text = text_in(inputs, "source", self.source_key), text_in(outputs, "text", self.text_key)
        scores = self._judge.score(source=source, text=text, aspects=self.aspects)
        judge = AssessmentSource(AssessmentSourceType.LLM_JUDGE, f"debate-judge/{self._judge.fingerprint}")
        feedback = []
        for aspect, score in scores.items():
            error = None
            if score.score is None:
                error = AssessmentError(error_code="UNSCORED", error_message=score.reason)
            metadata = {"aspect": aspect, "rounds": str(score.rounds or 0), "stop_reason": score.stop_reason or ""}
            feedback.append(
                Feedback(
                    name=aspect,
                    value=score.score,
                    error=error,
                    rationale=None if error else score.reason,
                    source=judge,
                    metadata={**metadata, "calls": f"{score.calls:g}"},
                )
            )
        return feedback
