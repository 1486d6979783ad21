"""ChatEval (Chan et al. 2023): referees with different roles discuss, and their final scores are averaged.

With `comparing`, a judge compares the two candidates of a pair. A referee votes for the answer with the higher score,
by its latest scores averaged over the orders in which the answers were shown. The outcome is the majority's (section
2), which may differ from the order of the mean scores.

Referees are not asked to agree (appendix B). Departures from the paper: referees give a score in every turn, not only
in the last one, so that a discussion has a score after any number of turns; and they see the scores of the messages
that they read.

`COMMUNICATION` has the paper's strategies (appendix C). The messages that an agent reads do not depend on the number of
turns, so a discussion of T turns begins with every shorter one. The printed algorithms have four problems, which are
solved here according to the paper's text:

- `for t <- 0 to T` is T iterations, not T + 1: two agents and two turns cost 4.2 single calls (Table 6).
- Algorithm 1 as printed adds h_n, the message of agent n, to the history H_m of agent m for m >= n and m > 1 only. So
  the first agent never reads any other, and its second turn repeats the first word for word; the second never reads the
  third. By the text around it (what "previous other agents have said") and the authors' published program, every agent
  reads all previous messages. That is `one-by-one`; the printed form is `one-by-one-printed`.
- In Algorithm 2 the buffer is never emptied; each message is meant to be read once.
- In Algorithm 3 the summary is added to the histories; by the text it replaces them, and it summarizes the discussion
  so far. The summary after the last turn would not be read and is not made.
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
from debate_judge.programs.roles import parsing
from debate_judge.programs.roles.role import (
    SAMPLING,
    Fields,
    JudgeSignature,
    ReplyFailure,
    Role,
    RoleReply,
    ask,
    task_description,
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
"""Name -> text: the paper's five roles, the one role of its ablation (section 4.1), and that of a single referee.

They fit any kind of text and do not mention other referees, because there may be none.
"""

_HOW_TO_JUDGE_ALONE = (
    "Judge in the given aspect only, by its definition and by the material. Think critically, then give your score. "
    "Use the whole scale; half points are welcome."
)
_HOW_TO_DISCUSS = (
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
    """The aspect on `COMPARISON_SCALE`; a sentence converts points of its own scale that its definition mentions."""
    raters_scale, our_scale = aspect.scale, COMPARISON_SCALE
    conversion = ""
    same_ends = (raters_scale.low, raters_scale.high) == (our_scale.low, our_scale.high)
    if not same_ends and any(c.isdecimal() for c in aspect.definition):
        conversion = (
            f" Points named in this definition are on a scale of {raters_scale}; yours is {our_scale}: what it says of "
            f"{raters_scale.low:g} holds for {our_scale.low:g}, and what it says of {raters_scale.high:g} for "
            f"{our_scale.high:g}."
        )
    return replace(aspect, scale=our_scale, definition=aspect.definition + conversion)


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
    """The parsed reply of a referee, with one score, or one for each of two answers; a summary has none."""

    text: str
    scores: tuple[float, ...] = ()


class Referee(Role):
    """One referee; its instructions are its role and how to take part in the discussion.

    The instructions of a referee that is `alone`, without a discussion, mention no others.
    """

    def __init__(self, name: str, role: str, alone: bool) -> None:
        super().__init__(name, Refereeing, f"{role.strip()} {_HOW_TO_JUDGE_ALONE if alone else _HOW_TO_DISCUSS}")

    async def rate(
        self, item: Item, messages: str, turn: int, samples: Sequence[int]
    ) -> RoleReply[Opinion] | ReplyFailure:
        """Score the candidate of `item` after reading `messages`.

        Args:
            item: The item to score.
            messages: The discussion as the referee reads it.
            turn: The turn of the discussion, from 0.
            samples: Numbers of the samples, whose scores are averaged; the text is that of the first. A single sample
                has the LM's own settings.
        """

        def parse(fields: Fields) -> Opinion | parsing.Unreadable:
            value = parsing.parse_score(fields["score"], item.aspect.scale, item.aspect.name)
            return value if isinstance(value, parsing.Unreadable) else Opinion(fields["rationale"], (value,))

        return await self._ask(item, parse, samples, turn, debate=messages)

    async def compare(
        self, pair: tuple[Item, Item], messages: str, turn: int, samples: Sequence[int]
    ) -> RoleReply[Opinion] | ReplyFailure:
        """Score both answers, the first of `pair` shown as answer 1; otherwise as `rate`."""
        first, second = pair
        inputs = {
            "task": f"{task_description(first.task, bool(first.context))} Answer 1 and answer 2 are two candidates. "
            "They are compared in one aspect: each gets a score of its own, and neither the order in which they "
            "stand nor their length may count. Two that are equally good get equal scores.",
            "answer_1": parsing.escape_cached(first.text),
            "answer_2": parsing.escape_cached(second.text),
        }
        # The referee's own instructions with other fields, so that tuned instructions serve comparisons, too.
        overrides = {"signature": Comparing.with_instructions(self.signature.instructions), "demos": []}
        return await self._ask(first, _parse_comparison, samples, turn, debate=messages, inputs=inputs, **overrides)

    async def _ask(
        self,
        item: Item,
        parse: Callable[[Fields], Opinion | parsing.Unreadable],
        samples: Sequence[int],
        turn: int,
        **prompt: Any,
    ) -> RoleReply[Opinion] | ReplyFailure:
        tag = CallTag(self.speaker, turn)
        if len(samples) == 1:
            return await ask(self, item, parse, tag, **prompt)
        tags = [replace(tag, sample=number) for number in samples]
        replies = await asyncio.gather(*(ask(self, item, parse, t, settings=SAMPLING, **prompt) for t in tags))
        calls = sum(reply.calls for reply in replies)
        failed = next((reply for reply in replies if isinstance(reply, ReplyFailure)), None)
        if failed is not None:
            return replace(failed, calls=calls)
        opinions = [reply.value for reply in replies if isinstance(reply, RoleReply)]
        columns = zip(*(opinion.scores for opinion in opinions), strict=True)
        means = tuple(math.fsum(column) / len(opinions) for column in columns)
        return RoleReply(Opinion(opinions[0].text, means), calls)


def _parse_comparison(fields: Fields) -> Opinion | parsing.Unreadable:
    scores = []
    for name in ("score_1", "score_2"):
        value = parsing.parse_score(fields[name], COMPARISON_SCALE)
        if isinstance(value, parsing.Unreadable):
            return parsing.Unreadable(f"{name}: {value.problem}")
        scores.append(value)
    return Opinion(fields["rationale"], tuple(scores))


def parse_summary(fields: Fields) -> Opinion | parsing.Unreadable:
    """Parse the reply of the summarizer, the extra LM of Algorithm 3."""
    text = fields["summary"].strip()
    return Opinion(text) if text else parsing.Unreadable("the summary was empty")


# --- the discussion ---

COMMUNICATION = (
    "one-by-one",  # Algorithm 1 as the authors' published program has it: every message reaches every agent
    "one-by-one-printed",  # Algorithm 1 to the letter
    "simultaneous",  # Algorithm 2: all speak at once, then each reads what all said
    "summarizer",  # Algorithm 3: the same, but each reads only a summary
    "none",  # the ensemble (section 3.2): each speaks once and reads no message
)

SUMMARIZER = "summarizer"
MAJORITY = "majority"
"""Name of the role that announces the outcome of a comparison in a transcript."""

_NAME = re.compile(r"[A-Za-z0-9][\w -]*")

OpinionReply = RoleReply[Opinion] | ReplyFailure


@dataclass(frozen=True, slots=True)
class Message(Turn):
    scores: tuple[float, ...] = ()
    """One score, which is the turn's, or in a comparison one for each answer; none for a summary."""

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
        comparing: Whether the two candidates of a pair are compared; other candidates are scored one by one.
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
        self.role_texts = dict(roles)
        self.communication = communication
        self.samples = whole_number("samples", samples, minimum=1, maximum=MAX_SAMPLES)
        self.both_orders = yes_or_no("both_orders", both_orders)
        self.compares_pairs = yes_or_no("comparing", comparing)
        self.roles = {name: Referee(name, text, alone=communication == "none") for name, text in roles.items()}
        self.summarizer = Role(SUMMARIZER, Summarizing) if communication == "summarizer" else None

    async def converse_about(self, item: Item, rounds: int) -> Transcript:
        return await self._discuss(item, rounds, lambda referee, *args: referee.rate(item, *args))

    async def _discuss(
        self, item: Item, rounds: int, ask_one: Callable[[Referee, str, int, Sequence[int]], Awaitable[OpinionReply]]
    ) -> Transcript:
        """The messages in order. A message without a usable reply ends the discussion."""
        names = list(self.roles)
        # The referees of a batch speak at once.
        batches = [[name] for name in names] if self.communication.startswith("one-by-one") else [names]
        discussion = EMPTY
        for turn in range(1 if self.communication == "none" else rounds + 1):
            summary = None
            if turn and self.summarizer is not None:
                text = _joined_messages(discussion, names)
                reply = await self.summarizer.ask(item, parse_summary, round=turn, debate=text)
                discussion = _add_replies(discussion, turn, {SUMMARIZER: reply})
                if discussion.failure is not None:
                    return discussion
                summary = str(discussion.turns[-1])
            for batch in batches:
                calls = []
                for name in batch:
                    text = _joined_messages(discussion, self._speakers_read_by(name)) if summary is None else summary
                    # Distinct numbers, so that referees with the same role do not share samples.
                    start = names.index(name) * self.samples
                    calls.append(ask_one(self.roles[name], text, turn, range(start, start + self.samples)))
                discussion = _add_replies(discussion, turn, dict(zip(batch, await asyncio.gather(*calls), strict=True)))
                if discussion.failure is not None:
                    return discussion
        return discussion

    def _speakers_read_by(self, name: str) -> Sequence[str]:
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
        """Compare two answers in `rounds` + 1 turns; the score after each turn is the majority's outcome."""
        if not self.compares_pairs or len(items) != 2:
            return await super().converse(items, rounds)
        pairs = [items, items[::-1]] if self.both_orders else [items]
        discussions = await asyncio.gather(*(self._compare(pair, rounds) for pair in pairs))
        return [pair_transcript(discussions, answer, rounds + 1, items[0].aspect.scale) for answer in (0, 1)]

    async def _compare(self, pair: Sequence[Item], rounds: int) -> Transcript:
        aspect = compared_aspect(pair[0].aspect)
        first, second = (replace(item, aspect=aspect) for item in pair)
        return await self._discuss(first, rounds, lambda referee, *args: referee.compare((first, second), *args))

    def config(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in ("communication", "samples", "both_orders")}
        return {
            "roles": dict(self.role_texts),
            "turns": self.debate_config.rounds + 1,
            **options,
            "comparing": self.compares_pairs,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ChatEval:
        """Rebuild a judge.

        `roles` is a mapping from name to text, or a list of names of built-in roles. `same_role` names one of either,
        which all referees then have. Referees who share a role are numbered.
        """
        options = {name: value for name, value in config.items() if name not in ("roles", "same_role")}
        return cls(_role_texts(config["roles"], config.get("same_role")), **options)


def _add_replies(discussion: Transcript, turn: int, replies: Mapping[str, OpinionReply]) -> Transcript:
    """The discussion with the replies of a batch of speakers."""
    failures = []
    for name, reply in replies.items():
        if isinstance(reply, ReplyFailure):
            failures.append(reply.as_failure(name, turn))
        else:
            scores = reply.value.scores
            score = scores[0] if len(scores) == 1 else None
            discussion = discussion.add(Message(name, turn, reply.value.text, score, calls=reply.calls, scores=scores))
    return discussion.add(replace(failures[0], calls=sum(f.calls for f in failures))) if failures else discussion


def _joined_messages(discussion: Transcript, speakers: Sequence[str]) -> str:
    """The messages of these speakers as others read them."""
    return "\n\n".join(str(message) for message in discussion.turns if message.role in speakers)


def _messages(discussion: Transcript) -> list[Message]:
    return [turn for turn in discussion.turns if isinstance(turn, Message)]


def pair_transcript(discussions: Sequence[Transcript], answer: int, turns: int, scale: Scale) -> Transcript:
    """The transcript of one of two answers (0, 1): the messages and, after every turn, the outcome as a score.

    The outcome is the upper end of the scale for a win, its middle for a tie, its lower end for a loss. It is the only
    score in the transcript; the referees' scores are in the texts. In the first discussion answer 0 is shown first, in
    the second, if there is one, answer 1. The calls of a discussion count for the answer that it shows first.
    """
    failures = [discussion.failure for discussion in discussions if discussion.failure is not None]
    complete_turns = min((failure.round for failure in failures), default=turns)
    merged: list[Turn] = []
    for turn in range(turns):
        for order, discussion in enumerate(discussions):
            shown_first = order == answer
            for message in _messages(discussion):
                if message.round == turn:
                    scores = "answer 1: {:g}, answer 2: {:g}. ".format(*message.scores) if message.scores else ""
                    text = f"(this is answer {1 if shown_first else 2}) {scores}{message.text}"
                    merged.append(Turn(message.role, turn, text, calls=message.calls if shown_first else 0))
        if turn < complete_turns:
            merged.append(_outcome(discussions, answer, turn, scale))
    if not failures:
        return Transcript(tuple(merged))
    own_failure = discussions[answer].failure if answer < len(discussions) else None
    earliest = min(failures, key=lambda failure: failure.round)
    return Transcript(tuple(merged), replace(earliest, calls=own_failure.calls if own_failure else 0))


def _outcome(discussions: Sequence[Transcript], answer: int, turn: int, scale: Scale) -> Turn:
    """The turn with the majority's outcome for an answer; a tie if no outcome has most votes."""
    scores: dict[str, list[tuple[float, ...]]] = {}
    for order, discussion in enumerate(discussions):
        latest = {m.role: m.scores for m in _messages(discussion) if m.scores and m.round <= turn}
        for name, both_scores in latest.items():
            scores.setdefault(name, []).append(both_scores if order == answer else both_scores[::-1])
    votes: dict[str, str] = {}
    for name, pairs in scores.items():
        mean, other_mean = (math.fsum(column) / len(pairs) for column in zip(*pairs, strict=True))
        vote = "win" if mean > other_mean else "lose" if mean < other_mean else "tie"
        votes[f"{name} {vote}, {mean:g} to {other_mean:g}"] = vote
    (outcome, count), *others = Counter(votes.values()).most_common()
    if others and others[0][1] == count:
        outcome = "tie"
    score = {"win": scale.high, "tie": (scale.low + scale.high) / 2, "lose": scale.low}[outcome]
    return Turn(MAJORITY, turn, f"{outcome} by the votes of {'; '.join(votes)}", score=score, calls=0)


def _role_texts(roles: Mapping[str, str] | Sequence[str], same_role: str | None) -> dict[str, str]:
    """Name of a referee -> text of its role, from a configuration."""
    custom = dict(roles) if isinstance(roles, Mapping) else {}
    available = {**ROLES, **custom}
    names = list(custom) if custom else [str(name) for name in roles]
    if same_role is not None:
        names = [str(same_role)] * len(names)
    unknown = [name for name in names if name not in available]
    if unknown:
        raise InputError(
            f"there is no role {unknown[0]!r}",
            field="roles",
            expected="names out of " + ", ".join(available),
            found=unknown[0],
            remedy=did_you_mean(unknown[0], available) or "give your own roles in a file of name = text lines",
        )
    numbered: dict[str, str] = {}
    for index, name in enumerate(names):
        number = f"-{names[: index + 1].count(name)}" if names.count(name) > 1 else ""
        numbered[name + number] = available[name]
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
