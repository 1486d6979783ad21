"""Prompts about several candidates of one source, or several aspects: their layout, and the form of replies.

Each candidate has its own header, with a number that is the same in the whole conversation. Its text is escaped, so
that it cannot open another candidate's section; replies name candidates by their numbers. Several aspects have sections
of their own, too: scale and definition, guide to the raters, rated examples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import dspy

from debate_judge.programs.debate.table_cells import Cell, aspect_by_aspect, aspects_in, label, listed
from debate_judge.programs.judge import Item
from debate_judge.programs.roles.parsing import NO_ISSUE, REQUEST, escape
from debate_judge.programs.roles.role import JudgeSignature, material
from debate_judge.programs.roles.wording import kinds
from debate_judge.programs.transcript import Transcript

SCORES, DECISIONS, FINAL_SCORES = "scores", "decisions", "final_scores"
"""The fields of a reply with one line for each candidate."""

TOO_HIGH, TOO_LOW = "TOO HIGH", "TOO LOW"

OPENING = (
    "You are the Scorer. Weigh for each candidate what speaks for it and what speaks against it, and hold the "
    "candidates against each other before you score them: equal merit earns an equal score."
)
OPENING_ALONE = (
    "You are the Scorer. Weigh aspect by aspect what speaks for the candidate and what speaks against it before you "
    "score it."
)
REVISION = (
    "You are the Scorer. Say first of each disputed candidate how far the latest objection holds against the texts. "
    "Then change its score by what the part that holds is worth; if none of it does, keep the score."
)
REVISION_JOINT = REVISION.replace("disputed candidate", "disputed score")
EACH_BY_ITSELF = (
    " Go through the aspects one after the other and score each by its own definition alone: a fault or a merit in one "
    "of them says nothing about the next."
)
"""Last sentence of the Scorer's task in calls about several aspects."""


TablePrompt = (
    JudgeSignature.delete("candidate")
    .insert(list(JudgeSignature.input_fields).index("candidate"), "candidates", dspy.InputField())
    .append("request", dspy.InputField(default=""))
    .append("reply", dspy.OutputField())
)
"""The input fields of `JudgeSignature` with several candidates in place of one, and a free form of reply."""


def header(name: str) -> str:
    return f"[[ ## {name} ## ]]"


def table_material(items: Mapping[Cell, Item]) -> dict[str, str]:
    """The input fields for the candidates of these cells. Every text of a data set is escaped."""
    first = next(iter(items.values()))
    shared = material(first, "")
    del shared["candidate"], shared["debate"]
    by_candidate = {cell.candidate: item for cell, item in items.items()}
    if len({(item.source, item.context) for item in by_candidate.values()}) > 1:
        return {**shared, **_of_different_sources(by_candidate, len(aspects_in(items)))}
    texts = {number: item.text for number, item in by_candidate.items()}
    what = "One aspect" if len(aspects_in(items)) == 1 else "More than one aspect"
    task = f"{kinds(first.task, bool(first.context))} {what} of each candidate is rated."
    return {**shared, "task": task, "candidates": _laid_out(tuple(texts.items()))}


def _of_different_sources(items: Mapping[int, Item], aspects: int) -> dict[str, str]:
    """The fields that differ for candidates of different sources: each source has the number of its candidate."""
    first = next(iter(items.values()))
    parts = [f"{len(items)} candidates, each after its own source, which is no other's; their order means nothing."]
    for number, item in items.items():
        texts = {"source": item.source, "context": item.context, "candidate": item.text}
        parts += [f"{header(f'{name}_{number}')}\n{escape(text)}" for name, text in texts.items() if text]
    what = "One aspect" if aspects == 1 else "More than one aspect"
    told = f"{kinds(first.task, bool(first.context))} {what} of each candidate is rated, by its own source alone."
    own = "Each candidate has its own, which stands before it."
    return {"task": told, "source": own, "context": "", "candidates": "\n\n".join(parts)}


# Cached, because a table is in every prompt of the debate about it.
@lru_cache(maxsize=256)
def _laid_out(texts: tuple[tuple[int, str], ...]) -> str:
    parts = [f"{header(label(Cell(number)))}\n{escape(text)}" for number, text in texts]
    count = f"{len(texts)} candidates of this source, each under its own header; their order means nothing."
    return "\n\n".join([count if len(texts) > 1 else "1 candidate of this source, under its own header.", *parts])


def debate_text(transcripts: Mapping[Cell, Transcript]) -> str:
    """The debate so far, a line for each turn and cell, oldest first, so that the text only grows."""
    said = [
        # In each round the Critic speaks first.
        (turn.round, turn.role != "critic", place, f"{label(cell)}: {Transcript((turn,))}")
        for place, (cell, transcript) in enumerate(transcripts.items())
        for turn in transcript.turns
    ]
    return escape("\n".join(line for *_, line in sorted(said)))


def scoring_request(explained: Sequence[Cell], scored: Sequence[Cell]) -> str:
    """The Scorer's reply: reasons for the cells in `explained`, and a number for each of `scored`."""
    why = "your reasons in a sentence or two, with the places in the texts that they rest on"
    return _request((_sections(aspect_by_aspect(explained), why), _lines(SCORES, aspect_by_aspect(scored))))


def settling_request(cells: Sequence[Cell]) -> str:
    """The Tie-breaker's reply: reasons and final scores."""
    why, cells = "its disputed points and how the texts settle them", aspect_by_aspect(cells)
    return _request((_sections(cells, why), _lines(FINAL_SCORES, cells)))


def reviewing_request(cells: Sequence[Cell]) -> str:
    """The Critic's reply: a review, a decision about each score, and the evidence of each issue."""
    cells = aspect_by_aspect(cells)
    first, name = label(cells[0]), "candidate and aspect" if cells[0].aspect else "candidate"
    told = (
        f"one line for each of {listed(cells)}, in the form `{first}: {NO_ISSUE}`, `{first}: {TOO_HIGH}` or "
        f"`{first}: {TOO_LOW}`; the single line {NO_ISSUE} if none of them has an issue"
    )
    issue = f"the issue with its evidence; so for each {name} that has an issue, under its own header, and no other"
    return _request(
        (
            (
                "review",
                f"for each of {listed(cells)} your own score and what it rests on, then what speaks for a "
                "higher score than its latest one and what for a lower",
            ),
            (DECISIONS, told),
            (first, issue),
        )
    )


def _sections(cells: Sequence[Cell], told: str) -> tuple[str, str]:
    others = f"; then the same about {listed(cells[1:])}, each under its own header" if len(cells) > 1 else ""
    return label(cells[0]), told + others


def _lines(name: str, cells: Sequence[Cell]) -> tuple[str, str]:
    scale = "the scale of its aspect" if cells[0].aspect else "the aspect's scale"
    form = f"`{label(cells[0])}: number`, the number on {scale}"
    return name, f"one line for each of {listed(cells)}, in the form {form}"


def _request(fields: Sequence[tuple[str, str]]) -> str:
    return "\n\n".join([REQUEST, *(f"{header(name)}\n<{told}>" for name, told in fields)])
