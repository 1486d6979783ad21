"""The compiled judge as an MLflow model: rows of texts in, rows of scores out, with many LM calls in flight.

MLflow runs this file when it loads the model ("models from code"), with the model's own copy of the project on the
path. `mlflow.pyfunc.load_model(URI, model_config={...})` may give `lm`, `api_base`, `concurrency`, `rpm`, `tpm`,
`budget` and `store`, as the flags of these names; other names are ignored, with a warning. What is not given there is
read from the environment (`DEBATE_LM`, `DEBATE_RPM`, ...), for Spark passes no configuration to the workers of a
cluster. API keys are read from the environment. A judge that was compiled with `--api-base` needs `api_base`: no model
decides where texts and keys go.

All loads of a model in a process share one event loop, one set of limits and one store of replies.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import mlflow.models
import pandas as pd
from mlflow.pyfunc import PythonModel, PythonModelContext

if TYPE_CHECKING:
    from debate_judge.programs.compiled import ScoreScale
    from debate_judge.programs.judge import Item
    from debate_judge.runs.export.loaded import LoadedJudge


Results = list[tuple[int, dict[str, Any]]]
"""The number of the input row, from 0, and what the judge reports about it in one aspect."""


class JudgeModel(PythonModel):
    """Rows of texts in, rows of scores out.

    Columns in: source, text, and optionally context and aspect. The parameter `scale` is `judge` (default) or
    `raters`, see `runs.export.loaded.LoadedJudge.score`. The parameter `layout` says what an output row is:

    - `rows` (default): one text in one aspect. Columns: aspect, score, judge_score, unscored, reason, rounds,
      stop_reason, calls, together, joint; `judge_score` is the judge's own score on either scale, `reason` what the
      Scorer or Tie-breaker said to it. An input row that names an aspect
      gives one output row; one without (no such column, null or empty) gives one for each of the judge's aspects, in
      the task's order. Output rows follow the order of the input rows and repeat their index.
    - `columns`: one input row, whatever stands in it, as Spark demands. Columns: one for each aspect with its score,
      `unscored` with the reasons of those that have none, and `calls`. An aspect that the row does not ask for is
      null without a reason.

    Rows of one source that follow one another share calls where the judge has candidates or aspects share them;
    `together` and `joint` say how many of each there were.
    """

    def load_context(self, context: PythonModelContext) -> None:
        """Load the export that came with the model, without a call to its LM."""
        from debate_judge.runs.export.process import judge_of_process

        self._judge: LoadedJudge = judge_of_process(context.artifacts["export"], context.model_config or {})

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Score each row; what cannot be scored has a null score and the reason in `unscored`.

        Raises:
            InputError: A parameter is unknown, asks for a map that the export does not have, or for columns that an
                aspect has the name of.
            dspy.LMError: No row can be scored: a wrong key, an unknown model, a spent budget.
        """
        judge, rows, given = self._judge, model_input.to_dict("records"), params or {}
        scale, arranged = given.get("scale", "judge"), _layout(given.get("layout", "rows"))
        judge.compiled.require_calibrated(judge.choose(), scale)
        questions = [(place, question) for place, row in enumerate(rows) for question in _questions(judge, row)]
        scores = _scores(judge, [question for _, question in questions if not isinstance(question, dict)], scale)
        results = [(place, question if isinstance(question, dict) else next(scores)) for place, question in questions]
        return arranged(judge.aspects, model_input.index, results)


def _layout(name: str) -> Callable[[Sequence[str], pd.Index[Any], Results], pd.DataFrame]:
    from debate_judge.data.errors import InputError

    layouts = {"rows": _as_rows, "columns": _as_columns}
    if name not in layouts:
        raise InputError("unknown layout of the scores", field="layout", expected=" or ".join(layouts), found=name)
    return layouts[name]


def _as_rows(aspects: Sequence[str], index: pd.Index[Any], results: Results) -> pd.DataFrame:
    frame = pd.DataFrame({name: _column([result[name] for _, result in results]) for name in _unscored("", "")})
    return frame.set_axis(index.take([place for place, _ in results]))


def _as_columns(aspects: Sequence[str], index: pd.Index[Any], results: Results) -> pd.DataFrame:
    from debate_judge.data.errors import InputError

    if taken := {"unscored", "calls"} & {*aspects}:
        raise InputError(
            "an aspect has the name of another column",
            field="layout",
            expected="rows",
            found=f"columns, with the aspect {min(taken)!r}",
        )
    scores: dict[str, list[object]] = {name: [None] * len(index) for name in aspects}
    reasons: list[list[str]] = [[] for _ in index]
    calls = [0.0] * len(index)
    for place, result in results:
        calls[place] += result["calls"]
        if result["unscored"] is None:
            scores[result["aspect"]][place] = result["score"]
        else:
            reasons[place].append(f"{result['aspect']}: {result['unscored']}")
    # Empty, not null, where there is none: MLflow makes the text "None" of a null that goes to Spark.
    texts = ["; ".join(of_row) for of_row in reasons]
    columns = {name: _column(values) for name, values in scores.items()}
    return pd.DataFrame({**columns, "unscored": _column([*texts]), "calls": _column([*calls])}).set_axis(index)


def _questions(judge: LoadedJudge, row: Mapping[Hashable, Any]) -> list[Item | dict[str, Any]]:
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


def _scores(judge: LoadedJudge, items: list[Item], scale: ScoreScale) -> Iterator[dict[str, Any]]:
    from debate_judge.runs.runner.streaming import score_of

    for item, judgement in judge.stream(items):
        score = score_of(judge.compiled, item, judgement, scale)
        unscored = None if score.unscored is None else f"{score.unscored}: {score.detail}"
        yield {
            "aspect": item.aspect.name,
            "score": score.score,
            "judge_score": score.judge_score,
            "unscored": unscored,
            "reason": score.reason,
            "rounds": None if score.rounds is None else float(score.rounds),
            "stop_reason": score.stop_reason,
            "calls": float(score.calls),
            "together": score.together,
            "joint": score.joint,
        }


def _unscored(aspect: str, why: str) -> dict[str, Any]:
    nothing = {"score": None, "judge_score": None, "unscored": why, "reason": why, "rounds": None, "stop_reason": None}
    return {"aspect": aspect, **nothing, "calls": 0.0, "together": 1, "joint": 1}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _column(values: list[object]) -> pd.Series[Any]:
    # Of objects where one is missing: pandas would write NaN for it, which is no JSON.
    return pd.Series(values, dtype=object if None in values else None)


mlflow.models.set_model(JudgeModel())
