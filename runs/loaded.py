"""A judge that was loaded from an export and is connected to an LM, to score texts from Python.

    from debate_judge import load

    judge = load("runs/store/exports/NAME")
    judge(source="The article ...", text="Its summary ...", aspect="coherence").score

It works where an event loop is already running (notebooks, web servers), because it runs its own loop in a thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dspy

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.schema import ALL, Aspect, is_visible
from debate_judge.programs.grouping import (
    CallTexts,
    Question,
    checked_references,
    checked_text,
    group_into_questions,
    signed_as,
)
from debate_judge.programs.judge import (
    CompiledJudge,
    Item,
    Judge,
    Judgement,
    ScoreScale,
    call_result,
    cut_of,
)
from debate_judge.programs.lm.engine import JudgeLM, run
from debate_judge.programs.lm.replies import ReplyStore, SqlStore, replies_folder
from debate_judge.programs.lm.settings import LMOptions, MaxTokens
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.export import MANIFEST, Export, open_export, resolve_lm
from debate_judge.runs.flags import python_arguments
from debate_judge.runs.runner import NO_TEXT, JudgeRunner, Score, judge_in_order, preflight, score_of

if TYPE_CHECKING:
    import pandas as pd

SETTINGS: Mapping[str, Callable[[Any], Any]] = {
    "lm": str,
    "api_base": str,
    "concurrency": int,
    "rpm": float,
    "tpm": float,
    "budget": str,
    "store": Path,
}
"""Argument of `load` that a tool's process takes from the environment -> conversion of its value."""


@python_arguments()
def load(
    path: str | Path,
    *,
    lm: str | None = None,
    api_base: str | None = None,
    concurrency: int = 16,
    rpm: float | None = None,
    tpm: float | None = None,
    budget: str | None = None,
    store: str | Path | None = None,
    judges: Collection[str] = (),
) -> LoadedJudge:
    """Load an export, ready to score.

    Loading imports the modules that `judges` names and the export needs, and no other code.

    Args:
        path: Its folder, or for one in MLflow `models:/NAME/VERSION`, `models:/NAME@ALIAS` or the id of its run.
        lm: Another LM than the compile's; the evidence in the export does not hold for it.
        api_base: Address of an OpenAI-compatible server. An address in the export is used only if it is given here as
            well, because texts and key are sent there.
        concurrency: Maximum number of LM calls in flight.
        rpm: Maximum requests per minute.
        tpm: Maximum tokens per minute.
        budget: Hard cap on spending, such as `usd=5` or `calls=1000`.
        store: Folder to cache the LM's replies in, as `--store`; by default the most recent ones are kept in memory.
        judges: `module:Class` of each judge outside this project that the export may use.

    Raises:
        InputError: It cannot be found or is not a usable export, `lm` is not an LM, or only the export gives the
            address of the LM.
        dspy.LMError: The LM cannot be made, e.g. because its key is missing.
    """
    options = LMOptions.from_settings(rpm=rpm, tpm=tpm, budget=budget)
    folder = None if store is None else Path(store)
    connection = Connection(lm=lm, api_base=api_base, concurrency=concurrency, store=folder, options=options)
    return LoadedJudge(open_export(path, judges), connection)


def load_in_tool(path: LoadedJudge | str | Path, config: Mapping[str, Any] | None = None) -> LoadedJudge:
    """A loaded judge, or one loaded for a tool, whose process others may start, such as a server of MLflow: what
    `config` does not say is taken from the environment (`DEBATE_LM`, `DEBATE_API_BASE`, `DEBATE_RPM`, ...).

    Raises:
        InputError: As for `load`, or a value cannot be read.
        dspy.LMError: As for `load`.
    """
    if isinstance(path, LoadedJudge):
        return path
    settings: dict[str, Any] = {}
    for name, convert in SETTINGS.items():
        variable = f"DEBATE_{name.upper()}"
        value, field = (config or {}).get(name), name
        if value is None:
            value, field = os.environ.get(variable) or None, variable
        try:
            settings |= {} if value is None else {name: convert(value)}
        except (TypeError, ValueError) as error:
            raise InputError("wrong type", field=field, expected="a number", found=value) from error
    return load(path, **settings)


@dataclass(frozen=True, kw_only=True)
class Connection:
    """How the LM of a loaded judge is reached; see `load` and `programs.lm.settings`."""

    lm: str | None
    api_base: str | None
    concurrency: int
    store: Path | None
    options: LMOptions
    max_tokens: MaxTokens | None = None
    """None for those of the compile."""

    def open(self, export: Export) -> JudgeLM:
        """The LM of an export, with its own store of replies."""
        spec, api_base, settings = resolve_lm(export, self.lm, self.api_base, self.max_tokens)
        # Limited, so that the memory of a long-running service does not grow.
        folder = self.store and replies_folder(self.store, spec)
        store = ReplyStore(max_replies=10_000) if folder is None else SqlStore(folder)
        try:
            return make_lm(
                spec,
                api_base=api_base,
                store=store,
                concurrency=self.concurrency,
                options=self.options,
                **settings,
            )
        except BaseException as error:
            store.close()
            if self.lm is None and isinstance(error, InputError) and error.field == "--lm":
                remedy = "name the LM that you want to use with --lm PROVIDER/MODEL"
                raise error.replaced(file=export.folder / MANIFEST, field="lm.spec", remedy=remedy) from None
            raise


def loaded_call(
    *,
    source: str,
    text: str | None = None,
    texts: Sequence[str] | None = None,
    aspect: Aspect | str | None = None,
    context: str = "",
    references: Sequence[str] = (),
    scale: ScoreScale = "judge",
) -> dspy.Prediction:
    """How a loaded judge is called, for its signatures."""
    raise NotImplementedError


class LoadedJudge(dspy.Module):
    """A judge ready to score: a DSPy program with a debate for each aspect, and an LM of its own.

    It is called like every judge (`programs.judge`); without `aspect` it scores all its aspects. It uses its own LM,
    whatever `dspy.configure` says, because its agreement with the raters was measured with that one; only
    `load(..., lm=...)`, `dspy.context(lm=...)` and `set_lm` replace it.

    Close it, or use it as a context manager, to end its connections. Several threads may use one judge at the same
    time, several processes may not: start them by `spawn`, and load it in each of them.

    Args:
        export: The export.
        connection: How its LM is reached; the LM is closed with the judge, and so is the LM's store.
    """

    def __init__(self, export: Export, connection: Connection) -> None:
        super().__init__()
        self.judges = {name: chosen.judge for name, chosen in export.judge.aspects.items()}
        """Name of an aspect -> its judge; this is where DSPy finds the predictors."""
        self.manifest, self.fingerprint, self.task = export.manifest, export.fingerprint, export.judge.task
        self.aspects = tuple(export.judge.aspects)
        """Names of the aspects that it scores, in the task's order."""
        self._export, self._connection = export, connection
        self._runner = JudgeRunner(connection.open(export), progress=False)

    @signed_as(loaded_call)
    def __call__(self, *positional: object, **keywords: Any) -> dspy.Prediction:
        return super().__call__(*positional, **keywords)

    @signed_as(loaded_call)
    def forward(self, *positional: object, **keywords: Any) -> dspy.Prediction:
        """Score a text, or several of one source.

        Args:
            positional: Refused: all arguments are keyword arguments.
            keywords: `source`, `text` or `texts`, and optionally `context` and `references` as for every judge;
                `aspect`, by default all aspects of the judge; `scale` as for `score`.

        Returns:
            What every judge returns. Without `aspect`: `scores`, `reasons` and `judgements` by the aspect's name, each
            with one value or, for `texts`, a list; where aspects are yes/no, `decisions` and `cuts` by their names.

        Raises:
            InputError: An argument cannot be used.
            dspy.LMError: The LM cannot be used at all.
        """
        return run(self.aforward(*positional, **keywords))

    async def aforward(self, *positional: object, **keywords: Any) -> dspy.Prediction:
        scale: ScoreScale = keywords.pop("scale", "judge")
        texts = CallTexts.from_arguments(positional, keywords)
        aspects = self._requested_aspects(keywords.get("aspect"), keywords.get("task"))
        compiled = self.compiled
        compiled.require_calibrated(aspects, scale)
        items = texts.items(self.task, aspects)
        if len({item.text for item in items}) == 1:
            self._warn_of_single_text(aspects)
        judgements = dict(zip(items, await self._judge_items(items, _lm_of_context()), strict=True))
        predictions = {}
        for aspect in aspects:
            judged = [(item, judgement) for item, judgement in judgements.items() if item.aspect is aspect]
            scores = [score_of(compiled, item, judgement, scale) for item, judgement in judged]
            predictions[aspect.name] = call_result(
                texts.as_lists,
                [score.score for score in scores],
                [score.reason for score in scores],
                [judgement for _, judgement in judged],
                # A cut is on the judge's own scale.
                self.cut(aspect) if scale == "judge" else None,
            )
        if keywords.get("aspect") is not None:
            return predictions[aspects[0].name]
        # One prediction of all aspects: the fields of the single ones in the plural, by aspect.
        fields: dict[str, dict[str, Any]] = {"scores": {}, "reasons": {}, "judgements": {}}
        for name, prediction in predictions.items():
            for field, value in prediction.items():
                fields.setdefault(field if field.endswith("s") else f"{field}s", {})[name] = value
        return dspy.Prediction(**fields)

    def __deepcopy__(self, memo: dict[int, Any]) -> LoadedJudge:
        # In this process a copy uses the same connections.
        duplicate = self.__class__.__new__(self.__class__)
        duplicate.__dict__.update(deepcopy(self.__dict__, memo))
        return duplicate

    def __reduce__(self) -> tuple[Any, ...]:
        # Connections cannot be pickled: the copy has the same program and makes its own.
        return LoadedJudge, (replace(self._export, judge=self.compiled), self._connection)

    async def _judge_items(self, items: Sequence[Item], context_lm: Any | None = None) -> list[Judgement]:
        """Judge the items with the own LM on the loop of the runner, or with `context_lm` on the current loop."""
        runner = None if context_lm is not None else self._open_runner

        async def ask(judge: Judge, question: Question) -> list[Judgement]:
            with dspy.context(lm=context_lm or self.lm):
                return await judge.judge(question.items)

        judgements: dict[Item, Judgement] = {}
        asked = [item for item in items if is_visible(item.text)]
        for aspect in dict.fromkeys(item.aspect for item in asked):
            judge, members = self.judges[aspect.name], [item for item in asked if item.aspect == aspect]
            questions = group_into_questions(judge, members, compare_pairs=False)
            calls = [ask(judge, question) for question in questions.questions]
            awaitables = calls if runner is None else [asyncio.wrap_future(runner.submit(call)) for call in calls]
            judgements |= zip(members, questions.by_item(await asyncio.gather(*awaitables)), strict=True)
        return [judgements.get(item, NO_TEXT) for item in items]

    def _warn_of_single_text(self, aspects: Sequence[Aspect]) -> None:
        together = max(self.judges[aspect.name].together for aspect in aspects)
        if together > 1:
            warnings.warn(single_text_note(together), stacklevel=3)

    def _requested_aspects(self, aspect: object, task: object) -> list[Aspect]:
        if task is not None and getattr(task, "name", task) != self.task.name:
            raise InputError("this judge is for another task", field="task", expected=self.task.name, found=task)
        if aspect is None or isinstance(aspect, str):
            return self.select_aspects(aspect and aspect.removeprefix(f"{self.task.name}."))
        if isinstance(aspect, Aspect) and aspect in self.select_aspects():
            return [aspect]
        expected = ", ".join(self.aspects)
        raise InputError("the judge does not score this aspect", field="aspect", expected=expected, found=aspect)

    def cut(self, aspect: Aspect) -> float | None:
        """The lowest score that counts as yes: from the evidence, where ratings were yes or no, else from the task."""
        evidence = self._export.evidence
        recorded = evidence.decisions.get(evidence.exported.get("judge", ""), {}).get(aspect.name)
        if recorded is not None and recorded.kind == "binary" and recorded.cut is not None:
            return recorded.cut
        return cut_of(aspect) if self.judges[aspect.name].on_scale else None

    @property
    def compiled(self) -> CompiledJudge:
        """The exported judge with the current `judges`, which DSPy may have replaced."""
        exported = self._export.judge
        aspects = {name: replace(chosen, judge=self.judges[name]) for name, chosen in exported.aspects.items()}
        return replace(exported, aspects=aspects)

    @property
    def lm(self) -> JudgeLM:
        """The judge's own LM, which counts its calls in this process."""
        return self._runner.lm

    @property
    def _open_runner(self) -> JudgeRunner:
        if self._runner.closed:
            raise ValueError("the judge was closed; load it again")
        return self._runner

    def select_aspects(self, aspects: Sequence[str] | str | None = None) -> list[Aspect]:
        """The named aspects in the task's order; all for None or `all`; unknown names are an `InputError`."""
        return select_aspects(self._export.judge, aspects)

    def score(
        self,
        *,
        source: str,
        text: str,
        context: str = "",
        references: Sequence[str] = (),
        aspects: Sequence[str] | str | None = None,
        scale: ScoreScale = "judge",
    ) -> dict[str, Score]:
        """Score one text.

        Args:
            source: The text that the candidate was written for: the article of a summary, the dialogue before a reply;
                empty if texts are judged by themselves.
            text: The candidate. An empty one has no score, and is not sent to the LM.
            context: A text that belongs to the source, if the task has one: the fact that a dialogue is about.
            references: Human-written candidates, for reference metrics only.
            aspects: Names of the aspects to score; all by default.
            scale: `raters` maps each score to the expected mean rating, by the calibration that the compile fitted on
                train and dev; the order of scores stays the same, and `Score.judge_score` is the judge's own score.

        Returns:
            Aspect name -> score, in the task's order.

        Raises:
            InputError: An aspect is unknown, an argument is no text, or the export has no calibration.
            dspy.LMError: The LM cannot be used at all; after other failures the reason is in the score's `unscored`.
        """
        row = {"text": text, "source": source, "context": context, "references": references}
        return self.score_many([row], aspects=aspects, scale=scale)[0]

    def score_many(
        self,
        rows: Iterable[Mapping[str, Any]] | pd.DataFrame,
        *,
        aspects: Sequence[str] | str | None = None,
        scale: ScoreScale = "judge",
    ) -> list[dict[str, Score]]:
        """Score many texts concurrently.

        Consecutive rows of one source share calls if the judge was compiled with `together`.

        Args:
            rows: Mappings, or a DataFrame, with `text` and `source`, and optionally `context`, `references` and
                `aspects`, the row's own; other fields are ignored.
            aspects: Names of the aspects to score; all by default.
            scale: As for `score`.

        Returns:
            For each row, in order, what `score` returns.
        """
        items = self._items(rows, aspects, scale)
        judged = self.stream(item for of_row in items for item in of_row)
        return self._scores(items, (judgement for _, judgement in judged), scale)

    async def ascore_many(
        self,
        rows: Iterable[Mapping[str, Any]],
        *,
        aspects: Sequence[str] | str | None = None,
        scale: ScoreScale = "judge",
    ) -> list[dict[str, Score]]:
        """As `score_many`, on any event loop; with the judge's own LM even within a `dspy.context`."""
        items = self._items(rows, aspects, scale)
        # The trace that an optimizer records of its own program must not contain the calls of this judge.
        with dspy.context(trace=None, disable_history=True):
            judged = await self._judge_items([item for of_row in items for item in of_row])
        return self._scores(items, judged, scale)

    def _items(
        self, rows: Iterable[Mapping[str, Any]] | pd.DataFrame, aspects: Sequence[str] | str | None, scale: ScoreScale
    ) -> list[list[Item]]:
        """The items of each row."""
        if hasattr(rows, "to_dict"):
            # Empty cells are NaN, NaT or pd.NA, none of which is true of `value == value`.
            rows = [
                {str(key): v for key, v in record.items() if isinstance(v, list) or (v == v) is True}
                for record in rows.to_dict("records")
            ]
        items = []
        for number, row in enumerate(rows):
            texts = self._checked_texts(number, row)
            chosen = self.select_aspects(row.get("aspects") or aspects)
            items.append([Item(str(number), "1", self.task, aspect, *texts) for aspect in chosen])
        needed = list(dict.fromkeys(item.aspect for of_row in items for item in of_row))
        self.compiled.require_calibrated(needed, scale)
        if len(items) == 1:
            self._warn_of_single_text(needed)
        return items

    def _checked_texts(self, number: int, row: Mapping[str, Any]) -> tuple[str, str, str, tuple[str, ...]]:
        where = f"row {number}: "
        for name in ("text", "source"):
            # An empty source is allowed for texts judged by themselves, but it must be given explicitly.
            if row.get(name) is None:
                others = [key for key in row if isinstance(key, str) and key not in ("source", "context", "references")]
                remedy = did_you_mean(name, others, f"did you mean {{}}? rename it to {name}")
                raise InputError(f"row {number} needs a {name}", field=name, expected="a text", remedy=remedy)
        return (
            checked_text("source", row["source"], where=where),
            checked_text("text", row["text"], where=where),
            checked_text("context", row.get("context") or "", where=where),
            checked_references(row.get("references") or None, where),
        )

    def _scores(
        self, items: Iterable[Sequence[Item]], judgements: Iterable[Judgement], scale: ScoreScale
    ) -> list[dict[str, Score]]:
        """For each row, aspect -> score; `judgements` are those of all items, in order."""
        compiled, remaining = self.compiled, iter(judgements)
        return [
            {item.aspect.name: score_of(compiled, item, next(remaining), scale) for item in of_row} for of_row in items
        ]

    def stream(self, items: Iterable[Item]) -> Iterator[tuple[Item, Judgement]]:
        """Judge a stream of items in order and with constant memory; see `runs.runner.judge_in_order`."""
        return judge_in_order(self._open_runner, self.compiled, items)

    def smoke_test(self, items: Sequence[Item]) -> None:
        """Make one call for each role, so that an error that concerns all items is found at once."""
        preflight(self._open_runner, self.judges, items, whole=False)

    def close(self) -> None:
        """End the connections and close the store."""
        self.__exit__(None)

    def __enter__(self) -> LoadedJudge:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if not self._runner.closed:
            self._runner.__exit__(kind)
            self.lm.store.close()


def single_text_note(together: int) -> str:
    """What a judge that was compiled with `together` says where a single text may reach it."""
    return (
        f"this judge was measured with up to {together} candidates of a source in a call (together={together}); a text "
        "that comes alone is judged alone, which was not measured"
    )


def _lm_of_context() -> Any | None:
    """The LM of a `dspy.context` around the caller; None without one, whatever `dspy.configure` has set."""
    lm = dspy.settings.lm
    # In an empty context, settings are those of `dspy.configure` alone.
    return None if lm is contextvars.Context().run(lambda: dspy.settings.lm) else lm


def select_aspects(judge: CompiledJudge, aspects: Sequence[str] | str | None) -> list[Aspect]:
    """See `LoadedJudge.select_aspects`."""
    names = tuple(judge.aspects)
    selected = names if aspects is None else (aspects,) if isinstance(aspects, str) else tuple(aspects)
    if selected == (ALL,) and ALL not in names:
        selected = names
    expected = "some of " + ", ".join(names)
    for name in selected:
        if name not in names:
            problem, remedy = f"the judge does not score {name!r}", did_you_mean(name, names)
            raise InputError(problem, field="aspects", expected=expected, found=name, remedy=remedy)
    if not selected:
        raise InputError("no aspect to score", field="aspects", expected=expected)
    return [judge.task.aspect(name) for name in names if name in selected]


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
    present = ", ".join(map(str, frame.columns))
    for role, column in columns.items():
        if (count := list(frame.columns).count(column)) != 1:
            problem = f"the frame has {'several columns' if count else 'no column'} {column!r}"
            raise InputError(problem, field=column, found=present, remedy=f"name it: {role}=...")
    for column in (f"{name}{content}" for name in names for content in ("", "_reason", "_unscored")):
        if column in frame:
            remedy = "drop or rename it: scores would overwrite it"
            raise InputError("the frame has a column of this name already", field=column, found=present, remedy=remedy)
    cells = frame[list(columns.values())].astype(object)
    cells = cells.where(cells.notna(), "").set_axis(list(columns), axis=1)
    for cell in cells.to_numpy().flat:
        if not isinstance(cell, str):
            expected = "texts in the columns of sources and texts"
            raise InputError("not a text", field="text", expected=expected, found=cell)
    rows = [dict(zip(columns, row, strict=True)) for row in cells.to_numpy()]
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
