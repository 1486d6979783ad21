"""Hallucination detection in one call over the whole response: the baselines of the hallucination debate.

There are two (Sun et al. 2024, section 4.1.1). The plain check compares the response with the source and all given
knowledge. In the self-check, after Factool (Chern et al. 2023), the LM checks the statements by its own knowledge: it
sees the source but no given knowledge, and three worked examples or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dspy

from debate_judge.programs.hallucination.evidence import ANSWER_NOTE, response_type_of
from debate_judge.programs.hallucination.judge import (
    FACTUALITY,
    OPINION,
    SEVERITY,
    ClaimTurn,
    claim_score,
    parse_assessment,
    without_removed_options,
)
from debate_judge.programs.judge import DebateConfig, Item, ItemJudge
from debate_judge.programs.option_values import whole_number, yes_or_no
from debate_judge.programs.roles.role import ReplyFailure, Role, task_description
from debate_judge.programs.transcript import EMPTY, Transcript

PLAIN = (
    "You check whether a response is factual. Compare all that it states with what is given and with what a careful "
    "reader concludes from that. It is factual if nothing in it is contradicted or without support; one hallucinated "
    "statement makes it not factual. Say whether it is factual and how severe its worst error is."
)
SELF_CHECK = (
    "You check a response for statements that are not factual, by what you know yourself and by the source where the "
    "source has it. Go through the response statement by statement, step by step: what does it say, is that so, "
    "and if not, what would be right? One false statement makes the response not factual. Close with whether it is "
    "factual and how severe its worst error is."
)

EXAMPLES: tuple[tuple[str, str, str, bool, int], ...] = (
    (
        "How many moons does Mars have?",
        "Mars has two moons, Phobos and Deimos.",
        "Statement: Mars has two moons. That is so. Statement: they are Phobos and Deimos. Both were found in 1877 and "
        "no other is known. Nothing is wrong.",
        True,
        0,
    ),
    (
        "Who painted the ceiling of the Sistine Chapel?",
        "It was painted by Raphael between 1508 and 1512.",
        "Statement: Raphael painted it. Michelangelo did; Raphael worked in other rooms of the palace. Statement: "
        "between 1508 and 1512. The years are right. The answer to the question itself is false.",
        False,
        4,
    ),
    (
        "Tell me about the river Rhine.",
        "The Rhine rises in the Alps and flows into the North Sea. It is the longest river in Europe.",
        "Statement: it rises in the Alps. So it does. Statement: it flows into the North Sea. So it does, in the "
        "Netherlands. Statement: it is Europe's longest river. The Volga is almost three times as long. That misleads "
        "about the size of the river.",
        False,
        3,
    ),
)
"""(source, response, opinion, factuality, severity), about general knowledge that is in none of the public sets."""


class Checking(dspy.Signature):
    """The way of checking stands here."""

    examples: str = dspy.InputField(default="")
    task: str = dspy.InputField()
    source: str = dspy.InputField()
    context: str = dspy.InputField(default="")
    candidate: str = dspy.InputField()
    correction: str = dspy.InputField(default="")
    opinion: str = dspy.OutputField(desc=OPINION.replace("the claim", "the response"))
    factuality: str = dspy.OutputField(desc=FACTUALITY)
    severity: str = dspy.OutputField(desc=SEVERITY)


class HallucinationCheck(ItemJudge):
    """A judge by one call; predictor name `checker`.

    Args:
        self_check: Whether to check by the LM's own knowledge instead of given knowledge.
        examples: Number of worked examples in the prompt of a self-check, 0 to 3.
    """

    kind = "hallucination-check"
    settable = ("self_check", "examples")

    def __init__(self, self_check: bool = False, examples: int = 0) -> None:
        super().__init__(DebateConfig(rounds=0))
        self.self_check = yes_or_no("self_check", self_check)
        self.examples = whole_number("examples", examples, maximum=len(EXAMPLES) if self_check else 0)
        self.checker = Role("checker", Checking, SELF_CHECK if self_check else PLAIN)

    async def converse_about(self, item: Item, rounds: int) -> Transcript:
        context = "" if self.self_check else item.context
        task = f"{task_description(item.task, bool(context))} The candidate is the response."
        inputs = {"task": f"{task} {ANSWER_NOTE}" if response_type_of(item.task) == "answer" else task}
        if self.self_check:
            inputs |= {"context": "", "examples": "\n\n".join(map(_example, EXAMPLES[: self.examples]))}
        reply = await self.checker.ask(item, parse_assessment, inputs=inputs)
        if isinstance(reply, ReplyFailure):
            return EMPTY.add(reply.as_failure("checker", 0))
        score = claim_score(reply.value, item.aspect.scale)
        return EMPTY.add(ClaimTurn.from_reply("checker", 0, reply, score))

    def config(self) -> dict[str, Any]:
        return {"self_check": self.self_check, "examples": self.examples}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> HallucinationCheck:
        return cls(**without_removed_options(config))


def _example(example: tuple[str, str, str, bool, int]) -> str:
    source, response, opinion, factual, severity = example
    return f"Source: {source}\nResponse: {response}\nOpinion: {opinion}\nFactuality: {factual}\nSeverity: {severity}"
