"""The shipped sample is a fresh build, and its README shows the table of its ratings."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sample import build
from tests.sample.defects import DIALOGUE_TABLE, SUMMARY_TABLE, Table

Group = dict[str, Any]
SUMMARIZATION, DIALOGUE = build.shipped("summarization"), build.shipped("dialogue")


@pytest.mark.parametrize(("task", "groups"), [("summarization", SUMMARIZATION), ("dialogue", DIALOGUE)])
def test_the_shipped_files_are_a_fresh_build(task: str, groups: list[Group]) -> None:
    written_by_hand = [{**g, "candidates": [c for c in g["candidates"] if c["id"] == "good"]} for g in groups]
    fresh = build.as_lines(build.build(task, written_by_hand))
    assert (build.FOLDER / f"{task}.jsonl").read_bytes() == fresh.encode()


@pytest.mark.parametrize(
    ("table", "heading"), [(SUMMARY_TABLE, "## Ratings of summaries"), (DIALOGUE_TABLE, "## Ratings of replies")]
)
def test_the_readme_shows_the_table(table: Table, heading: str) -> None:
    section = (build.FOLDER / "README.md").read_text().split(heading)[1].split("\n## ")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if "|" in line]
    assert tuple(lines[0][3:]) == table.aspects
    written = {(name, int(level)): tuple(map(int, ratings)) for name, level, _, *ratings in lines[2:]}
    assert written == {
        (d, i): values for d, (_, levels) in table.defects.items() for i, values in enumerate(levels, start=1)
    }
