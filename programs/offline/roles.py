"""Scorer, Critic and Tie-breaker of the offline LM. They are stateless: each reads only its prompt.

Readings are named by their phrase in the debate. The Scorer measures the readings that the Critic's turns name, and
computes its score anew, without using an earlier one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, log10

from debate_judge.programs.offline import persona as offline_persona
from debate_judge.programs.offline import prompt as offline_prompt
from debate_judge.programs.offline import raters as offline_raters
from debate_judge.programs.offline import rubric as offline_rubric
from debate_judge.programs.offline.prompt import JudgedQuestion, Prompt
from debate_judge.programs.offline.readings import dialogue as offline_dialogue
from debate_judge.programs.offline.readings import summary as offline_summary
from debate_judge.programs.offline.readings.summary import Measurement
from debate_judge.programs.offline.rubric import FEATURES, Rubric, Weighting

LABEL = "Text statistics: "
"""Beginning of every statement of the offline LM, so that it is not mistaken for that of a real LM."""

NO_ISSUE = "NO ISSUE"

ALL_IS_WELL = 0.75
"""The merit above which a reading is given without a quotation."""

_WHOLE = re.compile(r"whole (?:number|point)|integer|no decimals|without decimals", re.IGNORECASE)
_DECIMALS = re.compile(r"decimals? (?:are|is) (?:welcome|allowed|fine)", re.IGNORECASE)
_STEPS = re.compile(r"in steps of (\d+(?:\.\d+)?)", re.IGNORECASE)
_QUOTED = re.compile(r'"[^"]*"')


@dataclass(frozen=True, slots=True)
class Assessment:
    """The measurements of a candidate, and the rubric that weighs them."""

    question: JudgedQuestion
    rubric: Rubric
    readings: Mapping[str, Measurement]
    raised: frozenset[str]
    """Names of the later items that the Critic has brought up so far."""
    ends: tuple[float, float]
    """The scores of merit 0 and 1: the ends of the scale, or those in a guide to the raters."""

    @property
    def span(self) -> float:
        return self.question.high - self.question.low

    def merit(self, everything: bool = False) -> float:
        names = {item.name for item in self.rubric.later} if everything else self.raised
        return offline_rubric.weigh(self.rubric, self.readings, names)

    def score(self, merit: float, step: float | None = None) -> str:
        """The score as text: in steps from the low end of the scale, or with three digits across the scale."""
        low, high = self.question.low, self.question.high
        value = self.ends[0] + (self.ends[1] - self.ends[0]) * merit
        rounded = (
            low + step * floor((value - low) / step + 0.5) if step else round(value, max(0, 3 - ceil(log10(self.span))))
        )
        return f"{min(high, max(low, rounded)):.12g}"

    def reasons(self) -> str:
        """The heaviest readings of the first look, and all raised ones."""
        own = sorted(self.rubric.first, key=lambda item: -item.weight)[:2]
        taken = [self.spoken(item) for item in self.rubric.later if item.name in self.raised]
        heard = f"; weighed in: {'; '.join(taken)}" if taken else ""
        return f"{LABEL}{'; '.join(map(self.spoken, own))}{heard}. Merit {self.merit():.2f} of 1."

    def spoken(self, item: Weighting) -> str:
        """An item as text: with its value and, if its merit is not high, a quotation of its place in the text."""
        reading = self.readings[item.name]
        well = (item.merit(reading) or 0.0) > ALL_IS_WELL
        place = f', "{_plain(reading.evidence)}"' if reading.evidence and not well else ""
        return FEATURES[item.name].spoken(reading) + place


def _plain(text: str) -> str:
    return " ".join(text.replace('"', "'").split())


def case_of(prompt: Prompt, candidate: str = "candidate") -> Assessment:
    """Measure the candidate of a prompt.

    Args:
        prompt: The prompt.
        candidate: Name of the input field with the candidate.
    """
    question = offline_prompt.question(prompt)
    source, text = prompt.input("source"), prompt.input(candidate)
    if question.kind == "dialogue":
        readings = offline_dialogue.readings(source, prompt.input("context"), text)
    else:
        readings = offline_summary.readings(source, text)
    rubric = offline_rubric.rubric_for(question.kind, question.aspect)
    guide = offline_raters.learnt(prompt.instructions)
    ends = (question.low, question.high)
    if guide is not None:
        rubric, ends = offline_raters.under(guide, question.kind, rubric), (guide.low, guide.high)
    return Assessment(question, rubric, readings, _raised(prompt, rubric), ends)


def _raised(prompt: Prompt, rubric: Rubric) -> frozenset[str]:
    """The later items that the prompt names: in turns of the Critic, in evaluation steps, or by other referees.

    A referee also looks at one more item, chosen by the hash of its role.
    """
    debate = prompt.input("debate")
    if "other referees" in prompt.role.lower():
        own = rubric.later[hashlib.sha256(prompt.role.encode("utf-8", "surrogatepass")).digest()[0] % len(rubric.later)]
        return _named(rubric, debate) | {own.name}
    turns = [line for line in debate.splitlines() if line.startswith("Critic, round ")]
    return _named(rubric, "\n".join([prompt.input("steps"), *turns]))


def _named(rubric: Rubric, said: str) -> frozenset[str]:
    # Text in quotation marks is the candidate's.
    own_words = _QUOTED.sub("", said)
    return frozenset(item.name for item in rubric.later if FEATURES[item.name].phrase in own_words)


def score(prompt: Prompt) -> dict[str, str]:
    """The Scorer, G-Eval's form and ChatEval's referee: the first look and the named items."""
    case = case_of(prompt)
    return {"rationale": case.reasons(), "score": case.score(case.merit(), step_of(prompt.fineness))}


@lru_cache(maxsize=256)
def step_of(told: str) -> float | None:
    """The step of the scores that are asked for, or None if any number is allowed."""
    steps = _STEPS.search(told)
    if steps:
        return float(steps[1])
    return 1.0 if _WHOLE.search(told) and not _DECIMALS.search(told) else None


def criticise(prompt: Prompt) -> dict[str, str]:
    """The Critic: raises the next reading that was not named yet and changes the score by the persona's threshold."""
    case = case_of(prompt)
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
    review = f"{LABEL}{len(open_items)} of {checked} readings would still move the score; the first is taken up."
    feedback = f"{LABEL}{case.spoken(item)}. This speaks for a {direction} score."
    return {"review": review, "decision": "ISSUE", "feedback": feedback}


def break_tie(prompt: Prompt) -> dict[str, str]:
    """The Tie-breaker: weighs all readings, raised or not, and sides with the role that was nearer."""
    case = case_of(prompt)
    now, final = case.merit(), case.merit(everything=True)
    # The Scorer's latest score contains what was raised; if the other readings change it, the Critic was right.
    moved = abs(final - now) >= offline_persona.PLAIN_THRESHOLD / 2
    rest = [
        case.spoken(item)
        for item, change in offline_rubric.effects(case.rubric, case.readings)
        if item.name not in case.raised and abs(change) >= offline_persona.PLAIN_THRESHOLD / 2
    ]
    unheard = f" Not yet raised: {'; '.join(rest)}." if rest else " Nothing of weight was left unsaid."
    count = len(case.rubric.items)
    reasoning = f"{LABEL}all {count} readings give merit {final:.2f}, the debate so far {now:.2f}.{unheard}"
    return {
        "reasoning": reasoning,
        "side": "Critic" if moved else "Scorer",
        "final_score": case.score(final, step_of(prompt.fineness)),
    }
