"""The prompts of a debate: the standard, the rules, the task of each role, and the form of replies about a table.

A debate opens with exactly the prompt of a single call, which mentions no other role, so a debate's first turn is also
the result of the single call. In all later prompts the rules of the debate follow the source, where a provider's prefix
cache serves them for every candidate of the source. What belongs to one role is at the end of its prompt. No other role
sees the Critic's persona, because a Scorer that knew it would discount the criticism.

In a debate about several scores each cell of a table is one candidate in one aspect. Each candidate has a header of its
own, with a number from 1 that stays the same during the debate; its text is escaped, so that it cannot open another
candidate's section. Aspects have labels made from their names, so that replies name a cell `candidate_2_coherence`; in
a table of one aspect, `candidate_2`. Parts that are equal for all aspects occur once. The others are sections whose
header has the aspect's label: scale, definition and granularity, the guide to the raters, rated examples.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, count
from typing import Any, NamedTuple

import dspy

from debate_judge.data.schema import Aspect, Scale
from debate_judge.programs.judge import Item
from debate_judge.programs.roles.guide import guide_in, with_guide, without_anchors
from debate_judge.programs.roles.parsing import NO_ISSUE, REQUEST, escape
from debate_judge.programs.roles.role import (
    JudgeSignature,
    aspect_description,
    header,
    item_inputs,
    reply_form,
    task_description,
)
from debate_judge.programs.transcript import BLIND_CRITIC, Transcript

# --- the cells of a table ---


class Cell(NamedTuple):
    """One score of a table: a candidate in an aspect."""

    candidate: int
    aspect: str = ""
    """Label of the aspect; empty in a table of one aspect."""


Chunk = tuple[Cell, ...]
"""The cells of one prompt, candidate by candidate: a table, or a part of it after a failed call was split."""


def cell_label(cell: Cell) -> str:
    """The name of a cell in prompts and replies."""
    return f"candidate_{cell.candidate}_{cell.aspect}" if cell.aspect else f"candidate_{cell.candidate}"


def cell_labels(cells: Iterable[Cell]) -> str:
    return ", ".join(map(cell_label, cells))


def cells_of(items: Sequence[Item]) -> dict[Cell, Item]:
    """The cells of a table, in the order of its items."""
    labels = aspect_labels([item.aspect.name for item in items])
    occurrences: dict[tuple[tuple[str, str, str], str], int] = {}
    numbers: dict[tuple[tuple[str, str, str], int], int] = {}
    cells: dict[Cell, Item] = {}
    for item in items:
        texts = item.source, item.context, item.text
        # Two candidates may have the same text: a second item with the same text and aspect is another candidate.
        occurrence = occurrences[texts, item.aspect.name] = occurrences.get((texts, item.aspect.name), 0) + 1
        number = numbers.setdefault((texts, occurrence), len(numbers) + 1)
        cells[Cell(number, labels[item.aspect.name])] = item
    return cells


def aspect_labels(names: Iterable[str]) -> dict[str, str]:
    """Name of an aspect -> its label, of lower-case letters, digits and underscores; empty for a single aspect."""
    labels: dict[str, str] = {}
    distinct = tuple(dict.fromkeys(names))
    for name in distinct:
        label = re.sub(r"[\W_]+", "_", name.lower()).strip("_") or "aspect"
        numbered = (f"{label}_{number}" for number in count(2))
        labels[name] = next(text for text in chain([label], numbered) if text not in labels.values())
    return labels if len(distinct) > 1 else dict.fromkeys(distinct, "")


def candidates_in(cells: Iterable[Cell]) -> list[int]:
    """The numbers of the candidates, in order."""
    return list(dict.fromkeys(cell.candidate for cell in cells))


def aspects_in(cells: Iterable[Cell]) -> list[str]:
    """The labels of the aspects, in order."""
    return list(dict.fromkeys(cell.aspect for cell in cells))


def halves(chunk: Chunk) -> tuple[Chunk, Chunk]:
    """Split a chunk between candidates, or, if it has only one, between its aspects."""
    numbers = candidates_in(chunk)
    if len(numbers) == 1:
        return chunk[: len(chunk) // 2], chunk[len(chunk) // 2 :]
    first = numbers[: len(numbers) // 2]
    return tuple(c for c in chunk if c.candidate in first), tuple(c for c in chunk if c.candidate not in first)


def chunks_of(transcripts: Mapping[Cell, Transcript]) -> Iterator[Chunk]:
    """The consecutive chunks that a table was split into; each transcript has the size of its chunk."""
    rest = list(transcripts)
    while rest:
        first = transcripts[rest[0]]
        candidates = candidates_in(rest)[: first.together]
        cells = tuple(cell for cell in rest if cell.candidate in candidates)
        # Aspects are split only where a chunk has a single candidate.
        chunk = cells if first.together > 1 else cells[: first.joint]
        yield chunk
        rest = rest[len(chunk) :]


# --- the standard and the rules ---

_USE_WHOLE_SCALE = re.compile(r"\s+Use\s+the\s+whole\s+scale:[^.]+\.")
"""The last sentence of the Scorer's own instructions, which a guide replaces."""

GUIDE, DEFINITION = "the guide to the raters", "the definition"
"""What the rules of a debate call the criterion of scores."""

RULES_FOR_CANDIDATES = (
    "All of this holds for each candidate and its score by itself; the feedback about one stands under its own header. "
    "A candidate without an issue is settled, and its score stands."
)
RULES_FOR_ASPECTS = (
    "All of this holds for each candidate and each aspect by itself: an objection in one aspect is none in another. "
    "The feedback about a score stands under its own header, which names candidate and aspect. A score without an "
    "issue is settled and stands."
)


def granularity_instruction(scale: Scale, whole_points: bool) -> str:
    """The sentence of prompts about the granularity of scores: whole steps of the scale, or any number on it."""
    if whole_points and scale.step == 1:
        return "Scores are whole points of the scale."
    if whole_points:
        return f"Scores are given in steps of {scale.step:g}."
    if scale.binary:
        return "A score may lie between the two ends, where the candidate does."
    return "A score may lie between two points of the scale, where the candidate does."


@dataclass(frozen=True, slots=True)
class PromptParts:
    """The parts that all prompts of one debate share, except the texts."""

    standard: str
    """The standard of every role: the Scorer's instructions with the guide to the raters. The form of the Scorer's
    reply comes first, so that a prefix cache serves it in every turn."""
    aspect: str
    rules: str
    issue_distance: float
    """The smallest distance of two scores at which an objection is an issue, or, with a blind Critic, at which a score
    is debated at all."""
    blind: bool = False
    """Whether the Critic scores before it sees a score."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """The input fields with rated examples, from `programs.roles.examples.example_inputs`."""

    def inputs(self, role: str, *, debating: bool = True) -> dict[str, str]:
        """Input fields of a prompt: the task of its `role`, and the rules if it is `debating`."""
        rules = {"rules": self.rules} if debating else {}
        return {"standard": self.standard, "aspect": self.aspect, **self.examples, **rules, "role": role}


@lru_cache(maxsize=256)
def prompt_parts(
    aspect: Aspect, whole_points: bool, scorer: Any, critic: Any, is_table: bool = False, gap: float | None = None
) -> PromptParts:
    """The parts of the prompts about an aspect; of the roles' instructions it contains only the Scorer's.

    Args:
        aspect: The aspect that is scored.
        whole_points: Whether prompts ask for whole points of the scale.
        scorer, critic: Their signatures.
        is_table: Whether the debate is about several scores; the form of replies is then in the requests.
        gap: Of the Critic's persona.
    """
    # Escaped, because an LM that has read texts under evaluation may have written the instructions.
    standard = escape(scorer.instructions)
    if not is_table:
        standard = f"The Scorer replies with {reply_form(scorer)}.\n{standard}"
    has_guide = bool(guide_in(standard))
    if has_guide:
        # Only the guide may say how the scale is used.
        standard = _USE_WHOLE_SCALE.sub("", standard)
        aspect = replace(aspect, definition=without_anchors(aspect.definition))
    text = f"{aspect_description(aspect)}\n{granularity_instruction(aspect.scale, whole_points)}"
    # Half a step, which can change a whole point. With a whole step, the Critic, which scores in tenths, would hardly
    # ever raise an issue.
    distance = aspect.scale.step * (0.5 if gap is None else gap)
    debate_rules = rules_text(GUIDE if has_guide else DEFINITION, f"{distance:g}", gap is not None)
    debate_rules += RULES_FOR_CANDIDATES if is_table else f"The Critic replies with {reply_form(critic)}."
    return PromptParts(standard, text, debate_rules, distance, gap is not None)


def rules_text(criterion: str, distance: str, blind: bool = False) -> str:
    """The rules of a debate by a `criterion`, e.g. `GUIDE`; an issue needs two scores at least `distance` apart."""
    if blind:
        debated = f"Only scores that lie at least {distance} apart are debated"
        debated = "Every score is debated" if distance == "0" else debated
        return (
            f"Scorer and Critic have each scored by {criterion} without knowing of the other's score. {debated}. What "
            "the Critic arrived at is withheld from the Scorer on purpose: evidence decides, and no one is to meet "
            "half-way.\n"
            "An issue is an objection that holds against the texts. The feedback quotes the place that it rests on, "
            f"says which rule of {criterion} was overlooked or applied wrongly there and whether the score is too high "
            "or too low for it, and names no score. An objection against the direction of an earlier one needs new "
            "evidence. NO ISSUE is as honourable as an issue: a score that holds should stand.\n"
        )
    return (
        f"Scorer and Critic debate the score. The Critic first scores the candidate itself by {criterion}, as if no "
        "score had been given, and says in its review, in tenths, what it arrived at. Then it holds the latest score "
        "against that, and looks for what speaks for a higher and what for a lower one.\n"
        "An issue is an objection that holds against the texts and for which the two scores lie at least "
        f"{distance} apart. The feedback quotes the place that it rests on, says which rule of {criterion} was "
        "overlooked or applied wrongly there and whether the score is too high or too low for it, and names no score. "
        "An objection against the direction of an earlier one needs evidence that is new to the debate. NO ISSUE is as "
        "honourable as an issue: a score that holds should stand.\n"
    )


def joint_prompt_parts(parts_by_label: Mapping[str, PromptParts]) -> PromptParts:
    """The parts for several aspects, from those of each aspect by its label; unchanged for a single aspect."""
    first = next(iter(parts_by_label.values()))
    if len(parts_by_label) == 1:
        return first
    # Without the guide, the Scorer's instructions are the same for all aspects.
    guides = {label: guide_in(aspect_parts.standard) for label, aspect_parts in parts_by_label.items()}
    standard = first.standard
    if same_guide := len(set(guides.values())) == 1:
        criterion = GUIDE if guides.popitem()[1] else "the definition of the aspect"
    else:
        standard = with_guide(standard, "")
        criterion = "the aspect's guide to the raters"
        criterion += "" if all(guides.values()) else " or, where it has none, its definition"
    sections = [
        f"{len(parts_by_label)} aspects of each candidate are rated, each by what stands under the headers with its "
        "name and by nothing that stands under those of another aspect."
    ]
    if not same_guide:
        sections[0] += (
            " A guide to the raters was learnt from their ratings; it decides where it differs from all else here."
        )
    for label, aspect_parts in parts_by_label.items():
        sections += _section("aspect", label, aspect_parts.aspect) + (
            [] if same_guide else _section("guide", label, guides[label])
        )
    distances = {label: aspect_parts.issue_distance for label, aspect_parts in parts_by_label.items()}
    if len(set(distances.values())) == 1:
        distance = f"{first.issue_distance:g}"
    else:
        distance = ", ".join(f"{value:g} ({label})" for label, value in distances.items())
    examples = {
        name: "\n\n".join(
            section
            for label, aspect_parts in parts_by_label.items()
            for section in _section(name, label, aspect_parts.examples.get(name, ""))
        )
        for name in ("examples", "similar")
    }
    debate_rules = rules_text(criterion, distance, first.blind) + RULES_FOR_ASPECTS
    return PromptParts(standard, "\n\n".join(sections), debate_rules, first.issue_distance, first.blind, examples)


def _section(name: str, label: str, text: str) -> list[str]:
    return [f"{header(f'{name}_{label}')}\n{text}"] if text else []


# --- the Scorer's tasks; the tasks of the other roles are their instructions ---

OPENING = "You are the Scorer. Weigh step by step what speaks for the candidate and what speaks against it."
REVISION = (
    "You are the Scorer. Say first how far the latest objection holds against the texts. Then change your score by "
    "what the part that holds is worth; if none of it does, keep your score."
)
OPENING_TABLE = (
    "You are the Scorer. Weigh for each candidate what speaks for it and what speaks against it, and hold the "
    "candidates against each other before you score them: equal merit earns an equal score."
)
OPENING_ASPECTS = (
    "You are the Scorer. Weigh aspect by aspect what speaks for the candidate and what speaks against it before you "
    "score it."
)
REVISION_TABLE = (
    "You are the Scorer. Say first of each disputed candidate how far the latest objection holds against the texts. "
    "Then change its score by what the part that holds is worth; if none of it does, keep the score."
)
_BLIND = "You are the Critic, and you score before you have seen any score. Look harder than a first reader would:"
BLIND_OPENING = f"{_BLIND} weigh step by step what is easily passed over, in favour of the candidate and against it."
BLIND_OPENING_TABLE = (
    f"{_BLIND} weigh for each candidate what is easily passed over, for it and against it, and hold the candidates "
    "against each other before you score them: equal merit earns an equal score."
)
EACH_BY_ITSELF = (
    " Go through the aspects one after the other and score each by its own definition alone: a fault or a merit in one "
    "of them says nothing about the next."
)
"""The last sentence of a scoring task about several aspects."""


def opening_task(chunk: Chunk) -> str:
    """The Scorer's task in its first turn, about a chunk or, without one, about one candidate."""
    if not chunk:
        return OPENING
    if len(aspects_in(chunk)) == 1:
        return OPENING_TABLE
    return (OPENING_ASPECTS if len(candidates_in(chunk)) == 1 else OPENING_TABLE) + EACH_BY_ITSELF


def blind_task(chunk: Chunk) -> str:
    """The Critic's task in the turn in which it scores blind."""
    task = BLIND_OPENING_TABLE if len(candidates_in(chunk)) > 1 else BLIND_OPENING
    return task + (EACH_BY_ITSELF if len(aspects_in(chunk)) > 1 else "")


def revision_task(chunk: Chunk) -> str:
    """The Scorer's task in later turns."""
    if not chunk:
        return REVISION
    if len(aspects_in(chunk)) == 1:
        return REVISION_TABLE
    return REVISION_TABLE.replace("disputed candidate", "disputed score") + EACH_BY_ITSELF


# --- the texts of a table ---

TableSignature: Any = (
    JudgeSignature.delete("candidate")
    .insert(list(JudgeSignature.input_fields).index("candidate"), "candidates", dspy.InputField())
    .append("request", dspy.InputField(default=""))
    .append("reply", dspy.OutputField())
)
"""`JudgeSignature` with several candidates in place of one; the request says which form the reply has."""


def table_inputs(items: Mapping[Cell, Item]) -> dict[str, str]:
    """The input fields for the candidates of these cells. Every text of a data set is escaped."""
    # The source is shown if at least one aspect needs it.
    first = max(items.values(), key=lambda item: item.aspect.source)
    inputs = item_inputs(first, "")
    del inputs["candidate"], inputs["debate"]
    texts = {cell.candidate: item.text for cell, item in items.items()}
    task = task_description(first.task, bool(first.context), first.aspect.source)
    task += f" {'One' if len(aspects_in(items)) == 1 else 'More than one'} aspect of each candidate is rated."
    return {**inputs, "task": task, "candidates": _candidate_sections(tuple(texts.items()))}


# Cached, because the same candidates are in every prompt of a debate.
@lru_cache(maxsize=256)
def _candidate_sections(texts: tuple[tuple[int, str], ...]) -> str:
    parts = [f"{header(cell_label(Cell(number)))}\n{escape(text)}" for number, text in texts]
    several = f"{len(texts)} candidates of one source, each under its own header; their order means nothing."
    return "\n\n".join([several if len(texts) > 1 else "1 candidate, under its own header.", *parts])


def debate_text(transcripts: Mapping[Cell, Transcript]) -> str:
    """The debate so far, a line for each turn and cell, oldest first, so that the text only grows."""
    order = {BLIND_CRITIC: 0, "critic": 1}
    lines = [
        # In each round the Critic speaks first.
        (turn.round, order.get(turn.role, 2), index, f"{cell_label(cell)}: {Transcript((turn,))}")
        for index, (cell, transcript) in enumerate(transcripts.items())
        for turn in transcript.turns
    ]
    return escape("\n".join(line for *_, line in sorted(lines)))


# --- the form of a reply about a table ---

SCORES, DECISIONS, FINAL_SCORES = "scores", "decisions", "final_scores"
"""The fields of a reply that have one line for each cell."""

TOO_HIGH, TOO_LOW = "TOO HIGH", "TOO LOW"


def scoring_request(explained: Sequence[Cell], scored: Sequence[Cell]) -> str:
    """Request to the Scorer: reasons for the cells in `explained`, and a number for each of `scored`."""
    reasons = "your reasons in a sentence or two, with the places in the texts that they rest on"
    scores_field = _scores_field(SCORES, _aspect_by_aspect(scored))
    return _request(_reasons_field(_aspect_by_aspect(explained), reasons), scores_field)


def tie_breaking_request(cells: Sequence[Cell]) -> str:
    """Request to the Tie-breaker: reasons and final scores."""
    reasons, cells = "its disputed points and how the texts settle them", _aspect_by_aspect(cells)
    return _request(_reasons_field(cells, reasons), _scores_field(FINAL_SCORES, cells))


def review_request(cells: Sequence[Cell], *, blind: bool = False) -> str:
    """Request to the Critic: a review, a decision about each score, and the evidence of each issue."""
    cells = _aspect_by_aspect(cells)
    labels, first = cell_labels(cells), cell_label(cells[0])
    unit = "candidate and aspect" if cells[0].aspect else "candidate"
    view = "where your own reading and the Scorer's part" if blind else "your own score and what it rests on"
    review = (
        f"for each of {labels} {view}, then what speaks for a higher score than its latest one and what for a lower"
    )
    decision = (
        f"one line for each of {labels}, in the form `{first}: {NO_ISSUE}`, `{first}: {TOO_HIGH}` or "
        f"`{first}: {TOO_LOW}`; the single line {NO_ISSUE} if none of them has an issue"
    )
    issue = f"the issue with its evidence; so for each {unit} that has an issue, under its own header, and no other"
    return _request(("review", review), (DECISIONS, decision), (first, issue))


def _aspect_by_aspect(cells: Iterable[Cell]) -> list[Cell]:
    """The cells ordered by aspect, so that candidates are compared in one aspect after the other."""
    listed = list(cells)
    return [cell for aspect in aspects_in(listed) for cell in listed if cell.aspect == aspect]


def _reasons_field(cells: Sequence[Cell], description: str) -> tuple[str, str]:
    others = f"; then the same about {cell_labels(cells[1:])}, each under its own header" if len(cells) > 1 else ""
    return cell_label(cells[0]), description + others


def _scores_field(name: str, cells: Sequence[Cell]) -> tuple[str, str]:
    scale = "the scale of its aspect" if cells[0].aspect else "the aspect's scale"
    labels, first = cell_labels(cells), cell_label(cells[0])
    return name, f"one line for each of {labels}, in the form `{first}: number`, the number on {scale}"


def _request(*fields: tuple[str, str]) -> str:
    return "\n\n".join([f"{REQUEST}:", *(f"{header(name)}\n<{description}>" for name, description in fields)])
