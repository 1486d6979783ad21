"""The Scorer: one score with its reasons, and later a revised one in the light of the debate."""

from __future__ import annotations

import dspy

from debate_judge.programs.roles.role import JudgeSignature
from debate_judge.programs.roles.score_modes import TEXT, Mode, ScoringRole


class Scoring(JudgeSignature):
    """You are the Scorer. Judge the candidate in the given aspect only, by its definition and against the
    source, thinking step by step. Where a debate is given, weigh the Critic's latest points: accept what the
    material bears out, reject what it does not, and revise your score accordingly. Use the whole scale;
    decimals are welcome where the truth lies between two points."""

    rationale: str = dspy.OutputField(desc="your reasons, step by step, with the places in the text that they rest on")
    score: str = dspy.OutputField(desc="one number on the aspect's scale and nothing else")


class WholeScoring(JudgeSignature):
    """You are the Scorer. Judge the candidate in the given aspect only, by its definition and against the
    source, thinking step by step. Where a debate is given, weigh the Critic's latest points: accept what the
    material bears out, reject what it does not, and revise your score accordingly. Use the whole scale, and
    only its points."""

    rationale: str = dspy.OutputField(desc="your reasons, step by step, with the places in the text that they rest on")
    # Its probability is read off one token, which a decimal would not be.
    score: str = dspy.OutputField(desc="one whole number on the aspect's scale and nothing else")


class Scorer(ScoringRole):
    """Gives the first score and every revision; predictor name `scorer.predict`."""

    def __init__(self, mode: Mode = TEXT) -> None:
        super().__init__("scorer", WholeScoring if mode.name == "expected" else Scoring, mode=mode)
