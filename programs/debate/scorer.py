"""The Scorer: one score with its reasons, and later a revised one in the light of the debate."""

from __future__ import annotations

import dspy

from debate_judge.programs.roles.role import JudgeSignature
from debate_judge.programs.roles.score_modes import TEXT, Mode, ScoringRole


class Scoring(JudgeSignature):
    """Judge the candidate in the given aspect alone, by its definition and against the source; faults and merits of
    other kinds do not count, however plain they are. Traces of processing, such as lower case or blanks around
    punctuation, count for nothing, and an end that is cut off only for what it costs in this aspect. Rest every reason
    on a place in the texts. Use the whole scale: its best score is for what the definition calls best, and not for
    perfection."""

    # Scorer, Critic and Tie-breaker all read these instructions, as the standard that they argue from: so they say
    # how to judge, and not who is to speak (`programs.debate.briefing`).
    rationale: str = dspy.OutputField(desc="your reasons, step by step, with the places in the texts that they rest on")
    score: str = dspy.OutputField(desc="one number on the aspect's scale and nothing else")


class Scorer(ScoringRole):
    """Gives the first score and every revision; predictor name `scorer.predict`."""

    def __init__(self, mode: Mode = TEXT) -> None:
        super().__init__("scorer", Scoring, mode=mode)
