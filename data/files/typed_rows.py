"""Rows with typed values instead of texts: of Parquet files, which are streamed, data sets and data frames."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.data.files.reading import refuse_pipe, unreadable_error
from debate_judge.data.files.records import Record

_MAX_UNPACKED = 256 * 1024 * 1024
"""Largest uncompressed size in bytes of a Parquet column chunk with a compression ratio above 200."""

_MAX_LIST_VALUES = 8_000_000
"""Most values in lists of a Parquet row group with more than 16 of them a compressed byte; each takes 32 in memory."""


def typed_rows(values: Iterable[Any], name: str) -> Iterator[Record]:
    """Rows with typed values instead of texts; NaN, a missing number, becomes None, and a decimal a number."""
    for number, row in enumerate(values, start=1):
        yield typed_row(row, name, number)


def typed_row(values: Mapping[str, Any], name: str, number: int) -> Record:
    """One row of `typed_rows`."""
    return Record({k: _without_nan(v) for k, v in values.items()}, name, number, format="csv", unit="row")


def parquet_rows(path: Path) -> Iterator[Record]:
    """Stream the rows of a Parquet file, numbered from 1."""
    import pyarrow
    import pyarrow.parquet

    refuse_pipe(path)
    number = 0
    try:
        schema = pyarrow.parquet.read_schema(path)
        texts = [
            name
            for name, column_type in zip(schema.names, schema.types, strict=True)
            if column_type in _text_types(pyarrow)
        ]
        # As a dictionary, a repeated text is in memory once.
        file = pyarrow.parquet.ParquetFile(path, read_dictionary=texts)
        for batch in file.iter_batches(batch_size=_rows_per_batch(file.metadata, path)):
            columns = {
                n: c if n in texts else _python_values(c, path, n, number + 1)
                for n, c in zip(file.schema_arrow.names, batch, strict=True)
            }
            for i in range(batch.num_rows):
                number += 1
                values = {n: c[i].as_py() if n in texts else c[i] for n, c in columns.items()}
                yield typed_row(values, str(path), number)
    except InputError:
        raise
    except OSError as error:
        raise unreadable_error(error, path) from None
    except (pyarrow.ArrowException, ValueError, OverflowError, KeyError) as error:
        after = f"after row {number}: " if number else ""
        raise InputError("not a Parquet file that can be read", file=path, found=after + first_line_of(error)) from None


def _text_types(pyarrow: Any) -> tuple[Any, ...]:
    return pyarrow.string(), pyarrow.large_string()


def _python_values(column: Any, path: Path, name: str, first_row: int) -> list[object]:
    """The values of a column; dates, times and durations that Python cannot represent become texts."""
    with suppress(ValueError, OverflowError, KeyError):
        return list(column.to_pylist())
    values: list[object] = []
    for row, value in enumerate(column, start=first_row):
        try:
            values.append(value.as_py())
        except (ValueError, OverflowError, KeyError) as error:
            if not hasattr(value, "value"):
                raise InputError(
                    "a value that Python cannot represent",
                    file=path,
                    line=row,
                    unit="row",
                    field=name,
                    found=f"{value.type}: {first_line_of(error)}",
                    remedy="leave the column out, or write it as text",
                ) from None
            values.append(f"{value.type} {value.value}")
    return values


def _rows_per_batch(metadata: Any, path: Path) -> int:
    """Rows to unpack at once, fewer where they hold long lists.

    Raises:
        InputError: A column unpacks to far more than its size.
    """
    most_per_row = 1
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        in_lists = 0
        for column in range(metadata.num_columns):
            chunk = group.column(column)
            unpacks = None
            if metadata.schema.column(column).max_repetition_level:
                in_lists += chunk.num_values
                if in_lists > _MAX_LIST_VALUES and chunk.num_values > 16 * chunk.total_compressed_size:
                    unpacks = f"{chunk.num_values:,} values"
            if chunk.total_uncompressed_size > max(_MAX_UNPACKED, 200 * chunk.total_compressed_size):
                unpacks = f"{chunk.total_uncompressed_size:,}"
            if unpacks:
                raise InputError(
                    "a column unpacks to more than can be read",
                    file=path,
                    field=chunk.path_in_schema,
                    found=f"{chunk.total_compressed_size:,} bytes that become {unpacks}",
                    remedy="leave the column out, or write the file again from its original, or as JSON lines",
                )
        most_per_row = max(most_per_row, in_lists // max(1, group.num_rows))
    return max(1, min(1000, 1_000_000 // most_per_row))


def first_line_of(error: Exception) -> str:
    """The first line of an error's message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _without_nan(value: object) -> object:
    if isinstance(value, Decimal):
        value = int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value
