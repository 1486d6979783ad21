"""Rows of scores as a table that is written whole: an Excel sheet or a Parquet file, by pandas.

Equal rows give equal files, bit for bit. Texts are hostile: in a sheet nothing becomes a formula or a link.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from debate_judge.data.errors import InputError, install_hint
from debate_judge.data.files.formats import EXCEL, TEXT_TABLES

if TYPE_CHECKING:
    import pandas as pd

    from debate_judge.runs.scoring.output import RowForm

LINES, TABLES = (".jsonl", ".csv"), (".xlsx", ".parquet")
"""Formats that grow row by row, and those that are written whole."""

_SHEET_ROWS, _CELL = 1_048_576, 32_767
"""Rows of a sheet, its header included, and characters of a cell: the limits of Excel."""

_NUMBER = re.compile(r"-?(0|[1-9]\d{0,13})(\.\d{1,9})?")
"""What is a number and no id: no zeros before it, and few enough digits for a float."""

_ELSEWHERE = "choose another --out, ending in .parquet, .csv or .jsonl; answers are kept in --store"


def format_of(path: Path) -> str:
    """The ending of a file of results, which says its format; asked for before anything is paid for.

    Raises:
        InputError: There is no such format, or the library that writes it is not installed.
    """
    suffix = path.suffix.lower()
    if suffix not in (*LINES, *TABLES):
        raise InputError(
            "results are written as .jsonl, .csv, .xlsx or .parquet",
            file=path,
            field="--out",
            expected=", ".join((*LINES, *TABLES)),
            found=suffix or "no suffix",
        )
    if suffix == ".xlsx":
        _require_xlsxwriter(path)
    return suffix


def _require_xlsxwriter(path: Path) -> None:
    try:
        import xlsxwriter  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        raise InputError(
            "sheets are written by XlsxWriter, which is not installed",
            file=path,
            field="--out",
            remedy=f"{install_hint('excel')}, or {_ELSEWHERE}",
        ) from None


def write_table(rows: Path, to: Path, *, suffix: str, form: RowForm, source: Path, out: Path) -> None:
    """Write all rows as a table.

    Args:
        rows: JSON lines, a row each.
        to: The file to write.
        suffix: .xlsx or .parquet.
        form: What the rows say.
        source: The input. All values of a text table or a sheet are read as texts; a column of nothing but numbers
            becomes one of numbers again, where no digit is lost by it.
        out: The name of the file in messages.

    Raises:
        InputError: A sheet cannot hold them.
    """
    import pandas as pd

    with rows.open(encoding="utf-8") as file:
        values = [list(json.loads(line).values()) for line in file]
    columns: list[tuple[Any, ...]] = list(zip(*values, strict=True)) if values else [()] * len(form.fields)
    if source.suffix.lower() in {*TEXT_TABLES, *EXCEL}:
        columns = [
            _numbers(column) if name in form.kept else column for name, column in zip(form.fields, columns, strict=True)
        ]
    named = zip(form.fields, columns, strict=True)
    frame = pd.DataFrame({name: _column(column, number=name in form.scores) for name, column in named})
    if suffix == ".parquet":
        frame.to_parquet(to, index=False)
        return
    _require_room(frame, out)
    options = {"strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
    with pd.ExcelWriter(to, engine="xlsxwriter", engine_kwargs={"options": options}) as writer:
        writer.book.set_properties({"created": datetime(2000, 1, 1)})  # noqa: DTZ001 (Excel knows no time zones)
        frame.to_excel(writer, sheet_name="scores", index=False, freeze_panes=(1, 0))


def _numbers(values: tuple[Any, ...]) -> tuple[Any, ...]:
    known = [value for value in values if value not in (None, "")]
    if not known or not all(isinstance(value, str) and _NUMBER.fullmatch(value) for value in known):
        return values
    number = float if any("." in value for value in known) else int
    return tuple(None if value in (None, "") else number(value) for value in values)


def _column(values: tuple[Any, ...], *, number: bool) -> pd.Series[Any]:
    """A column of one type; what has several becomes texts, nested values as JSON."""
    import pandas as pd

    kinds = {type(value) for value in values if value is not None}
    if number or (kinds <= {int, float} and kinds):
        small = all(isinstance(value, int) and abs(value) < 1 << 53 for value in values if value is not None)
        return pd.Series(values, dtype="Int64" if small and not number else "Float64")
    if kinds == {bool}:
        return pd.Series(values, dtype="boolean")
    texts = [cell(value) for value in values]
    return pd.Series(texts, dtype="string")


def _require_room(frame: pd.DataFrame, out: Path) -> None:
    if len(frame) >= _SHEET_ROWS:
        raise InputError(
            "a sheet of Excel does not hold so many rows",
            file=out,
            field="--out",
            expected=f"at most {_SHEET_ROWS - 1:,} rows",
            found=f"{len(frame):,}",
            remedy=_ELSEWHERE,
        )
    for name in frame.columns:
        texts = frame[name]
        if texts.dtype == "string" and (texts.str.len() > _CELL).any():
            raise InputError(
                f"a cell of Excel does not hold a text of {int(texts.str.len().max()):,} characters",
                file=out,
                field=str(name),
                expected=f"at most {_CELL:,} characters",
                remedy=_ELSEWHERE,
            )


def cell(value: object) -> str | None:
    """A value of the input as a text, nested ones as JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
