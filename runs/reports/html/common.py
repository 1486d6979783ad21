"""Common parts of the reports of compiles and comparisons: debates, charts of scores and ratings, how to reproduce."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.schema import Aspect, Candidate, Corpus, Scale, Task
from debate_judge.programs.judge import Judgement, Unscored
from debate_judge.runs.reports.html.blocks import (
    ConfusionMatrix,
    DataTable,
    DistributionChart,
    Quotation,
    ReportBlock,
    ScatterChart,
)
from debate_judge.runs.reports.html.document import (
    AspectScale,
    BrowsedJudge,
    Debates,
    DebateTexts,
    ItemTexts,
    JudgeOutcome,
    PathStep,
    RatedDebate,
    printable,
)
from debate_judge.runs.tracking.values import versions

MAX_ITEMS = 10_000
"""Debates on a page; of more, those with the largest disagreement are kept."""

_MAX_POINTS = 300
"""Points of a scatter chart."""

_BINS = 10


@dataclass(frozen=True)
class JudgedScores:
    """One judge's scores of all candidates of a corpus, with its judgements."""

    scores: Mapping[str, Sequence[GroupScores]]
    """Aspect -> groups in corpus order."""
    judgements: Mapping[str, Sequence[Judgement]] = field(default_factory=dict)
    """Aspect -> judgements in the order of `programs.judge.corpus_items`; empty where the scores are from a file."""
    on_scale: bool = True


def debates_of(
    corpus: Corpus, aspects: Sequence[Aspect], judges: Mapping[str, JudgedScores], identity: str
) -> tuple[Debates, DebateTexts]:
    """The debates about a corpus without texts, and their texts; the page first shows those of the first judge.

    `identity` is that of the report.
    """
    items: list[RatedDebate] = []
    texts: list[ItemTexts] = []
    for aspect in aspects:
        for position, (group_index, index, candidate) in enumerate(_candidates(corpus)):
            outcomes, turns, details = [], [], []
            for judge in judges.values():
                judgement = judge.judgements[aspect.name][position] if aspect.name in judge.judgements else None
                outcomes.append(_outcome(judge.scores[aspect.name][group_index].scores[index], judgement))
                turns.append(tuple(printable(t.text) for t in judgement.transcript.turns) if judgement else ())
                details.append(printable(judgement.detail) if isinstance(judgement, Unscored) else "")
            ratings = tuple(candidate.ratings.get(aspect.name, ()))
            group_id = printable(corpus.groups[group_index].id)
            items.append(RatedDebate(group_id, printable(candidate.id), aspect.name, ratings, tuple(outcomes)))
            comments = tuple(map(printable, candidate.comments.get(aspect.name, ())))
            texts.append(ItemTexts(comments, tuple(turns), tuple(details)))
    debates = Debates(
        tuple(BrowsedJudge(name, judge.on_scale) for name, judge in judges.items()),
        tuple(AspectScale(a.name, a.definition, a.scale.low, a.scale.high, a.scale.step) for a in aspects),
        tuple(items),
    )
    kept_indices = _largest_disagreements(debates)
    debates = replace(debates, items=tuple(items[i] for i in kept_indices), left_out=len(items) - len(kept_indices))
    return debates, DebateTexts(
        identity,
        {printable(g.id): (printable(g.source), printable(g.context)) for g in corpus.groups},
        {printable(g.id): {printable(c.id): printable(c.text) for c in g.candidates} for g in corpus.groups},
        tuple(texts[i] for i in kept_indices),
    )


def _candidates(corpus: Corpus) -> Iterator[tuple[int, int, Candidate]]:
    """(index of the group, index in the group, candidate), in the order of the judgements."""
    for group_index, group in enumerate(corpus.groups):
        for index, candidate in enumerate(group.candidates):
            yield group_index, index, candidate


def _outcome(score: float | None, judgement: Judgement | None) -> JudgeOutcome:
    if judgement is None:
        return JudgeOutcome(score, "" if score is not None else "not in the file", 0, None)
    transcript = judgement.transcript
    path = tuple(PathStep(t.role, t.round, t.score, t.no_issue) for t in transcript.turns)
    if isinstance(judgement, Unscored):
        return JudgeOutcome(None, judgement.reason, transcript.rounds, judgement.calls, path)
    return JudgeOutcome(score, judgement.stop_reason, judgement.rounds, judgement.calls, path)


def _largest_disagreements(debates: Debates) -> list[int]:
    """Indices of the items with the largest disagreement, in the order of the items."""
    if len(debates.items) <= MAX_ITEMS:
        return list(range(len(debates.items)))
    scales = {a.name: a for a in debates.aspects}

    def disagreement(index: int) -> float:
        item = debates.items[index]
        score = item.outcomes[0].score if item.outcomes else None
        if score is None or not item.ratings:
            return -1.0
        scale = scales[item.aspect]
        return abs(score - _mean(item.ratings)) / (scale.high - scale.low)

    return sorted(sorted(range(len(debates.items)), key=disagreement, reverse=True)[:MAX_ITEMS])


def score_charts(
    aspects: Sequence[Aspect], judge: JudgedScores
) -> list[ScatterChart | DistributionChart | ConfusionMatrix]:
    """For each aspect a judge's scores against the ratings: a scatter chart, distributions, and a confusion matrix."""
    charts: list[ScatterChart | DistributionChart | ConfusionMatrix] = []
    for aspect in aspects:
        pairs = [
            (rating, score)
            for group in judge.scores[aspect.name]
            for rating, score in zip(group.ratings, group.scores, strict=True)
            if rating is not None and score is not None
        ]
        if not pairs:
            continue
        scale = aspect.scale
        sampled = pairs if len(pairs) <= _MAX_POINTS else random.Random(0).sample(pairs, _MAX_POINTS)
        charts.append(
            ScatterChart(f"{aspect.name}: each item", scale.low, scale.high, tuple(sampled), len(pairs), judge.on_scale)
        )
        if judge.on_scale:
            edges = _bin_edges(scale)
            ratings, scores = zip(*pairs, strict=True)
            charts.append(
                DistributionChart(
                    f"{aspect.name}: spread", edges, _histogram(ratings, edges), _histogram(scores, edges)
                )
            )
            if (labels := _scale_points(scale)) is not None:
                charts.append(_confusion(aspect, pairs, labels))
    return charts


def _scale_points(scale: Scale) -> list[float] | None:
    """The points of a scale, step by step; None where they are too many, or the step does not divide the scale."""
    steps = (scale.high - scale.low) / scale.step
    count = round(steps)
    return [scale.low + scale.step * i for i in range(count + 1)] if abs(steps - count) < 1e-9 and count <= 10 else None


def _bin_edges(scale: Scale) -> tuple[float, ...]:
    """Edges of bins around the points of the scale, or of equal bins where it has too many points."""
    points = _scale_points(scale)
    if points is not None:
        return (*(p - scale.step / 2 for p in points), points[-1] + scale.step / 2)
    width = (scale.high - scale.low) / _BINS
    return tuple(scale.low + width * i for i in range(_BINS + 1))


def _histogram(values: Sequence[float], edges: Sequence[float]) -> tuple[float, ...]:
    width, last = edges[1] - edges[0], len(edges) - 2
    counts = [0] * (last + 1)
    for value in values:
        # Rounded, because 0.3 / 0.1 is slightly less than 3.
        counts[min(max(int(round((value - edges[0]) / width, 9)), 0), last)] += 1
    return tuple(count / len(values) for count in counts)


def _confusion(aspect: Aspect, pairs: Sequence[tuple[float, float]], points: Sequence[float]) -> ConfusionMatrix:
    scale = aspect.scale
    counts = [[0] * len(points) for _ in points]
    for pair in pairs:
        row, column = (round((scale.rounded(value, "whole") - scale.low) / scale.step) for value in pair)
        counts[row][column] += 1
    return ConfusionMatrix(f"{aspect.name}: whole points", tuple(f"{p:g}" for p in points), tuple(map(tuple, counts)))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def text_labels(task: Task) -> dict[str, str]:
    """The task's labels of source, candidate and context."""
    return {"source": task.source_label, "candidate": task.candidate_label, "context": task.context_label}


def reproduce_blocks(command: str, rows: Sequence[tuple[str, str]]) -> list[ReportBlock]:
    """How to reproduce a run: its command, and the versions that its result depends on."""
    installed = ", ".join(f"{name} {version}" for name, version in versions().items())
    return [Quotation("Command", command), DataTable(("what", "value"), [*rows, ("versions", installed)])]
