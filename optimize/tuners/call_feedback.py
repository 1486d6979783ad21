"""Feedback on one call of a debate: what it did to the score, measured by the raters.

A tuner that reflects shows an LM single calls, each with its prompt and reply. What is said beside such a call has to
be about that very call, so it is found again: the item by the prompt's texts, the turn by how much of the debate the
prompt held. Told are numbers, and sentences of the guide; no text under evaluation is repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from debate_judge.optimize.feedback import group_feedback, pairs_in_wrong_order
from debate_judge.programs.judge import Item, Judgement, Unscored, Verdict
from debate_judge.programs.roles.role import material
from debate_judge.programs.transcript import Turn

Trace = Sequence[tuple[Any, Mapping[str, Any], Any]]
"""Calls as DSPy traces them: predictor, inputs, prediction."""

_ITEM = ("source", "context", "candidate")
"""Input fields that tell the items of an example from one another."""

_CITED = 0.6
"""Share of a sentence's content words that a reply must have, to count as resting on that sentence of the guide."""

_CONTENT = 4
"""Letters from which on a word is counted as content."""


@dataclass(frozen=True)
class JudgedCall:
    """A call, found again in the debate that it was part of."""

    item: Item
    mean: float
    """Of the raters."""
    judgement: Judgement
    turn: Turn | None
    """What was read from the reply; None where the call ended the debate unread."""
    before: float | None
    """The score that stood when the call was made."""
    after: float | None
    """The score that stood when the call had been answered: the turn's own, or that of the next turn with a score."""
    reply: str

    @property
    def slack(self) -> float:
        """The largest difference from the raters' mean that is no issue: half a step of the scale."""
        return self.item.aspect.scale.step / 2


def call_feedback(
    example: dspy.Example,
    prediction: dspy.Prediction,
    trace: Trace,
    call: tuple[Mapping[str, Any], Any],
    role: str,
) -> str:
    """Say what came of one call.

    Args:
        example: Of `optimize.examples`.
        prediction: Its `judgements`, one per question, and the `guide` that the roles read.
        trace: All calls about the example, those about one item in the order in which they were made.
        call: Inputs and prediction of the call, as they stand in the trace.
        role: Who made it, as transcripts have it.

    Returns:
        One statement a line; about the whole example where the call cannot be told from others.
    """
    found = _found(example, prediction, trace, call, role)
    if found is None:
        return group_feedback(example, prediction)
    if found.turn is None:
        return f"No score came of this call: {_reason(found.judgement)}."
    lines = list(_critique(found) if found.turn.score is None else _scoring(found, role))
    if found.before is not None and found.after is not None and _change(found) > 0:
        lines += [
            f'The reply rests on this sentence of the guide, which was misapplied here: "{sentence}"'
            for sentence in cited(str(prediction.get("guide") or ""), found.reply)
        ]
    return "\n".join([*lines, *_outcome(found), *_place(example, prediction, found)])


def cited(guide: str, reply: str) -> list[str]:
    """The sentence of a guide that a reply takes up most of, in a list; empty where it takes up none."""
    said = _words(reply)
    best, most = "", 0.0
    for sentence in re.split(r"(?<=[.;!?])\s+|\n+", guide):
        words = _words(sentence)
        share = len(words & said) / len(words) if len(words) >= 2 else 0.0
        if share >= _CITED and share > most:
            best, most = sentence.strip(), share
    return [best] if best else []


def _words(text: str) -> set[str]:
    return {word for word in re.findall(r"\w+", text.lower()) if len(word) >= _CONTENT}


# --- which call it was ---


def _found(
    example: dspy.Example, prediction: dspy.Prediction, trace: Trace, call: tuple[Mapping[str, Any], Any], role: str
) -> JudgedCall | None:
    inputs, reply = call
    number = next((i for i, item in enumerate(example.questions) if _is_about(inputs, item)), None)
    predictor = next((one for one, own, _ in trace if own is inputs), None)
    if number is None or predictor is None or example.ratings[number] is None:
        return None
    item, judgement = example.questions[number], prediction.judgements[number]
    own = [read for one, read, _ in trace if one is predictor and _is_about(read, item)]
    # A second try and further samples read the same debate: one turn came of them together.
    debates = list(dict.fromkeys(str(read.get("debate", "")) for read in own))
    place = debates.index(str(inputs.get("debate", "")))
    turns = judgement.transcript.turns
    spoken = [i for i, turn in enumerate(turns) if turn.role == role]
    turn = spoken[place] if place < len(spoken) else None
    scores = [one.score for one in turns[:turn] if one.score is not None]
    after = [one.score for one in turns[turn:] if one.score is not None] if turn is not None else []
    return JudgedCall(
        item,
        example.ratings[number],
        judgement,
        None if turn is None else turns[turn],
        scores[-1] if scores else None,
        after[0] if after else None,
        " ".join(str(value) for value in reply.values()),
    )


def _is_about(inputs: Mapping[str, Any], item: Item) -> bool:
    own = material(item, "")
    known = [name for name in _ITEM if name in inputs]
    return "candidate" in known and all(inputs[name] == own[name] for name in known)


# --- what came of it ---


def _reason(judgement: Judgement) -> str:
    return judgement.reason if isinstance(judgement, Unscored) else "the reply could not be read"


def _change(call: JudgedCall) -> float:
    """By how much the score came closer to the raters' mean (less than 0) or went further away (more than 0)."""
    if call.before is None or call.after is None:
        return 0.0
    return abs(call.after - call.mean) - abs(call.before - call.mean)


def _off(score: float, call: JudgedCall) -> str:
    difference = score - call.mean
    if abs(difference) <= call.slack:
        return f"as good as the raters' mean of {call.mean:.2f}"
    return f"{abs(difference):.2f} too {'high' if difference > 0 else 'low'}, for the raters' mean is {call.mean:.2f}"


def _moved(call: JudgedCall) -> str:
    change = _change(call)
    way = "closer to" if change < 0 else "further from"
    return f"{abs(change):.2f} {way} the raters' mean of {call.mean:.2f}"


def _scoring(call: JudgedCall, role: str) -> Iterator[str]:
    after, before = call.after, call.before
    if after is None:
        return
    if before is None:
        yield f"The score {after:g} is {_off(after, call)}."
    elif role == "tie-breaker":
        right = _change(call) <= 0 if after != before else abs(before - call.mean) <= call.slack
        side = "the Scorer's score was kept" if after == before else f"the score went from {before:g} to {after:g}"
        yield f"The Tie-breaker took the {'right' if right else 'wrong'} side: {side}, {_off(after, call)}."
    elif after == before:
        yield f"After the critique the score stayed at {after:g}, {_off(after, call)}."
    else:
        verdict = "rightly followed" if _change(call) < 0 else "should not have followed"
        yield f"The Scorer {verdict} the critique: the score went from {before:g} to {after:g}, {_moved(call)}."


def _critique(call: JudgedCall) -> Iterator[str]:
    before, after = call.before, call.after
    if before is None or call.turn is None:
        return
    settled = abs(before - call.mean) <= call.slack
    if call.turn.no_issue:
        yield f"NO ISSUE {'was right' if settled else 'came too early'}: the score {before:g} is {_off(before, call)}."
        return
    if settled:
        yield f"NO ISSUE would have been right, it is too late now: the score {before:g} was {_off(before, call)}."
    else:
        yield f"An issue was to be raised: the score {before:g} was {_off(before, call)}."
    if after is None:
        return
    if after == before:
        yield "The critique did not move the score."
    else:
        yield f"The critique moved the score from {before:g} to {after:g}, {_moved(call)}."


def _outcome(call: JudgedCall) -> Iterator[str]:
    """How the debate ended after the call, where it went on."""
    if isinstance(call.judgement, Verdict) and call.after is not None and call.judgement.score != call.after:
        yield f"In the end the debate gave {call.judgement.score:g}, {_off(call.judgement.score, call)}."


def _place(example: dspy.Example, prediction: dspy.Prediction, call: JudgedCall) -> Iterator[str]:
    """Where the candidate's final score leaves the raters' order, and by how much."""
    number = next(i for i, item in enumerate(example.questions) if item is call.item)
    rated = [
        (i, mean, judgement.score)
        for i, (mean, judgement) in enumerate(zip(example.ratings, prediction.judgements, strict=True))
        if mean is not None and isinstance(judgement, Verdict)
    ]
    own = [pair for pair in pairs_in_wrong_order(rated) if number in (pair[0][0], pair[1][0])]
    for lower, higher in own[:2]:
        other, place = (higher, "above") if lower[0] == number else (lower, "below")
        yield (
            f"Out of order: the raters put another candidate {higher[1] - lower[1]:.2f} {place} this one, but it has "
            f"{other[2]:g} and this one {call.judgement.score if isinstance(call.judgement, Verdict) else 0:g}."
        )
