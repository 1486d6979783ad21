"""For tests of debates: an item, replies that follow the protocol, and the roles of prompts."""

from __future__ import annotations

import re

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs.judge import Item, Judge, Judgement, Unscored
from tests.fakes import ScriptedLM, hold, in_turn, only, requested, scripted_lm

COHERENCE = Aspect("coherence", "Do the sentences build on each other?", Scale(1, 5))
TASK = Task("summarization", "news article", "summary", (COHERENCE,))
ITEM = Item("g1", "c1", TASK, COHERENCE, "Rain fell. Roads closed.", "Roads closed after rain.")


def score_reply(value: object, why: str = "Because.") -> str:
    return f"[[ ## rationale ## ]]\n{why}\n\n[[ ## score ## ]]\n{value}"


def issue_reply(feedback: str = "Too high.") -> str:
    return f"[[ ## feedback ## ]]\n{feedback}"


def no_issue_reply() -> str:
    return issue_reply("NO ISSUE")


def tie_break_reply(value: object, side: str = "Critic") -> str:
    return f"[[ ## reasoning ## ]]\nAll told.\n\n[[ ## side ## ]]\n{side}\n\n[[ ## final_score ## ]]\n{value}"


def judged(judge: Judge, *replies: str, item: Item = ITEM) -> tuple[Judgement, ScriptedLM]:
    lm = scripted_lm(in_turn(replies))
    return hold(lm, only(judge.judge([item]))), lm


def speaker(prompt: str) -> str:
    """The role of a prompt, by the fields that it requests."""
    roles = {"rationale": "scorer", "feedback": "critic", "case_for_less": "critic", "reasoning": "tie-breaker"}
    return roles[requested(prompt)[0]]


def speakers(lm: ScriptedLM) -> list[str]:
    return [speaker(prompt) for prompt in lm.prompts]


def debates_shown(lm: ScriptedLM) -> list[str]:
    """The whole debate in each prompt, also if it contains headers."""
    return [
        re.sub(
            r"\n\n\[\[ ## (?:precedents|role) ## \]\].*",
            "",
            prompt.partition("[[ ## debate ## ]]\n")[2],
            flags=re.DOTALL,
        )
        for prompt in lm.prompts
    ]


def outcome_of(judgement: Judgement) -> tuple[object, ...]:
    if isinstance(judgement, Unscored):
        return (judgement.reason, judgement.detail, judgement.calls, str(judgement.transcript))
    return (judgement.score, judgement.rounds, judgement.stop_reason, judgement.calls, str(judgement.transcript))
