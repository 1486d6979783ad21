"""The smallest judge there can be: what its author writes, besides one line in `JUDGES`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dspy

from debate_judge.programs.judge import Item, Judge, Judgement, Unscored, Verdict
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.role import ADAPTER, JudgeSignature, NoAnswer, Role
from debate_judge.programs.transcript import Failure, Transcript, Turn


class Glancing(JudgeSignature):
    """You glance at the candidate and say how good it is in the aspect."""

    score: str = dspy.OutputField(desc="one number on the aspect's scale and nothing else")


class Toy(Judge):
    """One glance, one score."""

    kind = "toy"

    def __init__(self) -> None:
        super().__init__()
        self.glance = Role(Glancing)

    async def converse(self, item: Item, rounds: int) -> Transcript:
        with dspy.context(adapter=ADAPTER):
            answer = await self.glance.ask(
                item, "", lambda f: replies.score(f["score"], item.aspect.scale, item.aspect.name)
            )
        if isinstance(answer, NoAnswer):
            return Transcript().fail(Failure("glance", 0, answer.reason, answer.detail, answer.calls))
        return Transcript((Turn("glance", 0, "", score=answer.value, calls=answer.calls),))

    def verdict(self, transcript: Transcript, rounds: int) -> Judgement:
        failure = transcript.failure
        if failure is not None:
            return Unscored(failure.reason, failure.detail, transcript.calls, transcript)
        score = transcript.turns[-1].score
        assert score is not None
        return Verdict(score, 0, "single call", transcript.calls, transcript)

    def config(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Toy:
        return cls()
