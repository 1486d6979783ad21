"""The compiled judge as an MLflow model: rows of texts in, rows of scores out, with many LM calls in flight.

MLflow runs this file when it loads the model ("models from code"), with the model's own copy of the project on the
path. `mlflow.pyfunc.load_model(URI, model_config={...})` may override `lm`, `api_base` and
`concurrency`; other names are ignored, with a warning. API keys are read from the environment. A judge that was
compiled with `--api-base` needs `api_base` there: no model decides where texts and keys go.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import mlflow.models
import pandas as pd
from mlflow.pyfunc import PythonModel, PythonModelContext

if TYPE_CHECKING:
    from debate_judge.programs.compiled import ScoreScale
    from debate_judge.programs.judge import Item
    from debate_judge.runs.export.loaded import LoadedJudge


class JudgeModel(PythonModel):
    """Rows of texts in, rows of scores out.

    Columns in: source, text, and optionally context and aspect. Columns out: aspect, score, judge_score, unscored,
    rounds, stop_reason, calls, together, joint. The parameter `scale` is `judge` (default) or `raters`, see
    `runs.export.loaded.LoadedJudge.score`; `judge_score` is the judge's own score in either case.

    A row that names an aspect gives one output row; one without (no such column, null or empty) gives one for each of
    the judge's aspects, in the task's order. Output rows follow the order of the input rows and repeat their index.
    Rows of one source that follow one another share calls where the judge has candidates or aspects share them;
    `together` and `joint` say how many of each there were.

    `spark_udf` wants as many output rows as input rows, so there every row has to name its aspect.
    """

    def load_context(self, context: PythonModelContext) -> None:
        """Load the export that came with the model, without a call to its LM."""
        from debate_judge.runs.export.folder import load

        config = {k: v for k, v in (context.model_config or {}).items() if v is not None}
        self._judge: LoadedJudge = load(context.artifacts["export"], **config)

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Score each row; what cannot be scored has a null score and the reason in `unscored`.

        Raises:
            InputError: The parameter `scale` is unknown, or asks for a map that the export does not have.
            dspy.LMError: No row can be scored: a wrong key, an unknown model.
        """
        judge, rows = self._judge, model_input.to_dict("records")
        scale = (params or {}).get("scale", "judge")
        judge.compiled.require_calibrated(judge.choose(), scale)
        asked = [(place, question) for place, row in enumerate(rows) for question in _questions(judge, row)]
        scores = _scores(judge, [question for _, question in asked if not isinstance(question, dict)], scale)
        results = [question if isinstance(question, dict) else next(scores) for _, question in asked]
        frame = pd.DataFrame({name: _column([result[name] for result in results]) for name in _unscored("", "")})
        return frame.set_axis(model_input.index.take([place for place, _ in asked]))


def _questions(judge: LoadedJudge, row: Mapping[Hashable, Any]) -> list[Item | dict[str, object]]:
    """What a row asks the judge, a question for each aspect; in place of one that cannot be asked, its result."""
    from debate_judge.programs.judge import Item

    texts = {name: _text(row.get(name)) for name in ("source", "text", "context", "aspect")}
    names = (texts["aspect"],) if texts["aspect"].strip() else judge.aspects
    if names[0] not in judge.aspects:
        return [_unscored(names[0], f"no such aspect: {names[0]!r}; one of {', '.join(judge.aspects)} is needed")]
    for required in ("source", "text"):
        if not texts[required].strip():
            return [_unscored(name, f"no text: the row needs a {required}") for name in names]
    task = judge.task
    return [Item("", "", task, task.aspect(name), texts["source"], texts["text"], texts["context"]) for name in names]


def _scores(judge: LoadedJudge, items: list[Item], scale: ScoreScale) -> Iterator[dict[str, object]]:
    from debate_judge.runs.runner.streaming import score_of

    for item, judgement in judge.stream(items):
        score = score_of(judge.compiled, item, judgement, scale)
        unscored = None if score.unscored is None else f"{score.unscored}: {score.detail}"
        yield {
            "aspect": item.aspect.name,
            "score": score.score,
            "judge_score": score.judge_score,
            "unscored": unscored,
            "rounds": score.rounds,
            "stop_reason": score.stop_reason,
            "calls": float(score.calls),
            "together": score.together,
            "joint": score.joint,
        }


def _unscored(aspect: str, why: str) -> dict[str, object]:
    nothing = {"score": None, "judge_score": None, "unscored": why, "rounds": None, "stop_reason": None}
    return {"aspect": aspect, **nothing, "calls": 0.0, "together": 1, "joint": 1}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _column(values: list[object]) -> pd.Series[Any]:
    # Of objects where one is missing: pandas would write NaN for it, which is no JSON.
    return pd.Series(values, dtype=object if None in values else None)


mlflow.models.set_model(JudgeModel())
