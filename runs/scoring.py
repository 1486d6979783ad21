"""Scoring new texts: reads groups and yields scores for the rows."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from debate_judge.data.errors import ErrorHandler, InputError, redirect_errors
from debate_judge.data.files.columns import ColumnNames, ReadingNotes
from debate_judge.data.files.groups import LocatedGroup, iter_groups
from debate_judge.data.schema import Task
from debate_judge.data.tasks import find_task
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.replies import Meter
from debate_judge.programs.lm.settings import Price
from debate_judge.programs.make_lm import OFFLINE, OFFLINE_NOTE
from debate_judge.runs.command_line import RESUME_HINT, say
from debate_judge.runs.export import Export, open_export, resolve_lm
from debate_judge.runs.loaded import Connection, LoadedJudge, single_text_note
from debate_judge.runs.reports.tables import calls_text
from debate_judge.runs.score_rows import Row, RowLayout, RowTotals
from debate_judge.runs.shared_flags import lm_options, require_server
from debate_judge.runs.streaming import Score, items_of_group, score_of

if TYPE_CHECKING:
    from debate_judge.runs.score import ScoreFlags
    from debate_judge.runs.serve import ServeFlags

EXIT_UNSCORED = 4
"""Too many items have no score; the other exit codes are those of every command (`runs.command_line`)."""

BAD_LINE = "cannot be read"
"""Why the items of a record of the input have no score."""


def new_groups(
    flags: ScoreFlags, task: Task, on_error: ErrorHandler, notes: ReadingNotes | None = None
) -> Iterator[LocatedGroup]:
    """Stream the groups of the input, all of the judge's task, each with the record that it begins with; ratings are
    not needed. Rows of a group have to be adjacent.

    A hash of each candidate is kept in memory, about 100 bytes, so that a duplicate is noticed in a file of any length.

    Args:
        flags: Those of the command.
        task: The judge's task.
        on_error: Called with the error of each unusable record, which is left out.
        notes: Notes on how the file is read, as for `iter_groups`.

    Raises:
        InputError: A group of another task, or anything that cannot be read.
    """
    if flags.task is not None and flags.task != task.name and find_task(flags.task).name != task.name:
        raise InputError("the judge is for another task", field="task", expected=task.name, found=flags.task)
    groups = iter_groups(
        flags.input,
        task,
        ColumnNames.parse(flags.columns),
        refuse_other_tasks=flags.task is None,
        keep_columns=flags.keep_columns,
        notes=notes,
        on_error=on_error,
    )
    return _refuse_repeats(islice(groups, flags.sources), on_error)


def _refuse_repeats(entries: Iterable[LocatedGroup], on_error: ErrorHandler) -> Iterator[LocatedGroup]:
    lines: dict[bytes, int] = {}
    for entry in entries:
        group, record = entry.group, entry.record
        places = {f"{len(group.id)} {group.id}{candidate.id}": candidate.id for candidate in group.candidates}
        keys = {hashlib.blake2b(place.encode(), digest_size=16).digest(): name for place, name in places.items()}
        with redirect_errors(on_error):
            for key, name in keys.items():
                if key in lines:
                    raise record.error(
                        f"group {group.id!r} has the candidate {name!r} a second time",
                        found=f"it is {record.line - lines[key]} {record.unit}s above, too",
                        remedy="give each candidate of a group an id of its own",
                    )
            lines.update(dict.fromkeys(keys, record.line))
            yield entry


class TextScorer:
    """A judge with the flags of `score`, which say how its scores are reported.

    Raises:
        InputError: The judge does not score an aspect, or its export has no map that is needed.
    """

    def __init__(self, judge: LoadedJudge, flags: ScoreFlags) -> None:
        self.judge, self._flags = judge, flags
        self.aspects = judge.select_aspects(flags.aspects or None)
        judge.compiled.require_calibrated(self.aspects, flags.scale)
        self._bad_lines = deque[InputError]()
        """Errors of records that no row was yielded for, in the order of the file."""

    def layout(self) -> RowLayout:
        """What a row of the results is."""
        # A cut is on the judge's own scale.
        on_judge_scale = self._flags.scale == "judge"
        cuts = {aspect.name: self.judge.cut(aspect) if on_judge_scale else None for aspect in self.aspects}
        return RowLayout(cuts, self._flags.wide, () if on_judge_scale else ("judge_score",))

    def groups(self) -> Iterator[LocatedGroup]:
        """The groups of the input; the errors of other records are kept, for the rows that say why there is no score.

        Raises:
            InputError: As `new_groups`.
        """
        return new_groups(self._flags, self.judge.task, self._bad_lines.append)

    def count_items(self) -> int | None:
        """The number of items; None for an input that cannot be read to its end, as scoring will say."""
        try:
            groups = new_groups(self._flags, self.judge.task, lambda error: None, ReadingNotes(""))
            return sum(len(entry.group.candidates) for entry in groups) * len(self.aspects)
        except InputError:
            return None

    def run_preflight(self, groups: Iterator[LocatedGroup]) -> Iterator[LocatedGroup]:
        """Make one call per role, so that what would fail for all texts is reported at once; returns all groups.

        Raises:
            InputError: The LM cannot play one of the roles.
            dspy.LMError: The LM cannot be used at all.
        """
        # As many texts as a call may have, and a second one where the first may be at fault.
        count = len(self.aspects) * max(2, *(self.judge.judges[aspect.name].together for aspect in self.aspects))
        first: list[LocatedGroup] = []
        items: list[Item] = []
        while len(items) < count and (entry := next(groups, None)) is not None:
            first.append(entry)
            items += items_of_group(self.judge.task, entry.group, self.aspects)
        self.judge.smoke_test(items[:count])
        return chain(first, groups)

    def score_groups(self, groups: Iterable[LocatedGroup]) -> Iterator[tuple[Item, Score, Row]]:
        """The items in the order of results, candidate by candidate, each with the input's columns if they are kept.
        A record that cannot be read has items, too, without a score."""
        begun = deque[Row | InputError]()
        """Of each candidate whose items are not all scored yet."""

        def bad_items(up_to: float) -> Iterator[Item]:
            while self._bad_lines and (self._bad_lines[0].line or 0) <= up_to:
                error = self._bad_lines.popleft()
                begun.append(error)
                for aspect in self.aspects:
                    # Without a text, nothing is asked.
                    yield Item(f"{error.unit} {error.line}", "", self.judge.task, aspect, "", "")

        def items() -> Iterator[Item]:
            for entry in groups:
                # Records of a later group may have been read.
                yield from bad_items(entry.record.line)
                begun.extend(candidate.row for candidate in entry.group.candidates)
                yield from items_of_group(self.judge.task, entry.group, self.aspects)
            yield from bad_items(float("inf"))

        compiled, scale = self.judge.compiled, self._flags.scale
        for item, judgement in self.judge.stream(items()):
            row, score = begun[0], score_of(compiled, item, judgement, scale)
            if isinstance(row, InputError):
                detail = ": ".join(filter(None, (item.group, row.field, row.problem)))
                score, row = replace(score, unscored=BAD_LINE, detail=detail, reason=f"{BAD_LINE}: {detail}"), {}
            yield item, score, row
            if item.aspect is self.aspects[-1]:
                begun.popleft()


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
    judges = [chosen.judge for chosen in export.judge.aspects.values()]
    calls_lm = any(judge.named_predictors() for judge in judges)
    if spec != compiled_lm:
        say(f"note: the judge was compiled with {compiled_lm}; its measured agreement does not cover {spec}")
    if calls_lm:
        if spec == OFFLINE:
            say(f"note: {OFFLINE_NOTE}")
        # An address that only the export names is refused, and not tried.
        require_server(*resolve_lm(export, flags.lm, flags.api_base)[:2], flags.store)
    loaded = LoadedJudge(export, connection(flags))
    if (together := max(judge.together for judge in judges)) > 1:
        say(f"note: {single_text_note(together)}")
    if any(judge.compares_pairs for judge in judges):
        say("note: the judge's agreement was measured on pairs of candidates; here each text is scored by itself")
    if calls_lm and loaded.lm.destination is not None:
        say(loaded.lm.destination)
    return loaded


def scored_summary(meter: Meter, price: Price | None, out: object, totals: RowTotals) -> list[str]:
    """LM calls and their cost, reasons of unscored items, and last the rows in `out`."""
    lines = [calls_text(meter, price)]
    for reason, count in totals.unscored.most_common():
        example = f", e.g. {totals.examples[reason]}" if reason in totals.examples else ""
        lines.append(f"{count:,} unscored: {reason}{example}")
    return [*lines, f"{totals.rows:,} items in {out}: {totals.rows - totals.unscored.total():,} scored"]


def unscored_exit_code(flags: ScoreFlags, totals: RowTotals) -> int:
    """The exit code of a complete run; prints an error if too many items have no score."""
    share = totals.unscored.total() / max(1, totals.rows)
    if share <= flags.max_unscored:
        return 0
    limit = f"--max-unscored {flags.max_unscored:g}"
    say(
        f"error: {100 * share:.0f} % of the items have no score ({limit})\n"
        f"  remedy:   fix the problem and {RESUME_HINT}"
    )
    return EXIT_UNSCORED
