"""Scorer, Critic and Tie-breaker of the offline LM. Stateless: each reads the prompt and nothing else.

Evidence travels through the debate by its phrase. The Scorer weighs what the Critic's turns name, reads it
off the material again, and never does arithmetic on an earlier score.
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
"""How every statement of the offline LM begins, so that it is not taken for a reader's."""

NO_ISSUE = "NO ISSUE"

ALL_IS_WELL = 0.75
"""The merit above which nothing needs to be quoted."""

_WHOLE = re.compile(r"whole (?:number|point)|integer|no decimals|without decimals", re.IGNORECASE)
_DECIMALS = re.compile(r"decimals? (?:are|is) (?:welcome|allowed|fine)", re.IGNORECASE)
_STEPS = re.compile(r"in steps of (\d+(?:\.\d+)?)", re.IGNORECASE)
_QUOTED = re.compile(r'"[^"]*"')


@dataclass(frozen=True, slots=True)
class Assessment:
    """What is on the table: the measurements and the rubric that weighs them."""

    question: JudgedQuestion
    rubric: Rubric
    readings: Mapping[str, Measurement]
    raised: frozenset[str]
    """Names of the later items that the Critic has brought up so far."""
    ends: tuple[float, float]
    """The scores of merit 0 and 1: those of the scale, or those that a guide to the raters names."""

    @property
    def span(self) -> float:
        return self.question.high - self.question.low

    def merit(self, everything: bool = False) -> float:
        names = {item.name for item in self.rubric.later} if everything else self.raised
        return offline_rubric.weigh(self.rubric, self.readings, names)

    def score(self, merit: float, step: float | None = None) -> str:
        """The score as it is written: in steps from the low end of the scale, or in three digits across it."""
        low, high = self.question.low, self.question.high
        value = self.ends[0] + (self.ends[1] - self.ends[0]) * merit
        rounded = (
            low + step * floor((value - low) / step + 0.5) if step else round(value, max(0, 3 - ceil(log10(self.span))))
        )
        return f"{min(high, max(low, rounded)):.12g}"

    def reasons(self) -> str:
        """The heaviest readings of the first look and all that were raised."""
        own = sorted(self.rubric.first, key=lambda item: -item.weight)[:2]
        taken = [self.spoken(item) for item in self.rubric.later if item.name in self.raised]
        heard = f"; weighed in: {'; '.join(taken)}" if taken else ""
        return f"{LABEL}{'; '.join(map(self.spoken, own))}{heard}. Merit {self.merit():.2f} of 1."

    def spoken(self, item: Weighting) -> str:
        """An item as it is said: with its value and, unless all is well, its place in the text."""
        reading = self.readings[item.name]
        well = (item.merit(reading) or 0.0) > ALL_IS_WELL
        place = f', "{_plain(reading.evidence)}"' if reading.evidence and not well else ""
        return FEATURES[item.name].spoken(reading) + place


def _plain(text: str) -> str:
    return " ".join(text.replace('"', "'").split())


def case_of(prompt: Prompt, candidate: str = "candidate") -> Assessment:
    """Measure what a prompt asks about.

    Args:
        prompt: The request.
        candidate: Name of the field with the text to be judged.
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
    """The later items that the speaker was told of: by the Critic, by evaluation steps, or by any other referee.

    A referee has also looked at one item by itself, which its role's wording chooses.
    """
    debate = prompt.input("debate")
    if "other referees" in prompt.role.lower():
        own = rubric.later[hashlib.sha256(prompt.role.encode("utf-8", "surrogatepass")).digest()[0] % len(rubric.later)]
        return _named(rubric, debate) | {own.name}
    turns = [line for line in debate.splitlines() if line.startswith("Critic, round ")]
    return _named(rubric, "\n".join([prompt.input("steps"), *turns]))


def _named(rubric: Rubric, said: str) -> frozenset[str]:
    # What stands in quotation marks are the candidate's words.
    own_words = _QUOTED.sub("", said)
    return frozenset(item.name for item in rubric.later if FEATURES[item.name].phrase in own_words)


def score(prompt: Prompt) -> dict[str, str]:
    """The Scorer, a form of G-Eval, a referee: its own look and whatever it was told of."""
    case = case_of(prompt)
    return {"rationale": case.reasons(), "score": case.score(case.merit(), step_of(prompt.fineness))}


@lru_cache(maxsize=256)
def step_of(told: str) -> float | None:
    """The step that scores are asked for in, or None where any number will do."""
    steps = _STEPS.search(told)
    if steps:
        return float(steps[1])
    return 1.0 if _WHOLE.search(told) and not _DECIMALS.search(told) else None


def criticise(prompt: Prompt) -> dict[str, str]:
    """The Critic: the next reading that was not named yet and whose weight reaches the persona's threshold."""
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
    """The Tie-breaker: all evidence, raised or not, and who was nearer to it."""
    case = case_of(prompt)
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
    return {
        "reasoning": reasoning,
        "side": "Critic" if moved else "Scorer",
        "final_score": case.score(final, step_of(prompt.fineness)),
    }
