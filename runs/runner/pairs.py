"""Pairs of candidates for a judge that compares them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from debate_judge.programs.judge import Item


@dataclass(frozen=True, slots=True)
class Pair:
    """One question to a judge that compares: which of two candidates is better in this aspect?"""

    first: Item
    second: Item

    @property
    def key(self) -> str:
        """Identity of the question, like `Item.key`; the other order is another question."""
        return f"{self.first.key} {self.second.key}"


def pairs_of(items: Sequence[Item]) -> list[Pair]:
    """One pair per group and aspect, in the order of the items.

    Empty if any group has more or fewer than two candidates: outcomes of pairs and scores of single candidates are not
    on one scale, so an evaluation has either the one or the other.
    """
    together: dict[tuple[str, str], list[Item]] = {}
    for item in items:
        together.setdefault((item.aspect.name, item.group), []).append(item)
    if any(len(candidates) != 2 for candidates in together.values()):
        return []
    return [Pair(first, second) for first, second in together.values()]
