"""Scorer, Critic and Tie-breaker of the offline LM. Stateless: each reads the prompt and nothing else.

Evidence travels through the debate by its phrase. The Scorer weighs what the Critic's turns name, reads it
off the material again, and never does arithmetic on an earlier score.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor, log10

from programs import offline_dialogue, offline_persona, offline_prompt, offline_rubric, offline_summary
from programs.offline_prompt import Prompt, Question
from programs.offline_rubric import FEATURES, Item, Rubric
from programs.offline_summary import Reading

LABEL = "Text statistics: "
"""How every statement of the offline LM begins, so that nobody takes it for a reader's."""

NO_ISSUE = "NO ISSUE"

_WHOLE = re.compile(r"whole (?:number|point)|integer|no decimals|without decimals", re.IGNORECASE)
_DECIMALS = re.compile(r"decimals? (?:are|is) (?:welcome|allowed|fine)", re.IGNORECASE)
_QUOTED = re.compile(r'"[^"]*"')


@dataclass(frozen=True, slots=True)
class _Case:
    """What is on the table: the measurements and the rubric that weighs them."""

    question: Question
    rubric: Rubric
    readings: Mapping[str, Reading]
    raised: frozenset[str]
    """Names of the later items that the Critic has brought up so far."""

    @property
    def span(self) -> float:
        return self.question.high - self.question.low

    def merit(self, everything: bool = False) -> float:
        names = {item.name for item in self.rubric.later} if everything else self.raised
        return offline_rubric.weigh(self.rubric, self.readings, names)

    def score(self, merit: float, whole: bool = False) -> str:
        """The score as it is written: three digits across the scale, or a whole number."""
        question = self.question
        value = question.low + self.span * merit
        if whole:
            return f"{min(question.high, max(question.low, floor(value + 0.5))):g}"
        digits = max(0, 3 - ceil(log10(self.span)))
        return f"{min(question.high, max(question.low, round(value, digits))):.{digits}f}"

    def spoken(self, item: Item) -> str:
        reading = self.readings[item.name]
        place = f', "{_plain(reading.evidence)}"' if reading.evidence else ""
        return FEATURES[item.name].spoken(reading) + place


def _plain(text: str) -> str:
    return " ".join(text.replace('"', "'").split())


def _case(prompt: Prompt) -> _Case:
    question = offline_prompt.question(prompt)
    source, candidate = prompt.input("source"), prompt.input("candidate")
    if question.kind == "dialogue":
        readings = offline_dialogue.readings(source, prompt.input("context"), candidate)
    else:
        readings = offline_summary.readings(source, candidate)
    rubric = offline_rubric.rubric_for(question.kind, question.aspect)
    return _Case(question, rubric, readings, _raised(rubric, prompt.input("debate")))


def _raised(rubric: Rubric, debate: str) -> frozenset[str]:
    """Which later items the Critic's turns name. Quotations do not count: they are the candidate's words."""
    turns = [_QUOTED.sub("", line) for line in debate.splitlines() if line.startswith("Critic, round ")]
    said = "\n".join(turns)
    return frozenset(item.name for item in rubric.later if FEATURES[item.name].phrase in said)


def score(prompt: Prompt) -> dict[str, str]:
    """The Scorer: its own look and whatever the debate has brought up."""
    case = _case(prompt)
    whole = bool(_WHOLE.search(prompt.role)) and not _DECIMALS.search(prompt.role)
    merit = case.merit()
    own = sorted(case.rubric.first, key=lambda item: -item.weight)
    said = "; ".join(case.spoken(item) for item in own[:2])
    taken = [case.spoken(item) for item in case.rubric.later if item.name in case.raised]
    heard = f"; weighed in from the debate: {'; '.join(taken)}" if taken else ""
    rationale = f"{LABEL}{said}{heard}. Merit {merit:.2f} of 1."
    return {"rationale": rationale, "score": case.score(merit, whole)}


def criticise(prompt: Prompt) -> dict[str, str]:
    """The Critic: the next reading that nobody has named and whose weight reaches the persona's threshold."""
    case = _case(prompt)
    least = offline_persona.threshold(prompt.role)
    open_items = [
        (item, change)
        for item, change in offline_rubric.effects(case.rubric, case.readings)
        if abs(change) >= least and item.name not in case.raised
    ]
    checked = len(case.rubric.later)
    if not open_items:
        review = f"{LABEL}none of {checked} readings would still move the score by {least:.1%} of the scale or more."
        return {"review": review, "decision": NO_ISSUE, "feedback": review}
    item, change = open_items[0]
    direction = "lower" if change < 0 else "higher"
    size = f"by about {abs(change) * case.span:.2g} on this scale"
    review = f"{LABEL}{len(open_items)} of {checked} readings would still move the score; the first is taken up."
    feedback = f"{LABEL}{case.spoken(item)}. This speaks for a {direction} score, {size}."
    return {"review": review, "decision": "ISSUE", "feedback": feedback}


def settle(prompt: Prompt) -> dict[str, str]:
    """The Tie-breaker: all evidence, raised or not, and who was nearer to it."""
    case = _case(prompt)
    now, final = case.merit(), case.merit(everything=True)
    # The Scorer's latest score already holds what was raised; if the rest moves it on, the Critic had a point.
    moved = abs(final - now) >= offline_persona.PLAIN_THRESHOLD / 2
    rest = [
        case.spoken(item)
        for item, change in offline_rubric.effects(case.rubric, case.readings)
        if item.name not in case.raised and abs(change) >= offline_persona.PLAIN_THRESHOLD / 2
    ]
    unheard = f" Not yet raised: {'; '.join(rest)}." if rest else " Nothing of weight was left unsaid."
    count = len(case.rubric.items)
    reasoning = f"{LABEL}all {count} readings give merit {final:.2f}, the debate so far {now:.2f}.{unheard}"
    return {"reasoning": reasoning, "side": "Critic" if moved else "Scorer", "final_score": case.score(final)}
