"""How severe the offline Critic is, by a weighted count of stern and mild words in its persona.

An optimizer may reword a persona, so personas are not recognised by name: each wording adds or subtracts points, and
small changes of the text change the threshold a little.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

PLAIN_THRESHOLD = 0.04
"""The least change of merit, as a share of the scale, that a Critic with a neutral persona raises."""

_BOUNDS = (0.005, 0.3)

_WORDING: tuple[tuple[str, float], ...] = (
    (r"devil'?s advocate", 1.0),
    (r"as (?:much|hard|critical(?:ly)?|strict(?:ly)?|often|severe(?:ly)?) as (?:you can|possible)", 0.5),
    (r"strict|severe|harsh|rigorous|relentless|ruthless|merciless|uncompromising|unforgiving", 0.75),
    (r"argue against|oppos|attack|challeng|contest|refut|disprov|contradict", 0.25),
    (r"criticis|criticiz|critical|find fault|flaw|fault|objection", 0.25),
    (r"every (?:objection|point|reason|claim|detail|sentence)|each (?:reason|claim|point|detail|sentence)", 0.25),
    (r"scepti|skepti|demanding|doubt|suspic|literally|thorough|scrutin", 0.25),
    (r"only (?:if|when) (?:no|nothing|you are certain)|nothing is too small", 0.25),
    (r"mild|gentl|leniently|lenient|generous|forgiv|charitabl|tolerant|indulgent", -1.0),
    (r"moderate", -1.25),
    (r"supportive|encourag|benevolen|kindly|goodwill|friendly|sympath", -1.0),
    (r"constructive|cautious|reserved", -0.5),
    (r"only where|only major|only grave|only serious|clearly weak|on the whole|by and large", -0.5),
    (r"benefit of the doubt", -1.25),
)
_PATTERNS = tuple((re.compile(pattern), points) for pattern, points in _WORDING)
_NEGATION = re.compile(r"\b(?:not|never|no|without|don't|neither|nor|avoid)\b(?:\W+\w+){0,2}\W*$")


@lru_cache(maxsize=256)
def threshold(role: str) -> float:
    """The least change of merit that the Critic raises; each point of sternness halves it.

    Each kind of wording counts once; right after a negation it counts half, with the opposite sign.
    """
    text = " ".join(role.lower().replace("’", "'").replace("no issue", "").split())
    points = 0.0
    for pattern, value in _PATTERNS:
        match = pattern.search(text)
        if match:
            points += -value / 2 if _NEGATION.search(text[: match.start()]) else value
    low, high = _BOUNDS
    return min(high, max(low, PLAIN_THRESHOLD * math.exp2(-points)))
