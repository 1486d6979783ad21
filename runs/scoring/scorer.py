"""Scoring new texts, by one process and by Ray's actors alike: groups are read, and scores for their rows come out."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from debate_judge.data.errors import ErrorHandler, InputError, errors_to
from debate_judge.data.files.columns import Columns, ReadingNotes
from debate_judge.data.files.formats import RecordFile
from debate_judge.data.files.groups import iter_groups
from debate_judge.data.files.rated_rows import GroupRecord
from debate_judge.data.files.task_file import find_task
from debate_judge.data.inference.conformal import ConformalIntervals
from debate_judge.data.schema import RatedGroup, Task
from debate_judge.data.sources import SourceSelection
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.options import LMOptions
from debate_judge.programs.lm.reply import replies_folder
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.export.folder import open_export
from debate_judge.runs.export.from_mlflow import MLflowStore
from debate_judge.runs.export.lm_choice import confirm_address, resolve_lm
from debate_judge.runs.export.loaded import LoadedJudge, open_judge
from debate_judge.runs.export.manifest import Export
from debate_judge.runs.export.recorded import intervals_in
from debate_judge.runs.flags.declaration import cli_name
from debate_judge.runs.flags.lm import limits, require_server
from debate_judge.runs.flags.parser import RESUMES
from debate_judge.runs.flags.text_layout import say
from debate_judge.runs.runner.streaming import Score, group_items, score_of
from debate_judge.runs.scoring.output import LongRows, Row, RowForm, RowTotals, WideRows
from debate_judge.runs.scoring.settings import EXIT_UNSCORED, ScoreFlags, ServeFlags

# --- new texts: the groups of a file, one at a time, all of them of the judge's task ---


def new_groups(path: str | Path | RecordFile, task: Task, *how: Any, **more: Any) -> Iterator[RatedGroup]:
    """As `new_entries`, without the records."""
    return (entry.group for entry in new_entries(path, task, *how, **more))


def new_entries(
    path: str | Path | RecordFile,
    task: Task,
    only: str | None = None,
    columns: Iterable[str] = (),
    sources: str | None = None,
    *,
    keep: bool = False,
    notes: ReadingNotes | None = None,
    on_error: ErrorHandler | None = None,
) -> Iterator[GroupRecord]:
    """Stream the groups of a file, each with the record that it begins with; ratings are not needed.

    Each candidate is remembered by a hash, about 100 bytes, so that one that comes twice is noticed in a file of any
    length.

    Args:
        path: A file or set as `data.files.groups` describes it; rows of a group have to be adjacent.
        task: The judge's task.
        only: Name or file of that task; groups of other tasks are then left out and are no error.
        columns: `NAME=COLUMN` for each column that has another name than ours.
        sources: Which sources, as `data.sources.SourceSelection` reads it; None for all.
        keep: As for `data.files.groups.iter_groups`.
        notes: Likewise.
        on_error: Takes the errors of groups that cannot be used and are on a line of their own; these are left out.

    Raises:
        InputError: a group of another task, a candidate that comes twice, or anything that cannot be read.
    """
    if only is not None and only != task.name and find_task(only).name != task.name:
        raise InputError("the judge is for another task", field="task", expected=task.name, found=only)
    found: Iterator[GroupRecord] = iter_groups(
        path, task, Columns.of(columns), refuse_others=only is None, keep=keep, notes=notes, on_error=on_error
    )
    if sources is not None:
        found = SourceSelection.of(sources).stream(found, lambda: sum(1 for _ in _silently(path, task, columns)))
    return _without_repeats(found, on_error)


def _without_repeats(entries: Iterable[GroupRecord], on_error: ErrorHandler | None) -> Iterator[GroupRecord]:
    lines: dict[bytes, int] = {}
    for entry in entries:
        with errors_to(on_error):
            keys = _new_keys(entry, lines)
            lines.update(dict.fromkeys(keys, entry.record.line))
            yield entry


def _new_keys(entry: GroupRecord, lines: Mapping[bytes, int]) -> list[bytes]:
    """The hashes of a group's candidates, of which none may be known."""
    keys = [_key(entry.group.id, candidate.id) for candidate in entry.group.candidates]
    for candidate, key in zip(entry.group.candidates, keys, strict=True):
        if key in lines:
            raise entry.record.error(
                f"group {entry.group.id!r} has the candidate {candidate.id!r} a second time",
                found=f"it is {entry.record.line - lines[key]} {entry.record.unit}s above, too",
                remedy="give each candidate of a group an id of its own",
            )
    return keys


def count_candidates(path: str | Path, task: Task, columns: Iterable[str], sources: str | None) -> int:
    """How many candidates `new_groups` yields; nothing is said about the file."""
    found = _silently(path, task, columns)
    if sources is not None:
        found = SourceSelection.of(sources).stream(found, lambda: sum(1 for _ in _silently(path, task, columns)))
    return sum(len(entry.group.candidates) for entry in found)


def _silently(path: str | Path | RecordFile, task: Task, columns: Iterable[str]) -> Iterator[GroupRecord]:
    return iter_groups(path, task, Columns.of(columns), notes=ReadingNotes(""))


def _key(group: str, candidate: str) -> bytes:
    return hashlib.blake2b(f"{len(group)} {group}{candidate}".encode(), digest_size=16).digest()


# --- their scores ---


class RowIntervals:
    """Gives scores their intervals, and counts those that are left to people.

    Args:
        intervals: Aspect -> its intervals; empty for none.
        widest: Width from which on a text is left to people; None for any.
    """

    def __init__(self, intervals: Mapping[str, ConformalIntervals], widest: float | None) -> None:
        self._intervals = intervals
        self._widest = widest
        self.left: Counter[str] = Counter()
        """Aspect -> texts that are left to people."""
        self.scored: Counter[str] = Counter()

    def applied(self, item: Item, score: Score) -> Score:
        """The score, which is on the raters' scale, with its interval; what has no score is left to people."""
        if not self._intervals:
            return score
        name = item.aspect.name
        self.scored[name] += 1
        if score.score is None:
            self.left[name] += 1
            return replace(score, to_people=True)
        interval = self._intervals[name].at(score.score)
        wide = self._widest is not None and interval.width > self._widest
        self.left[name] += wide
        return replace(score, low=interval.low, high=interval.high, to_people=wide)


class TextScorer:
    """A judge with what the flags of `score` make of its answers.

    Raises:
        InputError: The judge does not score an aspect, or its export has no map or held-out scores that are needed.
    """

    def __init__(self, judge: LoadedJudge, flags: ScoreFlags) -> None:
        self.judge, self._flags = judge, flags
        self.aspects = judge.choose(flags.aspects or None)
        judge.compiled.require_calibrated(self.aspects, flags.scale)
        fitted = {} if flags.interval is None else intervals_in(judge.manifest, self.aspects, flags.interval)
        self.spans = RowIntervals(fitted, flags.abstain)
        self._judges = [judge.compiled.aspects[aspect.name].judge for aspect in self.aspects]
        self._joint = any(shared.joint for shared in self._judges)
        self.shared = self._joint or any(shared.together > 1 for shared in self._judges)
        """Whether candidates or aspects share calls."""
        self.extra = (*["together"] * self.shared, *["joint"] * self._joint)
        """Fields of a `Score` that rows have besides those that all have."""
        self.extra += ("judge_score",) * (flags.scale == "raters")
        self.extra += ("low", "high") * (flags.interval is not None) + ("to_people",) * (flags.abstain is not None)
        if any(shared.compares for shared in self._judges):
            self.note = "the judge's evidence is about comparing two candidates; here each text is scored by itself"

    note = ""
    """What the user has to know before anything is scored."""

    def form(self, first: Row) -> RowForm:
        """The columns of the results; `first` are the input's columns of the first text, where they are kept."""
        if not self._flags.wide:
            return LongRows(self.extra, tuple(first))
        # A cut is on the judge's own scale.
        on_judge_scale = self._flags.scale == "judge"
        cuts = {aspect.name: self.judge.cut(aspect) if on_judge_scale else None for aspect in self.aspects}
        return WideRows(cuts, self.extra, tuple(first))

    def provenance(self) -> dict[str, Any]:
        """What the rows depend on besides the input, as JSON values."""
        flags = self._flags
        return {
            "program": self.judge.fingerprint,
            "lm": self.judge.lm.model,
            "api_base": self.judge.lm.endpoint,
            "aspects": [a.name for a in self.aspects],
            "task": flags.task,
            "max_tokens": flags.max_tokens,
            "scale": flags.scale,
            **{name: True for name in ("wide", "keep_columns") if getattr(flags, name)},
            **{name: value for name in ("interval", "abstain") if (value := getattr(flags, name)) is not None},
        }

    def ahead(self, groups: Iterator[RatedGroup]) -> tuple[list[RatedGroup], Iterator[RatedGroup]]:
        """As many of the first groups as `run_preflight` needs, and all groups, with what reading them raises."""
        first: list[RatedGroup] = []
        broken: list[Exception] = []
        try:
            while sum(len(group.candidates) for group in first) < self._tried:
                first.append(next(groups))
        except StopIteration:
            pass
        except Exception as error:
            broken.append(error)

        def again() -> Iterator[RatedGroup]:
            yield from first
            for error in broken:
                raise error
            yield from groups

        return first, again()

    @property
    def _tried(self) -> int:
        """Texts that each role is tried on."""
        return max(2, *(shared.together for shared in self._judges))

    def run_preflight(self, first: Iterable[RatedGroup]) -> None:
        """Have each role speak once, if the user wants that, so that what would fail for all texts is found at once.

        Raises:
            InputError: The LM cannot play one of the roles.
            dspy.LMError: The LM cannot be used at all.
        """
        if self._flags.preflight and first:
            items = [item for group in first for item in group_items(self.judge.task, group, self.aspects)]
            self.judge.smoke_test(items[: self._tried * len(self.aspects)])

    def scored(self, groups: Iterable[RatedGroup]) -> Iterator[tuple[Item, Score, Row]]:
        """The items in the order of results, candidate by candidate, each with the input's columns if they are kept."""
        rows: dict[tuple[str, str], Row] = {}

        def items() -> Iterator[Item]:
            for group in groups:
                rows.update({(group.id, candidate.id): candidate.row for candidate in group.candidates})
                yield from group_items(self.judge.task, group, self.aspects)

        compiled, scale = self.judge.compiled, self._flags.scale
        for item, judgement in self.judge.stream(items()):
            score = self.spans.applied(item, score_of(compiled, item, judgement, scale))
            yield item, score, rows[item.group, item.candidate]
            if item.aspect is self.aspects[-1]:
                del rows[item.group, item.candidate]


def find_export(flags: ScoreFlags | ServeFlags) -> Export:
    """The export that a command names."""
    return open_export(flags.program, flags.judge, MLflowStore(folder=Path(flags.store)))


def connect(export: Export, flags: ScoreFlags | ServeFlags, store: Path, options: LMOptions) -> LoadedJudge:
    """The judge with its LM; the LM's replies are kept in `store`."""
    return open_judge(
        export,
        lm=flags.lm,
        api_base=flags.api_base,
        concurrency=flags.concurrency,
        store=store,
        replies=flags.replies,
        options=options,
        max_tokens=flags.max_tokens,
    )


def open_program(flags: ScoreFlags | ServeFlags, export: Export | None = None) -> LoadedJudge:
    """The judge that a command names, connected to its LM, after what the user should know of it was said."""
    export = export or find_export(flags)
    compiled_lm = export.manifest["lm"]["spec"]
    spec = flags.lm or compiled_lm
    if spec != compiled_lm:
        say(f"note: the judge was compiled with {compiled_lm}; its measured agreement does not cover {spec}")
    asks = any(chosen.judge.named_predictors() for chosen in export.judge.aspects.values())
    if spec == OFFLINE and asks:
        say("note: scores come from the offline stand-in, which computes text statistics and is no language model")
    if flags.trust_export:
        flags = replace(flags, api_base=confirm_address(export, flags.lm, flags.api_base))
    if asks:
        # An address that only the export names is refused, and not tried.
        require_server(*resolve_lm(export, flags.lm, flags.api_base)[:2], flags.store)
    judge = connect(export, flags, replies_folder(flags.store, spec), limits(flags))
    if asks and judge.lm.destination is not None:
        say(judge.lm.destination)
    return judge


def unscored_code(flags: ScoreFlags, tally: RowTotals) -> int:
    """The exit code of a run whose rows are complete, after it was said if too many are without a score."""
    if tally.share <= flags.max_unscored:
        return 0
    most = f"{cli_name(ScoreFlags, 'max_unscored')} {flags.max_unscored:g}"
    say(
        f"error: {100 * tally.share:.0f} % of the items have no score ({most})\n"
        f"  remedy:   fix the problem and {RESUMES}"
    )
    return EXIT_UNSCORED
