"""Seeded draws that are the same on every Python version."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """A random generator of its own, seeded by a text.

    Python guarantees the same sequence on every version only for `random()`, so every draw is derived from it; numpy
    gives no such guarantee for its generators.
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
