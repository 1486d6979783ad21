"""The compiled judge as an MLflow model: rows of texts in, a row of scores for each.

MLflow runs this file when it loads the model ("models from code"), with the model's own copy of the project on the
path. `mlflow.pyfunc.load_model(URI, model_config={...})` may set what `runs.loaded.SETTINGS` names; a server of
models takes it from the environment (`DEBATE_LM`, `DEBATE_BUDGET`, ...), and API keys come from there alone. A judge
that was compiled with `--api-base` needs `api_base`: a model must not decide where texts and keys are sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlflow.models
import pandas as pd
from mlflow.pyfunc import PythonModel, PythonModelContext

if TYPE_CHECKING:
    from debate_judge.runs.loaded import LoadedJudge


class JudgeModel(PythonModel):
    """Columns in: source, text, and optionally context. Out, for each aspect A: `A`, `A_reason` and `A_unscored`, as
    `score_frame` writes them, with the index of the input. The parameter `scale` is `judge` (default) or `raters`, see
    `runs.loaded.LoadedJudge.score`.
    """

    def load_context(self, context: PythonModelContext) -> None:
        """Load the export in the model, without a call to its LM."""
        from debate_judge.runs.loaded import load_in_tool

        self._judge: LoadedJudge = load_in_tool(context.artifacts["export"], context.model_config)

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Score each row; an unscored one has a null score and the reason in `A_unscored`.

        Raises:
            InputError: The export has no calibration for the scale of raters.
            dspy.LMError: No row can be scored: a wrong key, an unknown model, a spent budget.
        """
        from debate_judge.runs.loaded import score_frame

        texts = model_input[[name for name in ("source", "text", "context") if name in model_input]]
        columns = {"context": "context"} if "context" in texts else {}
        scored = score_frame(texts, self._judge, scale=(params or {}).get("scale", "judge"), **columns)
        scores = scored.drop(columns=list(texts.columns))
        # None in place of NaN, which is no JSON.
        return scores.astype(object).where(scores.notna(), None)


mlflow.models.set_model(JudgeModel())
