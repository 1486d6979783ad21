"""Feedback in words on a judge's scores of one example, for tuners that reflect on failures.

A metric does not say which candidates are in the wrong order, nor whether the first score or the debate is the cause.
Both follow from the ratings and the transcripts, which contain the score before and after each critique. Feedback
contains no texts under evaluation and no replies, so that these cannot give instructions to a tuner's LM.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations

import dspy

from debate_judge.programs.judge import Judgement, Unscored, Verdict
from debate_judge.programs.transcript import Transcript

WORST = 5
"""Most pairs in the wrong order that are named: those with the largest difference of ratings."""

Rated = tuple[int, float, float]
"""(number of a candidate in the example, from 1; mean rating; the judge's score)."""


def group_feedback(example: dspy.Example, prediction: dspy.Prediction) -> str:
    """Describe which candidates of a group are in the wrong order, and what the debate did to each score.

    Args:
        example: From `optimize.examples`, with `questions` and `ratings`.
        prediction: With `judgements`, one per question.

    Returns:
        A statement on each line; candidates are named by their number in the example.
    """
    judgements: Sequence[Judgement] = prediction.judgements
    ratings: Sequence[float | None] = example.ratings
    final: list[Rated] = []
    first: list[Rated] = []
    lines: list[str] = []
    effects: Counter[str] = Counter()
    for number, (judgement, rating) in enumerate(zip(judgements, ratings, strict=True), start=1):
        if isinstance(judgement, Unscored):
            lines.append(f"Candidate {number} has no score: {judgement.reason}.")
        elif rating is not None:
            opening = judgement.transcript.until(0).score
            final.append((number, rating, judgement.score))
            first.append((number, rating, judgement.score if opening is None else opening))
            lines += _debate(number, rating, judgement, effects)
    return "\n".join([*_order(final, first, debated=bool(effects)), *_balance(effects), *lines])


def _order(final: Sequence[Rated], first: Sequence[Rated], *, debated: bool) -> list[str]:
    """How many pairs are in the wrong order before and after the debate, and the worst of them."""
    differing = sum(a[1] != b[1] for a, b in combinations(final, 2))
    if not differing:
        return ["The raters set no two of the scored candidates apart."]
    wrong, tied = pairs_in_wrong_order(final), sum(a[1] != b[1] and a[2] == b[2] for a, b in combinations(final, 2))
    told = f"Pairs that the raters set apart: {differing}; in the wrong order: {len(wrong)}; scored alike: {tied}"
    if debated:
        told += f"; in the wrong order by the scores before the debate: {len(pairs_in_wrong_order(first))}"
    lines = [f"{told}."]
    for lower, higher in wrong[:WORST]:
        lines.append(
            f"Candidate {lower[0]} has {lower[2]:g} and candidate {higher[0]} has {higher[2]:g}, but the raters put "
            f"candidate {lower[0]} lower by {higher[1] - lower[1]:.2f} ({lower[1]:.2f} and {higher[1]:.2f})."
        )
    return lines


def pairs_in_wrong_order(rated: Sequence[Rated]) -> list[tuple[Rated, Rated]]:
    """Pairs in the wrong order, the lower rated candidate first; pairs with the largest difference of ratings first."""
    pairs = [(a, b) if a[1] < b[1] else (b, a) for a, b in combinations(rated, 2)]
    wrong = [(lower, higher) for lower, higher in pairs if lower[1] < higher[1] and lower[2] > higher[2]]
    return sorted(wrong, key=lambda pair: pair[0][1] - pair[1][1])


def _debate(number: int, rating: float, verdict: Verdict, effects: Counter[str]) -> Iterator[str]:
    """What each critique and the Tie-breaker did to a score; the directions are counted in `effects`."""
    for cause, before, after in _moves(verdict.transcript):
        change = abs(after - rating) - abs(before - rating)
        effect = "unmoved" if before == after else "toward" if change < 0 else "away" if change > 0 else "across"
        effects[effect] += 1
        if effect in ("toward", "away"):
            yield (
                f"Candidate {number}: {cause} moved the score from {before:g} to {after:g}, {abs(change):.2f} "
                f"{'closer to' if effect == 'toward' else 'further from'} the raters' mean of {rating:.2f}."
            )


def _moves(transcript: Transcript) -> Iterator[tuple[str, float, float]]:
    """Each critique that was answered, and the Tie-breaker's decision, with the scores before and after."""
    standing: float | None = None
    for turn in transcript.turns:
        if turn.score is None or turn.role not in ("scorer", "tie-breaker"):
            continue
        if standing is not None:
            decided = turn.role == "tie-breaker"
            yield "the Tie-breaker" if decided else f"the critique of round {turn.round}", standing, turn.score
        standing = turn.score


def _balance(effects: Counter[str]) -> list[str]:
    if not effects:
        return []
    return [
        "Turns that answered a critique or broke a tie: "
        f"{effects['toward']} moved a score toward the raters' mean, {effects['away']} away from it, "
        f"{effects['across']} to its other side at equal distance; {effects['unmoved']} left it as it was."
    ]
