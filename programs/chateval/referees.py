"""The referees and the summarizer of a ChatEval discussion: their roles, their prompts and what is read of a reply.

The five diverse roles follow ChatEval, appendix A, in this project's own words. Each role is the instructions of its
own predictor, so that a tuner can rewrite it by its name, e.g. `roles['critic']`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import dspy

from debate_judge.data.schema import Aspect, Scale
from debate_judge.programs.judge import Item
from debate_judge.programs.lm.usage import CallTag
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.role import (
    SAMPLING,
    Fields,
    JudgeSignature,
    NoAnswer,
    Role,
    RoleReply,
    ask,
    kinds,
)

ROLES = MappingProxyType(
    {
        "general-public": "You stand for the general public: the reader without special knowledge for whom the text "
        "was written. Form an opinion of your own first: say what such a reader gets from the text, what is missing "
        "or puzzling, and how much that matters.",
        "critic": "You are the critic. You look at fluent writing, clear sentences and well-chosen words, and you ask "
        "of every judgement, your own included, whether it is well considered. Where two opinions or two texts are "
        "level, say that they are.",
        "news-author": "You are a news author, used to checking before anything is printed. What counts for you is "
        "that every statement is right: borne out by the given material where that holds facts, and by what is known "
        "for certain where it holds none.",
        "psychologist": "You are a psychologist. You study how people think and behave: explain how people will "
        "understand the text and respond to it.",
        "scientist": "You are a scientist, used to systematic study. Reason from evidence, put every claim to the "
        "test, and settle doubtful points by method instead of impression.",
        "annotator": "You are an annotator.",
        "evaluator": "You are the evaluator.",
    }
)
"""Name -> text: the paper's five roles, the single role of its ablation (section 4.1), and that of a single referee.

They fit any kind of text and do not mention other referees, because a referee may be alone.
"""

_ALONE = (
    "Judge in the given aspect only, by its definition and by the material. Think critically, then give your score. "
    "Use the whole scale; half points are welcome."
)
_TOGETHER = (
    "Other referees have the same task. Where a debate is given, it is what was said so far, your own words included: "
    "weigh it from your own point of view. Raise only what would move a score by half a point or more, and say by how "
    "much and on what it rests. To agree is worth as much as to object: where an opinion convinces you, say so in one "
    "sentence and look for nothing else. Judge in the given aspect only, by its definition and by the material. Change "
    "your score for a reason that the material bears out and not to meet the others; close with the score that you "
    "now stand by. Keep your contribution short and clear. Use the whole scale; half points are welcome."
)

COMPARISON_SCALE = Scale(1, 10)
"""The scale for comparing two answers, as in the paper (Table 4), whatever scale the raters used."""


def compared_aspect(aspect: Aspect) -> Aspect:
    """The aspect on `COMPARISON_SCALE`; a sentence converts the points that its definition mentions to that scale."""
    raters, ours = aspect.scale, COMPARISON_SCALE
    conversion = ""
    if (raters.low, raters.high) != (ours.low, ours.high) and any(c.isdecimal() for c in aspect.definition):
        conversion = (
            f" Points named in this definition are on a scale of {raters}; yours is {ours}: what it says of "
            f"{raters.low:g} holds for {ours.low:g}, and what it says of {raters.high:g} for {ours.high:g}."
        )
    return replace(aspect, scale=ours, definition=aspect.definition + conversion)


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
class Opinion:
    """What a referee says, with one score, or one for each of two answers; a summary has none."""

    text: str
    scores: tuple[float, ...] = ()


class Referee(Role):
    """One referee; its instructions are its role and how to take part in the discussion.

    If there is none, it is `alone`, and other referees are not mentioned to it.
    """

    def __init__(self, name: str, role: str, alone: bool) -> None:
        super().__init__(name, Refereeing, f"{role.strip()} {_ALONE if alone else _TOGETHER}")

    async def rate(self, item: Item, heard: str, turn: int, samples: Sequence[int]) -> RoleReply[Opinion] | NoAnswer:
        """Score the candidate of `item` after the messages in `heard`.

        Several `samples`, by their numbers, are averaged, and the words are those of the first; a single one is drawn
        with the LM's own settings.
        """

        def read(fields: Fields) -> Opinion | replies.Unreadable:
            value = replies.score(fields["score"], item.aspect.scale, item.aspect.name)
            return value if isinstance(value, replies.Unreadable) else Opinion(fields["rationale"], (value,))

        return await self._opinion(item, read, samples, turn, debate=heard)

    async def compare(
        self, pair: tuple[Item, Item], heard: str, turn: int, samples: Sequence[int]
    ) -> RoleReply[Opinion] | NoAnswer:
        """Score both answers, the first of `pair` shown as answer 1; otherwise as `rate`."""
        first, second = pair
        inputs = {
            "task": f"{kinds(first.task, bool(first.context))} Answer 1 and answer 2 are two candidates. "
            "They are compared in one aspect: each gets a score of its own, and neither the order in which they "
            "stand nor their length may count. Two that are equally good get equal scores.",
            "answer_1": replies.escaped(first.text),
            "answer_2": replies.escaped(second.text),
        }
        # The same instructions with other fields, so that a tuned role is used for both.
        own = {"signature": Comparing.with_instructions(self.signature.instructions), "demos": []}
        return await self._opinion(first, _read_pair, samples, turn, debate=heard, inputs=inputs, **own)

    async def _opinion(
        self,
        item: Item,
        read: Callable[[Fields], Opinion | replies.Unreadable],
        samples: Sequence[int],
        turn: int,
        **prompt: Any,
    ) -> RoleReply[Opinion] | NoAnswer:
        tag = CallTag(self.speaker, turn)
        if len(samples) == 1:
            return await ask(self, item, read, tag, **prompt)
        tags = [replace(tag, sample=number) for number in samples]
        answers = await asyncio.gather(*(ask(self, item, read, t, settings=SAMPLING, **prompt) for t in tags))
        calls = sum(answer.calls for answer in answers)
        failed = next((answer for answer in answers if isinstance(answer, NoAnswer)), None)
        if failed is not None:
            return replace(failed, calls=calls)
        opinions = [answer.value for answer in answers if isinstance(answer, RoleReply)]
        columns = zip(*(opinion.scores for opinion in opinions), strict=True)
        means = tuple(math.fsum(column) / len(opinions) for column in columns)
        return RoleReply(Opinion(opinions[0].text, means), calls)


def _read_pair(fields: Fields) -> Opinion | replies.Unreadable:
    scores = []
    for name in ("score_1", "score_2"):
        value = replies.score(fields[name], COMPARISON_SCALE)
        if isinstance(value, replies.Unreadable):
            return replies.Unreadable(f"{name}: {value.why}")
        scores.append(value)
    return Opinion(fields["rationale"], tuple(scores))


def read_summary(fields: Fields) -> Opinion | replies.Unreadable:
    """The summary in the reply of the summarizer, the extra LM of Algorithm 3."""
    text = fields["summary"].strip()
    return Opinion(text) if text else replies.Unreadable("the summary was empty")
