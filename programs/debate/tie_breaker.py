"""The Tie-breaker: reads a debate that ended without agreement and gives the final score (appendix E.3)."""

from __future__ import annotations

import dspy

from debate_judge.programs.debate.briefing import Briefing
from debate_judge.programs.judge import Item
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.role import Fields, JudgeSignature, NoAnswer, Role
from debate_judge.programs.transcript import Failure, Transcript, Turn


class TieBreaking(JudgeSignature):
    """The rounds of the debate are used up. Check each disputed point against the texts, settle it by the guide to
    the raters, or by the definition of the aspect where there is none, and give the final score."""

    reasoning: str = dspy.OutputField(desc="the disputed points and how the texts settle them")
    side: str = dspy.OutputField(desc="whose latest position is nearer to your score, Scorer or Critic")
    final_score: str = dspy.OutputField(desc="one number on the aspect's scale and nothing else")


class TieBreaker(Role):
    """Called at most once, after the last round; predictor name `tie_breaker.predict`."""

    def __init__(self) -> None:
        super().__init__("tie-breaker", TieBreaking)

    async def speak(self, item: Item, transcript: Transcript, briefing: Briefing) -> Turn | Failure:
        """Decide an open debate."""

        def read(fields: Fields) -> tuple[float, str] | replies.Unreadable:
            value = replies.score(fields["final_score"], item.aspect.scale, item.aspect.name)
            if isinstance(value, replies.Unreadable):
                return value
            side = fields["side"].strip()
            return value, f"({side}) {fields['reasoning']}" if side else fields["reasoning"]

        answer = await self.ask(
            item, read, debate=str(transcript), inputs=briefing.tie_breaker(self.predict.signature.instructions)
        )
        if isinstance(answer, NoAnswer):
            return answer.at(self.speaker, transcript.rounds)
        score, reasoning = answer.value
        return Turn(self.speaker, transcript.rounds, reasoning, score=score, calls=answer.calls)
