"""What tuners and reflection LMs are shown of the raters: the trainset, and rated sources with the judge's own scores.

The trainset is the public examples (`programs.devset`) with single ratings and comments. One example is one group in
one aspect. The metric is the group's correlation, so that the mean over examples, which DSPy's optimizers maximize, is
the summary-level correlation. If groups have one candidate each, there is no correlation within a group. Examples are
then random batches of items, as a proxy, with the items as input; judges are still chosen by the pooled agreement on
train and dev.

A reflection LM reads sources packed into prompts by tokens. Each is one JSON object, so that no text can be taken for a
rating or for another source.
"""

from __future__ import annotations

import json
import random
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, cast

import dspy
import numpy as np

from debate_judge.data.agreement.correlations import correlation
from debate_judge.data.agreement.decisions import AbsoluteScale, Objective, objective_value
from debate_judge.data.schema import Aspect, Candidate, Corpus
from debate_judge.optimize.tuners import GroupKey
from debate_judge.programs.devset import call_example
from debate_judge.programs.judge import Item, Transcript, items_of
from debate_judge.programs.parsing import escape

MIN_BATCH_ITEMS = 16
"""Least number of items in a batch: enough for a correlation, and few enough for several batches."""

MIN_BATCH_SOURCES = 4
"""Least number of sources in a batch: the correlation within a single source would be another quantity."""

RATING_FIELDS = ("questions", "single_ratings", "comments")
"""Fields beyond those of the public examples: the items, and for each the ratings of single raters and their comments.
The public field `ratings` has the mean ratings."""


def examples(corpus: Corpus, aspects: Sequence[Aspect], *, grouped: bool, seed: int) -> list[dspy.Example]:
    """One example for each aspect and group whose ratings differ, or, if not `grouped`, for each batch of items."""
    trainset: list[dspy.Example] = []
    for aspect in aspects:
        if not grouped:
            trainset += _batches(corpus, aspect, seed)
            continue
        for group in corpus.groups:
            if group.has_distinct_ratings(aspect.name):
                texts, ratings = [c.text for c in group.candidates], group.ratings(aspect.name)
                example = call_example(corpus.task, aspect.name, group, texts, ratings)
                items = items_of(corpus.task, group, aspect)
                trainset.append(example.copy(questions=items, **_single_ratings(group.candidates, aspect)))
    return trainset


def _batches(corpus: Corpus, aspect: Aspect, seed: int) -> list[dspy.Example]:
    """Batches of groups, so that no two batches share a source."""
    groups: list[list[tuple[Item, Candidate]]] = []
    for group in corpus.groups:
        pairs = zip(items_of(corpus.task, group, aspect), group.candidates, strict=True)
        if group_items := [(item, c) for item, c in pairs if c.ratings.get(aspect.name)]:
            groups.append(group_items)
    random.Random(seed).shuffle(groups)
    batches: list[list[list[tuple[Item, Candidate]]]] = [[]]
    for group_items in groups:
        if len(batches[-1]) >= MIN_BATCH_SOURCES and sum(map(len, batches[-1])) >= MIN_BATCH_ITEMS:
            batches.append([])
        batches[-1].append(group_items)
    trainset = []
    for batch in batches:
        items = [item for group_items in batch for item, _ in group_items]
        candidates = [candidate for group_items in batch for _, candidate in group_items]
        if len(items) > 1:
            ratings = [candidate.rating(aspect.name) for candidate in candidates]
            example = dspy.Example(questions=items, texts=[item.text for item in items], ratings=ratings)
            trainset.append(example.copy(**_single_ratings(candidates, aspect)).with_inputs("questions"))
    return trainset


def _single_ratings(candidates: Iterable[Candidate], aspect: Aspect) -> dict[str, list[tuple[Any, ...]]]:
    rated = [(c.ratings.get(aspect.name, ()), c.comments.get(aspect.name, ())) for c in candidates]
    return {"single_ratings": [ratings for ratings, _ in rated], "comments": [comments for _, comments in rated]}


def group_keys(examples: Iterable[dspy.Example]) -> frozenset[GroupKey]:
    """The keys of the groups that examples are about."""
    return frozenset((item.aspect.name, item.group) for example in examples for item in example.questions)


def group_metric(
    ratings: Sequence[float | None],
    scores: Sequence[float | None],
    objective: Objective,
    absolute_scale: AbsoluteScale | None = None,
) -> float:
    """The group's correlation mapped from [-1, 1] to [0, 1], by which guides are compared; concordance (CCC) likewise.

    Unscored items are left out. Constant scores count as a correlation of 0, which is 0.5 here; no score at all is 0,
    the lowest value. For the error it is `objective_value`; for kappa, which is undefined for many small groups, the
    share of decisions equal to the raters'.
    """
    pairs = [(r, s) for r, s in zip(ratings, scores, strict=True) if r is not None and s is not None]
    if not pairs:
        return 0.0
    match objective:
        case "kappa":
            cut = cast(AbsoluteScale, absolute_scale).cut
            return fmean((r >= cut) == (s >= cut) for r, s in pairs)
        case "mae" | "ccc":
            rated, scored = np.array(pairs, dtype=float).T
            value = float(np.nan_to_num(objective_value(objective, rated, scored, cast(AbsoluteScale, absolute_scale))))
            return value if objective == "mae" else (value + 1) / 2
        case _:
            rho = correlation([r for r, _ in pairs], [s for _, s in pairs], objective)
            return ((0.0 if rho is None else rho) + 1) / 2


BYTES_PER_TOKEN = 4
"""Approximate bytes of UTF-8 text per token, for limits in tokens."""

MAX_PROMPT_TOKENS = 40_000
"""Most tokens of rated texts in a prompt."""

_MAX_REASON_CHARACTERS = 400
"""Most characters of a judge's reason, and of a rater's comment."""


@dataclass(frozen=True, slots=True)
class RatedCandidate:
    """A candidate with its ratings in one aspect, and the judge's score."""

    text: str
    ratings: tuple[float, ...]
    """One per rater."""
    mean: float
    score: float | None
    """The judge's score; None if the candidate is unscored."""
    reason: str = ""
    """The judge's reasons; empty where they are not shown."""
    comments: tuple[str, ...] = ()
    """The raters' comments."""
    number: int | None = None
    """Its number in the example."""
    debate_fields: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of `record`."""

    @property
    def error(self) -> float:
        """The absolute difference of score and mean rating; 0 without a score."""
        return 0.0 if self.score is None else abs(self.score - self.mean)

    def record(self) -> dict[str, Any]:
        """The candidate as JSON values, under the names that the prompt explains."""
        record: dict[str, Any] = {} if self.number is None else {"number": self.number}
        record |= {"candidate": self.text, "raters_mean": round(self.mean, 2)}
        if len(self.ratings) > 1:
            record["ratings"] = list(self.ratings)
        if self.comments:
            record["comments"] = [comment[:_MAX_REASON_CHARACTERS] for comment in self.comments]
        if self.score is not None:
            record["judge"] = round(self.score, 2)
            if self.reason:
                record["judge_reason"] = self.reason[:_MAX_REASON_CHARACTERS]
        return {**record, **self.debate_fields}


@dataclass(frozen=True, slots=True)
class RatedSource:
    """A source with all its rated candidates."""

    source: str
    context: str
    candidates: tuple[RatedCandidate, ...]
    group: str = ""
    """Id of its group, which stands for the text if that is empty."""

    @property
    def error(self) -> float:
        """The mean absolute difference of score and mean rating."""
        return sum(c.error for c in self.candidates) / len(self.candidates)

    def without_reasons(self) -> RatedSource:
        """The source without the judge's reasons."""
        return replace(self, candidates=tuple(replace(c, reason="") for c in self.candidates))

    def json_line(self) -> str:
        """The source as one line of JSON, the candidates with the largest differences first, equal texts once."""
        ordered = sorted(_deduplicated(self.candidates), key=lambda c: -c.error)
        record: dict[str, Any] = {"source": self.source} if self.source else {}
        if self.context:
            record["context"] = self.context
        record["candidates"] = [c.record() for c in ordered]
        return json.dumps(record, ensure_ascii=False)

    @property
    def tokens(self) -> int:
        return len(self.json_line().encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN + 1

    def fit(self, tokens: int) -> RatedSource:
        """The source with as many candidates as fit, spread over the ratings; at least two if it has two."""
        kept = sorted(self.candidates, key=lambda c: c.mean)
        while len(kept) > 2 and replace(self, candidates=tuple(kept)).tokens > tokens:
            # The best and the worst rated ones are kept, because they show what the ends of the scale mean.
            del kept[len(kept) // 2]
        return replace(self, candidates=tuple(kept))


def rated_sources(
    example: dspy.Example,
    transcripts: Sequence[Transcript],
    debate_fields: Callable[[Item, float, Transcript], Mapping[str, Any]] = lambda item, mean, transcript: {},
) -> list[RatedSource]:
    """The rated candidates of an example by source, with the judge's first score and its reasons, before any debate.

    Args:
        example: From `rated.examples`.
        transcripts: One for each of its questions.
        debate_fields: From an item, its mean rating and its transcript to `RatedCandidate.debate_fields`.
    """
    sources = []
    rated = zip(example.questions, example.ratings, example.single_ratings, example.comments, transcripts, strict=True)
    for number, (item, mean, ratings, comments, transcript) in enumerate(rated, start=1):
        if mean is None:
            continue
        first = next((turn for turn in transcript.turns if turn.score is not None), None)
        score, reason = (first.score, first.text) if first else (None, "")
        escaped = tuple(map(escape, comments))
        fields = debate_fields(item, mean, transcript)
        candidate = RatedCandidate(escape(item.text), ratings, mean, score, escape(reason), escaped, number, fields)
        # A guide to an aspect that is judged without the source is written without it.
        texts = (escape(item.source), escape(item.context)) if item.aspect.source else ("", "")
        sources.append(RatedSource(*texts, (candidate,), item.group))
    return merge_sources(sources)


def merge_sources(sources: Iterable[RatedSource]) -> list[RatedSource]:
    """Each source once, with the candidates of all sources with the same text and context."""
    by_text: dict[tuple[str, str], RatedSource] = {}
    for source in sources:
        key = (source.source or source.group or source.candidates[0].text, source.context)
        candidates = by_text[key].candidates if key in by_text else ()
        by_text[key] = replace(source, candidates=(*candidates, *source.candidates))
    return list(by_text.values())


def _deduplicated(candidates: Iterable[RatedCandidate]) -> Iterator[RatedCandidate]:
    """Each text once, with the ratings of all its candidates; score and debate are those of the first."""
    by_text: dict[str, list[RatedCandidate]] = {}
    for candidate in candidates:
        by_text.setdefault(candidate.text, []).append(candidate)
    for first, *others in by_text.values():
        ratings = tuple(rating for candidate in (first, *others) for rating in candidate.ratings)
        yield replace(first, ratings=ratings, mean=fmean(c.mean for c in (first, *others))) if others else first


def fitting(sources: Iterable[RatedSource], tokens: int) -> list[RatedSource]:
    """The sources that fit into `tokens` tokens, those with the largest differences first.

    These are taken first, too. But every fourth source is one with the smallest differences: only these show what
    raters do not mind, and otherwise they would be left out if not all sources fit. A source that alone exceeds the
    limit loses candidates.
    """
    ordered = deque(sorted(sources, key=lambda source: -source.error))
    taken: list[RatedSource] = []
    remaining = tokens
    for number in range(len(ordered)):
        source = (ordered.pop() if number % 4 == 3 else ordered.popleft()).fit(tokens)
        if source.tokens <= remaining or not taken:
            taken.append(source)
            remaining -= source.tokens
    return sorted(taken, key=lambda source: -source.error)


def first_quotation(text: str, sources: Sequence[RatedSource], words: int) -> str:
    """The first run of `words` words that `text` shares with a source, a candidate or a comment, or an empty text."""
    ngrams = set()
    for source in sources:
        for passage in (source.source, source.context, *(t for c in source.candidates for t in (c.text, *c.comments))):
            ngrams.update(_ngrams(passage, words))
    return next((ngram for ngram in _ngrams(text, words) if ngram in ngrams), "")


def _ngrams(text: str, words: int) -> list[str]:
    tokens = re.findall(r"\w+", text.lower())
    return [" ".join(tokens[i : i + words]) for i in range(len(tokens) - words + 1)]
