"""Records of public sets from where they live, through `datasets`, which also keeps them for the next time."""

from __future__ import annotations

from collections.abc import Sequence

from debate_judge.data.errors import InputError
from debate_judge.data.files.records import Record


def fetch(name: str, home: str, *, split: str, columns: Sequence[str], revision: str = "") -> list[Record]:
    """All rows of one split of a set; a record's line is its row number from 1.

    Args:
        name: what the project calls the set, for the message to the user.
        home: a data set of the Hugging Face hub, or the URL of a JSON file.
        split: the split's name.
        columns: columns that the loader needs. They are checked, for a home can change.
        revision: pins a hub data set; the URL of a file is pinned by the commit in it.

    Raises:
        InputError: the home cannot be reached, or the set has changed there.
    """
    import datasets

    try:
        if home.startswith("https://"):
            rows = datasets.load_dataset("json", data_files=home, split=split)
        else:
            rows = datasets.load_dataset(home, split=split, revision=revision)
    except Exception as error:  # The library promises no common base: OSError, httpx and its own errors all occur.
        raise InputError(
            f"the data set {name} cannot be fetched ({type(error).__name__})",
            file=home,
            remedy=f"check the network, or give a local copy with --data {name}=PATH",
        ) from error
    missing = [column for column in columns if column not in rows.column_names]
    if missing:
        raise InputError(
            f"the data set {name} has changed at its home: without " + ", ".join(missing),
            file=home,
            expected="columns " + ", ".join(columns),
            found="columns " + ", ".join(rows.column_names),
            remedy=f"give a copy in the former layout with --data {name}=PATH",
        )
    return [Record(row, home, number) for number, row in enumerate(rows, start=1)]
