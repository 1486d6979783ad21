"""The Scorer: one score with its reasons, and later a revised one in the light of the debate."""

from __future__ import annotations

import dspy

from programs import replies
from programs.judge import Item
from programs.role import Answer, Fields, Material, NoAnswer, Role
from programs.transcript import Transcript, Turn


class Scoring(Material):
    """You are the Scorer. Judge the candidate in the given aspect only, by its definition and against the
    source, thinking step by step. Where a debate is given, weigh the Critic's latest points: accept what the
    material bears out, reject what it does not, and revise your score accordingly. Use the whole scale;
    decimals are welcome where the truth lies between two points."""

    rationale: str = dspy.OutputField(desc="your reasons, step by step, with the places in the text that they rest on")
    score: str = dspy.OutputField(desc="one number on the aspect's scale and nothing else")


class Scorer(Role):
    """Gives the first score and every revision; predictor name `scorer.predict`."""

    speaker = "scorer"

    def __init__(self, instructions: str | None = None) -> None:
        super().__init__(Scoring, instructions)

    async def speak(self, item: Item, transcript: Transcript) -> Turn | NoAnswer:
        """Score `item` given the debate so far (empty for the first score)."""

        def read(fields: Fields) -> tuple[float, str] | replies.Unreadable:
            value = replies.score(fields["score"], item.aspect.scale)
            return value if isinstance(value, replies.Unreadable) else (value, fields["rationale"])

        answer = await self.ask(item, str(transcript), read)
        if not isinstance(answer, Answer):
            return answer
        score, rationale = answer.value
        return Turn("scorer", transcript.rounds, rationale, score=score, calls=answer.calls)
