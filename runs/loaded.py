"""A judge that was loaded from an export and is connected to an LM, to score texts from Python.

It works where an event loop is already running (notebooks, web servers), because it runs its own loop in a thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import dspy

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.schema import ALL, Aspect, Task, is_visible
from debate_judge.programs.grouping import (
    CallTexts,
    Item,
    Question,
    checked_references,
    checked_text,
    group_into_questions,
    signed_as,
)
from debate_judge.programs.judge import EMPTY, CompiledJudge, Judge, Judgement, ScoreScale, call_result, cut_of
from debate_judge.programs.lm.engine import JudgeLM, run
from debate_judge.programs.lm.replies import ReplyStore, SqlStore, replies_folder
from debate_judge.programs.lm.settings import LMOptions, MaxTokens
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.export import Export, attribute_spec_errors, cuts_in, open_export, resolve_lm
from debate_judge.runs.flags import python_arguments
from debate_judge.runs.runner import JudgeRunner, PreflightCheck, preflight
from debate_judge.runs.streaming import Score, judge_in_order, score_of

if TYPE_CHECKING:
    import pandas as pd


NO_TEXT = Score(None, None, None, None, "no text", "the text is empty", "no text: the text is empty", 0, EMPTY)
"""The unscored result of an empty text."""

_ROW_FIELDS = {"text", "source", "context", "references"}


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
        lm: The judge's LM; closed with the judge, and so is its store.
        reopen: Connects an export in the same way, in another process: `save(..., save_program=True)` keeps it.
    """

    def __init__(self, export: Export, lm: JudgeLM, reopen: Callable[[Export], LoadedJudge]) -> None:
        super().__init__()
        self.judges = {name: aspect_judge.judge for name, aspect_judge in export.judge.aspects.items()}
        """Name of an aspect -> its judge; this is where DSPy finds the predictors."""
        self.manifest = export.manifest
        self.fingerprint = export.fingerprint
        self._exported = export.judge
        self._folder, self._reopen = export.folder, reopen
        self._cuts = cuts_in(export.manifest)
        self._runner = JudgeRunner(lm, progress=False)

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
            self._warn_of_single_text([aspect.name for aspect in aspects])
        judgements = dict(zip(items, await self._judge_items(items, _lm_of_context()), strict=True))
        predictions = {}
        for aspect in aspects:
            judged_items = [(item, judgement) for item, judgement in judgements.items() if item.aspect is aspect]
            scores = [score_of(compiled, item, judgement, scale) for item, judgement in judged_items]
            # A cut is on the judge's own scale.
            cut = self.cut(aspect) if scale == "judge" else None
            values, reasons = [score.score for score in scores], [score.reason for score in scores]
            predictions[aspect.name] = call_result(
                texts.as_lists, values, reasons, [judgement for _, judgement in judged_items], cut
            )
        if keywords.get("aspect") is not None:
            return predictions[aspects[0].name]
        return _by_aspect(predictions)

    def __deepcopy__(self, memo: dict[int, Any]) -> LoadedJudge:
        # In this process a copy uses the same connections.
        duplicate = self.__class__.__new__(self.__class__)
        duplicate.__dict__.update(deepcopy(self.__dict__, memo))
        return duplicate

    def __reduce__(self) -> tuple[Any, ...]:
        # Connections cannot be pickled: the copy has the same program and makes its own.
        return self._reopen, (Export(self.compiled, self.manifest, self._folder),)

    async def _judge_items(self, items: Sequence[Item], context_lm: Any | None = None) -> list[Judgement]:
        """Judge the items with the own LM on the loop of the runner, or with `context_lm` on the current loop."""
        runner = None if context_lm is not None else self._open_runner

        async def ask(judge: Judge, question: Question) -> list[Judgement]:
            with dspy.context(lm=context_lm or self.lm):
                return await judge.judge(question.items)

        judgements: dict[Item, Judgement] = {}
        for aspect in dict.fromkeys(item.aspect for item in items):
            judge, members = self.judges[aspect.name], [item for item in items if item.aspect == aspect]
            questions = group_into_questions(judge, members, compare_pairs=False)
            calls = [ask(judge, question) for question in questions.questions]
            awaitables = calls if runner is None else [asyncio.wrap_future(runner.submit(call)) for call in calls]
            judgements |= zip(members, questions.by_item(await asyncio.gather(*awaitables)), strict=True)
        return [judgements[item] for item in items]

    def _warn_of_single_text(self, aspects: Sequence[str] | str | None) -> None:
        together = max(self.judges[aspect.name].together for aspect in self.select_aspects(aspects))
        if together > 1:
            warnings.warn(single_text_note(together), stacklevel=3)

    def _requested_aspects(self, aspect: object, task: object) -> list[Aspect]:
        if task is not None and getattr(task, "name", task) != self.task.name:
            raise InputError("this judge is for another task", field="task", expected=self.task.name, found=task)
        if isinstance(aspect, str):
            return self.select_aspects(aspect.removeprefix(f"{self.task.name}."))
        if aspect is None:
            return self.select_aspects()
        if isinstance(aspect, Aspect) and aspect in self.select_aspects():
            return [aspect]
        raise InputError(
            "the judge does not score this aspect", field="aspect", expected=", ".join(self.aspects), found=aspect
        )

    def cut(self, aspect: Aspect) -> float | None:
        """The lowest score that counts as yes: from the evidence, where ratings were yes or no, else from the task."""
        recorded = self._cuts.get(aspect.name)
        if recorded is not None and recorded.kind == "binary" and recorded.cut is not None:
            return recorded.cut
        return cut_of(aspect) if self.judges[aspect.name].on_scale else None

    @property
    def compiled(self) -> CompiledJudge:
        """The exported judge with the current `judges`, which DSPy may have replaced."""
        aspects = {name: replace(j, judge=self.judges[name]) for name, j in self._exported.aspects.items()}
        return replace(self._exported, aspects=aspects)

    @property
    def closed(self) -> bool:
        return self._runner.closed

    @property
    def lm(self) -> JudgeLM:
        """The judge's own LM, which counts its calls in this process."""
        return self._runner.lm

    @property
    def _open_runner(self) -> JudgeRunner:
        if self.closed:
            raise ValueError("the judge was closed; load it again")
        return self._runner

    @property
    def task(self) -> Task:
        return self._exported.task

    @property
    def aspects(self) -> tuple[str, ...]:
        """Names of the aspects that it scores, in the task's order."""
        return tuple(self._exported.aspects)

    def select_aspects(self, aspects: Sequence[str] | str | None = None) -> list[Aspect]:
        """The named aspects in the task's order; all for None or `all`; unknown names are an `InputError`."""
        return select_aspects(self._exported, aspects)

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
        items = self._items_by_row(rows, aspects, scale)
        judged = self.stream(item for of_row in items for item in of_row if is_visible(item.text))
        return self._scores_by_row(items, (judgement for _, judgement in judged), scale)

    async def ascore_many(
        self,
        rows: Iterable[Mapping[str, Any]],
        *,
        aspects: Sequence[str] | str | None = None,
        scale: ScoreScale = "judge",
    ) -> list[dict[str, Score]]:
        """As `score_many`, on any event loop; with the judge's own LM even within a `dspy.context`."""
        items = self._items_by_row(rows, aspects, scale)
        # The trace that an optimizer records of its own program must not contain the calls of this judge.
        with dspy.context(trace=None, disable_history=True):
            judged = await self._judge_items([item for of_row in items for item in of_row if is_visible(item.text)])
        return self._scores_by_row(items, judged, scale)

    def _items_by_row(
        self, rows: Iterable[Mapping[str, Any]] | pd.DataFrame, aspects: Sequence[str] | str | None, scale: ScoreScale
    ) -> list[list[Item]]:
        items = [
            list(self._checked_items(number, row, self.select_aspects(row.get("aspects") or aspects)))
            for number, row in enumerate(_records(rows))
        ]
        needed = list(dict.fromkeys(item.aspect for of_row in items for item in of_row))
        self.compiled.require_calibrated(needed, scale)
        if len(items) == 1:
            self._warn_of_single_text([aspect.name for aspect in needed])
        return items

    def _scores_by_row(
        self, items: Iterable[Sequence[Item]], judgements: Iterable[Judgement], scale: ScoreScale
    ) -> list[dict[str, Score]]:
        """For each row, aspect -> score; `judgements` are those of the items that have a text, in order."""
        compiled, remaining = self.compiled, iter(judgements)
        return [
            {
                item.aspect.name: score_of(compiled, item, next(remaining), scale) if is_visible(item.text) else NO_TEXT
                for item in of_row
            }
            for of_row in items
        ]

    def stream(self, items: Iterable[Item]) -> Iterator[tuple[Item, Judgement]]:
        """Judge a stream of items in order and with constant memory; see `runs.streaming.judge_in_order`."""
        return judge_in_order(self._open_runner, self.compiled, items)

    def smoke_test(self, items: Sequence[Item]) -> None:
        """Make one call for each role, so that an error that concerns all items is found at once."""
        by_aspect: dict[str, list[Item]] = {}
        for item in items:
            by_aspect.setdefault(item.aspect.name, []).append(item)
        checks = []
        for name, members in by_aspect.items():
            questions = group_into_questions(self.judges[name], members, compare_pairs=False).questions
            checks.append(PreflightCheck(name, self.judges[name], questions, longest_first=False))
        preflight(self._open_runner, checks)

    def close(self) -> None:
        """End the connections and close the store."""
        self.__exit__(None, None, None)

    def __enter__(self) -> LoadedJudge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.closed:
            self._runner.__exit__(kind, error, trace)
            self.lm.store.close()

    def _checked_items(self, number: int, row: Mapping[str, Any], aspects: Sequence[Aspect]) -> Iterator[Item]:
        where = f"row {number}: "
        for name in ("text", "source"):
            # An empty source is allowed for texts judged by themselves, but it must be given explicitly.
            if row.get(name) is None:
                others = [key for key in row if isinstance(key, str) and key not in _ROW_FIELDS]
                remedy = did_you_mean(name, others, f"did you mean {{}}? rename it to {name}")
                raise InputError(f"row {number} needs a {name}", field=name, expected="a text", remedy=remedy)
        text = checked_text("text", row["text"], where=where)
        source = checked_text("source", row["source"], where=where)
        context = checked_text("context", row.get("context") or "", where=where)
        references = checked_references(row.get("references") or None, where)
        for aspect in aspects:
            yield Item(str(number), "1", self.task, aspect, source, text, context, references)


def single_text_note(together: int) -> str:
    """What a judge that was compiled with `together` says where a single text may reach it."""
    return (
        f"this judge was measured with up to {together} candidates of a source in a call (together={together}); a text "
        "that comes alone is judged alone, which was not measured"
    )


def _records(rows: Iterable[Mapping[str, Any]] | pd.DataFrame) -> Iterator[Mapping[str, Any]]:
    """The rows as mappings; empty cells of a DataFrame are left out."""
    if not hasattr(rows, "to_dict"):
        yield from rows
        return
    for record in rows.to_dict("records"):
        # Empty cells are NaN, NaT or pd.NA, none of which is true of `value == value`.
        yield {str(key): value for key, value in record.items() if isinstance(value, list) or (value == value) is True}


def _by_aspect(predictions: Mapping[str, dspy.Prediction]) -> dspy.Prediction:
    """One prediction of all aspects: the fields of the single ones in the plural, by aspect."""
    fields: dict[str, dict[str, Any]] = {"scores": {}, "reasons": {}, "judgements": {}}
    for aspect, prediction in predictions.items():
        for name, value in prediction.items():
            fields.setdefault(name if name.endswith("s") else f"{name}s", {})[aspect] = value
    return dspy.Prediction(**fields)


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
    if not selected:
        raise InputError("no aspect to score", field="aspects", expected="some of " + ", ".join(names))
    for name in selected:
        if name not in judge.aspects:
            raise InputError(
                f"the judge does not score {name!r}",
                field="aspects",
                expected="some of " + ", ".join(names),
                found=name,
                remedy=did_you_mean(name, names),
            )
    return [judge.task.aspect(name) for name in names if name in selected]


def open_judge(
    export: Export,
    *,
    lm: str | None,
    api_base: str | None,
    concurrency: int,
    store: Path | None,
    options: LMOptions | None = None,
    max_tokens: MaxTokens | None = None,
) -> LoadedJudge:
    """Connect an export to its LM; the arguments are those of `runs.loaded.load` and `programs.lm.settings`."""
    spec, api_base, settings = resolve_lm(export, lm, api_base, max_tokens)
    # Limited, so that the memory of a long-running service does not grow.
    reply_store = ReplyStore(max_replies=10_000) if store is None else SqlStore(replies_folder(store, spec))
    try:
        with attribute_spec_errors(export, lm):
            client = make_lm(
                spec, api_base=api_base, store=reply_store, concurrency=concurrency, options=options, **settings
            )
    except BaseException:
        reply_store.close()
        raise
    reopen = partial(
        open_judge,
        lm=lm,
        api_base=api_base,
        concurrency=concurrency,
        store=store,
        options=options,
        max_tokens=max_tokens,
    )
    return LoadedJudge(export, client, reopen)


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


@python_arguments
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
    return open_judge(
        open_export(path, judges),
        lm=lm,
        api_base=api_base,
        concurrency=concurrency,
        store=None if store is None else Path(store),
        options=options,
    )


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
