"""ChatEval (Chan et al. 2024): referees with different roles discuss, and their final scores are averaged.

Two answers to one question can also be compared directly (`ChatEval.compare`), by majority vote; a judge that is
`comparing` does so for all candidates that come in pairs. Referees are not asked to agree (appendix B). Departures from
the paper: referees give a score in every turn, not only in the last one, so that a discussion can be read after any
number of turns; and they see the scores of the messages that they read.
"""

from __future__ import annotations

import asyncio
import difflib
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.programs.chateval.communication import STRATEGIES, SUMMARIZER, DiscussionLog, Speaker, Utterance
from debate_judge.programs.chateval.referees import ROLES, Referee, RefereeOpinion, Summarizer, compared_aspect
from debate_judge.programs.chateval.voting import MAJORITY, PairVerdict, pair_transcripts, spoken, tally
from debate_judge.programs.judge import (
    MOST_ROUNDS,
    DebateConfig,
    Item,
    Judge,
    StopReason,
    Unscored,
    Verdict,
    unscored,
)
from debate_judge.programs.option_values import whole_number, yes_or_no
from debate_judge.programs.roles.role import NoAnswer, RoleReply
from debate_judge.programs.roles.score_modes import MOST_SAMPLES
from debate_judge.programs.transcript import Transcript, Turn

_NAME = re.compile(r"[A-Za-z0-9][\w -]*")


class ChatEval(Judge):
    """A judge by a discussion of referees.

    Args:
        roles: Name -> role text; the order is the order of speaking.
        communication: One of `programs.chateval.communication.STRATEGIES`. With `one-by-one` every referee reads all
            earlier messages; with `one-by-one-printed`, Algorithm 1 to the letter, only its own and those of referees
            before it in the order, and the first referee reads none.
        turns: T, how often each referee speaks.
        samples: k, number of replies that are averaged each time a referee speaks (multiple evidence calibration).
        both_orders: Whether `compare` shows the answers in both orders (balanced position calibration).
        comparing: Whether candidates that come in pairs are compared; others are scored one by one.

    Raises:
        InputError: There is no referee, or an argument has a value that it cannot have.
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
        _check(roles, communication, turns)
        whole_number("samples", samples, least=1, most=MOST_SAMPLES)
        yes_or_no("both_orders", both_orders)
        yes_or_no("comparing", comparing)
        super().__init__(DebateConfig(rounds=turns - 1))
        self.texts = dict(roles)
        self.communication = communication
        self.samples = samples
        self.both_orders = both_orders
        self.compares = comparing
        self.roles = {name: Referee(name, text, alone=communication == "none") for name, text in roles.items()}
        self.summarizer = Summarizer() if communication == "summarizer" else None

    async def converse(self, item: Item, rounds: int) -> Transcript:
        """Hold the discussion: a first turn and `rounds` more, which are T = `rounds` + 1."""
        log = await self._discuss(item, rounds, lambda referee, heard, n: referee.rate(item, heard, n))
        return _transcript(log)

    async def _discuss(
        self,
        item: Item,
        rounds: int,
        ask: Callable[[Referee, str, Sequence[int]], Awaitable[RoleReply[RefereeOpinion] | NoAnswer]],
    ) -> DiscussionLog:
        def speaker(index: int, name: str, referee: Referee) -> Speaker:
            # Distinct numbers, so that referees with the same role do not get each other's samples from the store.
            numbers = range(index * self.samples, (index + 1) * self.samples)

            async def speak(turn: int, heard: str) -> Utterance | NoAnswer:
                answer = await ask(referee, heard, numbers)
                if isinstance(answer, NoAnswer):
                    return answer
                return Utterance(name, turn, answer.value.text, answer.value.scores, answer.calls)

            return Speaker(name, speak)

        speakers = [speaker(index, *pair) for index, pair in enumerate(self.roles.items())]
        return await STRATEGIES[self.communication](speakers, self._summing_up(item), rounds + 1)

    def _summing_up(self, item: Item) -> Speaker | None:
        summarizer = self.summarizer
        if summarizer is None:
            return None

        async def speak(turn: int, heard: str) -> Utterance | NoAnswer:
            answer = await summarizer.sum_up(item, heard)
            return (
                answer if isinstance(answer, NoAnswer) else Utterance(SUMMARIZER, turn, answer.value, (), answer.calls)
            )

        return Speaker(SUMMARIZER, speak)

    def read_verdict(self, transcript: Transcript, rounds: int) -> Verdict:
        """The mean of the referees' latest scores; where one of them failed, the item is unscored."""
        latest = {turn.role: turn.score for turn in transcript.turns if turn.score is not None}
        score = math.fsum(latest.values()) / len(latest)
        held = max(turn.round for turn in transcript.turns)
        reason: StopReason = "single call" if len(transcript.turns) == 1 else "rounds over"
        return Verdict(score, held, reason, transcript.calls, transcript)

    async def compare(self, item_a: Item, item_b: Item) -> PairVerdict | Unscored:
        """Let the referees discuss two answers to one question and vote.

        Args:
            item_a: The answer whose outcome is returned.
            item_b: The other answer; only its text may differ.

        Raises:
            InputError: The two items are not about the same source, context and aspect.
            dspy.LMError: The LM failed for good.
        """
        held = await self._in_orders(item_a, item_b, self.debate_config.rounds)
        transcripts = tuple(map(_transcript, held))
        calls = sum(t.calls for t in transcripts)
        for transcript in transcripts:
            if transcript.failure is not None:
                return replace(unscored(transcript, transcript.failure), calls=calls)
        found = tally(held, self.debate_config.rounds)
        return PairVerdict(found.outcome, found.votes, found.scores, calls, transcripts)

    async def converse_table(self, items: Sequence[Item], rounds: int) -> list[Transcript]:
        """Compare two answers in `rounds` + 1 turns; after each the majority's outcome is the score."""
        if not self.compares or len(items) != 2:
            return await super().converse_table(items, rounds)
        held = await self._in_orders(items[0], items[1], rounds)
        return list(pair_transcripts(held, rounds + 1, items[0].aspect.scale))

    async def _in_orders(self, item_a: Item, item_b: Item, rounds: int) -> list[DiscussionLog]:
        _check_pair(item_a, item_b)
        orders = [(item_a, item_b), (item_b, item_a)] if self.both_orders else [(item_a, item_b)]
        return await asyncio.gather(*(self._compared(pair, rounds) for pair in orders))

    async def _compared(self, pair: tuple[Item, Item], rounds: int) -> DiscussionLog:
        aspect = compared_aspect(pair[0].aspect)
        pair = (replace(pair[0], aspect=aspect), replace(pair[1], aspect=aspect))
        return await self._discuss(pair[0], rounds, lambda referee, heard, n: referee.compare(pair, heard, n))

    def config(self) -> dict[str, Any]:
        return {
            "roles": dict(self.texts),
            "communication": self.communication,
            "turns": self.debate_config.rounds + 1,
            "samples": self.samples,
            "both_orders": self.both_orders,
            "comparing": self.compares,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ChatEval:
        """Rebuild a judge.

        `roles` is a mapping from name to text, or a list of names of built-in roles. `same_role` is the name of one of
        these or of a built-in role, which is given to all referees. Referees who share a role are numbered
        (annotator-1, annotator-2).

        Raises:
            InputError: As the constructor, or a name is not that of a built-in role.
        """
        return cls(
            _seated(config["roles"], config.get("same_role")),
            str(config.get("communication", "one-by-one")),
            config.get("turns", 2),
            config.get("samples", 1),
            config.get("both_orders", True),
            config.get("comparing", False),
        )


def _seated(roles: Mapping[str, str] | Sequence[str], same: str | None) -> dict[str, str]:
    """Referee -> role text, from a configuration."""
    own = dict(roles) if isinstance(roles, Mapping) else {}
    known = {**ROLES, **own}
    names = list(own) if own else [str(name) for name in roles]
    if same is not None:
        names = [str(same)] * len(names)
    unknown = [name for name in names if name not in known]
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, n=1)
        raise InputError(
            f"there is no role {unknown[0]!r}",
            field="roles",
            expected="names out of " + ", ".join(known),
            found=unknown[0],
            remedy=f"did you mean {near[0]!r}?" if near else "give your own roles in a file of name = text lines",
        )
    seated: dict[str, str] = {}
    for index, name in enumerate(names):
        number = f"-{names[: index + 1].count(name)}" if names.count(name) > 1 else ""
        seated[name + number] = known[name]
    return seated


def _check(roles: Mapping[str, str], communication: str, turns: int) -> None:
    if not roles:
        raise InputError("ChatEval needs a referee", field="roles", expected="at least one role", found=dict(roles))
    for name, text in roles.items():
        if not _NAME.fullmatch(name) or name in (SUMMARIZER, MAJORITY):
            expected = f"letters, digits, blanks and hyphens, and not {SUMMARIZER!r} or {MAJORITY!r}"
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
    whole_number("turns", turns, least=1, most=MOST_ROUNDS + 1)
    if communication == "none" and turns > 1:
        raise InputError("referees who do not hear one another speak once", field="turns", expected="1", found=turns)


def _check_pair(item_a: Item, item_b: Item) -> None:
    for name in ("task", "aspect", "source", "context"):
        one, other = getattr(item_a, name), getattr(item_b, name)
        if one != other:
            raise InputError("two answers to one question are compared", field=name, expected=repr(one), found=other)


def _transcript(log: DiscussionLog) -> Transcript:
    return Transcript(tuple(map(_turn, log.said)), log.failure)


def _turn(said: Utterance) -> Turn:
    score = said.scores[0] if len(said.scores) == 1 else None
    return Turn(said.speaker, said.turn, spoken(said), score=score, calls=said.calls)
