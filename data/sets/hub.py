"""Records of public sets, from a local copy or from where they live.

Homes are read through `datasets`, which also keeps what it fetched for the next time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from debate_judge.data.errors import InputError
from debate_judge.data.files import reading
from debate_judge.data.files.records import Record
from debate_judge.data.schema import Origin


@dataclass(frozen=True, slots=True)
class Home:
    """Where a public set lives, pinned to one version."""

    address: str
    """A data set of the Hugging Face hub, or the URL of a JSON file."""
    revision: str
    """Commit; that of a URL is part of the URL, too."""
    columns: tuple[str, ...]
    """Columns that the loader needs. They are checked, because a home can change."""
    split: str = "train"
    field: str | None = None
    """Of a JSON file that is one object: its list of records."""


def read(name: str, path: str | Path | None, home: Home) -> tuple[list[Record], Origin]:
    """All records of a set and where they come from.

    Args:
        name: Its name in `LOADERS`.
        path: A local copy, JSON lines or a JSON array; None to fetch it from its home.
        home: Where it lives.

    Raises:
        InputError: The copy cannot be read or is empty, the home cannot be reached, or the set has changed there.
    """
    if path is None:
        return fetch(name, home), Origin(name, home.address, home.revision)
    file = Path(path)
    records = list(reading.json_records(file) if home.field is None else reading.json_array(file, home.field))
    if not records:
        expected = "records with " + ", ".join(home.columns)
        raise InputError("no records in the file", file=path, expected=expected)
    return records, Origin(name, str(path))


def fetch(name: str, home: Home) -> list[Record]:
    """All rows of a set at its home; a record's line is its row number from 1.

    Raises:
        InputError: The home cannot be reached, or the set has changed there.
    """
    import datasets

    inner = {} if home.field is None else {"field": home.field}
    with reaching(name, home.address):
        if home.address.startswith("https://"):
            rows = datasets.load_dataset("json", data_files=home.address, split=home.split, **inner)
        else:
            rows = datasets.load_dataset(home.address, split=home.split, revision=home.revision)
    missing = [column for column in home.columns if column not in rows.column_names]
    if missing:
        raise InputError(
            f"the data set {name} has changed at its home: without " + ", ".join(missing),
            file=home.address,
            expected="columns " + ", ".join(home.columns),
            found="columns " + ", ".join(rows.column_names),
            remedy=f"give a copy in the former layout with --data {name}=PATH",
        )
    return [Record(row, home.address, number) for number, row in enumerate(rows, start=1)]


@contextmanager
def reaching(name: str, address: str) -> Iterator[None]:
    """Report every error of `datasets` inside the block as a set that cannot be fetched.

    Raises:
        InputError: With what failed and that a local copy can be given.
    """
    try:
        yield
    except Exception as error:  # The library promises no common base: OSError, httpx and its own errors all occur.
        raise InputError(
            f"the data set {name} cannot be fetched ({type(error).__name__})",
            file=address,
            remedy=f"check the network, or give a local copy with --data {name}=PATH",
        ) from error
