"""The prompts of a debate: the standard, the rules, the task of each role, and the table of scores with its replies.

A debate opens with exactly the prompt of a single call, which mentions no other role, so a debate's first turn is also
the result of the single call. In all later prompts the rules of the debate follow the source, where a provider's prefix
cache serves them for every candidate of the source. What belongs to one role is at the end of its prompt. No other role
sees the Critic's persona, because a Scorer that knew it would discount the criticism.

In a debate about several scores each cell of a table is one candidate in one aspect. Each candidate has a header of its
own, with a number from 1 that is the same in the whole conversation; its text is escaped, so that it cannot open
another candidate's section. Aspects have labels made from their names, so that replies name a cell
`candidate_2_coherence`; in a table of one aspect, `candidate_2`. What holds for all aspects is said once, and each
aspect has sections with its label in their headers: scale, definition and granularity of scores, its guide to the
raters, its rated examples.
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
from debate_judge.programs.roles.role import JudgeSignature, aspect_text, form, header, material, material_text
from debate_judge.programs.transcript import BLIND_CRITIC, Transcript

# --- the cells of a table ---


class Cell(NamedTuple):
    """One score of a table."""

    candidate: int
    aspect: str = ""
    """Label of the aspect; empty where the table has only one."""


Part = tuple[Cell, ...]
"""Cells that are shown together, candidate by candidate."""


def label(cell: Cell) -> str:
    """The name of a cell in prompts and replies."""
    return f"candidate_{cell.candidate}_{cell.aspect}" if cell.aspect else f"candidate_{cell.candidate}"


def listed(cells: Iterable[Cell]) -> str:
    return ", ".join(map(label, cells))


def cells_of(items: Sequence[Item]) -> dict[Cell, Item]:
    """The cells of a table, in the order of its items."""
    labels = aspect_labels([item.aspect.name for item in items])
    met: dict[tuple[tuple[str, str, str], str], int] = {}
    numbers: dict[tuple[tuple[str, str, str], int], int] = {}
    cells: dict[Cell, Item] = {}
    for item in items:
        texts = item.source, item.context, item.text
        # Two candidates may have the same text: a second item with the same text and aspect is another candidate.
        times = met[texts, item.aspect.name] = met.get((texts, item.aspect.name), 0) + 1
        number = numbers.setdefault((texts, times), len(numbers) + 1)
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


def candidates_in(part: Iterable[Cell]) -> list[int]:
    """The numbers of the candidates, in order."""
    return list(dict.fromkeys(cell.candidate for cell in part))


def aspects_in(part: Iterable[Cell]) -> list[str]:
    """The labels of the aspects, in order."""
    return list(dict.fromkeys(cell.aspect for cell in part))


def halves(part: Part) -> tuple[Part, Part]:
    """Cut a part in two: between candidates, or, if it has only one, between its aspects."""
    numbers = candidates_in(part)
    if len(numbers) == 1:
        return part[: len(part) // 2], part[len(part) // 2 :]
    first = numbers[: len(numbers) // 2]
    return tuple(c for c in part if c.candidate in first), tuple(c for c in part if c.candidate not in first)


def parts_of(transcripts: Mapping[Cell, Transcript]) -> Iterator[Part]:
    """The consecutive parts that a table was cut into; each transcript holds the size of its part."""
    left = list(transcripts)
    while left:
        first = transcripts[left[0]]
        shown = candidates_in(left)[: first.together]
        cells_shown = tuple(cell for cell in left if cell.candidate in shown)
        # Aspects are divided only where a part has a single candidate.
        part = cells_shown if first.together > 1 else cells_shown[: first.joint]
        yield part
        left = left[len(part) :]


# --- the standard and the rules ---

_WHOLE_SCALE = re.compile(r"\s+Use\s+the\s+whole\s+scale:[^.]+\.")
"""Last sentence of the Scorer's own instructions, where no guide says how the scale is used."""

GUIDE, DEFINITION = "the guide to the raters", "the definition"
"""How the rules of a debate name what to argue from."""

SEVERAL = (
    "All of this holds for each candidate and its score by itself; the feedback about one stands under its own header. "
    "A candidate without an issue is settled, and its score stands."
)
SEVERAL_ASPECTS = (
    "All of this holds for each candidate and each aspect by itself: an objection in one aspect is none in another. "
    "The feedback about a score stands under its own header, which names candidate and aspect. A score without an "
    "issue is settled and stands."
)


def fineness(scale: Scale, whole: bool) -> str:
    """The sentence in prompts about the granularity of scores: any number, or `whole` steps of the scale."""
    if whole and scale.step == 1:
        return "Scores are whole points of the scale."
    if whole:
        return f"Scores are given in steps of {scale.step:g}."
    if scale.binary:
        return "A score may lie between the two ends, where the candidate does."
    return "A score may lie between two points of the scale, where the candidate does."


@dataclass(frozen=True, slots=True)
class PromptParts:
    """What all prompts of one debate have in common apart from the texts."""

    standard: str
    """The standard that every role argues from: the Scorer's instructions with the guide to the raters. The form of the
    Scorer's reply comes first, so that a prefix cache serves it in every turn."""
    aspect: str
    rules: str
    issue: float
    """The least distance of two scores that makes an objection an issue, or that is debated at all."""
    blind: bool = False
    """Whether the Critic scores before it sees a score."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """The input fields with rated examples, see `programs.roles.examples.shown`."""

    def inputs(self, role: str, *, debating: bool = True) -> dict[str, str]:
        """Input fields of a prompt: the task of its `role`, and the rules unless it is the debate's opening."""
        rules = {"rules": self.rules} if debating else {}
        return {"standard": self.standard, "aspect": self.aspect, **self.examples, **rules, "role": role}


@lru_cache(maxsize=256)
def prompt_parts(
    aspect: Aspect, whole: bool, scorer: Any, critic: Any, together: bool = False, gap: float | None = None
) -> PromptParts:
    """The parts of the prompts about an aspect; of the roles' instructions it contains only the Scorer's.

    Args:
        aspect: The aspect that is scored.
        whole: Whether prompts ask for whole points of the scale.
        scorer, critic: Their signatures.
        together: Whether the debate is about several candidates; the form of replies is then in the requests.
        gap: Of the Critic's persona.
    """
    # Escaped, because instructions may be written by an LM that has read texts under evaluation.
    standard = escape(scorer.instructions)
    if not together:
        standard = f"The Scorer replies with {form(scorer)}.\n{standard}"
    guided = bool(guide_in(standard))
    if guided:
        # Nothing beside a guide may contradict it.
        standard = _WHOLE_SCALE.sub("", standard)
        aspect = replace(aspect, definition=without_anchors(aspect.definition))
    text = f"{aspect_text(aspect)}\n{fineness(aspect.scale, whole)}"
    # Half a step: the Critic scores in tenths, and whole points change from half a point on. A threshold of a whole
    # point would silence it.
    size = aspect.scale.step * (0.5 if gap is None else gap)
    debate_rules = rules(GUIDE if guided else DEFINITION, f"{size:g}", gap is not None)
    debate_rules += SEVERAL if together else f"The Critic replies with {form(critic)}."
    return PromptParts(standard, text, debate_rules, size, gap is not None)


def rules(criterion: str, size: str, blind: bool = False) -> str:
    """The rules of a debate from a `criterion`, e.g. `GUIDE`; an issue needs two scores `size` apart."""
    if blind:
        debated = "Every score is debated" if size == "0" else f"Only scores that lie at least {size} apart are debated"
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
        f"{size} apart. The feedback quotes the place that it rests on, says which rule of {criterion} was overlooked "
        "or applied wrongly there and whether the score is too high or too low for it, and names no score. An "
        "objection against the direction of an earlier one needs evidence that is new to the debate. NO ISSUE is as "
        "honourable as an issue: a score that holds should stand.\n"
    )


def joint_prompt_parts(parts_by_aspect: Mapping[str, PromptParts]) -> PromptParts:
    """Those of several aspects, from those of each by its label; of a single one they are returned as they are."""
    first = next(iter(parts_by_aspect.values()))
    if len(parts_by_aspect) == 1:
        return first
    # The Scorer's instructions without the guide are the same for all of them.
    guides = {label: guide_in(aspect_parts.standard) for label, aspect_parts in parts_by_aspect.items()}
    standard = first.standard
    if shared := len(set(guides.values())) == 1:
        criterion = GUIDE if guides.popitem()[1] else "the definition of the aspect"
    else:
        standard = with_guide(standard, "")
        criterion = "the aspect's guide to the raters"
        criterion += "" if all(guides.values()) else " or, where it has none, its definition"
    parts = [
        f"{len(parts_by_aspect)} aspects of each candidate are rated, each by what stands under the headers with its "
        "name and by nothing that stands under those of another aspect."
    ]
    if not shared:
        parts[0] += (
            " A guide to the raters was learnt from their ratings; it decides where it differs from all else here."
        )
    for label, aspect_parts in parts_by_aspect.items():
        parts += _section("aspect", label, aspect_parts.aspect) + (
            [] if shared else _section("guide", label, guides[label])
        )
    sizes = {label: aspect_parts.issue for label, aspect_parts in parts_by_aspect.items()}
    if len(set(sizes.values())) == 1:
        size = f"{first.issue:g}"
    else:
        size = ", ".join(f"{aspect_parts:g} ({label})" for label, aspect_parts in sizes.items())
    examples = {
        name: "\n\n".join(
            part
            for label, aspect_parts in parts_by_aspect.items()
            for part in _section(name, label, aspect_parts.examples.get(name, ""))
        )
        for name in ("examples", "similar")
    }
    debate_rules = rules(criterion, size, first.blind) + SEVERAL_ASPECTS
    return PromptParts(standard, "\n\n".join(parts), debate_rules, first.issue, first.blind, examples)


def _section(name: str, label: str, text: str) -> list[str]:
    return [f"{header(f'{name}_{label}')}\n{text}"] if text else []


# --- the Scorer's task; those of the others are their instructions ---

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
BLIND_READING = f"{_BLIND} weigh step by step what is easily passed over, in favour of the candidate and against it."
BLIND_TABLE = (
    f"{_BLIND} weigh for each candidate what is easily passed over, for it and against it, and hold the candidates "
    "against each other before you score them: equal merit earns an equal score."
)
EACH_BY_ITSELF = (
    " Go through the aspects one after the other and score each by its own definition alone: a fault or a merit in one "
    "of them says nothing about the next."
)
"""Last sentence of the Scorer's task in calls about several aspects."""


def opening_task(part: Part) -> str:
    """The Scorer's task in the first call: about one candidate, or about a table."""
    if not part:
        return OPENING
    if len(aspects_in(part)) == 1:
        return OPENING_TABLE
    return (OPENING_ASPECTS if len(candidates_in(part)) == 1 else OPENING_TABLE) + EACH_BY_ITSELF


def blind_task(part: Part) -> str:
    """The Critic's task in the call in which it scores by itself."""
    task = BLIND_TABLE if len(candidates_in(part)) > 1 else BLIND_READING
    return task + (EACH_BY_ITSELF if len(aspects_in(part)) > 1 else "")


def revision_task(part: Part) -> str:
    """The Scorer's task in later calls."""
    if not part:
        return REVISION
    if len(aspects_in(part)) == 1:
        return REVISION_TABLE
    return REVISION_TABLE.replace("disputed candidate", "disputed score") + EACH_BY_ITSELF


# --- the texts of a table ---

TablePrompt: Any = (
    JudgeSignature.delete("candidate")
    .insert(list(JudgeSignature.input_fields).index("candidate"), "candidates", dspy.InputField())
    .append("request", dspy.InputField(default=""))
    .append("reply", dspy.OutputField())
)
"""The input fields of `JudgeSignature` with several candidates in place of one, and a free form of reply."""


def table_material(items: Mapping[Cell, Item]) -> dict[str, str]:
    """The input fields for the candidates of these cells. Every text of a data set is escaped."""
    # One aspect that needs the source is enough to show it.
    first = max(items.values(), key=lambda item: item.aspect.source)
    shared = material(first, "")
    del shared["candidate"], shared["debate"]
    texts = {cell.candidate: item.text for cell, item in items.items()}
    what = "One aspect" if len(aspects_in(items)) == 1 else "More than one aspect"
    task = f"{material_text(first.task, bool(first.context), first.aspect.source)} {what} of each candidate is rated."
    return {**shared, "task": task, "candidates": _laid_out(tuple(texts.items()))}


# Cached, because a table is in every prompt of the debate about it.
@lru_cache(maxsize=256)
def _laid_out(texts: tuple[tuple[int, str], ...]) -> str:
    parts = [f"{header(label(Cell(number)))}\n{escape(text)}" for number, text in texts]
    count = f"{len(texts)} candidates of one source, each under its own header; their order means nothing."
    return "\n\n".join([count if len(texts) > 1 else "1 candidate, under its own header.", *parts])


def debate_text(transcripts: Mapping[Cell, Transcript]) -> str:
    """The debate so far, a line for each turn and cell, oldest first, so that the text only grows."""
    order = {BLIND_CRITIC: 0, "critic": 1}
    lines = [
        # In each round the Critic speaks first.
        (turn.round, order.get(turn.role, 2), place, f"{label(cell)}: {Transcript((turn,))}")
        for place, (cell, transcript) in enumerate(transcripts.items())
        for turn in transcript.turns
    ]
    return escape("\n".join(line for *_, line in sorted(lines)))


# --- the form of a reply about a table ---

SCORES, DECISIONS, FINAL_SCORES = "scores", "decisions", "final_scores"
"""The fields of a reply with one line for each candidate."""

TOO_HIGH, TOO_LOW = "TOO HIGH", "TOO LOW"


def scoring_request(explained: Sequence[Cell], scored: Sequence[Cell]) -> str:
    """The Scorer's reply: reasons for the cells in `explained`, and a number for each of `scored`."""
    why = "your reasons in a sentence or two, with the places in the texts that they rest on"
    return _request(_sections(_aspect_by_aspect(explained), why), _lines(SCORES, _aspect_by_aspect(scored)))


def settling_request(cells: Sequence[Cell]) -> str:
    """The Tie-breaker's reply: reasons and final scores."""
    why, cells = "its disputed points and how the texts settle them", _aspect_by_aspect(cells)
    return _request(_sections(cells, why), _lines(FINAL_SCORES, cells))


def reviewing_request(cells: Sequence[Cell], *, blind: bool = False) -> str:
    """The Critic's reply: a review, a decision about each score, and the evidence of each issue."""
    cells = _aspect_by_aspect(cells)
    first, name = label(cells[0]), "candidate and aspect" if cells[0].aspect else "candidate"
    view = "where your own reading and the Scorer's part" if blind else "your own score and what it rests on"
    review = (
        f"for each of {listed(cells)} {view}, then what speaks for a higher score than its latest one and what for a "
        "lower"
    )
    decision = (
        f"one line for each of {listed(cells)}, in the form `{first}: {NO_ISSUE}`, `{first}: {TOO_HIGH}` or "
        f"`{first}: {TOO_LOW}`; the single line {NO_ISSUE} if none of them has an issue"
    )
    issue = f"the issue with its evidence; so for each {name} that has an issue, under its own header, and no other"
    return _request(("review", review), (DECISIONS, decision), (first, issue))


def _aspect_by_aspect(cells: Iterable[Cell]) -> list[Cell]:
    """The cells ordered by aspect, so that candidates are compared in one aspect after the other."""
    known = list(cells)
    return [cell for aspect in aspects_in(known) for cell in known if cell.aspect == aspect]


def _sections(cells: Sequence[Cell], description: str) -> tuple[str, str]:
    others = f"; then the same about {listed(cells[1:])}, each under its own header" if len(cells) > 1 else ""
    return label(cells[0]), description + others


def _lines(name: str, cells: Sequence[Cell]) -> tuple[str, str]:
    scale = "the scale of its aspect" if cells[0].aspect else "the aspect's scale"
    return name, f"one line for each of {listed(cells)}, in the form `{label(cells[0])}: number`, the number on {scale}"


def _request(*fields: tuple[str, str]) -> str:
    return "\n\n".join([f"{REQUEST}:", *(f"{header(name)}\n<{description}>" for name, description in fields)])
