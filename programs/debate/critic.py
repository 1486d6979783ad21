"""The Critic: reviews the latest score according to its persona, and decides whether an issue remains."""

from __future__ import annotations

import dspy

from debate_judge.programs.debate.briefing import Briefing
from debate_judge.programs.debate.personas import STRICT, Persona
from debate_judge.programs.judge import Item
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.role import Fields, JudgeSignature, NoAnswer, Role
from debate_judge.programs.transcript import Failure, Transcript, Turn


class Criticism(JudgeSignature):
    """The persona stands here."""

    review: str = dspy.OutputField(desc="your own score with its reasons, then your check of the latest score")
    decision: str = dspy.OutputField(desc=f"{replies.NO_ISSUE} or ISSUE")
    # The other roles see only this field of the reply, so it has to contain the evidence.
    feedback: str = dspy.OutputField(desc="with ISSUE, the objection and its evidence; empty with NO ISSUE")


class Critic(Role):
    """Speaks once a round; its instructions are its persona; predictor name `critic.predict`."""

    def __init__(self, persona: Persona = STRICT) -> None:
        super().__init__("critic", Criticism, persona.text)

    async def speak(self, item: Item, transcript: Transcript, briefing: Briefing) -> Turn | Failure:
        """Review the latest score of the debate.

        Only the decision field of this reply counts: the words NO ISSUE elsewhere, quoted from the candidate or an
        earlier turn, change nothing.
        """

        def read(fields: Fields) -> tuple[bool, str] | replies.Unreadable:
            content = replies.no_issue(fields["decision"])
            if isinstance(content, replies.Unreadable):
                return content
            feedback = fields["feedback"] or fields["review"]
            if not content and not feedback:
                return replies.Unreadable("the decision was ISSUE but no feedback was given")
            return content, (replies.NO_ISSUE if content else feedback)

        number = transcript.rounds + 1
        answer = await self.ask(
            item, read, debate=str(transcript), inputs=briefing.critic(self.predict.signature.instructions)
        )
        if isinstance(answer, NoAnswer):
            return answer.at(self.speaker, number)
        content, text = answer.value
        return Turn(self.speaker, number, text, no_issue=content, calls=answer.calls)
