"""ChatEval (Chan et al. 2024): referees with different roles discuss, and their final scores are averaged.

Two answers to one question can also be compared directly (`ChatEval.compare`), by majority vote. Referees are
not asked to agree (appendix B). Departures from the paper: a referee gives a score in every turn, where the
authors ask for it in the last one alone, so that a discussion can be read after any number of turns; and it
sees the scores that go with what it hears.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import dspy

from data.errors import InputError
from programs.chateval_roles import COMPARISON_SCALE, ROLES, Opinion, Referee, Summarizer
from programs.chateval_talk import STRATEGIES, SUMMARIZER, Agent, Minutes, Said
from programs.judge import Item, Judge, Judgement, Rules, StopReason, Unscored, Verdict
from programs.role import ADAPTER, Answer, NoAnswer
from programs.transcript import Transcript, Turn

Outcome = Literal["win", "tie", "lose"]
"""How the first of two answers does against the second."""

_NAME = re.compile(r"[A-Za-z0-9][\w -]*")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Which of two answers is better, and by whose votes."""

    outcome: Outcome
    """The majority's; a tie where no outcome has more votes than each other."""
    votes: Mapping[str, Outcome]
    """Referee -> its vote, by its mean scores."""
    scores: Mapping[str, tuple[float, float]]
    """Referee -> its final scores of the first and the second answer, on 1 to 10, averaged over both orders."""
    calls: int
    transcripts: tuple[Transcript, ...] = field(repr=False)
    """The discussion with the first answer shown first and, where both orders were held, the other one."""


class ChatEval(Judge):
    """A judge by a discussion of referees.

    Args:
        roles: Name -> role text; the order is the order of speaking.
        communication: One of `programs.chateval_talk.STRATEGIES`.
        turns: T, how often each referee speaks.
        samples: k, replies that are averaged each time a referee speaks (multiple evidence calibration).
        both_orders: Whether `compare` shows the answers in both orders (balanced position calibration).

    Raises:
        InputError: There is no referee, a name or text is unusable, the strategy is unknown, or a number is not
            one that can be carried out.
    """

    kind = "chateval"

    def __init__(
        self,
        roles: Mapping[str, str],
        communication: str = "one-by-one",
        turns: int = 2,
        samples: int = 1,
        both_orders: bool = True,
    ) -> None:
        _check(roles, communication, turns, samples)
        super().__init__(Rules(rounds=turns - 1))
        self.texts = dict(roles)
        self.communication = communication
        self.samples = samples
        self.both_orders = both_orders
        self.roles = {name: Referee(name, text, alone=communication == "none") for name, text in roles.items()}
        self.summarizer = Summarizer() if communication == "summarizer" else None

    async def converse(self, item: Item, rounds: int) -> Transcript:
        """Hold the discussion: a first turn and `rounds` more, which are T = `rounds` + 1."""
        minutes = await self._discuss(item, rounds, lambda referee, heard, n: referee.rate(item, heard, n))
        return _transcript(minutes)

    async def _discuss(
        self,
        item: Item,
        rounds: int,
        ask: Callable[[Referee, str, Sequence[int]], Awaitable[Answer[Opinion] | NoAnswer]],
    ) -> Minutes:
        def agent(index: int, name: str, referee: Referee) -> Agent:
            # Numbers of their own keep referees of one role from being given one another's samples.
            numbers = range(index * self.samples, (index + 1) * self.samples)

            async def speak(turn: int, heard: str) -> Said | NoAnswer:
                answer = await ask(referee, heard, numbers)
                if isinstance(answer, NoAnswer):
                    return answer
                return Said(name, turn, answer.value.text, answer.value.scores, answer.calls)

            return Agent(name, speak)

        agents = [agent(index, *pair) for index, pair in enumerate(self.roles.items())]
        with dspy.context(adapter=ADAPTER):
            return await STRATEGIES[self.communication](agents, self._summing_up(item), rounds + 1)

    def _summing_up(self, item: Item) -> Agent | None:
        summarizer = self.summarizer
        if summarizer is None:
            return None

        async def speak(turn: int, heard: str) -> Said | NoAnswer:
            answer = await summarizer.sum_up(item, heard)
            return answer if isinstance(answer, NoAnswer) else Said(SUMMARIZER, turn, answer.value, (), answer.calls)

        return Agent(SUMMARIZER, speak)

    def verdict(self, transcript: Transcript, rounds: int) -> Judgement:
        """Average the referees' latest scores; one referee who failed leaves the item unscored."""
        if transcript.failure is not None:
            return _unscored(transcript)
        latest = {turn.role: turn.score for turn in transcript.turns if turn.score is not None}
        score = math.fsum(latest.values()) / len(latest)
        held = max(turn.round for turn in transcript.turns)
        reason: StopReason = "single call" if len(transcript.turns) == 1 else "rounds over"
        return Verdict(score, held, reason, transcript.calls, transcript)

    async def compare(self, item_a: Item, item_b: Item) -> Comparison | Unscored:
        """Let the referees discuss two answers to one question and vote.

        Args:
            item_a: The answer whose outcome is told.
            item_b: The other; only its text may differ.

        Raises:
            InputError: The two items are not about the same source, context and aspect.
            dspy.LMError: The LM failed for good.
        """
        _check_pair(item_a, item_b)
        orders = [(item_a, item_b), (item_b, item_a)] if self.both_orders else [(item_a, item_b)]
        held = await asyncio.gather(*(self._compared(pair) for pair in orders))
        transcripts = tuple(map(_transcript, held))
        calls = sum(t.calls for t in transcripts)
        for transcript in transcripts:
            if transcript.failure is not None:
                unscored = _unscored(transcript)
                return Unscored(unscored.reason, unscored.detail, calls, transcript)
        straight = [_final_pairs(minutes) for minutes in held[:1]] + [
            {name: (a, b) for name, (b, a) in _final_pairs(minutes).items()} for minutes in held[1:]
        ]
        scores = {name: _mean_pair([scored[name] for scored in straight]) for name in self.roles}
        votes = {name: _vote(a, b) for name, (a, b) in scores.items()}
        return Comparison(_majority(votes), votes, scores, calls, transcripts)

    async def _compared(self, pair: tuple[Item, Item]) -> Minutes:
        aspect = replace(pair[0].aspect, scale=COMPARISON_SCALE)
        pair = (replace(pair[0], aspect=aspect), replace(pair[1], aspect=aspect))
        return await self._discuss(
            pair[0], self.rules.rounds, lambda referee, heard, n: referee.compare(pair, heard, n)
        )

    def config(self) -> dict[str, Any]:
        return {
            "roles": dict(self.texts),
            "communication": self.communication,
            "turns": self.rules.rounds + 1,
            "samples": self.samples,
            "both_orders": self.both_orders,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ChatEval:
        """Rebuild a judge.

        `roles` is a mapping from name to text, or a list of names of built-in roles; referees who share a role
        are told apart by numbers (annotator-1, annotator-2).

        Raises:
            InputError: As the constructor, or a name is not that of a built-in role.
        """
        roles = config["roles"]
        return cls(
            roles if isinstance(roles, Mapping) else _builtin([str(name) for name in roles]),
            str(config.get("communication", "one-by-one")),
            int(config.get("turns", 2)),
            int(config.get("samples", 1)),
            bool(config.get("both_orders", True)),
        )


def _builtin(names: Sequence[str]) -> dict[str, str]:
    unknown = [name for name in names if name not in ROLES]
    if unknown:
        raise InputError(
            f"there is no built-in role {unknown[0]!r}",
            field="roles",
            expected="names out of " + ", ".join(ROLES),
            found=unknown[0],
            remedy="give your own roles as a mapping from name to text",
        )
    roles: dict[str, str] = {}
    for index, name in enumerate(names):
        number = f"-{names[: index + 1].count(name)}" if names.count(name) > 1 else ""
        roles[name + number] = ROLES[name]
    return roles


def _check(roles: Mapping[str, str], communication: str, turns: int, samples: int) -> None:
    if not roles:
        raise InputError("ChatEval needs a referee", field="roles", expected="at least one role", found=dict(roles))
    for name, text in roles.items():
        if not _NAME.fullmatch(name) or name == SUMMARIZER:
            expected = f"letters, digits, blanks and hyphens, and not {SUMMARIZER!r}"
            raise InputError("not a name for a referee", field="roles", expected=expected, found=name)
        if not isinstance(text, str) or not text.strip():
            raise InputError("not a role", field=f"roles.{name}", expected="a non-empty text", found=text)
    if communication not in STRATEGIES:
        raise InputError(
            "unknown communication strategy",
            field="communication",
            expected="one of " + ", ".join(STRATEGIES),
            found=communication,
        )
    for field_name, count in (("turns", turns), ("samples", samples)):
        if count < 1:
            raise InputError("not a number of times", field=field_name, expected="1 or more", found=count)
    if communication == "none" and turns > 1:
        raise InputError("referees who hear nobody speak once", field="turns", expected="1", found=turns)


def _check_pair(item_a: Item, item_b: Item) -> None:
    for name in ("task", "aspect", "source", "context"):
        one, other = getattr(item_a, name), getattr(item_b, name)
        if one != other:
            raise InputError("two answers to one question are compared", field=name, expected=repr(one), found=other)


def _transcript(minutes: Minutes) -> Transcript:
    return Transcript(tuple(map(_turn, minutes.said)), minutes.failure)


def _turn(said: Said) -> Turn:
    if len(said.scores) == 2:
        text = f"answer 1: {said.scores[0]:g}, answer 2: {said.scores[1]:g}. {said.text}"
        return Turn(said.speaker, said.turn, text, calls=said.calls)
    score = said.scores[0] if said.scores else None
    return Turn(said.speaker, said.turn, said.text, score=score, calls=said.calls)


def _unscored(transcript: Transcript) -> Unscored:
    failure = transcript.failure
    if failure is None:
        raise ValueError("nothing failed")
    detail = f"{failure.role}, turn {failure.round + 1}: {failure.detail}"
    return Unscored(failure.reason, detail, transcript.calls, transcript)


def _final_pairs(minutes: Minutes) -> dict[str, tuple[float, float]]:
    return {said.speaker: (said.scores[0], said.scores[1]) for said in minutes.said if said.scores}


def _mean_pair(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return math.fsum(a for a, _ in pairs) / len(pairs), math.fsum(b for _, b in pairs) / len(pairs)


def _vote(a: float, b: float) -> Outcome:
    return "win" if a > b else "lose" if a < b else "tie"


def _majority(votes: Mapping[str, Outcome]) -> Outcome:
    counts = Counter(votes.values()).most_common()
    return counts[0][0] if len(counts) == 1 or counts[0][1] > counts[1][1] else "tie"
