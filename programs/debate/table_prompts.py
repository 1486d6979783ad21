"""Prompts about several candidates of one source: how they are laid out, and the form that replies keep to.

Each candidate stands under a header of its own, with a number that holds for the whole conversation. Its text is
escaped, so it cannot open another's section; a reply names candidates by their numbers alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import dspy

from debate_judge.programs.judge import Item
from debate_judge.programs.roles.parsing import NO_ISSUE, REQUEST, escape
from debate_judge.programs.roles.role import JudgeSignature, material
from debate_judge.programs.roles.wording import kinds
from debate_judge.programs.transcript import Transcript

SCORES, DECISIONS, FINAL_SCORES = "scores", "decisions", "final_scores"
"""The fields of a reply that hold one line for each candidate."""

TOO_HIGH, TOO_LOW = "TOO HIGH", "TOO LOW"

OPENING = (
    "You are the Scorer. Weigh for each candidate what speaks for it and what speaks against it, and hold the "
    "candidates against each other before you score them: equal merit earns an equal score."
)
REVISION = (
    "You are the Scorer. Say first of each disputed candidate how far the latest objection holds in the texts. Then "
    "score afresh with that put right, as if for the first time; if none of it holds, keep the score."
)


TablePrompt = (
    JudgeSignature.delete("candidate")
    .insert(list(JudgeSignature.input_fields).index("candidate"), "candidates", dspy.InputField())
    .append("request", dspy.InputField(default=""))
    .append("reply", dspy.OutputField())
)
"""A prompt about one candidate with several in its place, and a request for a reply of any form."""


def label(number: int) -> str:
    """What a candidate is called."""
    return f"candidate_{number}"


def listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(label, numbers))


def table_material(items: Mapping[int, Item]) -> dict[str, str]:
    """The input fields of candidates of one source, by their numbers. Every text of a data set is escaped."""
    first = next(iter(items.values()))
    shared = material(first, "")
    del shared["candidate"], shared["debate"]
    task = f"{kinds(first.task, bool(first.context))} One aspect of each candidate is rated."
    return {**shared, "task": task, "candidates": _laid_out(tuple((n, item.text) for n, item in items.items()))}


# A table is read in every turn of the debate about it.
@lru_cache(maxsize=256)
def _laid_out(texts: tuple[tuple[int, str], ...]) -> str:
    parts = [f"[[ ## {label(number)} ## ]]\n{escape(text)}" for number, text in texts]
    count = f"{len(texts)} candidates of this source, each under its own header; their order means nothing."
    return "\n\n".join([count, *parts])


def debate_text(transcripts: Mapping[int, Transcript]) -> str:
    """What was said so far, oldest first, one line for each turn about each candidate, so that it only ever grows."""
    said = [
        # Of a round the Critic speaks first.
        (turn.round, turn.role != "critic", number, f"{label(number)}: {Transcript((turn,))}")
        for number, transcript in transcripts.items()
        for turn in transcript.turns
    ]
    return escape("\n".join(line for *_, line in sorted(said)))


def scoring_request(explained: Sequence[int], scored: Sequence[int]) -> str:
    """Reasons about some candidates, and a score for each of `scored`."""
    why = "your reasons in a sentence or two, with the places in the texts that they rest on"
    return _request((_sections(explained, why), _lines(SCORES, scored)))


def settling_request(numbers: Sequence[int]) -> str:
    """The Tie-breaker's reasons and final scores."""
    why = "its disputed points and how the texts settle them"
    return _request((_sections(numbers, why), _lines(FINAL_SCORES, numbers)))


def reviewing_request(numbers: Sequence[int]) -> str:
    """The Critic's review, a decision about each candidate, and the evidence of each issue."""
    first = label(numbers[0])
    told = (
        f"one line for each of {listed(numbers)}, in the form `{first}: {NO_ISSUE}`, `{first}: {TOO_HIGH}` or "
        f"`{first}: {TOO_LOW}`; the single line {NO_ISSUE} if none of them has an issue"
    )
    issue = "the issue with its evidence; so for each candidate that has an issue, under its own header, and no other"
    return _request(
        (
            ("review", "your own judgement of each candidate, then the cases against its latest score"),
            (DECISIONS, told),
            (first, issue),
        )
    )


def _sections(numbers: Sequence[int], told: str) -> tuple[str, str]:
    others = f"; then the same about {listed(numbers[1:])}, each under its own header" if len(numbers) > 1 else ""
    return label(numbers[0]), told + others


def _lines(name: str, numbers: Sequence[int]) -> tuple[str, str]:
    form = f"`{label(numbers[0])}: number`, the number on the aspect's scale"
    return name, f"one line for each of {listed(numbers)}, in the form {form}"


def _request(fields: Sequence[tuple[str, str]]) -> str:
    return "\n\n".join([REQUEST, *(f"[[ ## {name} ## ]]\n<{told}>" for name, told in fields)])
