"""Write the two files of the sample anew: `python -m tests.sample.build`.

The same sources and seed give the same files, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

from tests.sample.defects import (
    DIALOGUE_DEFECTS,
    DIALOGUE_TABLE,
    SUMMARY_DEFECTS,
    SUMMARY_TABLE,
    DefectContext,
    Lines,
    Made,
    S,
    Table,
)
from tests.sample.dialogue_sources import DIALOGUES
from tests.sample.news_sources import NEWS
from tests.sample.seeded_draws import Dice
from tests.sample.texts import Article, Dialogue, flat, sentences

SEED = 1
FOLDER = Path(__file__).parents[2] / "data" / "sample"

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Recipe(Generic[S]):
    """How the candidates of one task are made."""

    defects: Mapping[str, Callable[[Lines, DefectContext[S]], Made]]
    table: Table
    combined: tuple[str, ...]
    """Candidates with two defects, made one after the other."""
    count: int
    """Candidates in a group."""


SUMMARIES: Recipe[Article] = Recipe(
    SUMMARY_DEFECTS,
    SUMMARY_TABLE,
    ("shuffled+wrong_number", "copied_lead+cut_off", "repetition+unsupported", "unsupported+broken_grammar"),
    count=8,
)
REPLIES: Recipe[Dialogue] = Recipe(DIALOGUE_DEFECTS, DIALOGUE_TABLE, (), count=7)


def summarization() -> Iterator[Row]:
    """The records of the summarization file, one for each article."""
    for case in _cases(NEWS):
        article = case.own
        yield {
            "group": article.id,
            "task": "summarization",
            "source": flat(article.text),
            "references": [flat(article.reference)],
            "candidates": candidates(SUMMARIES, case, sentences(article.summary)),
        }


def dialogue() -> Iterator[Row]:
    """The records of the dialogue file, one for each conversation."""
    for case in _cases(DIALOGUES):
        talk = case.own
        yield {
            "group": talk.id,
            "task": "dialogue",
            "source": "\n".join(talk.turns),
            "context": talk.fact,
            "candidates": candidates(REPLIES, case, sentences(talk.reply)),
        }


def _cases(sources: Sequence[S]) -> Iterator[DefectContext[S]]:
    # Each source gets its predecessor in a shuffled ring, so that no text is used as the off-topic one twice.
    ring = Dice(f"{SEED}").shuffled(sources)
    for own in sources:
        yield DefectContext(own, ring[ring.index(own) - 1], Dice(f"{SEED} {own.id}"))


def candidates(recipe: Recipe[S], case: DefectContext[S], text: Lines) -> list[Row]:
    """Draw the group's candidates, in random order.

    The good one is always among them. A draw in which all candidates have the same rating in some aspect is
    repeated, because such a group says nothing about a judge in that aspect.
    """
    names: list[str] = [name for name in (*recipe.defects, *recipe.combined) if name != "good"]
    while True:
        drawn = ["good", *case.dice.shuffled(names)[: recipe.count - 1]]
        made = [candidate(name, recipe, case, text) for name in case.dice.shuffled(drawn)]
        ratings = [rated for _, rated in made]
        if all(len({rated[aspect] for rated in ratings}) > 1 for aspect in recipe.table.aspects):
            return [row | {"ratings": rated} for row, rated in made]


def candidate(name: str, recipe: Recipe[S], case: DefectContext[S], text: Lines) -> tuple[Row, dict[str, int]]:
    """Give the good text the defects that the name lists; the row without its ratings, and the ratings."""
    found = []
    for defect in name.split("+"):
        text, level = recipe.defects[defect](text, case)
        found.append((defect, level))
    return {"id": name, "text": " ".join(text)}, recipe.table.rate(found)


def as_lines(rows: Iterator[Row]) -> str:
    """The records as JSON lines."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def main() -> None:
    """Write both files into the package."""
    for name, rows in (("summarization", summarization()), ("dialogue", dialogue())):
        path = FOLDER / f"{name}.jsonl"
        path.write_bytes(as_lines(rows).encode())
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
