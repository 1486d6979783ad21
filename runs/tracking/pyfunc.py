"""The compiled judge as an MLflow model: rows of texts in, rows of scores out, with many LM calls in flight.

MLflow runs this file when it loads the model ("models from code"), with the model's own copy of the project on the
path. `mlflow.pyfunc.load_model(URI, model_config={...})` may set `lm`, `api_base`, `concurrency`, `rpm`, `tpm`,
`budget` and `store`, like the flags of these names; other names are ignored with a warning. Defaults come from the
environment (`DEBATE_LM`, `DEBATE_RPM`, ...), because Spark passes no configuration to the workers of a cluster, and so
do API keys. A judge that was compiled with `--api-base` needs `api_base`: a model must not decide where texts and keys
are sent.

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


RowResults = list[tuple[int, dict[str, Any]]]
"""Pairs of an input row's number, from 0, and an output row about it in one aspect."""


class JudgeModel(PythonModel):
    """Rows of texts in, rows of scores out.

    Columns in: source, text, and optionally context and aspect. The parameter `scale` is `judge` (default) or
    `raters`, see `runs.export.loaded.LoadedJudge.score`. The parameter `layout` says what an output row is:

    - `rows` (default): one text in one aspect. Columns: aspect, score, judge_score, unscored, reason, rounds,
      stop_reason, calls, together, joint; `judge_score` is the judge's own score on either scale, `reason` the
      Scorer's or Tie-breaker's. An input row that names an aspect gives one output row; one that does not (no such
      column, null or empty) gives one for each aspect of the judge, in the task's order. Output rows have the order
      and the index of the input rows.
    - `columns`: one output row for each input row, as Spark requires. Columns: one for each aspect with its score,
      `unscored` with the reasons of those that have none, and `calls`. An aspect that the row does not ask for is
      null without a reason.

    Consecutive rows of one source share calls if the judge lets candidates or aspects share them; `together` and
    `joint` are the numbers of candidates and aspects in a call.
    """

    def load_context(self, context: PythonModelContext) -> None:
        """Load the export in the model, without a call to its LM."""
        from debate_judge.runs.export.judge_cache import cached_judge

        self._judge: LoadedJudge = cached_judge(context.artifacts["export"], context.model_config or {})

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Score each row; an unscored one has a null score and the reason in `unscored`.

        Raises:
            InputError: A parameter is unknown, the export has no calibration, or an aspect has the name of another
                column.
            dspy.LMError: No row can be scored: a wrong key, an unknown model, a spent budget.
        """
        judge, rows, options = self._judge, model_input.to_dict("records"), params or {}
        scale, arrange = options.get("scale", "judge"), _layout(options.get("layout", "rows"))
        judge.compiled.require_calibrated(judge.select_aspects(), scale)
        items = [(number, item) for number, row in enumerate(rows) for item in _row_items(judge, row)]
        scores = _scores(judge, [item for _, item in items if not isinstance(item, dict)], scale)
        results = [(number, item if isinstance(item, dict) else next(scores)) for number, item in items]
        return arrange(judge.aspects, model_input.index, results)


def _layout(name: str) -> Callable[[Sequence[str], pd.Index[Any], RowResults], pd.DataFrame]:
    from debate_judge.data.errors import InputError

    layouts = {"rows": _as_rows, "columns": _as_columns}
    if name not in layouts:
        raise InputError("unknown layout of the scores", field="layout", expected=" or ".join(layouts), found=name)
    return layouts[name]


def _as_rows(aspects: Sequence[str], index: pd.Index[Any], results: RowResults) -> pd.DataFrame:
    frame = pd.DataFrame({name: _column([result[name] for _, result in results]) for name in _unscored("", "")})
    return frame.set_axis(index.take([number for number, _ in results]))


def _as_columns(aspects: Sequence[str], index: pd.Index[Any], results: RowResults) -> pd.DataFrame:
    from debate_judge.data.errors import InputError

    if clashing := {"unscored", "calls"} & {*aspects}:
        raise InputError(
            "an aspect has the name of another column",
            field="layout",
            expected="rows",
            found=f"columns, with the aspect {min(clashing)!r}",
        )
    scores: dict[str, list[object]] = {name: [None] * len(index) for name in aspects}
    reasons: list[list[str]] = [[] for _ in index]
    calls = [0.0] * len(index)
    for number, result in results:
        calls[number] += result["calls"]
        if result["unscored"] is None:
            scores[result["aspect"]][number] = result["score"]
        else:
            reasons[number].append(f"{result['aspect']}: {result['unscored']}")
    # Empty, not null, where there is none: MLflow makes the text "None" of a null that goes to Spark.
    texts = ["; ".join(row_reasons) for row_reasons in reasons]
    columns = {name: _column(values) for name, values in scores.items()}
    return pd.DataFrame({**columns, "unscored": _column([*texts]), "calls": _column([*calls])}).set_axis(index)


def _row_items(judge: LoadedJudge, row: Mapping[Hashable, Any]) -> list[Item | dict[str, Any]]:
    """The items of a row, one for each aspect; an unscored result in place of an item that cannot be judged."""
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


def _unscored(aspect: str, reason: str) -> dict[str, Any]:
    missing = dict.fromkeys(("score", "judge_score", "unscored", "reason", "rounds", "stop_reason"))
    return {"aspect": aspect, **missing, "unscored": reason, "reason": reason, "calls": 0.0, "together": 1, "joint": 1}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _column(values: list[object]) -> pd.Series[Any]:
    # dtype object if a value is missing: pandas would make it NaN, which is no JSON.
    return pd.Series(values, dtype=object if None in values else None)


mlflow.models.set_model(JudgeModel())
