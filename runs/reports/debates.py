"""The debates of a report as JSON values, which the page's script shows, and apart from them their texts.

The texts of the data and those that may quote them are kept apart, so that a page can be logged and shared without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Protocol

from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.schema import Aspect, Corpus
from debate_judge.programs.judge import Judgement, Unscored

MAX_ITEMS = 10_000
"""Debates on a page; of more, those with the largest disagreement are kept."""


class Judged(Protocol):
    """One judge's scores of all candidates of a corpus, with its judgements."""

    @property
    def scores(self) -> Mapping[str, Sequence[GroupScores]]:
        """Aspect -> groups in corpus order."""

    @property
    def judgements(self) -> Mapping[str, Sequence[Judgement]]:
        """Aspect -> judgements in the order of `programs.judge.corpus_items`; empty for scores from a file."""


def debates_of(
    corpus: Corpus, aspects: Sequence[Aspect], judges: Mapping[str, Judged], on_scale: Mapping[str, bool]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The debates about a corpus and their texts, both as JSON values.

    Args:
        corpus: The candidates with their ratings.
        aspects: The aspects that were judged.
        judges: Name -> judge; the page first shows the debates of the first one.
        on_scale: Name -> whether the scores are on the aspects' scales, so that they can be compared with ratings.

    Returns:
        The debates: `judges`, `aspects`, `items` (a candidate in one aspect with its ratings and each judge's outcome)
        and `left_out`, the number of items that are not on the page. The texts: `sources` and `candidates` by group,
        and for each item the raters' `comments`, for each judge the `turns` of the debate and the `details` of a
        missing score.
    """
    items: list[tuple[float, dict[str, Any], dict[str, Any]]] = []
    """Disagreement with the raters, the item, its texts."""
    places = [(number, group, i) for number, group in enumerate(corpus.groups) for i in range(len(group.candidates))]
    for aspect in aspects:
        for position, (number, group, index) in enumerate(places):
            candidate, outcomes, turns, details = group.candidates[index], [], [], []
            for judge in judges.values():
                judgement = judge.judgements[aspect.name][position] if aspect.name in judge.judgements else None
                outcomes.append(_outcome(judge.scores[aspect.name][number].scores[index], judgement))
                turns.append([turn.text for turn in judgement.transcript.turns] if judgement else [])
                details.append(judgement.detail if isinstance(judgement, Unscored) else "")
            ratings = list(candidate.ratings.get(aspect.name, ()))
            score = outcomes[0]["score"] if outcomes else None
            span = aspect.scale.high - aspect.scale.low
            place = {"group": group.id, "candidate": candidate.id, "aspect": aspect.name}
            comments = list(candidate.comments.get(aspect.name, ()))
            items.append(
                (
                    -1.0 if score is None or not ratings else abs(score - fmean(ratings)) / span,
                    {**place, "ratings": ratings, "outcomes": outcomes},
                    {"comments": comments, "turns": turns, "details": details},
                )
            )
    kept = sorted(sorted(range(len(items)), key=lambda i: -items[i][0])[:MAX_ITEMS])
    debates = {
        "judges": [{"name": name, "on_scale": on_scale[name]} for name in judges],
        "aspects": [{"name": a.name, "low": a.scale.low, "high": a.scale.high} for a in aspects],
        "items": [items[i][1] for i in kept],
        "left_out": len(items) - len(kept),
    }
    return debates, {
        "sources": {group.id: [group.source, group.context] for group in corpus.groups},
        "candidates": {group.id: {c.id: c.text for c in group.candidates} for group in corpus.groups},
        "items": [items[i][2] for i in kept],
    }


def _outcome(score: float | None, judgement: Judgement | None) -> dict[str, Any]:
    """A judge's result on one item: why it ended, LM calls (None for scores from a file), and the turns' scores."""
    if judgement is None:
        stop = "" if score is not None else "not in the file"
        return {"score": score, "stop": stop, "rounds": 0, "calls": None, "path": []}
    unscored = isinstance(judgement, Unscored)
    return {
        "score": None if unscored else score,
        "stop": judgement.reason if isinstance(judgement, Unscored) else judgement.stop_reason,
        "rounds": judgement.transcript.rounds,
        "calls": judgement.calls,
        "path": [
            {"role": t.role, "round": t.round, "score": t.score, "no_issue": t.no_issue}
            for t in judgement.transcript.turns
        ],
    }
