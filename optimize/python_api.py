"""`debate_judge.compile`: a compile from Python, with the settings of the command as keywords."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from debate_judge import data as rated_texts
from debate_judge.data.files.formats import RecordFile, refuse_equal_names, typed_rows
from debate_judge.data.schema import Corpus, Task, fingerprint
from debate_judge.optimize.compile import compile_judge
from debate_judge.optimize.result import Result
from debate_judge.optimize.settings import Settings
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.command_line import environment
from debate_judge.runs.flags import python_arguments, with_settings
from debate_judge.runs.shared_flags import personas as named_personas
from debate_judge.runs.shared_flags import settings_of_lm

if TYPE_CHECKING:
    import dspy
    import pandas as pd


@python_arguments()
@with_settings(Settings, left_out=("json", "verbose"))
def compile(
    data: str | Path | pd.DataFrame | Corpus = "sample",
    *,
    task: Task | str | None = None,
    lm: str | dspy.LM = OFFLINE,
    personas: Mapping[str, str] | None = None,
    progress: bool = True,
    **settings: Any,
) -> Result:
    """Compile a judge that agrees with your raters, measure it on held-out sources, and export it.

    To resume a compile that was stopped, call it again with the same arguments; finished calls are not paid for again.

    Args:
        data: Rated texts: what the command takes as --data, a DataFrame with the columns of such a file, or a corpus.
        task: What is rated: the name of a built-in task, the path of a task file, or a task.
        lm: `offline` or PROVIDER/MODEL, whose key comes from the environment; or a `dspy.LM` with a model, and
            optionally `api_base`, `api_key`, `temperature` and `max_tokens`.
        personas: Name -> text of personas for the Critic, besides the built-in ones.
        progress: Whether progress is shown on stderr.
        settings: Settings of `debate compile` by their names, e.g. `aspects=["coherence"]`, `max_rounds=2`,
            `budget="usd=5"`. All files are written into the folder `store`; without one, `runs/store` in the working
            directory, and a line on stderr says so.

    Raises:
        InputError: Settings or data cannot be used; no LM call was made then.
        dspy.LMError: The LM failed for good.
    """
    columns = _as_tuple(settings.pop("columns", ()))
    corpus: Corpus | None = None
    if isinstance(data, Corpus):
        corpus, name = data, f"corpus-{data.digest[:12]}"
    elif isinstance(data, (str, Path)):
        name = str(data)
    else:
        refuse_equal_names([str(column) for column in data.columns], "DataFrame")
        rows = data.to_dict(orient="records")
        name = f"frame-{fingerprint([{str(k): str(v) for k, v in row.items()} for row in rows])[:12]}"
        file = RecordFile(name, "a DataFrame", True, lambda _: typed_rows(rows, name))
        corpus = rated_texts.load(file, task, columns, settings.get("sources"))
    if isinstance(task, Task) and corpus is None:
        corpus = rated_texts.load(name, task, columns, settings.get("sources"))
    values: dict[str, Any] = {
        field: _as_tuple(value) if field == "aspects" else str(value) if isinstance(value, Path) else value
        for field, value in settings.items()
    }
    named_task = task if isinstance(task, str) else None
    of_lm, keys = ({"lm": lm}, {}) if isinstance(lm, str) else settings_of_lm(lm)
    compile_settings = Settings(data=name, task=named_task, columns=columns, **{**of_lm, **values})
    if "store" not in settings:
        print(f"debate_judge.compile writes into {Path(compile_settings.store).resolve()}", file=sys.stderr)
    personas_file = Path(compile_settings.personas) if compile_settings.personas else None
    all_personas = {**named_personas(personas_file), **(personas or {})}
    with environment(keys):
        result = compile_judge(compile_settings, all_personas, corpus, progress=progress)
        if keys:
            # Loaded while the key of the LM is set, which the result does not keep.
            _ = result.judge
    return result


def _as_tuple(value: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(value.split(",")) if isinstance(value, str) else tuple(value)
