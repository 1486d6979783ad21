"""The members of a ChatEval discussion: the referees' roles, what a referee and the summarizer are asked for.

The five diverse roles follow ChatEval, appendix A, in this project's own words. A role is the instructions of
its own predictor, so that a tuner finds and rewrites each by its name, e.g. `roles['critic'].predict`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import dspy

from debate_judge.data.schema import Scale
from debate_judge.programs.judge import Item
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.role import Fields, JudgeSignature, NoAnswer, Role, RoleReply, material, sample

ROLES = MappingProxyType(
    {
        "general-public": "You stand for the general public: a curious reader without special knowledge who wants to "
        "know what happened and how it goes on. Form an opinion of your own first, and say what such a reader gains "
        "from the text and what is missing.",
        "critic": "You are the critic. You look at fluent writing, clear sentences and well-chosen words. Where "
        "others have spoken, question whether their judgement is well considered, and offer another view where two "
        "opinions or two texts seem to be level.",
        "news-author": "You are a news author. What counts for you is that every statement agrees with the source: "
        "help the others to see what the source bears out and what it does not.",
        "psychologist": "You are a psychologist. You study how people think and behave: explain how people will "
        "understand the text and respond to it, and help the others to weigh that.",
        "scientist": "You are a scientist, used to systematic study. Reason from evidence, put every claim to the "
        "test, and help the others to solve disputed points by method instead of impression.",
        "annotator": "You are an annotator, one of the referees of this text evaluation.",
        "evaluator": "You evaluate the candidate.",
    }
)
"""Name -> text: the paper's five, the one role of its ablation (section 4.1), and that of a lone judge."""

_ALONE = (
    "Judge in the given aspect only, by its definition and against the source. Think critically, then give your "
    "score. Use the whole scale; decimals are welcome."
)
_TOGETHER = (
    "Other referees have the same task. Where a debate is given, it is what you have heard of the discussion so "
    "far: think critically about it and answer it from your own point of view. Judge in the given aspect only, by "
    "its definition and against the source, and close with the score that you now stand by; it need not be that of "
    "the others. Keep your contribution short and clear. Use the whole scale; decimals are welcome."
)

COMPARISON_SCALE = Scale(1, 10)
"""On which two answers are scored to be compared, as in the paper (Table 4), whatever scale raters used."""


class Refereeing(JudgeSignature):
    """The role stands here."""

    rationale: str = dspy.OutputField(desc="what you say: your point, short and clear, with your reasons")
    score: str = dspy.OutputField(desc="one number on the aspect's scale and nothing else")


class Comparing(dspy.Signature):
    """The role stands here."""

    task: str = dspy.InputField()
    source: str = dspy.InputField()
    context: str = dspy.InputField(default="")
    aspect: str = dspy.InputField()
    answer_1: str = dspy.InputField()
    answer_2: str = dspy.InputField()
    debate: str = dspy.InputField(default="")
    correction: str = dspy.InputField(default="")
    rationale: str = dspy.OutputField(desc="what you say: your point, short and clear, with your reasons")
    score_1: str = dspy.OutputField(desc="the score of answer 1: one number on the aspect's scale and nothing else")
    score_2: str = dspy.OutputField(desc="the score of answer 2: one number on the aspect's scale and nothing else")


class Summarizing(dspy.Signature):
    """You keep the minutes of a discussion among referees. Sum up all that was said so far, so that a referee who
    reads your summary instead of the discussion knows every argument, who holds it, what is agreed, what is
    disputed and each referee's latest score. Add no opinion of your own."""

    task: str = dspy.InputField()
    aspect: str = dspy.InputField()
    debate: str = dspy.InputField()
    correction: str = dspy.InputField(default="")
    summary: str = dspy.OutputField(desc="the summary, as short as it can be without losing an argument")


@dataclass(frozen=True, slots=True)
class RefereeOpinion:
    """What a referee says, and its scores: one, or one for each of two answers."""

    text: str
    scores: tuple[float, ...]


class Referee(Role):
    """One debater agent; its instructions are its role and how it takes part.

    Args:
        name: How the others know it.
        role: Its role's text.
        alone: Whether it speaks without others; it is not told of any then.
    """

    def __init__(self, name: str, role: str, alone: bool) -> None:
        super().__init__(name, Refereeing, f"{role.strip()} {_ALONE if alone else _TOGETHER}")

    async def rate(self, item: Item, heard: str, samples: Sequence[int]) -> RoleReply[RefereeOpinion] | NoAnswer:
        """Score the candidate of `item`, knowing what was `heard`.

        Args:
            item: The question.
            heard: The discussion as far as it reached this referee.
            samples: Numbers of the samples to draw; the scores are averaged, and the others hear the first
                sample's words. A single one is asked with the LM's own settings.
        """

        def read(fields: Fields) -> RefereeOpinion | replies.Unreadable:
            value = replies.score(fields["score"], item.aspect.scale, item.aspect.name)
            return value if isinstance(value, replies.Unreadable) else RefereeOpinion(fields["rationale"], (value,))

        return await _opinion(self, item, heard, read, samples)

    async def compare(
        self, pair: tuple[Item, Item], heard: str, samples: Sequence[int]
    ) -> RoleReply[RefereeOpinion] | NoAnswer:
        """Score both answers, the first of `pair` shown as answer 1; else as `rate`."""
        first, second = pair
        task = first.task
        told = (
            f"The source is a {task.source_label}; answer 1 and answer 2 are two {task.candidate_label} texts for it. "
            "They are compared in one aspect: each gets a score of its own, and neither the order in which they "
            "stand nor their length may count."
        )
        if first.context:
            told += f" The context is a {task.context_label} that belongs to the source."
        inputs = {
            "task": told,
            "answer_1": material(first, "")["candidate"],
            "answer_2": material(second, "")["candidate"],
        }
        # The same instructions under another form: what a tuner made of a role holds for both.
        role = Role(self.speaker, Comparing, self.predict.signature.instructions)
        return await _opinion(role, first, heard, _read_pair, samples, inputs)


async def _opinion(
    role: Role,
    item: Item,
    heard: str,
    read: Callable[[Fields], RefereeOpinion | replies.Unreadable],
    samples: Sequence[int],
    inputs: dict[str, str] | None = None,
) -> RoleReply[RefereeOpinion] | NoAnswer:
    settings: list[dict[str, Any]] = [{}] if len(samples) == 1 else [sample(number) for number in samples]
    answers = await asyncio.gather(*(role.ask(item, read, debate=heard, inputs=inputs, settings=s) for s in settings))
    calls = sum(answer.calls for answer in answers)
    opinions: list[RefereeOpinion] = []
    for answer in answers:
        if isinstance(answer, NoAnswer):
            return replace(answer, calls=calls)
        opinions.append(answer.value)
    columns = zip(*(opinion.scores for opinion in opinions), strict=True)
    means = tuple(math.fsum(column) / len(opinions) for column in columns)
    return RoleReply(RefereeOpinion(opinions[0].text, means), calls)


def _read_pair(fields: Fields) -> RefereeOpinion | replies.Unreadable:
    scores = []
    for name in ("score_1", "score_2"):
        value = replies.score(fields[name], COMPARISON_SCALE)
        if isinstance(value, replies.Unreadable):
            return replies.Unreadable(f"{name}: {value.why}")
        scores.append(value)
    return RefereeOpinion(fields["rationale"], tuple(scores))


class Summarizer(Role):
    """The extra LM of Algorithm 3; predictor name `summarizer.predict`."""

    def __init__(self) -> None:
        super().__init__("summarizer", Summarizing)

    async def sum_up(self, item: Item, said: str) -> RoleReply[str] | NoAnswer:
        """Sum up all that was said so far."""

        def read(fields: Fields) -> str | replies.Unreadable:
            return fields["summary"].strip() or replies.Unreadable("the summary was empty")

        return await self.ask(item, read, debate=said)
