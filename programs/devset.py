"""Rated texts for DSPy's own optimizers and `dspy.Evaluate`: one example a group, the metric, and textual feedback.

    train = examples(corpus("sample"), aspects=["coherence"])
    dspy.Evaluate(devset=train, metric=group_agreement)(judge)          # 100 x the summary-level correlation
    dspy.GEPA(metric=group_agreement, failure_score=-1, ...).compile(judge, trainset=train)

One example is one source with its candidates in one aspect, because a correlation needs several scores.

A correlation does not say which candidates are in the wrong order, nor whether the first score or the debate put them
there. Feedback takes both from the ratings and the transcripts, which contain the score before and after each critique.
It quotes neither texts under evaluation nor replies, so that these cannot give instructions to a tuner's LM.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, Literal

import dspy

from debate_judge import data
from debate_judge.data.agreement.correlations import correlation
from debate_judge.data.agreement.figures import Statistic
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Corpus, RatedGroup, Task
from debate_judge.data.splits import PARTS, split
from debate_judge.data.tasks import TASKS
from debate_judge.programs.judge import Item, Unscored, Verdict
from debate_judge.programs.parsing import escape

_CANDIDATE = re.compile(r"^\[\[ ## candidate_(\d+) ## \]\]\n", re.MULTILINE)

FAILURE_SCORE = -1.0
"""The metric of a group for which too few scores exist, like DSPy's `failure_score`: no correlation is lower."""


def corpus(spec: str | Path, *, task: Task | str | None = None, columns: Iterable[str] = ()) -> Corpus:
    """Read rated texts: a built-in set by its name, e.g. `sample` or `summeval`, or a file of your own.

    Args:
        spec: What the command line takes as --data.
        task: The task of a file: a `Task`, the name of a built-in one, or a task file; by default it is inferred.
        columns: `NAME=COLUMN` for each column whose name in the file differs from ours.

    Raises:
        InputError: There is no such data, or it cannot be used.
    """
    return data.load(str(spec), task, columns)


class Examples(list[dspy.Example]):
    """Examples, and the number of groups left out."""

    def __init__(self, examples: Iterable[dspy.Example], left_out: dict[str, int]) -> None:
        super().__init__(examples)
        self.left_out = left_out
        """Name of an aspect -> number of groups whose candidates are all rated alike, or not at all: no correlation
        with their ratings exists."""


def examples(
    corpus: Corpus,
    aspects: Sequence[str] = (),
    *,
    part: Literal["train", "dev", "held_out"] | None = None,
    seed: int = 0,
) -> Examples:
    """One `dspy.Example` for each group and aspect, with the arguments of a judge's call as inputs.

    Its fields are `source`, `texts`, `aspect` and `ratings` (the mean over raters for each text, None for an unrated
    text), and `task`, `context` and `references` where the call needs them.

    Args:
        corpus: Rated texts, several for a source.
        aspects: Names of aspects; by default those that `debate compile` would take.
        part: Only the groups of one part of the split that a compile with this seed makes; by default all.
        seed: Of the split.

    Raises:
        InputError: There is no such aspect or part, or no group has candidates that are rated differently.
    """
    chosen_aspects = [corpus.task.aspect(name) for name in corpus.select_aspects(aspects)]
    if part is not None:
        if part not in PARTS:
            raise InputError("unknown part", field="part", expected=", ".join(PARTS), found=part)
        corpus = getattr(split(corpus, aspects=[aspect.name for aspect in chosen_aspects], seed=seed), part)
    group_examples = [
        call_example(corpus.task, aspect.name, group, [c.text for c in group.candidates], group.ratings(aspect.name))
        for aspect in chosen_aspects
        for group in corpus.groups
        if group.has_distinct_ratings(aspect.name)
    ]
    if not group_examples:
        raise InputError(
            "no source has candidates that are rated differently",
            file=corpus.origin.location,
            field="aspects",
            expected="several rated candidates of a source, for a correlation within it",
            found=", ".join(aspect.name for aspect in chosen_aspects),
            remedy="debate compile tunes a judge on sources with one candidate each",
        )
    left_out = {a.name: sum(not group.has_distinct_ratings(a.name) for group in corpus.groups) for a in chosen_aspects}
    return Examples(group_examples, left_out)


def call_example(
    task: Task, aspect: str, group: RatedGroup | Item, texts: Sequence[str], ratings: Sequence[float | None]
) -> dspy.Example:
    """An example with the arguments of a judge's call about texts of one source, and the mean rating of each text."""
    fields: dict[str, Any] = {"source": group.source, "texts": list(texts), "aspect": aspect}
    if task != next((known for known in TASKS.values() if any(a.name == aspect for a in known.aspects)), None):
        # A built-in task by its name, because DSPy may write examples to files as demonstrations.
        fields["task"] = task.name if TASKS.get(task.name) == task else task
    if group.context:
        fields["context"] = group.context
    if group.references:
        fields["references"] = list(group.references)
    return dspy.Example(**fields, ratings=list(ratings)).with_inputs(*fields)


def group_agreement(
    gold: dspy.Example,
    pred: dspy.Prediction,
    trace: object = None,
    pred_name: str | None = None,
    pred_trace: Sequence[Any] | None = None,
    *,
    statistic: Statistic = "spearman",
) -> float | dspy.Prediction:
    """The correlation of the scores of one source's texts with their ratings, from -1 to 1; a metric for DSPy.

    The mean over examples is the summary-level correlation, and `dspy.Evaluate` prints 100 times that. With a trace the
    value is the same. Texts without a score are left out, as in all agreement of this project; where all scores are
    equal, the value is 0, and where too few texts have one, `FAILURE_SCORE`; it is never None or NaN. DSPy scores a
    program that raises with its own `failure_score`, 0 by default: give `failure_score=-1` to `dspy.Evaluate` and
    `dspy.GEPA`. With `dspy.BootstrapFewShot`, for which any value but 0 is a success, give `metric_threshold`.

    Args:
        gold: From `examples`.
        pred: Of a judge: `scores`, and for feedback `judgements`.
        trace: Not used.
        pred_name: The predictor that GEPA wants feedback for; without it there is none.
        pred_trace: The call of this predictor that the feedback belongs to.
        statistic: Another correlation, by `functools.partial`.

    Returns:
        The correlation; with `pred_name` a prediction with `score` and `feedback`.
    """
    pairs = [
        (rating, score)
        for rating, score in zip(gold.ratings, pred.scores, strict=True)
        if rating is not None and score is not None and math.isfinite(score)
    ]
    ratings, scores = [rating for rating, _ in pairs], [score for _, score in pairs]
    value = FAILURE_SCORE
    if len(set(ratings)) > 1:
        value = correlation(ratings, scores, statistic) or 0.0
    if pred_name is None:
        return value
    lines = [
        f"{statistic} correlation of the scores with the ratings: {value:.2f}",
        *group_feedback(gold, pred, pred_trace[0][1] if pred_trace else {}),
    ]
    return dspy.Prediction(score=value, feedback="\n".join(lines))


# --- textual feedback ---

MAX_PAIRS = 5
"""Maximum number of pairs in the wrong order that feedback lists: those with the largest difference of ratings."""


def group_feedback(gold: dspy.Example, pred: dspy.Prediction, call_inputs: Mapping[str, Any]) -> Iterator[str]:
    """Say, a statement a line, what the raters gave the candidates of a call, which candidates of the group are in the
    wrong order, and what the debate did to each score.

    Args:
        gold: Rated texts, with `ratings`.
        pred: With `scores` and `judgements`, one per text.
        call_inputs: The inputs of the call; empty for none. Where it is about several candidates, feedback is about
            these alone, by their numbers in the prompt; otherwise candidates have their numbers in the example.
    """
    _, *pieces = _CANDIDATE.split(call_inputs.get("candidates") or "")
    shown = {text.strip(): int(number) for number, text in zip(pieces[::2], pieces[1::2], strict=True)}
    escaped = [escape(text).strip() for text in gold.texts]
    numbers = {n: shown[text] if shown else n + 1 for n, text in enumerate(escaped) if not shown or text in shown}
    candidate = (call_inputs.get("candidate") or "").strip()
    in_call = list(numbers) if shown else [n for n, text in enumerate(escaped) if text == candidate][:1]
    for index in in_call:
        rating, score = gold.ratings[index], pred.scores[index]
        if rating is not None:
            error = "" if score is None else "too high" if score > rating else "too low" if score < rating else "right"
            verdict = f", the judge {score:g}: {error}" if error else "; the judge has no score for it"
            average = f"The raters gave it {rating:.2f} on average{verdict}."
            yield f"This call was about candidate {numbers[index]}. {average}"
    rated: list[RatedScore] = []
    changes: list[str] = []
    effects: Counter[str] = Counter()
    for index, number in numbers.items():
        judgement, rating = pred.judgements[index], gold.ratings[index]
        if isinstance(judgement, Unscored):
            changes.append(f"Candidate {number} has no score: {judgement.reason}.")
        elif rating is not None:
            opening = judgement.transcript.until(0).score
            rated.append((number, rating, judgement.score, judgement.score if opening is None else opening))
            changes += _changes(number, rating, judgement, effects)
    yield from _order_feedback(rated, debated=bool(effects))
    if effects:
        yield (
            "Turns that answered a critique or broke a tie: "
            f"{effects['toward']} moved a score toward the raters' mean, {effects['away']} away from it, "
            f"{effects['across']} to its other side at equal distance; {effects['unmoved']} left it as it was."
        )
    yield from changes


RatedScore = tuple[int, float, float, float]
"""(number that feedback gives the candidate; mean rating; the judge's score; its score before the debate)."""


def _order_feedback(rated: Sequence[RatedScore], *, debated: bool) -> Iterator[str]:
    """The number of pairs in the wrong order, before the debate, too, if there was one; and `MAX_PAIRS` of them."""
    # (lower rated, higher rated), pairs with the largest difference of ratings first.
    pairs = [(a, b) if a[1] < b[1] else (b, a) for a, b in combinations(rated, 2) if a[1] != b[1]]
    pairs.sort(key=lambda pair: pair[0][1] - pair[1][1])
    if not pairs:
        yield "The raters set no two of the scored candidates apart."
        return
    wrong, before = ([(low, high) for low, high in pairs if low[column] > high[column]] for column in (2, 3))
    tied = sum(low[2] == high[2] for low, high in pairs)
    summary = f"Pairs that the raters set apart: {len(pairs)}; in the wrong order: {len(wrong)}; scored alike: {tied}"
    yield f"{summary}; in the wrong order by the scores before the debate: {len(before)}." if debated else f"{summary}."
    for low, high in wrong[:MAX_PAIRS]:
        yield (
            f"Candidate {low[0]} has {low[2]:g} and candidate {high[0]} has {high[2]:g}, but the raters put "
            f"candidate {low[0]} lower by {high[1] - low[1]:.2f} ({low[1]:.2f} and {high[1]:.2f})."
        )


def _changes(number: int, rating: float, verdict: Verdict, effects: Counter[str]) -> Iterator[str]:
    """How each critique and the Tie-breaker changed a score; adds the kinds of change to `effects`."""
    turns = [turn for turn in verdict.transcript.turns if turn.role in ("scorer", "tie-breaker")]
    scored = [(turn, turn.score) for turn in turns if turn.score is not None]
    for (_, before), (turn, after) in pairwise(scored):
        change = abs(after - rating) - abs(before - rating)
        effect = "unmoved" if before == after else "toward" if change < 0 else "away" if change > 0 else "across"
        effects[effect] += 1
        if effect in ("toward", "away"):
            cause = "the Tie-breaker" if turn.role == "tie-breaker" else f"the critique of round {turn.round}"
            yield (
                f"Candidate {number}: {cause} moved the score from {before:g} to {after:g}, {abs(change):.2f} "
                f"{'closer to' if effect == 'toward' else 'further from'} the raters' mean of {rating:.2f}."
            )
