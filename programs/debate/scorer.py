"""The Scorer: gives a score with its reasons, and later revises it after each criticism."""

from __future__ import annotations

import dspy

from debate_judge.programs.roles.role import JudgeSignature
from debate_judge.programs.roles.score_modes import TEXT, Mode, ScoringRole


class Scoring(JudgeSignature):
    """Judge the candidate in the given aspect alone, by its definition; use the source as far as the definition needs
    it. Faults and merits of other kinds do not count, however plain they are. Traces of processing, such as lower case,
    blanks around punctuation, a dateline or a missing last full stop, count for nothing. Name the places in the texts
    that raise or lower the score; for a clean text say that nothing was found. Use the whole scale: the best score is
    for a text in which you find nothing that the definition names, and trifles take nothing off."""

    # These instructions are the standard that all roles of the debate read (`programs.debate.briefing`), so they say
    # how to judge and do not address the Scorer.
    rationale: str = dspy.OutputField(desc="your reasons, step by step, with the places in the texts that they rest on")
    score: str = dspy.OutputField(desc="one number on the aspect's scale and nothing else")


class Scorer(ScoringRole):
    """Gives the first score and every revision; predictor name `scorer.predict`."""

    def __init__(self, mode: Mode = TEXT) -> None:
        super().__init__("scorer", Scoring, mode=mode)
