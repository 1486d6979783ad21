"""Write the candidates of the sample anew: `python -m tests.sample.build`.

Sources, references and good candidates are the author's and stand in the files; all other candidates are made from
them. The same sources and seed give the same files, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.sample.defects import DIALOGUE_TABLE, SUMMARY_TABLE, DefectContext, PortableRandom, Source, Table, sentences
from tests.sample.flaws import FLAWS

SEED = 1
FOLDER = Path(__file__).parents[2] / "data" / "sample"

Row = dict[str, Any]

TASKS: dict[str, tuple[Table, tuple[str, ...], int]] = {
    "summarization": (
        SUMMARY_TABLE,
        ("shuffled+wrong_number", "copied_lead+cut_off", "repetition+unsupported", "unsupported+broken_grammar"),
        6,
    ),
    "dialogue": (DIALOGUE_TABLE, (), 7),
}
"""Task -> its defects, candidates with two of them, made one after the other, and the candidates in a group."""


def build(task: str, rows: Sequence[Row]) -> list[Row]:
    """The rows with new candidates, of which the good one is kept."""
    sources = [_source(row) for row in rows]
    # Each source gets its predecessor in a shuffled ring, so that no text is used as the off-topic one twice.
    ring = PortableRandom(f"{SEED}").shuffled(sources)
    cases = [DefectContext(s, ring[ring.index(s) - 1], PortableRandom(f"{SEED} {s.id}")) for s in sources]
    return [{**row, "candidates": _candidates(task, case)} for row, case in zip(rows, cases, strict=True)]


def _source(row: Row) -> Source:
    good = next(candidate["text"] for candidate in row["candidates"] if candidate["id"] == "good")
    wrong, more = FLAWS[row["group"]]
    return Source(row["group"], row["source"], row.get("context", ""), sentences(good), wrong, sentences(more))


def _candidates(task: str, case: DefectContext) -> list[Row]:
    """Draw the group's candidates, in random order.

    The good one is always among them. A draw in which all candidates have the same rating in some aspect is
    repeated, because such a group says nothing about a judge in that aspect.
    """
    table, combined, count = TASKS[task]
    names = [name for name in (*table.defects, *combined) if name != "good"]
    while True:
        drawn = ["good", *case.rng.shuffled(names)[: count - 1]]
        candidates = [_candidate(name, table, case) for name in case.rng.shuffled(drawn)]
        if all(len({candidate["ratings"][aspect] for candidate in candidates}) > 1 for aspect in table.aspects):
            return candidates


def _candidate(name: str, table: Table, case: DefectContext) -> Row:
    """The good text with the defects that the name lists."""
    text, levels = case.source.good, []
    for defect in name.split("+"):
        text, level = table.defects[defect][0](text, case)
        levels.append((defect, level))
    return {"id": name, "text": " ".join(text), "ratings": table.rate(levels)}


def shipped(task: str) -> list[Row]:
    return [json.loads(line) for line in (FOLDER / f"{task}.jsonl").read_text(encoding="utf-8").splitlines()]


def as_lines(rows: Sequence[Row]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def main() -> None:
    for task in TASKS:
        path = FOLDER / f"{task}.jsonl"
        path.write_bytes(as_lines(build(task, shipped(task))).encode())
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
