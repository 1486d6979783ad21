"""Records from data sets of the Hugging Face hub, or folders laid out like one: `hf:NAME[:CONFIG][@SPLIT]`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.data.files.records import Record

HUB = "hf:"
"""Prefix of names of data sets."""


def typed_rows(values: Iterable[Any], name: str) -> Iterator[Record]:
    """Rows whose values are typed objects and not texts; NaN, which stands for a missing number, becomes None."""
    for number, row in enumerate(values, start=1):
        yield typed_row(row, name, number)


def typed_row(values: Mapping[str, Any], name: str, number: int) -> Record:
    """One of `typed_rows`."""
    return Record({k: _without_nan(v) for k, v in values.items()}, name, number, format="csv", unit="row")


@dataclass(frozen=True)
class HubName:
    """`hf:NAME[:CONFIG][@SPLIT]` in its parts."""

    name: str
    path: str
    config: str | None
    split: str | None

    @classmethod
    def of(cls, name: str) -> HubName:
        place, _, split = name.removeprefix(HUB).partition("@")
        path, _, config = place.partition(":")
        if not path.strip():
            raise InputError("no name of a set", field="--data", expected=f"{HUB}NAME[:CONFIG][@SPLIT]", found=name)
        return cls(name, path, config or None, split or None)

    def rows(self) -> Iterator[Record]:
        """The rows of the set.

        Raises:
            InputError: It cannot be fetched, or it has several splits and none is named.
        """
        return typed_rows(self._loaded(), self.name)

    def fingerprint(self) -> str:
        """What `datasets` knows this content by: another one for another revision, or for changed files of a folder.

        Raises:
            InputError: As `rows`.
        """
        return str(self._loaded()._fingerprint)

    def _loaded(self) -> Any:
        """The set, loaded through `datasets`, which keeps what it fetched."""
        import datasets

        try:
            split = self.split or self._only_split(datasets.get_dataset_split_names(self.path, self.config))
            return datasets.load_dataset(self.path, self.config, split=split)
        except InputError:
            raise
        except Exception as error:  # The library promises no common base: OSError, httpx and its own errors all occur.
            raise InputError(
                f"the set cannot be loaded ({type(error).__name__})",
                file=self.name,
                expected=f"{HUB}NAME[:CONFIG]@SPLIT, a set of the hub or a folder with one",
                found=first_line(error),
                remedy="check name, configuration and split, and the network",
            ) from error

    def _only_split(self, names: Sequence[str]) -> str:
        if len(names) == 1:
            return names[0]
        raise InputError(
            "the set has several splits",
            file=self.name,
            expected="one of them after the name",
            found=", ".join(names),
            remedy=f"name it: {self.name}@{names[0]}" if names else None,
        )


def first_line(error: Exception) -> str:
    """What an error of a library says, without the rest of its report."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _without_nan(value: object) -> object:
    if isinstance(value, list):
        return [_without_nan(one) for one in value]
    if isinstance(value, dict):
        return {name: _without_nan(one) for name, one in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value
