"""ChatEval (Chan et al. 2024): referees with different roles discuss, and their final scores are averaged.

A judge that is `comparing` compares candidates that come in pairs. A referee votes for the answer with the higher
score, by its latest scores averaged over the orders in which the answers were shown. The outcome is the majority's
(section 2), which may differ from the order of the mean scores.

Referees are not asked to agree (appendix B). Departures from the paper: referees give a score in every turn, not only
in the last one, so that a discussion can be read after any number of turns; and they see the scores of the messages
that they read.

`COMMUNICATION` has the paper's strategies (appendix C). What an agent reads does not depend on the number of turns, so
a discussion of T turns begins with every shorter one. The printed algorithms have four problems, which are solved here
according to the paper's text:

- `for t <- 0 to T` is T iterations, not T + 1: two agents and two turns cost 4.2 single calls (Table 6).
- Algorithm 1 as printed adds h_n, what agent n says, to the history H_m of agent m for m >= n and m > 1 only. So the
  first agent never hears any other, and its second turn repeats the first word for word; the second never hears the
  third. The text around it (what "previous other agents have said") and the authors' published program let every
  agent hear everything that was said before. That is `one-by-one`; the printed form is `one-by-one-printed`.
- In Algorithm 2 the buffer is never emptied; each message is meant to be heard once.
- In Algorithm 3 the summary is added to the histories; by the text it replaces them, and it sums up all that was
  said so far. The summary after the last turn would not be read and is not made.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import dspy

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.schema import Aspect, Scale
from debate_judge.programs.judge import MAX_ROUNDS, DebateConfig, Item, ItemJudge, StopReason, Verdict
from debate_judge.programs.lm.usage import CallTag
from debate_judge.programs.option_values import one_of, whole_number, yes_or_no
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.role import (
    SAMPLING,
    Fields,
    JudgeSignature,
    ReplyFailure,
    Role,
    RoleReply,
    ask,
    material_text,
)
from debate_judge.programs.roles.score_modes import MAX_SAMPLES
from debate_judge.programs.transcript import EMPTY, Transcript, Turn

# --- the referees ---

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

    async def rate(
        self, item: Item, heard: str, turn: int, samples: Sequence[int]
    ) -> RoleReply[Opinion] | ReplyFailure:
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
    ) -> RoleReply[Opinion] | ReplyFailure:
        """Score both answers, the first of `pair` shown as answer 1; otherwise as `rate`."""
        first, second = pair
        inputs = {
            "task": f"{material_text(first.task, bool(first.context))} Answer 1 and answer 2 are two candidates. "
            "They are compared in one aspect: each gets a score of its own, and neither the order in which they "
            "stand nor their length may count. Two that are equally good get equal scores.",
            "answer_1": replies.escaped(first.text),
            "answer_2": replies.escaped(second.text),
        }
        # The same instructions with other fields, so that a tuned role is used for both.
        overrides = {"signature": Comparing.with_instructions(self.signature.instructions), "demos": []}
        return await self._opinion(first, _read_pair, samples, turn, debate=heard, inputs=inputs, **overrides)

    async def _opinion(
        self,
        item: Item,
        read: Callable[[Fields], Opinion | replies.Unreadable],
        samples: Sequence[int],
        turn: int,
        **prompt: Any,
    ) -> RoleReply[Opinion] | ReplyFailure:
        tag = CallTag(self.speaker, turn)
        if len(samples) == 1:
            return await ask(self, item, read, tag, **prompt)
        tags = [replace(tag, sample=number) for number in samples]
        answers = await asyncio.gather(*(ask(self, item, read, t, settings=SAMPLING, **prompt) for t in tags))
        calls = sum(answer.calls for answer in answers)
        failed = next((answer for answer in answers if isinstance(answer, ReplyFailure)), None)
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


# --- the discussion ---

COMMUNICATION = (
    "one-by-one",  # Algorithm 1 as the authors' published program has it: every message reaches every agent
    "one-by-one-printed",  # Algorithm 1 to the letter
    "simultaneous",  # Algorithm 2: all speak at once, then each reads what all said
    "summarizer",  # Algorithm 3: the same, but each reads only a summary
    "none",  # the ensemble (section 3.2): each speaks once and reads nothing of the others
)

SUMMARIZER = "summarizer"
MAJORITY = "majority"
"""Name of the role that announces the outcome of a comparison in a transcript."""

_NAME = re.compile(r"[A-Za-z0-9][\w -]*")

Answer = RoleReply[Opinion] | ReplyFailure


@dataclass(frozen=True, slots=True)
class Message(Turn):
    scores: tuple[float, ...] = ()
    """One, which is the turn's, or in a comparison one for each answer; none for a summary."""

    def __str__(self) -> str:
        """The message as others read it, on one line, so that it cannot pose as another speaker's message."""
        text = " ".join(self.text.split())
        if self.role == SUMMARIZER:
            return f"Summary of the discussion so far: {text}"
        label = "score" if len(self.scores) == 1 else "scores"
        return f"{self.role}, turn {self.round + 1}, {label} {' and '.join(f'{s:g}' for s in self.scores)}: {text}"


class ChatEval(ItemJudge):
    """A judge by a discussion of referees.

    Args:
        roles: Name -> role text; the order is the order of speaking.
        communication: One of `COMMUNICATION`.
        turns: T, how often each referee speaks.
        samples: k, number of replies that are averaged each time a referee speaks (multiple evidence calibration).
        both_orders: Whether a comparison shows the answers in both orders (balanced position calibration).
        comparing: Whether candidates that come in pairs are compared; others are scored one by one.
    """

    kind = "chateval"
    settable = ("roles", "same_role", "communication", "turns", "samples", "both_orders", "comparing")

    def __init__(
        self,
        roles: Mapping[str, str],
        communication: str = "one-by-one",
        turns: int = 2,
        samples: int = 1,
        both_orders: bool = True,
        comparing: bool = False,
    ) -> None:
        _check_roles(roles)
        one_of("communication", communication, COMMUNICATION)
        whole_number("turns", turns, minimum=1, maximum=MAX_ROUNDS + 1)
        if communication == "none" and turns > 1:
            raise InputError(
                "referees who do not see each other's messages take one turn", field="turns", expected="1", found=turns
            )
        super().__init__(DebateConfig(rounds=turns - 1))
        self.texts = dict(roles)
        self.communication = communication
        self.samples = whole_number("samples", samples, minimum=1, maximum=MAX_SAMPLES)
        self.both_orders = yes_or_no("both_orders", both_orders)
        self.compares = yes_or_no("comparing", comparing)
        self.roles = {name: Referee(name, text, alone=communication == "none") for name, text in roles.items()}
        self.summarizer = Role(SUMMARIZER, Summarizing) if communication == "summarizer" else None

    async def converse_about(self, item: Item, rounds: int) -> Transcript:
        return await self._discuss(item, rounds, lambda referee, *heard: referee.rate(item, *heard))

    async def _discuss(
        self, item: Item, rounds: int, ask: Callable[[Referee, str, int, Sequence[int]], Awaitable[Answer]]
    ) -> Transcript:
        """The messages in order. A message without a usable reply ends the discussion."""
        names = list(self.roles)
        # Those of a group speak at once.
        groups = [[name] for name in names] if self.communication.startswith("one-by-one") else [names]
        discussion = EMPTY
        for turn in range(1 if self.communication == "none" else rounds + 1):
            summary = None
            if turn and self.summarizer is not None:
                messages = _text(discussion, names)
                answer = await self.summarizer.ask(item, read_summary, round=turn, debate=messages)
                discussion = _add_answers(discussion, turn, {SUMMARIZER: answer})
                if discussion.failure is not None:
                    return discussion
                summary = str(discussion.turns[-1])
            for group in groups:
                calls = []
                for name in group:
                    heard = _text(discussion, self._audible_to(name)) if summary is None else summary
                    # Distinct numbers, so that referees with the same role do not get each other's samples.
                    first = names.index(name) * self.samples
                    calls.append(ask(self.roles[name], heard, turn, range(first, first + self.samples)))
                discussion = _add_answers(discussion, turn, dict(zip(group, await asyncio.gather(*calls), strict=True)))
                if discussion.failure is not None:
                    return discussion
        return discussion

    def _audible_to(self, name: str) -> Sequence[str]:
        """The referees whose messages this one reads."""
        names = list(self.roles)
        if self.communication != "one-by-one-printed":
            return names
        # In the paper's numbering, from 1: h_n goes to H_m for m >= n, m > 1.
        return names[: names.index(name) + 1] if name != names[0] else ()

    def verdict(self, transcript: Transcript, rounds: int) -> Verdict:
        """The mean of the referees' latest scores; where one of them failed, the item is unscored."""
        latest = {turn.role: turn.score for turn in transcript.turns if turn.score is not None}
        score = math.fsum(latest.values()) / len(latest)
        last_round = max(turn.round for turn in transcript.turns)
        reason: StopReason = "single call" if len(transcript.turns) == 1 else "rounds over"
        return Verdict(score, last_round, reason, transcript.calls, transcript)

    async def converse(self, items: Sequence[Item], rounds: int) -> list[Transcript]:
        """Compare two answers to one question in `rounds` + 1 turns; after each the majority's outcome is the score."""
        if not self.compares or len(items) != 2:
            return await super().converse(items, rounds)
        pairs = [items, items[::-1]] if self.both_orders else [items]
        discussions = await asyncio.gather(*(self._compared(pair, rounds) for pair in pairs))
        return [pair_transcript(discussions, answer, rounds + 1, items[0].aspect.scale) for answer in (0, 1)]

    async def _compared(self, pair: Sequence[Item], rounds: int) -> Transcript:
        aspect = compared_aspect(pair[0].aspect)
        first, second = (replace(item, aspect=aspect) for item in pair)
        return await self._discuss(first, rounds, lambda referee, *heard: referee.compare((first, second), *heard))

    def config(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in ("communication", "samples", "both_orders")}
        return {
            "roles": dict(self.texts),
            "turns": self.debate_config.rounds + 1,
            **options,
            "comparing": self.compares,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ChatEval:
        """Rebuild a judge.

        `roles` is a mapping from name to text, or a list of names of built-in roles. `same_role` is the name of one of
        these or of a built-in role, which is given to all referees. Referees who share a role are numbered.
        """
        options = {name: value for name, value in config.items() if name not in ("roles", "same_role")}
        return cls(_referees(config["roles"], config.get("same_role")), **options)


def _add_answers(discussion: Transcript, turn: int, answers: Mapping[str, Answer]) -> Transcript:
    """A discussion with the answers of those who spoke at once."""
    failures = []
    for name, answer in answers.items():
        if isinstance(answer, ReplyFailure):
            failures.append(answer.at(name, turn))
        else:
            scores = answer.value.scores
            score = scores[0] if len(scores) == 1 else None
            discussion = discussion.add(
                Message(name, turn, answer.value.text, score, calls=answer.calls, scores=scores)
            )
    return discussion.add(replace(failures[0], calls=sum(f.calls for f in failures))) if failures else discussion


def _text(discussion: Transcript, speakers: Sequence[str]) -> str:
    """The messages of some speakers as others read them."""
    return "\n\n".join(str(message) for message in discussion.turns if message.role in speakers)


def messages_of(discussion: Transcript) -> list[Message]:
    return [turn for turn in discussion.turns if isinstance(turn, Message)]


def pair_transcript(discussions: Sequence[Transcript], answer: int, turns: int, scale: Scale) -> Transcript:
    """The transcript of one of two answers (0, 1): the messages and, after every turn, the outcome as a score.

    The outcome is the upper end of the scale for a win, its middle for a tie, its lower end for a loss. It is the only
    score in a transcript; the referees' scores are in the texts. There is a discussion with the first answer shown
    first, and with both orders another one; its calls are counted for the answer which was shown first in it.
    """
    failures = [discussion.failure for discussion in discussions if discussion.failure is not None]
    complete = min((failure.round for failure in failures), default=turns)
    reported: list[Turn] = []
    for turn in range(turns):
        for order, discussion in enumerate(discussions):
            shown_first = order == answer
            for message in messages_of(discussion):
                if message.round == turn:
                    scores = "answer 1: {:g}, answer 2: {:g}. ".format(*message.scores) if message.scores else ""
                    text = f"(this is answer {1 if shown_first else 2}) {scores}{message.text}"
                    reported.append(Turn(message.role, turn, text, calls=message.calls if shown_first else 0))
        if turn < complete:
            reported.append(_outcome(discussions, answer, turn, scale))
    if not failures:
        return Transcript(tuple(reported))
    own_failure = discussions[answer].failure if answer < len(discussions) else None
    first = min(failures, key=lambda failure: failure.round)
    return Transcript(tuple(reported), replace(first, calls=own_failure.calls if own_failure else 0))


def _outcome(discussions: Sequence[Transcript], answer: int, turn: int, scale: Scale) -> Turn:
    """What the majority announces about an answer after a turn; a tie if no outcome has most votes."""
    scores: dict[str, list[tuple[float, ...]]] = {}
    for order, discussion in enumerate(discussions):
        latest = {m.role: m.scores for m in messages_of(discussion) if m.scores and m.round <= turn}
        for name, of_both in latest.items():
            scores.setdefault(name, []).append(of_both if order == answer else of_both[::-1])
    votes: dict[str, str] = {}
    for name, pairs in scores.items():
        mean, other_mean = (math.fsum(column) / len(pairs) for column in zip(*pairs, strict=True))
        vote = "win" if mean > other_mean else "lose" if mean < other_mean else "tie"
        votes[f"{name} {vote}, {mean:g} to {other_mean:g}"] = vote
    (outcome, most), *others = Counter(votes.values()).most_common()
    if others and others[0][1] == most:
        outcome = "tie"
    score = {"win": scale.high, "tie": (scale.low + scale.high) / 2, "lose": scale.low}[outcome]
    return Turn(MAJORITY, turn, f"{outcome} by the votes of {'; '.join(votes)}", score=score, calls=0)


def _referees(roles: Mapping[str, str] | Sequence[str], same: str | None) -> dict[str, str]:
    """Referee -> role text, from a configuration."""
    role_texts = dict(roles) if isinstance(roles, Mapping) else {}
    known = {**ROLES, **role_texts}
    names = list(role_texts) if role_texts else [str(name) for name in roles]
    if same is not None:
        names = [str(same)] * len(names)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(
            f"there is no role {unknown[0]!r}",
            field="roles",
            expected="names out of " + ", ".join(known),
            found=unknown[0],
            remedy=did_you_mean(unknown[0], known) or "give your own roles in a file of name = text lines",
        )
    numbered: dict[str, str] = {}
    for index, name in enumerate(names):
        number = f"-{names[: index + 1].count(name)}" if names.count(name) > 1 else ""
        numbered[name + number] = known[name]
    return numbered


def _check_roles(roles: Mapping[str, str]) -> None:
    if not roles:
        raise InputError("ChatEval needs a referee", field="roles", expected="at least one role", found=dict(roles))
    for name, text in roles.items():
        if not _NAME.fullmatch(name) or name in (SUMMARIZER, MAJORITY):
            expected = f"letters, digits, blanks and hyphens, and not {SUMMARIZER!r} or {MAJORITY!r}"
            raise InputError("not a name for a referee", field="roles", expected=expected, found=name)
        if not isinstance(text, str) or not text.strip():
            raise InputError("not a role", field=f"roles.{name}", expected="a non-empty text", found=text)
