"""`debate_judge.compile`: a compile from Python, with the settings of the command as keywords."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from debate_judge import data as rated_texts
from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files.formats import RecordFile
from debate_judge.data.files.hub import typed_rows
from debate_judge.data.schema import Corpus, Task, fingerprint
from debate_judge.optimize.findings.verdict import agreement_of, verdict
from debate_judge.optimize.job import Result, compile_judge
from debate_judge.optimize.proof.held_out import COMPARED
from debate_judge.optimize.settings import Settings
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.export.folder import load
from debate_judge.runs.export.loaded import LoadedJudge
from debate_judge.runs.flags.named_texts import personas as named_personas

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Compiled:
    """A finished compile."""

    result: Result
    """All figures, with the judges, the searches and the held-out scores."""

    @property
    def export(self) -> Path:
        """The folder of the exported judge, for `load` and `debate score`."""
        return self.result.export

    @cached_property
    def judge(self) -> LoadedJudge:
        """The exported judge, a DSPy program with the LM that it was compiled with."""
        return load(self.export)

    @property
    def verdict(self) -> str:
        """Is the judge good, is it better than a single call, what does it cost, what is exported: a line each."""
        return "\n".join(verdict(self.result.plan, self.result.held_out, self.result.exported))

    @property
    def table(self) -> pd.DataFrame:
        """Held-out agreement in the correlation and at the level that was chosen by.

        One row for each aspect and the average; for each compared judge (`single`, `informed_single`, `uncompiled`,
        `compiled`) the columns (judge, `value`), (judge, `low`) and (judge, `high`), the ends of the 95 % interval.
        """
        import pandas as pd

        plan, held_out = self.result.plan, self.result.held_out
        figures = ("value", "low", "high")
        rows: dict[str, list[float | None]] = {}
        for row in [*(aspect.name for aspect in plan.data.aspects), "average"]:
            for judge in COMPARED:
                found = (
                    held_out.tables[judge].average[plan.data.level][plan.statistic]
                    if row == "average"
                    else agreement_of(plan, held_out, judge, row)
                )
                rows.setdefault(row, []).extend(getattr(found, figure) for figure in figures)
        columns = pd.MultiIndex.from_product([COMPARED, figures], names=["judge", "figure"])
        return pd.DataFrame(list(rows.values()), index=list(rows), columns=columns, dtype=float)


def compile(
    data: str | Path | pd.DataFrame | Corpus = "sample",
    *,
    task: Task | str | None = None,
    lm: str = OFFLINE,
    personas: Mapping[str, str] | None = None,
    progress: bool = True,
    **settings: Any,
) -> Compiled:
    """Compile a judge for your raters, measure it on sources that it never saw, and export it.

    Stopped and called again with the same arguments, it resumes; finished LM calls are not paid for again.

    Args:
        data: Rated texts: what the command takes as --data, a DataFrame with the columns of such a file, or a corpus.
        task: What is rated: the name of a built-in task, the path of a task file, or a task.
        lm: `offline` or PROVIDER/MODEL; keys come from the environment.
        personas: Name -> text of personas for the Critic, besides the built-in ones.
        progress: Whether progress is shown on stderr.
        settings: Settings of `debate compile` by their names, e.g. `aspects=["coherence"]`, `max_rounds=2`,
            `budget="usd=5"`, `store="runs/store"`.

    Raises:
        InputError: Settings or data cannot be used; no LM call was made then.
        dspy.LMError: The LM failed for good.
    """
    columns = _texts(settings.pop("columns", ()))
    corpus: Corpus | None = None
    if isinstance(data, Corpus):
        corpus, name = data, f"corpus-{data.digest[:12]}"
    elif isinstance(data, (str, Path)):
        name = str(data)
    else:
        rows = data.to_dict(orient="records")
        name = f"frame-{fingerprint([{str(k): str(v) for k, v in row.items()} for row in rows])[:12]}"
        file = RecordFile(name, "a DataFrame", True, lambda: typed_rows(rows, name))
        corpus = rated_texts.load(file, task, columns, settings.get("sources"))
    if isinstance(task, Task) and corpus is None:
        corpus = rated_texts.load(name, task, columns, settings.get("sources"))
    known = {field.name for field in fields(Settings)}
    for field in settings:
        if field not in known:
            raise InputError("unknown setting", field=field, remedy=did_you_mean(field, sorted(known)))
    values: dict[str, Any] = {
        field: _texts(value) if field == "aspects" else str(value) if isinstance(value, Path) else value
        for field, value in settings.items()
    }
    named_task = task if isinstance(task, str) else None
    chosen = Settings(data=name, task=named_task, columns=columns, lm=lm, **values)
    texts = {**named_personas(Path(chosen.personas) if chosen.personas else None), **(personas or {})}
    return Compiled(compile_judge(chosen, texts, corpus, progress=progress))


def _texts(value: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(value.split(",")) if isinstance(value, str) else tuple(value)
