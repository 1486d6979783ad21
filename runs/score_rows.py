"""The rows of a scoring run, and the file that they are written to.

Rows are written to OUT.part as JSON lines, and OUT is made from it at the end: renamed, or written by pandas as CSV,
Excel or Parquet. A run that was stopped starts again from the first text, with every answered call read from the store
of replies (`programs.lm.replies`). Texts are hostile: in a sheet nothing becomes a formula or a link.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from filelock import FileLock, Timeout

from debate_judge.data.errors import InputError, install_hint, write_errors
from debate_judge.data.files.formats import EXCEL, TEXT_TABLES, detect_format, joined_files

if TYPE_CHECKING:
    import pandas as pd

    from debate_judge.programs.judge import Item
    from debate_judge.runs.streaming import Score


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
        names = ["group", "candidate", *self.cuts]
        names += [f"{name}_{content}" for name, cut in self.cuts.items() for content in self._contents(cut)]
        if self.wide and (duplicates := [name for name, count in Counter(names).items() if count > 1]):
            remedy = "leave out --wide, or score these aspects one by one"
            raise InputError(f"two columns would be called {duplicates[0]!r}", field="--wide", remedy=remedy)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns of numbers, also where nothing has a score."""
        return tuple(self.cuts) if self.wide else ("score", "judge_score")

    @property
    def results(self) -> tuple[str, ...]:
        """Columns that every row has, perhaps with `judge_` before the name."""
        if not self.wide:
            return ("aspect", "score", *self.extra, "reason", "unscored")
        return (
            *self.cuts,
            *(f"{name}_{content}" for name, cut in self.cuts.items() for content in self._contents(cut)),
        )

    @property
    def items(self) -> int:
        """Number of items in a row."""
        return len(self.cuts) if self.wide else 1

    def row(self, scored: Sequence[tuple[Item, Score]], columns: Row) -> dict[str, object]:
        """One row, after the input's columns. A result that they have, too, is called `judge_NAME`; group and candidate
        are then the input's.
        """
        item, score = scored[0]
        results: dict[str, object] = {"group": item.group, "candidate": item.candidate}
        if self.wide:
            results |= {item.aspect.name: score.score for item, score in scored}
            for item, score in scored:
                cut, points = self.cuts[item.aspect.name], score.score
                fields = {"decision": None if points is None or cut is None else points >= cut}
                fields |= {name: getattr(score, name) for name in (*self.extra, "reason", "unscored")}
                results |= {f"{item.aspect.name}_{name}": fields[name] for name in self._contents(cut)}
        else:
            names = ("score", "rounds", "stop_reason", "unscored", "reason", *self.extra)
            results |= {"aspect": item.aspect.name, **{name: getattr(score, name) for name in names}}
        row = {name: json_value(value) for name, value in columns.items()}
        for name, value in results.items():
            if name not in ("group", "candidate") or name not in columns:
                while name in columns:
                    name = f"judge_{name}"
                row[name] = value
        return row

    def _contents(self, cut: float | None) -> tuple[str, ...]:
        return (*self.extra, *["decision"] * (cut is not None), "reason", "unscored")


def json_value(value: object) -> object:
    """A value of the input as a JSON value."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    if isinstance(value, Mapping):
        return {str(name): json_value(each) for name, each in value.items()}
    return str(value)


def _debate(item: Item, score: Score, extra: Sequence[str]) -> dict[str, object]:
    """The debate of an item, with the `extra` fields of its score."""
    turns = [
        {"role": t.role, "round": t.round, "score": t.score, "no_issue": t.no_issue, "text": t.text}
        for t in score.transcript.turns
    ]
    place = {"group": item.group, "candidate": item.candidate, "aspect": item.aspect.name, "score": score.score}
    unscored = {} if score.unscored is None else {"unscored": score.unscored, "detail": score.detail}
    return {**place, "calls": score.calls, "turns": turns, **{name: getattr(score, name) for name in extra}, **unscored}


# --- the file ---


@dataclass
class RowTotals:
    """Counts of the items."""

    rows: int = 0
    unscored: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    """Reason -> the detail of its first item."""

    def count(self, score: Score) -> None:
        self.rows += 1
        if score.unscored is not None:
            self.unscored[score.unscored] += 1
            self.examples.setdefault(score.unscored, score.detail)

    @property
    def share(self) -> float:
        """Share of unscored items."""
        return self.unscored.total() / self.rows if self.rows else 0.0


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
            _write(self._debates, _debate(item, score, self.layout.extra))
        self.totals.count(score)
        self._pending.append((item, score))
        if len(self._pending) < self.layout.items:
            return
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
    lock = FileLock(f"{path}.lock", timeout=0)
    with write_errors(path, flag):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except Timeout:
            remedy = "wait until it ends, or choose another file"
            raise InputError("another process writes to this file", file=path, field=flag, remedy=remedy) from None
        file = path.with_name(path.name + ".part").open("w", encoding="utf-8", newline="\n")
    try:
        with file:
            yield file
    finally:
        lock.release()


def _finish(part: Path, out: Path, results: ResultWriter, input_file: Path) -> None:
    """Make the file of results from all rows. Equal rows give equal files, bit for bit."""
    import pandas as pd

    suffix, new = out.suffix.lower(), out.with_name(f"{out.name}.new")
    if suffix == ".jsonl":
        part.replace(out)
        return
    if suffix == ".csv":
        for number, frame in enumerate(_frames(part, results.columns)):
            frame.columns = pd.Index(map(_guarded, frame.columns))
            # With this line end, cells with a carriage return are quoted.
            frame.map(_cell).map(_guarded).to_csv(
                new, mode="a" if number else "w", header=not number, index=False, lineterminator="\r\n"
            )
    else:
        of_texts = input_file.suffix.lower() in {*TEXT_TABLES, *EXCEL}
        (frame,) = _frames(part, results.columns, None)
        frame = frame.apply(lambda values: _typed(values, of_texts, results.layout.numbers))
        if suffix == ".parquet":
            frame.to_parquet(new, index=False)
        else:
            _write_sheet(frame, new, out)
    new.replace(out)
    part.unlink()


def _frames(part: Path, columns: Sequence[str], size: int | None = _CHUNK) -> Iterator[pd.DataFrame]:
    """The rows, `size` at a time; at least one frame."""
    import pandas as pd

    with part.open(encoding="utf-8") as file:
        lines = list(islice(file, size))
        while True:
            rows = [[row.get(name) for name in columns] for row in map(json.loads, lines)]
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
    """A column of one type: numbers, yes and no, or texts, with nested values as JSON.

    With `of_texts` numbers of the input were read as texts: they are numbers again, where no digit is lost.
    """
    import pandas as pd

    values = values.map(_cell)
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
    input_files = [("--in", Path(name)) for name in joined_files(str(input_file))]
    files = [*input_files, ("--out", out), *([("--transcripts", transcripts)] if transcripts else [])]
    for flag, file in files:
        if flag == "--in" and not file.is_file():
            raise InputError("no such file", file=file, field="--in", remedy="check the name, and the folder it is in")
        if file.is_dir():
            raise InputError("this is a folder", file=file, field=flag, expected="a file")
        same = [other for other, other_file in files if other_file.resolve() == file.resolve() and other != flag]
        if same:
            raise InputError("two files are the same", file=file, field=flag, expected=f"another file than {same[0]}")


def _refuse_other_form(out: Path, layout: RowLayout) -> None:
    """Refuse to replace a file that is none of such rows: it may be somebody's own."""
    if not out.exists() or not out.stat().st_size:
        return
    try:
        first = next(detect_format(out).records(), None)
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
