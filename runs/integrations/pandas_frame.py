"""pandas: scores a frame of texts; returns it with columns of scores, reasons and reasons for missing scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from debate_judge.data.errors import InputError
from debate_judge.programs.judge import ScoreScale
from debate_judge.runs.export.folder import LoadedJudge, load_in_tool

if TYPE_CHECKING:
    import pandas as pd


def score_frame(
    frame: pd.DataFrame,
    judge: LoadedJudge | str | Path,
    *,
    source: str = "source",
    text: str = "text",
    context: str | None = None,
    aspects: Sequence[str] | str | None = None,
    scale: ScoreScale = "judge",
) -> pd.DataFrame:
    """Score each row of a frame. Rows of one source share calls if the judge was compiled with `together`.

    Args:
        frame: A row for each text, in any order.
        judge: A loaded judge, or an export as for `load`, with settings from the environment.
        source: Column of the sources; an empty cell is a text that is judged by itself.
        text: Column of the texts; an empty cell has no score.
        context: Column of the contexts, if the task has them.
        aspects: Which aspects; all of the judge's by default.
        scale: As for `LoadedJudge.score`.

    Returns:
        A copy with the frame's index and order and, for each aspect A, the columns `A` (NaN where there is no score),
        `A_reason` and `A_unscored` (why there is none; empty where there is one).

    Raises:
        InputError: The frame lacks a column or has one of the new ones, or the export cannot be used.
        dspy.LMError: The LM cannot be used at all.
    """
    loaded = load_in_tool(judge)
    names = [aspect.name for aspect in loaded.select_aspects(aspects)]
    columns = {"source": source, "text": text} | ({} if context is None else {"context": context})
    _check_columns(frame, columns, [c for name in names for c in _new_columns(name)])
    cells = {name: [_text(value) for value in frame[column]] for name, column in columns.items()}
    rows = [{name: values[i] for name, values in cells.items()} for i in range(len(frame))]
    # Sorted by source, because only consecutive rows of a source share calls.
    order = sorted(range(len(rows)), key=lambda i: (rows[i]["source"], rows[i].get("context", "")))
    scored = dict(zip(order, loaded.score_many([rows[i] for i in order], aspects=names, scale=scale), strict=True))
    result = frame.copy()
    for name in names:
        scores = [scored[i][name] for i in range(len(frame))]
        result[name] = [float("nan") if score.score is None else score.score for score in scores]
        result[f"{name}_reason"] = [score.reason for score in scores]
        result[f"{name}_unscored"] = ["" if score.unscored is None else score.reason for score in scores]
    return result


def _new_columns(aspect: str) -> tuple[str, ...]:
    return aspect, f"{aspect}_reason", f"{aspect}_unscored"


def _check_columns(frame: pd.DataFrame, needed: Mapping[str, str], added: Sequence[str]) -> None:
    present = ", ".join(map(str, frame.columns))
    for argument, name in needed.items():
        if name not in frame.columns:
            remedy = f"name it: {argument}=..."
            raise InputError(f"the frame has no column {name!r}", field=name, found=present, remedy=remedy)
    if taken := sorted({*added} & {*frame.columns}):
        remedy = "drop or rename it: scores would overwrite it"
        raise InputError("the frame has a column of this name already", field=taken[0], found=present, remedy=remedy)


def _text(cell: object) -> str:
    """A cell's text; empty for None, NaN and NA."""
    if isinstance(cell, str):
        return cell
    if cell is None or (cell == cell) is not True:
        return ""
    raise InputError("not a text", field="text", expected="texts in the columns of sources and texts", found=cell)
