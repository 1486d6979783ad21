"""Racing: a challenger is asked about a few groups at first, then about twice as many, and is dropped as soon as too
little can be expected of it.

Challengers come one after the other, each against the best so far, and the number of groups doubles, as in the
procedure `intensify` of Hutter, Hoos & Leyton-Brown (Sequential model-based optimization for general algorithm
configuration, LION 2011). Groups are blocks: challenger and rival are compared by the differences of the same groups
(Maron & Moore, The racing algorithm, Artificial Intelligence Review 11, 1997; Birattari et al., A racing algorithm for
configuring metaheuristics, GECCO 2002). Halving the field after each block would take no estimate, but it needs all
challengers at once and drops half of them however close they are.

A test per aspect would hardly ever drop anything: for one of several aspects much is possible. What counts is the
agreement that is lost by dropping, on average over aspects, where each aspect chooses for itself: the expected
opportunity cost (Chick & Inoue, New two-stage and sequential procedures for selecting the best simulated system,
Operations Research 49, 2001), predicted for the means over all groups, in the model that the choice itself uses
(`pooling`). The blocks, and so the decisions, depend on scores, group ids and seed alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.special import stdtr

from debate_judge.data.agreement.correlations import Floats
from debate_judge.data.agreement.tables import GroupScores, Level
from debate_judge.optimize.search.outcomes import Dropped, Outcomes
from debate_judge.optimize.search.points import Point
from debate_judge.optimize.search.pooling import BLOCKS
from debate_judge.optimize.search.rules import NEARLY, SAME_COST

WORTH_IT = 0.001
"""Mean agreement over aspects that a challenger has to be expected to add, or it is dropped. The choice itself gives up
0.005 for fewer calls; here a search drops one challenger after the other, and what each might have added adds up."""

USUAL_SPREAD = 0.005
"""Least variance of what points are worth in truth that a race reckons with: a standard deviation of 0.07."""

_FIRST = {"summary": 3, "sample": 2 * BLOCKS}
"""Groups of the first block. At sample level a group is one candidate, and the correlation needs many."""

_SAME_JUDGE = 24
"""Texts with equal scores from which on two points count as the same judge: a debate that has changed nothing in so
many would hardly change an agreement."""

_LEAST = 1e-12


def race_order(groups: Iterable[str], seed: int) -> list[str]:
    """The different groups in the order in which they are asked about."""
    return sorted(
        set(groups), key=lambda name: hashlib.blake2b(f"{seed}\0{name}".encode("utf-8", "surrogatepass")).digest()
    )


def block_ends(groups: int, level: Level) -> list[int]:
    """How many groups have been asked about after each block; the last is all of them."""
    ends, end = [], _FIRST[level]
    while end < groups:
        ends.append(end)
        end *= 2
    return [*ends, groups]


def expected_gains(
    differences: Sequence[Floats],
    asked: float,
    spread: Floats,
    units: Sequence[Sequence[int]],
    ahead: Sequence[float],
    unseen: float = 0.0,
) -> list[float]:
    """What a challenger can be expected to add for each unit, which takes it only if it is ahead in the end.

    True differences are normal with twice the covariance `spread` of what points are worth; each group adds noise,
    whose variance is estimated from the differences, over all aspects together. What the mean over all groups will be
    has a t distribution with as many degrees of freedom as that estimate has.

    Args:
        differences: For each aspect the challenger's agreement less the rival's, in each group asked about so far.
        asked: Share of all groups that were asked about.
        spread: How much points differ in truth (`pooling.prior`).
        units: The aspects that get one judge together, by number.
        ahead: For each unit the difference from which on the challenger is taken.
        unseen: Variance of a group's noise where all differences are the same, so that they do not tell it.
    """
    counts = np.array([len(found) for found in differences], dtype=float)
    degrees = float(np.clip(counts - 1, 0, None).sum())
    if degrees < 2:
        return [math.inf] * len(units)
    variance = sum(float(((found - found.mean()) ** 2).sum()) for found in differences if len(found)) / degrees
    variance = variance if variance > _LEAST else unseen
    means = np.array([found.mean() if len(found) else 0.0 for found in differences])
    # An aspect that was not asked about tells nothing: its noise is that of a small part of one group.
    noise = np.diag(max(variance, _LEAST) / np.maximum(counts, 1e-3))
    # Where few points are known, they say little about how much others differ.
    prior = 2 * _at_least_usual(spread)
    gain = prior @ np.linalg.inv(prior + noise)
    left = 1 - asked
    expected = asked * means + left * (gain @ means)
    uncertain = left**2 * (prior - gain @ prior) + left * asked * noise
    found = []
    for unit, least in zip(units, ahead, strict=True):
        over = float(expected[unit].mean()) - least
        deviation = math.sqrt(max(0.0, float(uncertain[np.ix_(unit, unit)].mean()))) if variance > _LEAST else 0.0
        found.append(_positive_part(over, deviation, degrees))
    return found


def _positive_part(mean: float, deviation: float, degrees: float) -> float:
    """Expectation of what exceeds 0 of a shifted and scaled t distribution (Chick & Inoue 2001, the function Psi)."""
    if not deviation:
        return max(mean, 0.0)
    z = mean / deviation
    density = math.exp(
        math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - (degrees + 1) / 2 * math.log1p(z * z / degrees)
    ) / math.sqrt(degrees * math.pi)
    return deviation * ((degrees + z * z) / (degrees - 1) * density + z * float(stdtr(degrees, z)))


def _at_least_usual(spread: Floats) -> Floats:
    share = max(0.0, 1 - spread[0, 0] / USUAL_SPREAD)
    usual: Floats = USUAL_SPREAD / 2 * (np.ones_like(spread) + np.eye(len(spread)))
    return spread + share * usual


class Challenge:
    """The points of one probe against the best that was known before it.

    Args:
        outcomes: What is known; at least one point.
        points: Of the probe.
    """

    def __init__(self, outcomes: Outcomes, points: Iterable[Point]) -> None:
        self._outcomes = outcomes
        self._points = frozenset(points)
        points = [p for p in outcomes.by_point if p.knowledge not in outcomes.space.barred]
        worth, self._spread, self._units = outcomes.compared(points)
        self._leaders = {
            label: points[int(worth[unit].mean(axis=0).argmax())]
            for label, unit in zip(outcomes.units, self._units, strict=True)
        }
        found = [self._outcomes.units[label].scores(leader)[0] for label, leader in self._leaders.items()]
        by_group = [list(outcomes.by_group(own).values()) for one in found for own in one.values()]
        self._over_groups = float(np.mean([float(np.var(values)) for values in by_group if values] or [0.0]))
        """Variance of a leader's agreement over the groups."""

    def may_win(self, point: Point, asked: Collection[str]) -> bool:
        """Whether enough can be expected of a point to ask about more groups.

        Its rivals are the best point so far of each unit, and what often is the cheaper way to the same scores: the
        same point as it is read otherwise, and after fewer rounds.

        Args:
            point: Not yet known for all groups.
            asked: The groups that it is asked about.
        """
        gains = dict.fromkeys(self._outcomes.units, math.inf)
        space = self._outcomes.space
        others = [replace(point, reading=reading) for reading in space.readings]
        others += [replace(point, rounds=n, tie_breaker=False) for n in space.rounds if n <= point.rounds]
        known = self._outcomes.by_point.keys() | self._points
        same = [other for other in dict.fromkeys(others) if other in known and other != point]
        for rival in dict.fromkeys([*self._leaders.values(), *same]):
            against = self._gains(point, rival, asked)
            for label, leader in self._leaders.items():
                if rival == leader or rival in same:
                    gains[label] = min(gains[label], against[label])
        aspects = {label: len(unit) for label, unit in zip(self._outcomes.units, self._units, strict=True)}
        return sum(gains[label] * n for label, n in aspects.items()) >= WORTH_IT * sum(aspects.values())

    def behind(self, point: Point, asked: Collection[str]) -> dict[str, float]:
        """Unit -> mean difference from its best point, over the groups asked about and its aspects."""
        found = {}
        for label, leader in self._leaders.items():
            differences = self._differences(point, leader, asked, label)[0]
            means = [float(d.mean()) for d in differences if len(d)]
            found[label] = sum(means) / len(means) if means else 0.0
        return found

    def _gains(self, point: Point, rival: Point, asked: Collection[str]) -> dict[str, float]:
        outcomes, differences, ahead = self._outcomes, list[Floats](), []
        same = 0.0
        for label in outcomes.units:
            found, calls, theirs, equal = self._differences(point, rival, asked, label)
            differences += found
            same += equal
            # What is nearly as good for fewer calls is taken.
            ahead.append(-NEARLY if calls < theirs * (1 - SAME_COST) else 0.0)
        share = len(asked) / len(outcomes.groups)
        gains = expected_gains(differences, share, self._spread, self._units, ahead, self._unseen(differences, same))
        return dict(zip(outcomes.units, gains, strict=True))

    def _unseen(self, differences: Sequence[Floats], same: float) -> float:
        """Variance of a group's noise between two points that agree with the raters alike in every group so far.

        Where sources have two candidates, judges of very different scores often do. The next group differs with the
        probability of Laplace's rule of succession, and then as two groups do.
        """
        return 0.0 if same >= _SAME_JUDGE else 2 * self._over_groups / (sum(map(len, differences)) + 2)

    def _differences(
        self, point: Point, rival: Point, asked: Collection[str], label: str
    ) -> tuple[list[Floats], float, float, float]:
        """By aspect the differences of groups that both may be judged by; LM calls per item of the two; texts, if the
        scores of all of them are equal, else minus infinity."""
        scores = self._outcomes.units[label].scores
        (ours, calls), (theirs, usual) = (scores(p, only=asked) for p in (point, rival))
        found, same = [], 0.0
        for name, own in ours.items():
            both = frozenset(group.group for group in own) & {group.group for group in theirs[name]}
            known = {group.group: group.scores for group in theirs[name]}
            equal = all(group.scores == known[group.group] for group in own if group.group in both)
            same += sum(len(known[group]) for group in both) if equal else -math.inf
            one, other = (self._values(p, name, s, both) for p, s in ((point, own), (rival, theirs[name])))
            found.append(np.array([value - other[group] for group, value in one.items()]))
        return found, calls, usual, same

    def _values(
        self, point: Point, aspect: str, scores: Sequence[GroupScores], groups: frozenset[str]
    ) -> Mapping[str, float]:
        # The best points are in race after race.
        known, key = self._outcomes.raced, (point, aspect, groups)
        if key not in known:
            known[key] = self._outcomes.by_group([group for group in scores if group.group in groups])
        return known[key]


MayWin = Callable[[Challenge, Point, Collection[str]], bool]
"""Whether a point of a challenge may be chosen, going by these groups."""


def race(
    outcomes: Outcomes, points: Sequence[Point], seed: int, may_win: MayWin = Challenge.may_win
) -> dict[Point, Dropped]:
    """Ask about the groups block by block, as long as a point may win; returns the points that were dropped.

    A debate that may win after some rounds is held for no more rounds on further groups; what is read off it on the
    way is kept, for it costs no call.

    Args:
        outcomes: What is known. The points that are not dropped are to be evaluated.
        points: Of one probe.
        seed: Of the order of the groups.
        may_win: Whether to go on.
    """
    if not points:
        return {}
    order = race_order(outcomes.groups, seed)
    challenge = Challenge(outcomes, points) if outcomes.by_point else None
    left, dropped = list(points), dict[Point, Dropped]()
    for end in block_ends(len(order), outcomes.criterion.level)[:-1]:
        asked = frozenset(order[:end])
        if challenge is None:
            continue
        outcomes.hear(left, asked)
        hopeful = [point for point in left if may_win(challenge, point, asked)]
        longest = max((point.rounds for point in hopeful), default=-1)
        kept = [p for p in left if p in hopeful or (not p.tie_breaker and p.rounds <= longest)]
        for point in left:
            if point not in kept:
                dropped[point] = Dropped(end, len(order), challenge.behind(point, asked))
        left = kept
        if not left:
            break
    return dropped
