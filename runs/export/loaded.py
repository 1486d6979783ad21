"""A judge that was loaded from an export and is connected to an LM, to score texts from Python.

It works where an event loop is already running (notebooks, web servers), because it runs its own in a thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import Any

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.schema import ALL, Aspect, Task
from debate_judge.programs.compiled import CompiledJudge, ScoreScale, shared_judges
from debate_judge.programs.judge import Item, Judgement
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.reply import Memory
from debate_judge.programs.make_lm import make_lm, open_replies
from debate_judge.runs.export.lm_choice import lm_of
from debate_judge.runs.export.manifest import Export
from debate_judge.runs.runner.preflight import Trial, preflight
from debate_judge.runs.runner.runner import JudgeRunner
from debate_judge.runs.runner.streaming import Score, judge_in_order, score_of

_ROW = {"text", "source", "context", "references"}


class LoadedJudge:
    """A judge ready to score. Close it, or use it as a context manager, to end its thread and connections.

    Several threads may use one judge at the same time. So may processes that are forked after it was loaded: each opens
    its own connections and journal when it first scores, and shares only the program with its parent.

    Args:
        export: The export.
        connect: Makes a running runner, and adds everything that must be closed later to the stack.
    """

    def __init__(self, export: Export, connect: Callable[[ExitStack], JudgeRunner]) -> None:
        self.compiled: CompiledJudge = export.judge
        self.manifest: Mapping[str, Any] = export.manifest
        self.fingerprint = export.fingerprint
        self._connect = connect
        self._closed = False
        self._inherited: list[object] = []
        self._locks: dict[int, threading.Lock] = {}
        self._start()

    def _start(self) -> None:
        with ExitStack() as opened:
            self._runner = self._connect(opened)
            self._opened = opened.pop_all()

    def _running(self) -> JudgeRunner:
        """The runner of this process.

        Raises:
            ValueError: The judge was closed.
        """
        if self._closed:
            raise ValueError("the judge was closed; load it again")
        if self._runner.inherited:
            # A lock for each process: the parent's may have been held when this process was forked, and would stay so.
            with self._locks.setdefault(os.getpid(), threading.Lock()):
                if self._runner.inherited:
                    # Kept and not closed, because the parent still uses these connections and this loop's selector.
                    self._inherited += [self._runner, self._opened]
                    self._start()
        return self._runner

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def lm(self) -> JudgeLM:
        """The LM that is asked, with the count of its calls in this process."""
        return self._runner.lm if self._closed else self._running().lm

    @property
    def task(self) -> Task:
        return self.compiled.task

    @property
    def aspects(self) -> tuple[str, ...]:
        """Names of the aspects that it scores, in the task's order."""
        return tuple(self.compiled.aspects)

    def choose(self, aspects: Sequence[str] | str | None = None) -> list[Aspect]:
        """The named aspects in the task's order; all of the judge's by default, or for `all`.

        Raises:
            InputError: the judge does not score one of them.
        """
        return chosen_aspects(self.compiled, aspects)

    def score(
        self,
        text: str,
        source: str,
        *,
        context: str = "",
        references: Sequence[str] = (),
        aspects: Sequence[str] | str | None = None,
        scale: ScoreScale = "judge",
    ) -> dict[str, Score]:
        """Score one text.

        Args:
            text: The candidate.
            source: The text that it was written for: the article of a summary, the dialogue before a reply; empty if
                texts are judged by themselves.
            context: A text that belongs to the source, if the task has one: the fact that a dialogue is about.
            references: Human-written candidates, for reference metrics only.
            aspects: Which aspects; all by default.
            scale: `raters` maps each score to the expected mean rating, with the map that the compile fitted on train
                and dev; the order of scores stays the same, and `Score.judge_score` is the judge's own score.

        Returns:
            Aspect name -> score, in the task's order.

        Raises:
            InputError: an unknown aspect, a text that is empty, or no map in the export.
            dspy.LMError: The LM cannot be used at all; after other failures the reason is in the score's `unscored`.
        """
        row = {"text": text, "source": source, "context": context, "references": references}
        return self.score_many([row], aspects=aspects, scale=scale)[0]

    def score_many(
        self,
        rows: Iterable[Mapping[str, Any]],
        *,
        aspects: Sequence[str] | str | None = None,
        scale: ScoreScale = "judge",
    ) -> list[dict[str, Score]]:
        """Score many texts concurrently.

        Consecutive rows of one source are judged together if the judge does so.

        Args:
            rows: Mappings with `text` and `source`, and optionally `context` and `references`.
            aspects: Which aspects; all by default.
            scale: As for `score`.

        Returns:
            For each row, in order, what `score` returns.
        """
        chosen = self.choose(aspects)
        self.compiled.require_calibrated(chosen, scale)
        found = self.stream(item for number, row in enumerate(rows) for item in self._items(number, row, chosen))
        results: list[dict[str, Score]] = []
        for item, judgement in found:
            if item.aspect is chosen[0]:
                results.append({})
            results[-1][item.aspect.name] = score_of(self.compiled, item, judgement, scale)
        return results

    def score_group(
        self,
        texts: Sequence[str],
        source: str,
        *,
        context: str = "",
        aspects: Sequence[str] | str | None = None,
        scale: ScoreScale = "judge",
    ) -> list[dict[str, Score]]:
        """Score candidates of one source, in shared calls if the judge judges candidates or aspects together.

        Args:
            texts: The candidates.
            source: Their source, as for `score`.
            context: As for `score`.
            aspects: Which aspects; all by default.
            scale: As for `score`.

        Returns:
            For each candidate, in order, what `score` returns.
        """
        rows = [{"text": text, "source": source, "context": context} for text in texts]
        return self.score_many(rows, aspects=aspects, scale=scale)

    def stream(self, items: Iterable[Item]) -> Iterator[tuple[Item, Judgement]]:
        """Judge a stream of items in order and with constant memory; see `runs.runner.streaming.judge_in_order`."""
        return judge_in_order(self._running(), self.compiled, items)

    def smoke_test(self, items: Sequence[Item]) -> None:
        """Ask each role about one of `items`, so that a failure that concerns all items is found at once.

        Raises:
            InputError: The LM cannot play one of the roles.
            dspy.LMError: The LM cannot be used at all.
        """
        by_aspect: dict[str, list[Item]] = {}
        for item in items:
            by_aspect.setdefault(item.aspect.name, []).append(item)
        shared = shared_judges({name: self.compiled.aspects[name].judge for name in by_aspect})
        trials = [Trial.of("+".join(s.aspects), s.judge, [i for n in s.aspects for i in by_aspect[n]]) for s in shared]
        preflight(self._running(), trials)

    def close(self) -> None:
        """End the thread, the connections and the store; those of a parent process stay open."""
        self.__exit__(None, None, None)

    def __enter__(self) -> LoadedJudge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        if not self._runner.inherited:
            self._opened.__exit__(kind, error, trace)

    def _items(self, number: int, row: Mapping[str, Any], aspects: Sequence[Aspect]) -> Iterator[Item]:
        unknown = sorted(set(row) - _ROW)
        if unknown:
            raise InputError(
                f"row {number} has a field that is not known",
                field=unknown[0],
                expected=", ".join(sorted(_ROW)),
                remedy=did_you_mean(unknown[0], _ROW),
            )
        for name in ("text", "source"):
            # An empty source is allowed for texts judged by themselves, but it must be given explicitly.
            if not isinstance(row.get(name), str) or (name == "text" and not row[name].strip()):
                raise InputError(f"row {number} needs a {name}", field=name, expected="a text", found=row.get(name))
        context, references = row.get("context") or "", row.get("references") or ()
        if isinstance(references, str):
            # As a sequence, a text would be a list of its characters.
            raise InputError(f"row {number}: wrong type", field="references", expected="a list of texts")
        texts = {"text": row["text"], "source": row["source"], "context": context}
        texts |= {f"references[{i}]": one for i, one in enumerate(references)}
        for name, value in texts.items():
            _check_text(number, name, value)
        for aspect in aspects:
            yield Item(str(number), "1", self.task, aspect, row["source"], row["text"], context, tuple(references))


def _check_text(number: int, name: str, value: object) -> None:
    if not isinstance(value, str):
        raise InputError(f"row {number}: wrong type", field=name, expected="a text", found=value)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        # Half of a surrogate pair, which no hash and no request can hold.
        problem = f"row {number}: half a character (a lone surrogate) at position {error.start + 1}"
        raise InputError(problem, field=name, remedy="write the text again from its original") from None


def chosen_aspects(judge: CompiledJudge, aspects: Sequence[str] | str | None) -> list[Aspect]:
    """See `LoadedJudge.choose`."""
    known = tuple(judge.aspects)
    wanted = known if aspects is None else (aspects,) if isinstance(aspects, str) else tuple(aspects)
    if wanted == (ALL,) and ALL not in known:
        wanted = known
    if not wanted:
        raise InputError("no aspect to score", field="aspects", expected="some of " + ", ".join(known))
    for name in wanted:
        if name not in judge.aspects:
            raise InputError(
                f"the judge does not score {name!r}",
                field="aspects",
                expected="some of " + ", ".join(known),
                found=name,
                remedy=did_you_mean(name, known),
            )
    return [judge.task.aspect(name) for name in known if name in wanted]


def open_judge(
    export: Export,
    *,
    lm: str | None,
    api_base: str | None,
    concurrency: int,
    store: Path | None,
    replies: str | None = None,
    options: LMOptions | None = None,
    max_tokens: int | None = None,
) -> LoadedJudge:
    """Connect an export to its LM; for the arguments see `runs.export.folder.load`, for options `programs.lm.options`.

    Raises:
        InputError: The address of the LM is only in the export.
    """
    spec, api_base, settings = lm_of(export, lm, api_base, max_tokens)
    # Limited, so that the memory of a long-running service does not grow.
    recent = Memory(room=10_000)

    def connect(opened: ExitStack) -> JudgeRunner:
        kept = recent if store is None else opened.enter_context(closing(open_replies(store, spec, replies)))
        made = make_lm(spec, api_base=api_base, store=kept, concurrency=concurrency, options=options, **settings)
        return opened.enter_context(JudgeRunner(made, progress=False))

    return LoadedJudge(export, connect)
