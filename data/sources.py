"""Which sources of the data are used: the first ones, a share of them, or those from one place to another.

They are counted in the order of the data, not drawn: the same sources are meant whatever the seed, and what `1-50`
was compiled on, `51-100` has never seen.
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
    """Sources by their places in the data, or by a share of them."""

    first: int = 1
    last: int = 0
    """The last place, itself included; 0 where a share is meant."""
    share: float | None = None

    @classmethod
    def parse(cls, text: str) -> SourceSelection:
        """Read what a user writes; see `FORM`.

        Raises:
            InputError: It is none of these.
        """
        if numbers := _NUMBERS.fullmatch(text):
            first, last = (1, int(numbers[1])) if numbers[2] is None else (int(numbers[1]), int(numbers[2]))
            if 1 <= first <= last:
                return cls(first, last)
        elif re.fullmatch(r"[01]?\.\d+", text, re.ASCII) and 0 < float(text) <= 1:
            return cls(share=float(text))
        raise InputError("not a valid selection of sources", field="sources", expected=SELECTION_SYNTAX, found=text)

    def bounds(self, total: int, file: str | Path) -> tuple[int, int]:
        """The places from which and to which; a share is rounded, and is one source at least.

        Raises:
            InputError: There are not so many sources in the file.
        """
        if self.share is not None:
            return 1, max(1, int(self.share * total + 0.5))
        if self.last > total:
            raise InputError(
                "there are fewer sources than that",
                file=file,
                field="sources",
                expected=f"at most {total}",
                found=self.last,
                remedy="leave it out to use all of them",
            )
        return self.first, self.last

    def select(self, groups: Iterable[T], total: Callable[[], int]) -> Iterator[T]:
        """Of what comes as a stream; `total` counts it beforehand, which only a share needs.

        What lies behind the last one is not read.
        """
        last = self.last if self.share is None else self.bounds(total(), "")[1]
        return islice(groups, self.first - 1, last)


def select_sources(corpus: Corpus, text: str | None) -> Corpus:
    """The corpus with the chosen sources only.

    Args:
        corpus: All sources.
        text: As `SourceSelection.of` takes it; None for all.

    Raises:
        InputError: It is no choice, or there are fewer sources than that.
    """
    if text is None:
        return corpus
    first, last = SourceSelection.parse(text).bounds(len(corpus.groups), corpus.origin.location)
    return replace(corpus, groups=corpus.groups[first - 1 : last])
