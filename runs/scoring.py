"""Scoring new texts: reads groups and yields scores for the rows."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from debate_judge.data.errors import ErrorHandler, InputError, redirect_errors
from debate_judge.data.files.columns import ColumnNames, ReadingNotes
from debate_judge.data.files.formats import RecordFile
from debate_judge.data.files.groups import LocatedGroup, iter_groups
from debate_judge.data.schema import RatedGroup, Task
from debate_judge.data.tasks import find_task
from debate_judge.programs.judge import EMPTY, Item
from debate_judge.programs.lm.replies import Meter
from debate_judge.programs.lm.settings import Price
from debate_judge.programs.make_lm import OFFLINE, OFFLINE_NOTE
from debate_judge.runs.command_line import RESUME_HINT, say
from debate_judge.runs.export import Export, open_export, resolve_lm
from debate_judge.runs.loaded import Connection, LoadedJudge, single_text_note
from debate_judge.runs.reports.tables import calls_text
from debate_judge.runs.score_rows import Row, RowLayout, RowTotals

if TYPE_CHECKING:
    from debate_judge.runs.score import ScoreFlags
    from debate_judge.runs.serve import ServeFlags

from debate_judge.runs.shared_flags import lm_options, require_server
from debate_judge.runs.streaming import Score, items_of_group, score_of

EXIT_UNSCORED = 4
"""Too many items have no score; the other exit codes are those of every command (`runs.command_line`)."""


# --- new texts: the groups of a file, one at a time, all of the judge's task ---


def new_records(
    path: str | Path | RecordFile,
    task: Task,
    only_task: str | None = None,
    columns: Iterable[str] = (),
    sources: int | None = None,
    *,
    keep: bool = False,
    notes: ReadingNotes | None = None,
    on_error: ErrorHandler | None = None,
) -> Iterator[LocatedGroup]:
    """Stream the groups of a file, each with the record that it begins with; ratings are not needed.

    A hash of each candidate is kept in memory, about 100 bytes, so that a duplicate is noticed in a file of any length.

    Args:
        path: A file or set as `data.files.groups` describes it; rows of a group have to be adjacent.
        task: The judge's task.
        only_task: Name or file of that task; groups of other tasks are then left out. None: they are an error.
        columns: `NAME=COLUMN` for each column that has another name than ours.
        sources: How many sources, the first ones; None for all.
        keep: Whether to keep the input's columns with each candidate (`data.files.groups.iter_groups`).
        notes: Notes on how the file is read, as for `iter_groups`.
        on_error: Called with the error of each unusable record, which is left out.

    Raises:
        InputError: A group of another task, a candidate that occurs twice, or anything that cannot be read.
    """
    if only_task is not None and only_task != task.name and find_task(only_task).name != task.name:
        raise InputError("the judge is for another task", field="task", expected=task.name, found=only_task)
    records: Iterator[LocatedGroup] = iter_groups(
        path,
        task,
        ColumnNames.parse(columns),
        refuse_other_tasks=only_task is None,
        keep_columns=keep,
        notes=notes,
        on_error=on_error,
    )
    return _refuse_repeats(islice(records, sources), on_error)


def _refuse_repeats(entries: Iterable[LocatedGroup], on_error: ErrorHandler | None) -> Iterator[LocatedGroup]:
    lines: dict[bytes, int] = {}
    for entry in entries:
        with redirect_errors(on_error):
            keys = _new_keys(entry, lines)
            lines.update(dict.fromkeys(keys, entry.record.line))
            yield entry


def _new_keys(entry: LocatedGroup, lines: Mapping[bytes, int]) -> list[bytes]:
    """The hashes of a group's candidates, none of which may be in `lines`."""
    keys = [_candidate_key(entry.group.id, candidate.id) for candidate in entry.group.candidates]
    for candidate, key in zip(entry.group.candidates, keys, strict=True):
        if key in lines:
            raise entry.record.error(
                f"group {entry.group.id!r} has the candidate {candidate.id!r} a second time",
                found=f"it is {entry.record.line - lines[key]} {entry.record.unit}s above, too",
                remedy="give each candidate of a group an id of its own",
            )
    return keys


def count_candidates(path: str | Path, task: Task, columns: Iterable[str], sources: int | None) -> int:
    """How many candidates `new_records` yields; prints no notes on the file."""
    return sum(len(entry.group.candidates) for entry in islice(_silently(path, task, columns), sources))


def _silently(path: str | Path | RecordFile, task: Task, columns: Iterable[str]) -> Iterator[LocatedGroup]:
    return iter_groups(path, task, ColumnNames.parse(columns), notes=ReadingNotes(""), on_error=lambda error: None)


def _candidate_key(group: str, candidate: str) -> bytes:
    return hashlib.blake2b(f"{len(group)} {group}{candidate}".encode(), digest_size=16).digest()


# --- scores ---

BAD_LINE = "cannot be read"
"""Why the items of a record of the input have no score."""


class TextScorer:
    """A judge with the flags of `score`, which say how its scores are reported.

    Raises:
        InputError: The judge does not score an aspect, or its export has no map that is needed.
    """

    def __init__(self, judge: LoadedJudge, flags: ScoreFlags) -> None:
        self.judge, self._flags = judge, flags
        self.aspects = judge.select_aspects(flags.aspects or None)
        judge.compiled.require_calibrated(self.aspects, flags.scale)
        self._judges = [judge.compiled.aspects[aspect.name].judge for aspect in self.aspects]
        self._bad_lines = deque[InputError]()
        """Errors of records that no row was yielded for, in the order of the file."""
        if any(member.compares_pairs for member in self._judges):
            self.note = "the judge's agreement was measured on pairs of candidates; here each text is scored by itself"

    note = ""
    """Printed before anything is scored."""

    def layout(self) -> RowLayout:
        """What a row of the results is."""
        # A cut is on the judge's own scale.
        on_judge_scale = self._flags.scale == "judge"
        cuts = {aspect.name: self.judge.cut(aspect) if on_judge_scale else None for aspect in self.aspects}
        extra: tuple[str, ...] = ("judge_score",) * (self._flags.scale == "raters")
        return RowLayout(cuts, self._flags.wide, extra)

    def skip_line(self, error: InputError) -> None:
        """For `new_records`: keep the error of a record, for the rows that say why it has no score."""
        self._bad_lines.append(error)

    def peek(self, groups: Iterator[LocatedGroup]) -> tuple[list[RatedGroup], Iterator[LocatedGroup]]:
        """The first groups, as many as `run_preflight` needs, and an iterator of all, which raises reading errors."""
        first: list[LocatedGroup] = []
        errors: list[Exception] = []
        try:
            while sum(len(entry.group.candidates) for entry in first) < self._texts_to_try:
                first.append(next(groups))
        except StopIteration:
            pass
        except Exception as error:
            errors.append(error)

        def replay() -> Iterator[LocatedGroup]:
            yield from first
            for error in errors:
                raise error
            yield from groups

        return [entry.group for entry in first], replay()

    @property
    def _texts_to_try(self) -> int:
        """Number of texts that each role is tried on."""
        return max(2, *(member.together for member in self._judges))

    def run_preflight(self, first_groups: Iterable[RatedGroup]) -> None:
        """Make one call per role, unless preflight is off, so that what would fail for all texts is reported at once.

        Raises:
            InputError: The LM cannot play one of the roles.
            dspy.LMError: The LM cannot be used at all.
        """
        if self._flags.preflight and first_groups:
            items = [item for group in first_groups for item in items_of_group(self.judge.task, group, self.aspects)]
            self.judge.smoke_test(items[: self._texts_to_try * len(self.aspects)])

    def score_groups(self, groups: Iterable[LocatedGroup]) -> Iterator[tuple[Item, Score, Row]]:
        """The items in the order of results, candidate by candidate, each with the input's columns if they are kept.
        A record that cannot be read has items, too, without a score."""
        rows: dict[tuple[str, str], Row] = {}
        bad_before: dict[tuple[str, str], list[InputError]] = {}
        """Group and candidate -> the errors of the records before it."""

        def items() -> Iterator[Item]:
            for group, line in ((entry.group, entry.record.line) for entry in groups):
                keys = [(group.id, candidate.id) for candidate in group.candidates]
                rows.update(zip(keys, (candidate.row for candidate in group.candidates), strict=True))
                bad_before[keys[0]] = self._bad_lines_up_to(line)
                yield from items_of_group(self.judge.task, group, self.aspects)

        compiled, scale = self.judge.compiled, self._flags.scale
        for item, judgement in self.judge.stream(items()):
            key = item.group, item.candidate
            yield from self._unscored(bad_before.pop(key, ()))
            yield item, score_of(compiled, item, judgement, scale), rows[key]
            if item.aspect is self.aspects[-1]:
                del rows[key]
        yield from self._unscored(self._bad_lines)

    def _bad_lines_up_to(self, line: int) -> list[InputError]:
        """The errors that belong before a group that begins in `line`: records of a later one may have been read."""
        errors = []
        while self._bad_lines and (self._bad_lines[0].line or 0) <= line:
            errors.append(self._bad_lines.popleft())
        return errors

    def _unscored(self, errors: Iterable[InputError]) -> Iterator[tuple[Item, Score, Row]]:
        for error in errors:
            place, detail = (
                f"{error.unit} {error.line}",
                f"{error.field}: {error.problem}" if error.field else error.problem,
            )
            score = Score(None, None, None, None, BAD_LINE, f"{place}: {detail}", f"{BAD_LINE}: {detail}", 0, EMPTY)
            for aspect in self.aspects:
                yield Item(place, "", self.judge.task, aspect, "", ""), score, {}


def find_export(flags: ScoreFlags | ServeFlags) -> Export:
    """The export that a command names."""
    return open_export(flags.program, flags.trust, Path(flags.store))


def connection(flags: ScoreFlags | ServeFlags) -> Connection:
    """How a command reaches the judge's LM."""
    return Connection(
        lm=flags.lm,
        api_base=flags.api_base,
        concurrency=flags.concurrency,
        store=Path(flags.store),
        options=lm_options(flags),
        max_tokens=flags.max_tokens,
    )


def load_judge(flags: ScoreFlags | ServeFlags, export: Export | None = None) -> LoadedJudge:
    """The judge that a command names, connected to its LM; prints notes on it."""
    export = export or find_export(flags)
    compiled_lm = export.manifest.lm.spec
    spec = flags.lm or compiled_lm
    if spec != compiled_lm:
        say(f"note: the judge was compiled with {compiled_lm}; its measured agreement does not cover {spec}")
    calls_lm = any(chosen.judge.named_predictors() for chosen in export.judge.aspects.values())
    if spec == OFFLINE and calls_lm:
        say(f"note: {OFFLINE_NOTE}")
    if calls_lm:
        # An address that only the export names is refused, and not tried.
        require_server(*resolve_lm(export, flags.lm, flags.api_base)[:2], flags.store)
    judge = LoadedJudge(export, connection(flags))
    if (together := max(chosen.judge.together for chosen in export.judge.aspects.values())) > 1:
        say(f"note: {single_text_note(together)}")
    if calls_lm and judge.lm.destination is not None:
        say(judge.lm.destination)
    return judge


def scored_summary(meter: Meter, price: Price | None, out: object, totals: RowTotals) -> list[str]:
    """LM calls and their cost, reasons of unscored items, and last the rows in `out`."""
    lines = [calls_text(meter, price)]
    for reason, count in totals.unscored.most_common():
        example = totals.examples.get(reason)
        lines.append(f"{count:,} unscored: {reason}" + (f", e.g. {example}" if example is not None else ""))
    scored = totals.rows - totals.unscored.total()
    return [*lines, f"{totals.rows:,} items in {out}: {scored:,} scored"]


def unscored_exit_code(flags: ScoreFlags, totals: RowTotals) -> int:
    """The exit code of a complete run; prints an error if too many items have no score."""
    if totals.share <= flags.max_unscored:
        return 0
    limit = f"--max-unscored {flags.max_unscored:g}"
    say(
        f"error: {100 * totals.share:.0f} % of the items have no score ({limit})\n"
        f"  remedy:   fix the problem and {RESUME_HINT}"
    )
    return EXIT_UNSCORED
