"""How ChatEval's referees decide which of two answers is better: votes, their majority, and each answer's score.

A referee votes for the answer with the higher score, by its latest scores averaged over the orders in which the answers
were shown. The outcome is the majority's (section 2), which may differ from the order of the mean scores.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from debate_judge.data.schema import Scale
from debate_judge.programs.chateval.communication import DiscussionLog, Utterance
from debate_judge.programs.transcript import Failure, Transcript, Turn

Outcome = Literal["win", "tie", "lose"]
"""The result of the first of two answers against the second."""

MAJORITY = "majority"
"""Name of the role that announces the outcome in a transcript."""

_TURNED: Mapping[Outcome, Outcome] = {"win": "lose", "tie": "tie", "lose": "win"}


@dataclass(frozen=True, slots=True)
class Votes:
    """The votes after some turn."""

    outcome: Outcome
    """The outcome with most votes; a tie if there are several such."""
    votes: Mapping[str, Outcome]
    """Referee -> its vote, by its mean scores."""
    scores: Mapping[str, tuple[float, float]]
    """Referee -> its latest scores of the first and the second answer, averaged over the orders."""

    def turned(self) -> Votes:
        """The same votes, seen from the second answer."""
        return Votes(
            _TURNED[self.outcome],
            {name: _TURNED[vote] for name, vote in self.votes.items()},
            {name: (b, a) for name, (a, b) in self.scores.items()},
        )

    def __str__(self) -> str:
        told = "; ".join(f"{name} {vote}, {_pair(self.scores[name])}" for name, vote in self.votes.items())
        return f"{self.outcome} by the votes of {told}"


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """Which of two answers is better, and by whose votes."""

    outcome: Outcome
    """The outcome with most votes; a tie if there are several such."""
    votes: Mapping[str, Outcome]
    """Referee -> its vote, by its mean scores."""
    scores: Mapping[str, tuple[float, float]]
    """Referee -> its final scores of the first and the second answer, on 1 to 10, averaged over both orders."""
    calls: float
    transcripts: tuple[Transcript, ...] = field(repr=False)
    """The discussion with the first answer shown first, and with both orders the other discussion."""


def tally(held: Sequence[DiscussionLog], turn: int) -> Votes:
    """The votes after a turn.

    Args:
        held: The discussion with the first answer shown first, and with both orders the other discussion.
        turn: Number of the turn, from 0; no referee may have failed by then.
    """
    straight = [_latest(log, turn) for log in held[:1]] + [
        {name: (a, b) for name, (b, a) in _latest(log, turn).items()} for log in held[1:]
    ]
    scores = {name: _mean([scored[name] for scored in straight]) for name in straight[0]}
    votes = {name: _vote(a, b) for name, (a, b) in scores.items()}
    return Votes(_majority(votes), votes, scores)


def pair_transcripts(held: Sequence[DiscussionLog], turns: int, scale: Scale) -> tuple[Transcript, Transcript]:
    """A transcript for each of the two answers: the messages and, after every turn, the outcome as a score.

    The outcome is the upper end of the scale for a win, its middle for a tie, its lower end for a loss. It is the only
    score in a transcript; the referees' scores are in the texts. The calls of a discussion are counted in one
    transcript, that of the answer which was shown first in it.

    Args:
        held: As for `tally`.
        turns: T, the number of turns.
        scale: The aspect's scale.
    """
    failures = [log.failure for log in held if log.failure is not None]
    broken = min((failure.round for failure in failures), default=turns)
    outcomes = [tally(held, turn) for turn in range(broken)]
    first = [_turns(held, turn, 0, outcomes, scale) for turn in range(turns)]
    second = [_turns(held, turn, 1, [o.turned() for o in outcomes], scale) for turn in range(turns)]
    return _transcript(first, _failure(held, 0)), _transcript(second, _failure(held, 1))


def _turns(
    held: Sequence[DiscussionLog], turn: int, answer: int, outcomes: Sequence[Votes], scale: Scale
) -> list[Turn]:
    said = [_told(s, order, answer) for order, log in enumerate(held) for s in log.said if s.turn == turn]
    if turn >= len(outcomes):
        return said
    outcome = outcomes[turn]
    score = {"win": scale.high, "tie": (scale.low + scale.high) / 2, "lose": scale.low}[outcome.outcome]
    return [*said, Turn(MAJORITY, turn, str(outcome), score=score, calls=0)]


def _told(said: Utterance, order: int, answer: int) -> Turn:
    """A message in the transcript of one answer; in order 0 the first answer was shown as answer 1, in order 1 as 2."""
    place = 1 if order == answer else 2
    text = f"(this is answer {place}) {spoken(said)}"
    return Turn(said.speaker, said.turn, text, calls=said.calls if order == answer else 0)


def spoken(said: Utterance) -> str:
    """The message with its scores of both answers."""
    if len(said.scores) != 2:
        return said.text
    return f"answer 1: {said.scores[0]:g}, answer 2: {said.scores[1]:g}. {said.text}"


def _failure(held: Sequence[DiscussionLog], answer: int) -> Failure | None:
    """The earliest failure, with the calls that this answer's transcript accounts for."""
    failures = [log.failure for log in held if log.failure is not None]
    if not failures:
        return None
    own = held[answer].failure if answer < len(held) else None
    return replace(min(failures, key=lambda failure: failure.round), calls=own.calls if own else 0)


def _transcript(turns: Sequence[Sequence[Turn]], failure: Failure | None) -> Transcript:
    return Transcript(tuple(turn for together in turns for turn in together), failure)


def _latest(log: DiscussionLog, turn: int) -> dict[str, tuple[float, float]]:
    return {s.speaker: (s.scores[0], s.scores[1]) for s in log.said if s.scores and s.turn <= turn}


def _mean(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return math.fsum(a for a, _ in pairs) / len(pairs), math.fsum(b for _, b in pairs) / len(pairs)


def _vote(a: float, b: float) -> Outcome:
    return "win" if a > b else "lose" if a < b else "tie"


def _majority(votes: Mapping[str, Outcome]) -> Outcome:
    counts = Counter(votes.values()).most_common()
    return counts[0][0] if len(counts) == 1 or counts[0][1] > counts[1][1] else "tie"


def _pair(scores: tuple[float, float]) -> str:
    return f"{scores[0]:g} to {scores[1]:g}"
