"""Seeded draws that come out the same on every Python version."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """A generator of its own, seeded by a text.

    Only `random()` is promised to give the same sequence on every version of Python, so everything here
    rests on it; numpy promises no such thing for its generators.
    """

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def below(self, limit: int) -> int:
        """A whole number from 0 to limit - 1."""
        return int(self._random.random() * limit)

    def pick(self, values: Sequence[T]) -> T:
        return values[self.below(len(values))]

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """The values in a new order, each order equally likely."""
        left = list(values)
        return [left.pop(self.below(len(left))) for _ in range(len(left))]
