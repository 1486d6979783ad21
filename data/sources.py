"""Selection of sources by their position in the data: the first ones, a share of them, or a range.

The selection is not random: it does not depend on the seed, and a judge that was compiled on `1-50` has never seen
`51-100`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Corpus

T = TypeVar("T")

SELECTION_SYNTAX = "N for the first N, a share such as 0.5, or FIRST-LAST such as 51-100"

_NUMBERS = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class SourceSelection:
    """A range of positions, or a share of the sources from the first one on."""

    first: int = 1
    last: int = 0
    """The last position, inclusive; 0 where `share` is set."""
    share: float | None = None

    @classmethod
    def parse(cls, text: str) -> SourceSelection:
        """Parse the value of a setting; raises `InputError` unless it has the `SELECTION_SYNTAX`."""
        if numbers := _NUMBERS.fullmatch(text):
            first, last = (1, int(numbers[1])) if numbers[2] is None else (int(numbers[1]), int(numbers[2]))
            if 1 <= first <= last:
                return cls(first, last)
        elif re.fullmatch(r"[01]?\.\d+", text, re.ASCII) and 0 < float(text) <= 1:
            return cls(share=float(text))
        raise InputError("not a valid selection of sources", field="sources", expected=SELECTION_SYNTAX, found=text)

    def bounds(self, total: int, file: str | Path) -> tuple[int, int]:
        """First and last position, inclusive; a share is rounded, to at least one source.

        Raises:
            InputError: There are fewer sources in the file.
        """
        if self.share is not None:
            return 1, max(1, int(self.share * total + 0.5))
        if self.last > total:
            expected = f"at most {total}; leave it out to use all of them"
            raise InputError("there are fewer sources than that", file=file, field="sources", expected=expected)
        return self.first, self.last

    def select(self, groups: Iterable[T], total: Callable[[], int]) -> Iterator[T]:
        """The selected groups of a stream, which is not read beyond the last one.

        `total` counts all groups; it is called for a share only.
        """
        last = self.last if self.share is None else self.bounds(total(), "")[1]
        return islice(groups, self.first - 1, last)


def select_sources(corpus: Corpus, text: str | None) -> Corpus:
    """The corpus with the selected sources only (see `SELECTION_SYNTAX`), or with all for None.

    Raises:
        InputError: The selection is invalid, or there are fewer sources.
    """
    if text is None:
        return corpus
    first, last = SourceSelection.parse(text).bounds(len(corpus.groups), corpus.origin.location)
    return replace(corpus, groups=corpus.groups[first - 1 : last])
