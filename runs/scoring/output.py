"""The rows of a scoring run, and the file that they are written to.

Rows are written to OUT.part as JSON lines, and OUT is made from it at the end: renamed, or written by pandas as CSV,
Excel or Parquet. A run that was stopped starts again from the first text, with every answered call read from the store
of replies (`programs.lm.store`). Texts are hostile: in a sheet nothing becomes a formula or a link.
"""

from __future__ import annotations

import csv
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

from debate_judge.data.errors import InputError, install_hint
from debate_judge.data.files.formats import EXCEL, TEXT_TABLES, detect_format, joined_files
from debate_judge.data.files.writing import write_errors

if TYPE_CHECKING:
    import pandas as pd

    from debate_judge.programs.judge import Item
    from debate_judge.runs.runner.streaming import Score

    ScoredItems = Sequence[tuple[Item, Score]]
    """The items of one row, with their scores."""

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

_OTHER_FORMATS = "choose another --out, ending in .parquet, .csv or .jsonl; answers are kept in --store"


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
    def scores(self) -> tuple[str, ...]:
        """Columns of numbers, also where nothing has a score."""
        return tuple(self.cuts) if self.wide else ("score", "judge_score")

    @property
    def items(self) -> int:
        """Number of items in a row."""
        return len(self.cuts) if self.wide else 1

    def row(self, scored: ScoredItems, columns: Row) -> dict[str, object]:
        """One row, after the input's columns. A result that they have, too, is called `judge_NAME`; group and candidate
        are then the input's.
        """
        item, score = scored[0]
        results: dict[str, object] = {"group": item.group, "candidate": item.candidate}
        if self.wide:
            results |= {item.aspect.name: score.score for item, score in scored}
            for item, score in scored:
                cut, values = self.cuts[item.aspect.name], score.score
                fields = {"decision": None if values is None or cut is None else values >= cut}
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
        self.columns: tuple[str, ...] = ()
        """Those of the first row that has the input's columns."""
        self._held: list[dict[str, object]] = []
        """Rows of lines that could not be read, before that row."""
        self.totals = RowTotals()

    def add(self, item: Item, score: Score, columns: Row) -> None:
        """Add an item, those of one row consecutively, with the input's columns where they are kept.

        Raises:
            InputError: The input's first text did not have one of these columns.
        """
        if self._debates is not None:
            _write(self._debates, _debate(item, score, self.layout.extra))
        self.totals.count(score)
        self._pending.append((item, score))
        if len(self._pending) < self.layout.items:
            return
        row, self._pending = self.layout.row(self._pending, columns), []
        if not (self.columns or columns or item.candidate):
            self._held.append(row)
            return
        self.columns = self.columns or tuple(row)
        self._write_held()
        if unknown := [name for name in columns if name not in self.columns]:
            raise InputError(
                f"the first text of the input has no field {unknown[0]!r}, and results have its columns",
                field="--keep-columns",
                expected=", ".join(self.columns),
                found=f"candidate {item.candidate!r} of group {item.group!r}",
                remedy=f"give the first one {unknown[0]!r} as well, with the value null if it has none",
            )
        _write(self._rows, {name: row.get(name) for name in self.columns})

    def finish(self) -> None:
        """After the last item: write what waited for the columns of the input."""
        self.columns = self.columns or tuple(self._held[0] if self._held else ())
        self._write_held()

    def _write_held(self) -> None:
        for row in self._held:
            _write(self._rows, {name: row.get(name) for name in self.columns})
        self._held = []


def _write(file: TextIO, record: Mapping[str, object]) -> None:
    file.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")


@contextmanager
def open_results(
    out: Path, layout: RowLayout, *, input_file: Path, columns: Sequence[str], transcripts: Path | None = None
) -> Iterator[ResultWriter]:
    """Write rows, and debates to `transcripts`; both files get their names at the end of the block.

    Args:
        out: For the rows; its suffix names the format.
        layout: What a row is.
        input_file: The file that is scored.
        columns: Those that rows will have; a file with others is not replaced.
        transcripts: File for the debates; None for none.

    Raises:
        InputError: A file cannot be written, another process writes to it, or `out` is a file of another form.
    """
    _require_format(out)
    _check_paths(out, input_file, transcripts)
    _refuse_other_form(out, columns)
    with ExitStack() as stack:
        rows = stack.enter_context(_open_part(out, "--out"))
        debates = None if transcripts is None else stack.enter_context(_open_part(transcripts, "--transcripts"))
        writer = ResultWriter(layout, rows, debates)
        yield writer
        writer.finish()
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
    """Make the file of results from all rows."""
    import pandas as pd

    suffix = out.suffix.lower()
    if suffix == ".jsonl":
        part.replace(out)
        return
    new = out.with_name(f"{out.name}.new")
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
        frame = frame.apply(lambda values: _typed(values, of_texts, results.layout.scores))
        _write_table(frame, new, suffix, out)
    new.replace(out)
    part.unlink()


def _frames(part: Path, columns: Sequence[str], size: int | None = _CHUNK) -> Iterator[pd.DataFrame]:
    """The rows, `size` at a time; at least one frame."""
    import pandas as pd

    with part.open(encoding="utf-8") as file:
        lines = list(islice(file, size))
        while True:
            yield pd.DataFrame([list(json.loads(line).values()) for line in lines], columns=list(columns), dtype=object)
            if not (lines := list(islice(file, size))):
                return


def _write_table(frame: pd.DataFrame, table: Path, suffix: str, out: Path) -> None:
    """Write a sheet or a Parquet file. Equal rows give equal files, bit for bit."""
    import pandas as pd

    if suffix == ".parquet":
        frame.to_parquet(table, index=False)
        return
    _require_sheet_limits(frame, out)
    options = {"strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
    with pd.ExcelWriter(table, engine="xlsxwriter", engine_kwargs={"options": options}) as writer:
        writer.book.set_properties({"created": datetime(2000, 1, 1)})  # noqa: DTZ001 (Excel knows no time zones)
        frame.to_excel(writer, sheet_name="scores", index=False, freeze_panes=(1, 0))


def _typed(values: pd.Series[Any], of_texts: bool, scores: Sequence[str]) -> pd.Series[Any]:
    """A column of one type: numbers, yes and no, or texts, with nested values as JSON.

    With `of_texts` numbers of the input were read as texts: they are numbers again, where no digit is lost.
    """
    import pandas as pd

    present = values[values.notna() & (values != "")]
    if of_texts and len(present) and present.map(lambda v: isinstance(v, str) and bool(_NUMBER.fullmatch(v))).all():
        return pd.to_numeric(values.where(values != "", None)).astype("Float64")
    types = set(present.map(type))
    if types == {bool}:
        return values.astype("boolean")
    if types == {int} and present.abs().max() < 1 << 53:
        return values.astype("Int64")
    if types <= {int, float} and (types or values.name in scores):
        return values.astype("Float64")
    return values.map(_cell).astype("string")


def _cell(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def _guarded(value: object) -> object:
    """A cell of a text table, which programs for sheets would take for a formula if it began with these characters."""
    is_formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if is_formula and not _NUMBER.fullmatch(str(value)) else value


# --- checks, before anything is paid for ---


def _require_format(out: Path) -> None:
    suffix = out.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(
            "results are written as .jsonl, .csv, .xlsx or .parquet",
            file=out,
            field="--out",
            expected=", ".join(FORMATS),
            found=suffix or "no suffix",
        )
    if suffix == ".xlsx":
        try:
            import xlsxwriter  # type: ignore[import-untyped]  # noqa: F401
        except ImportError:
            remedy = f"{install_hint('excel')}, or {_OTHER_FORMATS}"
            problem = "sheets are written by XlsxWriter, which is not installed"
            raise InputError(problem, file=out, field="--out", remedy=remedy) from None


def _refuse_other_form(out: Path, columns: Sequence[str]) -> None:
    if not out.exists() or not out.stat().st_size:
        return
    names = [str(_guarded(name)) for name in columns] if out.suffix.lower() == ".csv" else list(columns)
    try:
        if out.suffix.lower() == ".csv":
            with out.open(encoding="utf-8-sig", errors="replace", newline="") as file:
                found = next(csv.reader(file), [])
        else:
            first = next(detect_format(out).records(), None)
            found = names if first is None else list(map(str, first.values))
    except InputError as error:
        found = [error.problem]
    if found != names:
        raise InputError(
            "the file exists and has other columns than the results, so it is not replaced",
            file=out,
            field="--out",
            expected=", ".join(names),
            found=", ".join(found),
            remedy="choose another --out, or remove the file",
        )


def _check_paths(path: Path, input_file: Path, transcripts: Path | None) -> None:
    input_files = [Path(name) for name in joined_files(str(input_file))]
    for file in input_files:
        if not file.is_file():
            raise InputError("no such file", file=file, field="--in", remedy="check the name, and the folder it is in")
    paths = [*(("--in", file) for file in input_files), ("--out", path)]
    paths += [("--transcripts", transcripts)] if transcripts is not None else []
    for flag, file in paths:
        if file.is_dir():
            raise InputError("this is a folder", file=file, field=flag, expected="a file")
        same = [other for other, other_file in paths if other_file.resolve() == file.resolve() and other != flag]
        if same:
            raise InputError("two files are the same", file=file, field=flag, expected=f"another file than {same[0]}")


def _require_sheet_limits(frame: pd.DataFrame, out: Path) -> None:
    if len(frame) >= _MAX_SHEET_ROWS:
        raise InputError(
            "a sheet of Excel does not hold so many rows",
            file=out,
            field="--out",
            expected=f"at most {_MAX_SHEET_ROWS - 1:,} rows",
            found=f"{len(frame):,}",
            remedy=_OTHER_FORMATS,
        )
    for name in frame.columns:
        texts = frame[name]
        if texts.dtype == "string" and (texts.str.len() > _MAX_CELL_LENGTH).any():
            raise InputError(
                f"a cell of Excel does not hold a text of {int(texts.str.len().max()):,} characters",
                file=out,
                field=str(name),
                expected=f"at most {_MAX_CELL_LENGTH:,} characters",
                remedy=_OTHER_FORMATS,
            )
