"""Feedback on one call of a debate: how it changed the score, compared with the ratings.

A reflecting tuner shows an LM single calls, each with its prompt and reply. The feedback has to be about that call, so
the call is looked up in the example: the item by the texts in the prompt, the turn by the debate in the prompt. Of a
call about several candidates, it says of each what was right and wrong.
Feedback contains numbers and sentences of the guide, but no text under evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from debate_judge.programs.devset import group_feedback, pairs_in_wrong_order
from debate_judge.programs.judge import Item, Judgement, Unscored, Verdict
from debate_judge.programs.roles.role import material
from debate_judge.programs.transcript import Turn

Trace = Sequence[tuple[Any, Mapping[str, Any], Any]]
"""Calls in DSPy's trace: (predictor, inputs, prediction)."""

_ITEM = ("source", "context", "candidate")
"""Input fields that identify an item of an example."""

_CANDIDATE = re.compile(r"^\[\[ ## candidate_(\d+) ## \]\]\n", re.MULTILINE)
_ROUND = re.compile(r"^candidate_\w+: [\w-]+, round (\d+)", re.MULTILINE)

_CITED = 0.6
"""Least share of the content words of a guide's sentence in a reply that counts as using that sentence."""

_CONTENT = 4
"""Least number of letters of a content word."""


@dataclass(frozen=True)
class JudgedCall:
    """A call with its place in a debate."""

    item: Item
    mean: float
    """The mean rating."""
    judgement: Judgement
    turn: Turn | None
    """The turn made from the reply; None if the reply was unreadable and ended the debate."""
    before: float | None
    """The score before the call."""
    after: float | None
    """The score after the call: the turn's own, or that of the next turn with a score."""
    reply: str

    @property
    def slack(self) -> float:
        """The largest difference from the mean rating that is not an issue: half a step of the scale."""
        return self.item.aspect.scale.step / 2


def call_feedback(
    example: dspy.Example,
    prediction: dspy.Prediction,
    trace: Trace,
    call: tuple[Mapping[str, Any], Any],
    role: str,
) -> str:
    """Describe the effect of one call.

    Args:
        example: From `optimize.examples`.
        prediction: With `judgements`, one per question, and the `guide` in the roles' prompts.
        trace: All calls about the example; calls about one item are in the order in which they were made.
        call: Inputs and prediction of the call, the same objects as in the trace.
        role: The role that made the call, as named in transcripts.

    Returns:
        A statement on each line; feedback on the whole example if the call cannot be identified.
    """
    if "candidates" in call[0]:
        shared = [
            f"Candidate {number}: {line}"
            for number, found in _shared(example, prediction, call, role)
            for line in _lines(example, prediction, found, role)
        ]
        return "\n".join(shared) or group_feedback(example, prediction)
    found = _found(example, prediction, trace, call, role)
    if found is None:
        return group_feedback(example, prediction)
    return "\n".join(_lines(example, prediction, found, role))


def _lines(example: dspy.Example, prediction: dspy.Prediction, found: JudgedCall, role: str) -> list[str]:
    if found.turn is None:
        return [f"No score came of this call: {_reason(found.judgement)}."]
    lines = list(_critique(found) if found.turn.score is None else _scoring(found, role))
    if found.before is not None and found.after is not None and _change(found) > 0:
        lines += [
            f'The reply rests on this sentence of the guide, which was misapplied here: "{sentence}"'
            for sentence in cited(str(prediction.get("guide") or ""), found.reply)
        ]
    return [*lines, *_outcome(found), *_place(example, prediction, found)]


def cited(guide: str, reply: str) -> list[str]:
    """The sentence of a guide with the largest share of words in a reply, in a list; empty if no share is large."""
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


# --- the call's place in the debate ---


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
    # A second attempt and further samples have the same debate in their prompts and form one turn.
    debates = list(dict.fromkeys(str(read.get("debate", "")) for read in own))
    place = debates.index(str(inputs.get("debate", "")))
    spoken = [i for i, turn in enumerate(judgement.transcript.turns) if turn.role == role]
    return _judged(example, number, judgement, spoken[place] if place < len(spoken) else None, reply)


def _shared(
    example: dspy.Example, prediction: dspy.Prediction, call: tuple[Mapping[str, Any], Any], role: str
) -> Iterator[tuple[int, JudgedCall]]:
    """The items that a call about several candidates has decided on, with their numbers in its prompt."""
    inputs, reply = call
    _, *pieces = _CANDIDATE.split(inputs["candidates"])
    numbers = {text.strip(): int(number) for number, text in zip(pieces[::2], pieces[1::2], strict=True)}
    # Every turn is one line of the debate, so no text can pose as another one.
    rounds = [int(found) for found in _ROUND.findall(inputs.get("debate") or "")]
    now = max(rounds, default=0) + (role == "critic")
    for place, (item, judgement) in enumerate(zip(example.questions, prediction.judgements, strict=True)):
        own = material(item, "")
        number = numbers.get(own["candidate"].strip())
        known = own["source"] == inputs["source"] and own["aspect"] in inputs["aspect"]
        turns = judgement.transcript.turns
        turn = next((i for i, turn in enumerate(turns) if (turn.role, turn.round) == (role, now)), None)
        if number is not None and known and turn is not None and example.ratings[place] is not None:
            yield number, _judged(example, place, judgement, turn, reply)


def _judged(example: dspy.Example, number: int, judgement: Judgement, turn: int | None, reply: Any) -> JudgedCall:
    turns = judgement.transcript.turns
    scores = [one.score for one in turns[:turn] if one.score is not None]
    after = [one.score for one in turns[turn:] if one.score is not None] if turn is not None else []
    return JudgedCall(
        example.questions[number],
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


# --- the call's effect ---


def _reason(judgement: Judgement) -> str:
    return judgement.reason if isinstance(judgement, Unscored) else "the reply could not be read"


def _change(call: JudgedCall) -> float:
    """The change of the distance to the mean rating: negative if the score came closer."""
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
    """The final score, if the debate changed the score after the call."""
    if isinstance(call.judgement, Verdict) and call.after is not None and call.judgement.score != call.after:
        yield f"In the end the debate gave {call.judgement.score:g}, {_off(call.judgement.score, call)}."


def _place(example: dspy.Example, prediction: dspy.Prediction, call: JudgedCall) -> Iterator[str]:
    """The pairs of which the candidate's final score is in the wrong order."""
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
