"""Rows of scores as an Excel sheet or a Parquet file, written at once by pandas.

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

    from debate_judge.runs.scoring.output import ResultLayout

LINE_FORMATS, TABLE_FORMATS = (".jsonl", ".csv"), (".xlsx", ".parquet")
"""Formats that are appended to row by row, and those that are written at once."""

_MAX_SHEET_ROWS, _MAX_CELL_LENGTH = 1_048_576, 32_767
"""Rows of a sheet, its header included, and characters of a cell: the limits of Excel."""

_NUMBER = re.compile(r"-?(0|[1-9]\d{0,13})(\.\d{1,9})?")
"""A number, and no id: no leading zeros, and few enough digits for a float."""

_OTHER_FORMATS = "choose another --out, ending in .parquet, .csv or .jsonl; answers are kept in --store"


def format_of(path: Path) -> str:
    """The suffix of a file of results, which names its format; checked before anything is paid for.

    Raises:
        InputError: There is no such format, or the library that writes it is not installed.
    """
    suffix = path.suffix.lower()
    if suffix not in (*LINE_FORMATS, *TABLE_FORMATS):
        raise InputError(
            "results are written as .jsonl, .csv, .xlsx or .parquet",
            file=path,
            field="--out",
            expected=", ".join((*LINE_FORMATS, *TABLE_FORMATS)),
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
            remedy=f"{install_hint('excel')}, or {_OTHER_FORMATS}",
        ) from None


def write_table(rows: Path, table: Path, *, suffix: str, layout: ResultLayout, input_file: Path, out: Path) -> None:
    """Write all rows as a table.

    Args:
        rows: JSON lines, one row per line.
        table: The file to write.
        suffix: .xlsx or .parquet.
        layout: Columns of the rows.
        input_file: The file that was scored. All values of a text table or a sheet are read as texts; an input column
            of numbers alone is written as numbers again, where no digit is lost.
        out: The name of the table in messages.

    Raises:
        InputError: A sheet cannot hold the rows.
    """
    import pandas as pd

    with rows.open(encoding="utf-8") as file:
        values = [list(json.loads(line).values()) for line in file]
    columns: list[tuple[Any, ...]] = list(zip(*values, strict=True)) if values else [()] * len(layout.fields)
    if input_file.suffix.lower() in {*TEXT_TABLES, *EXCEL}:
        columns = [
            _numbers(c) if name in layout.input_columns else c for name, c in zip(layout.fields, columns, strict=True)
        ]
    column_values = zip(layout.fields, columns, strict=True)
    frame = pd.DataFrame(
        {name: _column(column, is_score=name in layout.score_fields) for name, column in column_values}
    )
    if suffix == ".parquet":
        frame.to_parquet(table, index=False)
        return
    _require_sheet_limits(frame, out)
    options = {"strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
    with pd.ExcelWriter(table, engine="xlsxwriter", engine_kwargs={"options": options}) as writer:
        writer.book.set_properties({"created": datetime(2000, 1, 1)})  # noqa: DTZ001 (Excel knows no time zones)
        frame.to_excel(writer, sheet_name="scores", index=False, freeze_panes=(1, 0))


def _numbers(values: tuple[Any, ...]) -> tuple[Any, ...]:
    present = [value for value in values if value not in (None, "")]
    if not present or not all(isinstance(value, str) and _NUMBER.fullmatch(value) for value in present):
        return values
    number_type = float if any("." in value for value in present) else int
    return tuple(None if value in (None, "") else number_type(value) for value in values)


def _column(values: tuple[Any, ...], *, is_score: bool) -> pd.Series[Any]:
    """A column of one type; mixed types become texts, nested values JSON."""
    import pandas as pd

    types = {type(value) for value in values if value is not None}
    if is_score or (types <= {int, float} and types):
        exact_integers = all(isinstance(value, int) and abs(value) < 1 << 53 for value in values if value is not None)
        return pd.Series(values, dtype="Int64" if exact_integers and not is_score else "Float64")
    if types == {bool}:
        return pd.Series(values, dtype="boolean")
    return pd.Series([cell_text(value) for value in values], dtype="string")


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


def cell_text(value: object) -> str | None:
    """A value of the input as a text; nested ones become JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
