"""The compiled judge as an MLflow model: rows of texts in, scores out, many at once.

MLflow runs this file when it loads the model (models from code), with the model's own copy of the project on
the path. `mlflow.pyfunc.load_model(URI, model_config={...})` may override `lm`, `api_base` and
`concurrency`; other names are ignored, with a warning. API keys are read from the environment.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import mlflow.models
import pandas as pd
from mlflow.pyfunc import PythonModel, PythonModelContext

if TYPE_CHECKING:
    from debate_judge.programs.judge import Item
    from debate_judge.runs.export.loaded import LoadedJudge


class JudgeModel(PythonModel):
    """Columns in: source, text, and optionally context and aspect. Columns out: score, unscored, rounds, stop_reason,
    calls; one row for each row, in order, whatever index the input has.
    """

    def load_context(self, context: PythonModelContext) -> None:
        """Load the export that came with the model; no LM is asked."""
        from debate_judge.runs.export.folder import load

        config = {k: v for k, v in (context.model_config or {}).items() if v is not None}
        self._judge: LoadedJudge = load(context.artifacts["export"], **config)

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Score each row; a row that cannot be scored has a null score and says why in `unscored`.

        Raises:
            dspy.LMError: No row can be scored: a wrong key, an unknown model.
        """
        judge, results = self._judge, [_unscored("")] * len(model_input)
        items: list[tuple[int, Item]] = []
        for place, row in enumerate(model_input.to_dict("records")):
            found = _item(judge, row)
            if isinstance(found, str):
                results[place] = _unscored(found)
            else:
                items.append((place, found))
        for (place, _), result in zip(items, _results(judge, [item for _, item in items]), strict=True):
            results[place] = result
        frame = pd.DataFrame({name: _column([result[name] for result in results]) for name in _unscored("")})
        return frame.set_axis(model_input.index)


def _item(judge: LoadedJudge, row: Mapping[Hashable, Any]) -> Item | str:
    """The question that a row asks, or why it asks none."""
    from debate_judge.programs.judge import Item

    texts = {name: _text(row.get(name)) for name in ("source", "text", "context", "aspect")}
    for name in ("source", "text"):
        if not texts[name].strip():
            return f"no text: the row needs a {name}"
    aspect = texts["aspect"] or (judge.aspects[0] if len(judge.aspects) == 1 else "")
    if aspect not in judge.aspects:
        return f"no such aspect: {aspect!r}; one of {', '.join(judge.aspects)} is needed"
    return Item("", "", judge.task, judge.task.aspect(aspect), texts["source"], texts["text"], texts["context"])


def _results(judge: LoadedJudge, items: list[Item]) -> Iterator[dict[str, object]]:
    from debate_judge.runs.runner.streaming import score_of

    for item, judgement in judge.stream(items):
        score = score_of(judge.compiled, item, judgement)
        unscored = None if score.unscored is None else f"{score.unscored}: {score.detail}"
        yield {
            "score": score.score,
            "unscored": unscored,
            "rounds": score.rounds,
            "stop_reason": score.stop_reason,
            "calls": score.calls,
        }


def _unscored(why: str) -> dict[str, object]:
    return {"score": None, "unscored": why, "rounds": None, "stop_reason": None, "calls": 0}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _column(values: list[object]) -> pd.Series[Any]:
    # Of objects where one is missing: pandas would write NaN for it, which is no JSON.
    return pd.Series(values, dtype=object if None in values else None)


mlflow.models.set_model(JudgeModel())
