"""ChatEval (Chan et al. 2023): referees with different roles discuss, and their final scores are averaged.

With `comparing`, a judge compares the two candidates of a pair. A referee votes for the answer with the higher score,
by its latest scores averaged over the orders in which the answers were shown. The outcome is the majority's (section
2), which may differ from the order of the mean scores. Referees are not asked to agree (appendix B).

`COMMUNICATION` has the paper's strategies (appendix C). The messages that a referee reads do not depend on the number
of turns, so a discussion of T turns begins with every shorter one. docs/judges.md lists the departures from the paper.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from types import MappingProxyType
from typing import Any

import dspy

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.schema import Aspect, Scale
from debate_judge.programs import parsing
from debate_judge.programs.judge import (
    EMPTY,
    MAX_ROUNDS,
    DebateConfig,
    Failure,
    Item,
    ItemJudge,
    StopReason,
    Transcript,
    Turn,
    Verdict,
    one_of,
    whole_number,
    yes_or_no,
)
from debate_judge.programs.lm.engine import gather
from debate_judge.programs.lm.replies import CallTag
from debate_judge.programs.role import (
    MAX_SAMPLES,
    SAMPLING,
    Fields,
    JudgeSignature,
    Role,
    ask,
    task_description,
)

# --- the referees ---

_HELP = "Help the others to find out how good a text is, and which of two is the better one."

ROLES = MappingProxyType(
    {
        "general-public": "You are the general public, one of those for whom the text was written: you follow the "
        "matter with interest and want to learn how things stand. Think critically and for yourself. It falls to you "
        "to commit first: say how good a text is, and which of two is the better one.",
        "critic": "You are the critic. You check for fluent writing, clear sentences and well-chosen words. Your job "
        "is to question what others have judged, so that no judgement stands that was not well considered, and to put "
        "forward another view where two texts seem level.",
        "news-author": "You are a news author. What you look at is whether the writing agrees with the material that "
        f"it was made from. {_HELP}",
        "psychologist": "You are a psychologist. You study what people do and what goes on in their minds, in order to "
        f"understand and explain it. {_HELP}",
        "scientist": "You are a scientist. Systematic study is your profession: you know the scientific method well, "
        f"think critically and solve problems. {_HELP}",
        "language-designer": f"You are the designer of a widely used programming language. {_HELP}",
        "systems-programmer": "You are a programmer of operating systems who has reviewed code for decades. " + _HELP,
        "software-tester": f"You are a software tester. You look for the input on which a program fails. {_HELP}",
        "novelist": f"You are a novelist whose books are read for their language. {_HELP}",
        "editor": f"You are an editor at a publishing house. You cut, order and sharpen what others write. {_HELP}",
        "poet": f"You are a poet. You weigh each word for its sound and its image. {_HELP}",
        "encyclopedist": f"You are the author of an encyclopedia. You know many fields and check every fact. {_HELP}",
        "historian": f"You are a historian. You ask where a statement comes from and what was left out. {_HELP}",
        "physicist": f"You are a physicist. You ask whether an explanation is right and whether it explains. {_HELP}",
        "annotator": "You are an annotator, one of the referees of a text.",
        "evaluator": "You are the evaluator.",
    }
)
"""Name -> text: the paper's five roles (appendix A), three groups of three experts for coding, writing and knowledge
(section 4.1), the one role of its ablation there, and that of a single agent."""

_ALONE = (
    "Judge in the given aspect only, by its definition and by the material. Think critically, then give your score."
)
_DISCUSSING = (
    "Other referees have the same task. Where a debate is given, it is what has been said so far, your own words "
    "included: take up what the others said, and think critically before you come to your final judgement. Judge in "
    "the given aspect only, by its definition and by the material. Keep what you say short and clear, and close with "
    "your score."
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
    """You are the evaluator."""

    rationale: str = dspy.OutputField(desc="what you say: your point, short and clear, with your reasons")
    score: str = dspy.OutputField(desc="one number on the aspect's scale and nothing else")


class Comparing(dspy.Signature):
    """You are the evaluator."""

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


SUMMARIZER = "summarizer"
MAJORITY = "majority"
"""Name of the role that announces the outcome of a comparison in a transcript."""


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


class Referee(Role):
    """One referee; its instructions are its role, and how to judge `alone` or to take part in the discussion."""

    def __init__(self, name: str, role: str, alone: bool) -> None:
        super().__init__(name, Refereeing, f"{role.strip()} {_ALONE if alone else _DISCUSSING}")

    async def speak(self, items: Sequence[Item], debate: str, turn: int, samples: Sequence[int]) -> Message | Failure:
        """Score one candidate, or both answers of a pair, after reading the `debate`.

        Args:
            items: The candidate, or two answers in the order in which they are shown.
            debate: The discussion as the referee reads it.
            turn: The turn of the discussion, from 0.
            samples: Numbers of the samples, whose scores are averaged; the text is that of the first. A single sample
                has the LM's own settings.
        """
        item, prompt = items[0], dict[str, Any](debate=debate)
        if len(items) == 2:
            # The referee's own instructions with other fields, so that tuned instructions serve comparisons, too.
            prompt |= {"signature": Comparing.with_instructions(self.signature.instructions), "demos": []}
            prompt["inputs"] = {
                "task": f"{task_description(item.task, bool(item.context))} Answer 1 and answer 2 are two candidates. "
                "They are compared in one aspect: each gets a score of its own, and neither the order in which they "
                "stand nor their length may count. Two that are equally good get equal scores.",
                "answer_1": parsing.escape_cached(item.text),
                "answer_2": parsing.escape_cached(items[1].text),
            }

        def parse(reply: Fields) -> tuple[str, tuple[float, ...]] | parsing.Unreadable:
            scores = []
            for field in ("score",) if len(items) == 1 else ("score_1", "score_2"):
                value = parsing.parse_score(reply[field], item.aspect.scale, item.aspect.name)
                if isinstance(value, parsing.Unreadable):
                    return parsing.Unreadable(f"{field}: {value.problem}") if len(items) == 2 else value
                scores.append(value)
            return reply["rationale"], tuple(scores)

        if len(samples) > 1:
            tags = [CallTag(self.speaker, turn, sample) for sample in samples]
            replies = await gather(ask(self, item, parse, tag, settings=SAMPLING, **prompt) for tag in tags)
        else:
            replies = [await self.ask(item, parse, round=turn, **prompt)]
        calls = sum(reply.calls for reply in replies)
        opinions = []
        for reply in replies:
            if isinstance(reply, Failure):
                return replace(reply, calls=calls)
            opinions.append(reply.value)
        scores = tuple(fmean(column) for column in zip(*(scores for _, scores in opinions), strict=True))
        score = scores[0] if len(scores) == 1 else None
        return Message(self.speaker, turn, opinions[0][0], score, calls=calls, scores=scores)


class Summarizer(Role):
    """The extra LM of Algorithm 3."""

    def __init__(self) -> None:
        super().__init__(SUMMARIZER, Summarizing)

    async def speak(self, item: Item, debate: str, turn: int) -> Message | Failure:
        def parse(fields: Fields) -> str | parsing.Unreadable:
            return fields["summary"].strip() or parsing.Unreadable("the summary was empty")

        reply = await self.ask(item, parse, round=turn, debate=debate)
        return reply if isinstance(reply, Failure) else Message(SUMMARIZER, turn, reply.value, calls=reply.calls)


# --- the discussion ---

COMMUNICATION = (
    "one-by-one",  # Algorithm 1: in turn, each reads all earlier messages
    "simultaneous",  # Algorithm 2: all speak at once, then each reads what all said
    "summarizer",  # Algorithm 3: the same, but each reads only a summary
    "none",  # the ensemble (section 3.2): each speaks once and reads no message
)

_NAME = re.compile(r"[A-Za-z0-9][\w -]*")


class ChatEval(ItemJudge):
    """A judge by a discussion of referees.

    Args:
        roles: Name -> role text; the order is the order of speaking.
        communication: One of `COMMUNICATION`.
        turns: T, how often each referee speaks.
        samples: k, number of replies that are averaged each time a referee speaks (multiple evidence calibration).
        both_orders: Whether a comparison shows the answers in both orders (balanced position calibration).
        comparing: Whether the two candidates of a pair are compared; other candidates are scored one by one.

    Raises:
        InputError: An option has a value that it cannot have.
    """

    kind = "chateval"
    settable = ("roles", "communication", "turns", "samples", "both_orders", "comparing")

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
        self.summarizer = Summarizer() if communication == "summarizer" else None

    async def converse_about(self, item: Item, rounds: int) -> Transcript:
        return await self._discuss([item], rounds)

    async def converse(self, items: Sequence[Item], rounds: int) -> list[Transcript]:
        """Compare two answers in `rounds` + 1 turns; the score after each turn is the majority's outcome."""
        if not self.compares_pairs or len(items) != 2:
            return await super().converse(items, rounds)
        aspect = compared_aspect(items[0].aspect)
        pair = [replace(item, aspect=aspect) for item in items]
        orders = [pair, pair[::-1]] if self.both_orders else [pair]
        discussions = await gather(self._discuss(order, rounds) for order in orders)
        return [_pair_transcript(discussions, answer, rounds + 1, items[0].aspect.scale) for answer in (0, 1)]

    async def _discuss(self, items: Sequence[Item], rounds: int) -> Transcript:
        """The messages in order. A message without a usable reply ends the discussion."""
        names = list(self.roles)
        # The referees of a batch speak at once.
        batches = [[name] for name in names] if self.communication == "one-by-one" else [names]
        discussion = EMPTY
        for turn in range(1 if self.communication == "none" else rounds + 1):
            messages = ""
            if turn and self.summarizer is not None and discussion.failure is None:
                debate = "\n\n".join(str(m) for m in discussion.turns if m.role != SUMMARIZER)
                discussion = _extended(discussion, [await self.summarizer.speak(items[0], debate, turn)])
                messages = str(discussion.turns[-1])
            for batch in batches:
                if discussion.failure is not None:
                    return discussion
                debate = messages or str(discussion)
                # Distinct numbers of samples, so that referees with the same role do not share them.
                samples = {name: range(i * self.samples, (i + 1) * self.samples) for i, name in enumerate(names)}
                said = await gather(self.roles[name].speak(items, debate, turn, samples[name]) for name in batch)
                discussion = _extended(discussion, said)
        return discussion

    def verdict(self, transcript: Transcript, rounds: int) -> Verdict:
        """The mean of the referees' latest scores; where one of them failed, the item is unscored."""
        latest = {turn.role: turn.score for turn in transcript.turns if turn.score is not None}
        last_round = max(turn.round for turn in transcript.turns)
        reason: StopReason = "single call" if len(transcript.turns) == 1 else "rounds over"
        return Verdict(fmean(latest.values()), last_round, reason, transcript.calls, transcript)

    def config(self) -> dict[str, Any]:
        return {
            "roles": dict(self.role_texts),
            "communication": self.communication,
            "turns": self.debate_config.rounds + 1,
            "samples": self.samples,
            "both_orders": self.both_orders,
            "comparing": self.compares_pairs,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ChatEval:
        """Rebuild a judge; `roles` may also be a list of names of built-in roles, which are numbered if repeated."""
        roles = config["roles"]
        return cls(**{**config, "roles": roles if isinstance(roles, Mapping) else _builtin_roles(roles)})


def _extended(discussion: Transcript, said: Sequence[Message | Failure]) -> Transcript:
    """The discussion with what was said at once; it ends with the first failure."""
    failures = [entry for entry in said if isinstance(entry, Failure)]
    turns = *discussion.turns, *(entry for entry in said if isinstance(entry, Message))
    return Transcript(turns, replace(failures[0], calls=sum(f.calls for f in failures)) if failures else None)


def _pair_transcript(discussions: Sequence[Transcript], answer: int, turns: int, scale: Scale) -> Transcript:
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
        mean, other_mean = map(fmean, zip(*pairs, strict=True))
        vote = "win" if mean > other_mean else "lose" if mean < other_mean else "tie"
        votes[f"{name} {vote}, {mean:g} to {other_mean:g}"] = vote
    (outcome, count), *others = Counter(votes.values()).most_common()
    if others and others[0][1] == count:
        outcome = "tie"
    score = {"win": scale.high, "tie": (scale.low + scale.high) / 2, "lose": scale.low}[outcome]
    return Turn(MAJORITY, turn, f"{outcome} by the votes of {'; '.join(votes)}", score=score, calls=0)


def _messages(discussion: Transcript) -> list[Message]:
    return [turn for turn in discussion.turns if isinstance(turn, Message)]


def _builtin_roles(names: Sequence[str]) -> dict[str, str]:
    """Name of a referee -> text of the built-in role."""
    roles: dict[str, str] = {}
    for index, name in enumerate(names):
        if name not in ROLES:
            raise InputError(
                f"there is no role {name!r}",
                field="roles",
                expected="names out of " + ", ".join(ROLES),
                found=name,
                remedy=did_you_mean(str(name), ROLES) or "give your own roles in a file of name = text lines",
            )
        number = f"-{names[: index + 1].count(name)}" if names.count(name) > 1 else ""
        roles[name + number] = ROLES[name]
    return roles


def _check_roles(roles: Mapping[str, str]) -> None:
    if not roles:
        raise InputError("ChatEval needs a referee", field="roles", expected="at least one role", found=dict(roles))
    for name, text in roles.items():
        if not _NAME.fullmatch(name) or name in (SUMMARIZER, MAJORITY):
            expected = f"letters, digits, blanks and hyphens, and not {SUMMARIZER!r} or {MAJORITY!r}"
            raise InputError("not a name for a referee", field="roles", expected=expected, found=name)
        if not isinstance(text, str) or not text.strip():
            raise InputError("not a role", field=f"roles.{name}", expected="a non-empty text", found=text)
