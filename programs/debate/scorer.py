"""The Scorer: one score with its reasons, and later a revised one in the light of the debate."""

from __future__ import annotations

import dspy

from debate_judge.programs.judge import Item
from debate_judge.programs.roles.role import JudgeSignature, NoAnswer, RoleReply
from debate_judge.programs.roles.sampled import Sampled
from debate_judge.programs.roles.score_modes import TEXT, Mode, score_in
from debate_judge.programs.transcript import Transcript, Turn


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


class Scorer(Sampled):
    """Gives the first score and every revision; predictor name `scorer.predict`.

    Args:
        mode: How its replies become scores.
        instructions: In place of the built-in ones.
    """

    speaker = "scorer"

    def __init__(self, mode: Mode = TEXT, instructions: str | None = None) -> None:
        super().__init__(WholeScoring if mode.name == "expected" else Scoring, instructions)
        self.mode = mode

    async def speak(self, item: Item, transcript: Transcript, preamble: str = "") -> Turn | NoAnswer:
        """Score `item` given the debate so far (empty for the first score), in a debate with what all are told.

        Raises:
            InputError: The mode is `expected` and the points of the aspect's scale cannot be tokens.
        """
        answer = await score_in(self.mode, self, item, str(transcript), preamble=preamble)
        if not isinstance(answer, RoleReply):
            return answer
        found = answer.value
        return Turn("scorer", transcript.rounds, found.rationale, score=found.score, calls=answer.calls)
