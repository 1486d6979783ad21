"""Scoring new texts: reads groups, yields scores, and writes the rows.

Rows are written to OUT.part as JSON lines, and OUT is made from it at the end: renamed, or written by pandas as CSV,
Excel or Parquet. A run that was stopped starts again from the first text, with every answered call read from the store
of replies (`programs.lm.replies`). Texts are hostile: in a sheet nothing becomes a formula or a link.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from filelock import FileLock, Timeout

from debate_judge.data.errors import ErrorHandler, InputError, install_hint, redirect_errors, write_errors
from debate_judge.data.files.columns import ColumnNames, ReadingNotes
from debate_judge.data.files.formats import EXCEL, TEXT_TABLES, detect_format, joined_files
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
from debate_judge.runs.runner import Score, items_of_group, score_of
from debate_judge.runs.shared_flags import lm_options, require_server

if TYPE_CHECKING:
    import pandas as pd

    from debate_judge.runs.score import ScoreFlags
    from debate_judge.runs.serve import ServeFlags

EXIT_UNSCORED = 4
"""Too many items have no score; the other exit codes are those of every command (`runs.command_line`)."""

BAD_LINE = "cannot be read"
"""Why the items of a record of the input have no score."""

FORMATS = (".jsonl", ".csv", ".xlsx", ".parquet")

PROVIDER_FAILED: frozenset[str] = frozenset({"lm error", "search error"})
"""Reasons why an item is unscored that are a failure of the provider, so that a later attempt may succeed."""

Row = Mapping[str, object]
"""The input's columns of one text."""

_CHUNK = 10_000
"""Rows that are converted to CSV at a time."""

_MAX_SHEET_ROWS, _MAX_CELL_LENGTH = 1_048_576, 32_767
"""Rows of a sheet, its header included, and characters of a cell: the limits of Excel."""

_NUMBER = re.compile(r"-?(0|[1-9]\d{0,13})(\.\d{1,9})?")
"""A number, and no id: no leading zeros, and few enough digits for a float."""


# --- from groups to scores ---


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


# --- from scores to rows ---


@dataclass(frozen=True)
class RowLayout:
    """What a row is: one text in one aspect, or with `wide` one text with columns for each aspect.

    Raises:
        InputError: Two columns would have one name.
    """

    cuts: Mapping[str, float | None]
    """Aspect -> the lowest score that counts as yes, if it has one; wide rows then have a decision."""
    wide: bool = False
    extra: tuple[str, ...] = ()
    """Fields of a `Score` that rows have as well."""

    def __post_init__(self) -> None:
        names = Counter(["group", "candidate", *self.results])
        if self.wide and (twice := [name for name, count in names.items() if count > 1]):
            remedy = "leave out --wide, or score these aspects one by one"
            raise InputError(f"two columns would be called {twice[0]!r}", field="--wide", remedy=remedy)

    @property
    def results(self) -> list[str]:
        """Columns that every row has, perhaps with `judge_` before the name."""
        if not self.wide:
            return ["aspect", "score", *self.extra, "reason", "unscored"]
        return [*self.cuts, *(f"{name}_{field}" for name in self.cuts for field in self._fields(name))]

    def _fields(self, aspect: str) -> tuple[str, ...]:
        return (*self.extra, *["decision"] * (self.cuts[aspect] is not None), "reason", "unscored")

    def row(self, scored: Sequence[tuple[Item, Score]], columns: Row) -> dict[str, object]:
        """One row, after the input's columns. A result that they have, too, is called `judge_NAME`; group and candidate
        are then the input's.
        """
        item, score = scored[0]
        results: dict[str, object] = {"group": item.group, "candidate": item.candidate}
        if self.wide:
            results |= {item.aspect.name: score.score for item, score in scored}
            for aspect, points in ((item.aspect.name, score) for item, score in scored):
                cut = self.cuts[aspect]
                decision = None if points.score is None or cut is None else points.score >= cut
                for name in self._fields(aspect):
                    results[f"{aspect}_{name}"] = decision if name == "decision" else getattr(points, name)
        else:
            names = ("score", "rounds", "stop_reason", "unscored", "reason", *self.extra)
            results |= {"aspect": item.aspect.name, **{name: getattr(score, name) for name in names}}
        row = {name: _json_value(value) for name, value in columns.items()}
        for name, value in results.items():
            if name not in ("group", "candidate") or name not in columns:
                while name in columns:
                    name = f"judge_{name}"
                row[name] = value
        return row


def _json_value(value: object) -> object:
    """A value of the input as a JSON value."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_json_value(each) for each in value]
    if isinstance(value, Mapping):
        return {str(name): _json_value(each) for name, each in value.items()}
    return str(value)


# --- the file ---


@dataclass
class RowTotals:
    """Counts of the items."""

    rows: int = 0
    unscored: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    """Reason -> the detail of its first item."""


class ResultWriter:
    """Writes rows, and debates to a file of their own if there is one."""

    def __init__(self, layout: RowLayout, rows: TextIO, debates: TextIO | None) -> None:
        self.layout, self._rows, self._debates = layout, rows, debates
        self._pending: list[tuple[Item, Score]] = []
        """Items of a row that is not complete."""
        self._input_columns: dict[str, None] = {}
        self._columns: dict[str, None] = {}
        self.totals = RowTotals()

    @property
    def columns(self) -> list[str]:
        """Those of all rows so far, the input's first."""
        return list(self._input_columns | self._columns)

    def add(self, item: Item, score: Score, columns: Row) -> None:
        """Add an item, those of one row consecutively, with the input's columns where they are kept."""
        if self._debates is not None:
            turns = [
                {name: getattr(turn, name) for name in ("role", "round", "score", "no_issue", "text")}
                for turn in score.transcript.turns
            ]
            place = {"group": item.group, "candidate": item.candidate, "aspect": item.aspect.name}
            unscored = {} if score.unscored is None else {"unscored": score.unscored, "detail": score.detail}
            extra = {name: getattr(score, name) for name in self.layout.extra}
            debate = {**place, "score": score.score, "calls": score.calls, "turns": turns, **extra, **unscored}
            _write(self._debates, debate)
        self.totals.rows += 1
        if score.unscored is not None:
            self.totals.unscored[score.unscored] += 1
            self.totals.examples.setdefault(score.unscored, score.detail)
        self._pending.append((item, score))
        if len(self._pending) == (len(self.layout.cuts) if self.layout.wide else 1):
            row, self._pending = self.layout.row(self._pending, columns), []
            self._input_columns |= dict.fromkeys(columns)
            self._columns |= dict.fromkeys(row)
            _write(self._rows, row)


def _write(file: TextIO, record: Mapping[str, object]) -> None:
    file.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")


@contextmanager
def open_results(
    out: Path, layout: RowLayout, *, input_file: Path, transcripts: Path | None = None
) -> Iterator[ResultWriter]:
    """Write rows, and debates to `transcripts`; both files get their names at the end of the block.

    Args:
        out: For the rows; its suffix names the format.
        layout: What a row is.
        input_file: The file that is scored.
        transcripts: File for the debates; None for none.

    Raises:
        InputError: A file cannot be written, another process writes to it, or `out` is a file of another form.
    """
    _check(out, input_file, transcripts)
    _refuse_other_form(out, layout)
    with ExitStack() as stack:
        rows = stack.enter_context(_open_part(out, "--out"))
        debates = None if transcripts is None else stack.enter_context(_open_part(transcripts, "--transcripts"))
        writer = ResultWriter(layout, rows, debates)
        yield writer
        rows.close()
        with write_errors(out, "--out"):
            _finish(Path(rows.name), out, writer, input_file)
        if transcripts is not None and debates is not None:
            debates.close()
            Path(debates.name).replace(transcripts)


@contextmanager
def _open_part(path: Path, flag: str) -> Iterator[TextIO]:
    """Open `path`.part, under a lock."""
    with ExitStack() as stack:
        with write_errors(path, flag):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                stack.enter_context(FileLock(f"{path}.lock", timeout=0))
            except Timeout:
                remedy = "wait until it ends, or choose another file"
                raise InputError("another process writes to this file", file=path, field=flag, remedy=remedy) from None
            part = path.with_name(f"{path.name}.part")
            file = stack.enter_context(part.open("w", encoding="utf-8", newline="\n"))
        yield file


def _finish(part: Path, out: Path, results: ResultWriter, input_file: Path) -> None:
    """Make the file of results from all rows. Equal rows give equal files, bit for bit."""
    suffix, new = out.suffix.lower(), out.with_name(f"{out.name}.new")
    if suffix == ".jsonl":
        part.replace(out)
        return
    if suffix == ".csv":
        for number, frame in enumerate(_frames(part, results.columns, _CHUNK)):
            # With this line end, cells with a carriage return are quoted.
            frame.rename(columns=_guarded).map(_guarded).to_csv(
                new, mode="a" if number else "w", header=not number, index=False, lineterminator="\r\n"
            )
    else:
        of_texts = input_file.suffix.lower() in {*TEXT_TABLES, *EXCEL}
        numbers = tuple(results.layout.cuts) if results.layout.wide else ("score", "judge_score")
        (frame,) = _frames(part, results.columns, None)
        frame = frame.apply(lambda values: _typed(values, of_texts, numbers))
        if suffix == ".parquet":
            frame.to_parquet(new, index=False)
        else:
            _write_sheet(frame, new, out)
    new.replace(out)
    part.unlink()


def _frames(part: Path, columns: Sequence[str], size: int | None) -> Iterator[pd.DataFrame]:
    """The rows, `size` at a time, with nested values as JSON; at least one frame."""
    import pandas as pd

    with part.open(encoding="utf-8") as file:
        lines = list(islice(file, size))
        while True:
            rows = [[_cell(row.get(name)) for name in columns] for row in map(json.loads, lines)]
            yield pd.DataFrame(rows, columns=list(columns), dtype=object)
            if not (lines := list(islice(file, size))):
                return


def _write_sheet(frame: pd.DataFrame, table: Path, out: Path) -> None:
    import pandas as pd

    texts = [frame[name].fillna("") for name in frame if frame[name].dtype == "string"]
    longest = max((int(column.str.len().max()) for column in texts if len(column)), default=0)
    if len(frame) >= _MAX_SHEET_ROWS or longest > _MAX_CELL_LENGTH:
        raise InputError(
            "a sheet of Excel does not hold so much",
            file=out,
            field="--out",
            expected=f"at most {_MAX_SHEET_ROWS - 1:,} rows, and {_MAX_CELL_LENGTH:,} characters in a cell",
            found=f"{len(frame):,} rows, {longest:,} characters",
            remedy="choose another --out, ending in .parquet, .csv or .jsonl; answers are kept in --store",
        )
    options = {"strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
    with pd.ExcelWriter(table, engine="xlsxwriter", engine_kwargs={"options": options}) as writer:
        writer.book.set_properties({"created": datetime(2000, 1, 1)})  # noqa: DTZ001 (Excel knows no time zones)
        frame.to_excel(writer, sheet_name="scores", index=False, freeze_panes=(1, 0))


def _typed(values: pd.Series[Any], of_texts: bool, numbers: Sequence[str]) -> pd.Series[Any]:
    """A column of one type: numbers, yes and no, or texts.

    With `of_texts` numbers of the input were read as texts: they are numbers again, where no digit is lost.
    """
    import pandas as pd

    present = values[values.notna() & (values != "")]
    if of_texts and len(present) and present.map(lambda v: isinstance(v, str) and bool(_NUMBER.fullmatch(v))).all():
        return pd.to_numeric(values.where(values != "", None)).astype("Float64")
    if values.name in numbers and present.map(lambda v: isinstance(v, int | float)).all():
        return values.astype("Float64")
    typed = values.convert_dtypes() if len(present) else values
    return typed if typed.dtype != object else values.astype("string")


def _cell(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def _guarded(value: object) -> object:
    """A cell of a text table, which programs for sheets would take for a formula if it began with these characters."""
    is_formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if is_formula and not _NUMBER.fullmatch(str(value)) else value


def _check(out: Path, input_file: Path, transcripts: Path | None) -> None:
    """Refuse files that cannot be read or written before anything is paid for."""
    if (suffix := out.suffix.lower()) not in FORMATS:
        problem, expected = "results are not written in this format", ", ".join(FORMATS)
        raise InputError(problem, file=out, field="--out", expected=expected, found=suffix or "no suffix")
    if suffix == ".xlsx":
        try:
            import xlsxwriter  # type: ignore[import-untyped]  # noqa: F401
        except ImportError:
            problem, remedy = "sheets are written by XlsxWriter, which is not installed", install_hint("excel")
            raise InputError(problem, file=out, field="--out", remedy=remedy) from None
    flags: dict[Path, str] = {}
    for file in map(Path, joined_files(str(input_file))):
        if not file.is_file():
            raise InputError("no such file", file=file, field="--in", remedy="check the name, and the folder it is in")
        flags[file.resolve()] = "--in"
    for flag, file in (("--out", out), *([("--transcripts", transcripts)] if transcripts else [])):
        if file.is_dir():
            raise InputError("this is a folder", file=file, field=flag, expected="a file")
        if other := flags.get(file.resolve()):
            raise InputError("two files are the same", file=file, field=flag, expected=f"another file than {other}")
        flags[file.resolve()] = flag


def _refuse_other_form(out: Path, layout: RowLayout) -> None:
    """Refuse to replace a file that is none of such rows: it may be somebody's own."""
    if not out.exists() or not out.stat().st_size:
        return
    try:
        first = next(detect_format(out).records(None), None)
        found = [] if first is None else list(map(str, first.values))
    except InputError as error:
        found = [error.problem]
    if missing := [name for name in layout.results if not {name, f"judge_{name}"} & set(found)]:
        raise InputError(
            "the file exists and is none of such results, so it is not replaced",
            file=out,
            field="--out",
            expected=f"a column {missing[0]!r}",
            found=", ".join(found),
            remedy="choose another --out, or remove the file",
        )
