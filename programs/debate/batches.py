"""Scores items of different sources in shared calls, where sources do not have several candidates to compare.

Scores from separate calls drift, because the LM uses the scale differently in each; items that share a call share the
use of the scale. After BatchEval (Yuan et al., BatchEval: Towards human-like text evaluation, ACL 2024), all items are
scored in batches for several rounds, each round with new batches that mix items of high and low scores so far. The
score of an item is its mean over the rounds. Unlike in the paper, the first batches are drawn by the texts alone, later
ones in the same way from equal parts of the ranked items, and one reply holds analysis and scores.

Where calls are about several aspects, a candidate has an item for each of them, and these stay in one batch.

Batches are drawn from a pool of limited size, so that a stream of items needs limited memory. Where a debate follows,
it is held in the batches of the last round.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from debate_judge.programs.debate.together import TableDebate
from debate_judge.programs.judge import Item
from debate_judge.programs.transcript import EMPTY, Transcript

Seat = Callable[[Sequence[Item], Sequence[Transcript] | None], Awaitable[TableDebate]]
"""(items of a batch, their transcripts so far or None) -> the debate about them."""


class BatchPool:
    """Candidates that are scored in batches.

    Args:
        items: In an order that depends only on the texts; one for each candidate and aspect.
        size: Most candidates of a batch.
        rounds: How often each item is scored, every time in another batch.
        seed: For the order within a batch; it does not change who is in one.
        seat: Makes the debate of a batch.
    """

    def __init__(self, items: Sequence[Item], size: int, rounds: int, seed: int, seat: Seat) -> None:
        self._items = items
        self._candidates = _by_candidate(items)
        self._count = -(-len(self._candidates) // size)
        """Number of batches in a round."""
        self._rounds = rounds
        self._seed = seed
        self._seat = seat
        self._said: list[list[Transcript]] = [[] for _ in items]

    async def hold(self, rounds: int) -> list[Transcript]:
        """Score all items in every round of batches, then debate for at most `rounds` rounds those not settled."""
        batches: list[list[int]] = []
        for number in range(self._rounds):
            batches = [self._places(batch) for batch in self._batches(number)]
            openings = await asyncio.gather(*(self._held(batch, [EMPTY] * len(batch), 0) for batch in batches))
            for batch, transcripts in zip(batches, openings, strict=True):
                for place, transcript in zip(batch, transcripts, strict=True):
                    self._said[place].append(transcript)
        found = [_opening(said) for said in self._said]
        if rounds:
            debates = await asyncio.gather(*(self._held(b, [found[place] for place in b], rounds) for b in batches))
            for batch, transcripts in zip(batches, debates, strict=True):
                for place, transcript in zip(batch, transcripts, strict=True):
                    found[place] = transcript
        return found

    async def _held(self, batch: Sequence[int], said: Sequence[Transcript], rounds: int) -> list[Transcript]:
        begun = any(transcript.turns or transcript.failure for transcript in said)
        debate = await self._seat([self._items[place] for place in batch], said if begun else None)
        await (debate.go_on(rounds) if begun else debate.hold(rounds))
        return debate.transcripts

    def _places(self, batch: Sequence[int]) -> list[int]:
        """Of the items of these candidates."""
        return [place for number in batch for place in self._candidates[number]]

    def _batches(self, number: int) -> list[list[int]]:
        """The candidates of each batch: in round 0 neighbours, later one from each part of the ranking."""
        if not number:
            first = split_evenly(range(len(self._candidates)), self._count)
            return [sorted(batch, key=lambda one: rank(self._item(one), self._seed)) for batch in first]
        ranked = sorted(range(len(self._candidates)), key=lambda one: (self._so_far(one), one))
        batches: list[list[int]] = [[] for _ in range(self._count)]
        for start in range(0, len(ranked), self._count):
            drawn = sorted(ranked[start : start + self._count], key=lambda one: self._draw(one, number, 0))
            # The last part may have fewer candidates than there are batches.
            for batch, one in zip(batches, drawn, strict=False):
                batch.append(one)
        return [sorted(batch, key=lambda one: self._draw(one, -number, self._seed)) for batch in batches]

    def _so_far(self, candidate: int) -> float:
        """Mean score of a candidate in all its aspects, as a share of their scales."""
        shares = []
        for place in self._candidates[candidate]:
            scale = self._items[place].aspect.scale
            scores = [said.score for said in self._said[place] if said.score is not None]
            shares.append((sum(scores) / len(scores) - scale.low) / (scale.high - scale.low) if scores else 0.0)
        return sum(shares) / len(shares)

    def _item(self, candidate: int) -> Item:
        """The first item of a candidate."""
        return self._items[self._candidates[candidate][0]]

    def _draw(self, candidate: int, number: int, seed: int) -> bytes:
        # No debate reads references, so they do not decide who is in a batch.
        item = replace(self._item(candidate), references=())
        text = f"{seed}\0{number}\0{item.key}"
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


async def break_ties(
    items: Sequence[Item], transcripts: Sequence[Transcript], size: int, seed: int, seat: Seat
) -> list[Transcript]:
    """Have the Tie-breaker decide the debates that ended without agreement, in batches of only these.

    Args:
        items: As in `BatchPool`.
        transcripts: The debates about them.
        size: Most candidates of a batch.
        seed: For the order within a batch.
        seat: Makes the debate of a batch.
    """
    found = list(transcripts)
    left = [p for p, t in enumerate(transcripts) if t.failure is None and t.rounds and not t.settled]
    candidates = _by_candidate([items[place] for place in left])
    batches = split_evenly(range(len(candidates)), -(-len(candidates) // size)) if left else []

    async def one(batch: Sequence[int]) -> None:
        in_order = sorted(batch, key=lambda one: rank(items[left[candidates[one][0]]], seed))
        places = [left[number] for candidate in in_order for number in candidates[candidate]]
        aspects = len({items[place].aspect.name for place in places})
        size = len(batch), aspects
        said = [replace(transcripts[place], sizes=(*transcripts[place].sizes[:-1], size)) for place in places]
        debate = await seat([items[place] for place in places], said)
        await debate.break_ties()
        for place, transcript in zip(places, debate.transcripts, strict=True):
            found[place] = transcript

    await asyncio.gather(*map(one, batches))
    return found


def rank(item: Item, seed: int) -> bytes:
    """The rank of a candidate in a seeded order; the same in every aspect, so that tables are."""
    text = "\0".join([str(seed), item.source, item.context, item.text])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def first_batch(items: Sequence[Item], size: int) -> list[Item]:
    """The items of the first `size` candidates."""
    return [items[place] for own in _by_candidate(items)[:size] for place in own]


def _by_candidate(items: Sequence[Item]) -> list[list[int]]:
    """Of each candidate the places of its items."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for place, item in enumerate(items):
        found.setdefault((item.source, item.context, item.text), []).append(place)
    return list(found.values())


def split_evenly(items: Sequence[int], count: int) -> list[list[int]]:
    """Cut into `count` consecutive parts of nearly equal size."""
    ends = [len(items) * number // count for number in range(count + 1)]
    return [list(items[start:end]) for start, end in pairwise(ends)]


def _opening(said: Sequence[Transcript]) -> Transcript:
    """The opening turn of an item: the mean of its scores, with the rationale of the first one nearest to the mean."""
    calls = sum(transcript.calls for transcript in said)
    scored = [transcript for transcript in said if transcript.score is not None]
    if not scored:
        failure = said[-1].failure
        assert failure is not None
        return replace(said[-1], failure=replace(failure, calls=calls), turns=())
    scores = [transcript.score or 0.0 for transcript in scored]
    mean = sum(scores) / len(scores)
    nearest = min(scored, key=lambda transcript: abs((transcript.score or 0.0) - mean))
    turn = replace(nearest.turns[0], score=mean, calls=calls)
    return Transcript((turn,), sizes=said[-1].sizes)
