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
