"""Property: each cell read from a reply was stated for this cell, and with no other value."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from debate_judge.data.schema import Aspect, Scale
from debate_judge.programs.debate.prompts import Cell, cells_of
from debate_judge.programs.debate.table_replies import parse_scores
from debate_judge.programs.judge import Item
from debate_judge.programs.roles.score_modes import ParsedScore
from tests.programs.debates import TASK
from tests.programs.tables import block

# Names that begin with another's name: candidates 1 and 11, quality and quality overall.
WIDE = Scale(0, 9999)
ASPECTS = Aspect("quality", "Is it good?", WIDE), Aspect("quality overall", "Is it good overall?", WIDE)


def table(*aspects: Aspect) -> dict[Cell, Item]:
    whole = cells_of([Item("g", str(n), TASK, a, "A source.", f"Text {n}") for n in range(1, 12) for a in aspects])
    return {cell: item for cell, item in whole.items() if cell.candidate in (1, 2, 11)}


ALONE, JOINT = table(ASPECTS[0]), table(*ASPECTS)

NUMBERED = ("candidate_{}", "Candidate {}", "{}", "- **Candidate #{}**", "| candidate_{}", "CANDIDATE-{}", "* {}")
JOINED = ("{}_{}", "{} {}", "{} - {}", "{}, {}", "{} ({})", "{} | {}", "{}: {}", "{}：{}")
SEPARATORS = (": ", "：", " = ", " | ", " → ", "->", " – ", " — ")
VALUES = ("{}", "**{}**", "{}.", "{} |", "{}/9999", "{} - it is fair", "({})")
FOREIGN = (
    "candidate_A",
    "Candidate B",
    "candidate_0",
    "candidate_12",
    "candidate_12345",
    "candidate_1b",
    "candidate_2_art",
)
PROSE = (
    *("", "Here they are:", "| Candidate | Score |", "|---|---|", "> candidate_2: 7", '"candidate_2: 7"', "Best: 1"),
    *("Candidate 2's summary: 3 facts", "It says candidate_2: 7", "So\u2028candidate_2: 7", "So\x0bcandidate_11: 7"),
    *("Candidate scores:", "Candidate 2 (short): 3 facts", "So\rcandidate_1: 7", "candidate: 7", "7 {of} 9"),
)


@dataclass(frozen=True)
class Line:
    """One line of a field."""

    cell: Cell | None
    """What it is about; None for prose, and for a name that does not exist."""
    value: int
    text: str
    key: str
    foreign: bool = False


def stated(cells: Sequence[Cell]) -> st.SearchStrategy[Line]:
    @st.composite
    def line(draw: st.DrawFn) -> Line:
        cell, value = draw(st.sampled_from(cells)), draw(st.integers(10, 16))
        name = draw(st.sampled_from(NUMBERED)).format(cell.candidate)
        if cell.aspect:
            aspect = draw(st.sampled_from((cell.aspect, cell.aspect.replace("_", " "), cell.aspect.title())))
            name = draw(st.sampled_from(JOINED)).format(name, aspect)
        said = VALUES[value % len(VALUES)].format(value)
        return Line(cell, value, name + draw(st.sampled_from(SEPARATORS)) + said, name)

    return line()


foreign = st.builds(
    lambda name, separator, value: Line(None, value, f"{name}{separator}{value}", name, foreign=True),
    st.sampled_from(FOREIGN), st.sampled_from(SEPARATORS), st.integers(0, 9),
)  # fmt: skip
prose = st.sampled_from(PROSE).map(lambda text: Line(None, 0, text, "note"))


def fields(cells: Mapping[Cell, Item]) -> st.SearchStrategy[list[Line]]:
    said = st.lists(stated(list(cells)) | stated(list(cells)) | prose, max_size=9)
    strange = st.lists(foreign, max_size=1)
    return st.tuples(said, strange).flatmap(lambda both: st.permutations(both[0] + both[1]))


def as_lines(lines: Sequence[Line]) -> str:
    return "\n".join(line.text for line in lines)


def as_object(lines: Sequence[Line]) -> str:
    """A JSON object, perhaps with repeated keys; a quoted table is the value of what has no name."""
    quoted = f"It says\ncandidate_1: 7\n{as_lines(lines)}"
    members = ((line.key, quoted if line.key == "note" else line.value) for line in lines)
    return "{" + ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in members) + "}"


def holds(cells: Mapping[Cell, Item], lines: Sequence[Line], reply: str) -> None:
    found = parse_scores(reply, "scores", list(cells), cells)
    assert list(found) == list(cells)
    for cell, said in found.items():
        values = {line.value for line in lines if line.cell == cell}
        # Complete, too: what was stated once, in a reply without foreign names, is read.
        expected = values if len(values) == 1 and not any(line.foreign for line in lines) else set()
        assert {said.score for said in [said] if isinstance(said, ParsedScore)} == expected


@settings(max_examples=100)
@given(fields(ALONE), st.booleans())
def test_of_several_candidates(lines: list[Line], bare: bool) -> None:
    holds(ALONE, lines, block("scores", as_lines(lines)))
    if bare and any(line.cell for line in lines):
        holds(ALONE, lines, as_lines(lines))
    holds(ALONE, lines, block("scores", as_object(lines)))


@settings(max_examples=100)
@given(fields(JOINT))
def test_of_several_candidates_in_several_aspects(lines: list[Line]) -> None:
    reasons = [block(f"candidate_{n}_quality", as_lines(lines) or "None.") for n in (1, 2)]
    holds(JOINT, lines, "\n\n".join([*reasons, block("scores", as_lines(lines))]))
    holds(JOINT, lines, block("scores", as_object(lines)))
